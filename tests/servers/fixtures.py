"""The servers as pytest fixtures: import the names into a folder's conftest.py."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.servers.moto import ENVIRONMENT, botocore_client, threaded_server
from tests.servers.proxy import FaultProxy

__all__ = ["Bucket", "bucket", "clean_environment", "moto_url"]


@dataclass(frozen=True)
class Bucket:
    """An empty bucket of a test's own, reached through a proxy of its own."""

    name: str
    url: str
    """s3://name"""
    proxy: FaultProxy
    direct: Any
    """A botocore client that goes past the proxy."""

    def put(self, key: str, data: bytes, *, public: bool = False) -> None:
        acl = {"ACL": "public-read"} if public else {}
        self.direct.put_object(Bucket=self.name, Key=key, Body=data, **acl)

    def read(self, key: str) -> bytes:
        data: bytes = self.direct.get_object(Bucket=self.name, Key=key)["Body"].read()
        return data

    def keys(self) -> list[str]:
        answer = self.direct.list_objects_v2(Bucket=self.name)
        return [found["Key"] for found in answer.get("Contents", ())]


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """One server for all tests of this process."""
    with threaded_server() as url:
        yield url


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No settings of the machine's owner, no credentials, no proxies of the network."""
    for name in os.environ:
        if name.startswith(("AWS_", "S3_", "MOSAICML_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name, value in ENVIRONMENT.items():
        if "KEY" not in name:
            monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.fixture
def bucket(moto_url: str, clean_environment: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket; S3_ENDPOINT_URL leads to it through its proxy, and credentials are set."""
    for name, value in ENVIRONMENT.items():
        clean_environment.setenv(name, value)
    client = botocore_client(moto_url)
    name = f"test-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name)
    with FaultProxy(moto_url) as proxy:
        clean_environment.setenv("S3_ENDPOINT_URL", proxy.url)
        yield Bucket(name, f"s3://{name}", proxy, client)
