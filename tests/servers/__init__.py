"""Servers on loopback for the tests: a real S3 API, a proxy that breaks what passes through it."""
