"""The bucket behind its fault proxy."""

from tests.servers.fixtures import bucket, clean_environment, moto_url

__all__ = ["bucket", "clean_environment", "moto_url"]
