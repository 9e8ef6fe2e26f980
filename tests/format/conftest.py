"""Fixtures of the formats' tests."""

from tests.servers.fixtures import bucket, clean_environment, moto_url

__all__ = ["bucket", "clean_environment", "moto_url"]
