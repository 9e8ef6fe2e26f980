"""A bucket, for conversions from and to a store."""

from tests.servers.fixtures import bucket, clean_environment, moto_url

__all__ = ["bucket", "clean_environment", "moto_url"]
