"""`gs://` against fake-gcs-server, and its S3 interface against moto's server."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import serialization

from streaming.storage import AccessDenied, NotFound, RetryPolicy, Store, StoreError, store_for
from streaming.storage.errors import Throttled
from streaming.storage.gcs import GCSHMACStore, GCSStore
from tests.servers.gcs import Front, call, gcs_server, insert, make_bucket, names, write_key
from tests.servers.moto import botocore_client, threaded_server
from tests.servers.oci import new_key, pem
from tests.servers.proxy import Fault, FaultProxy
from tests.storage.end_to_end import up_and_back
from tests.storage.provider_contract import BIG, HTTPContract, Make, get, put

MIB = 1 << 20
LARGE = bytes(range(256)) * (12 * MIB // 256)
"""12 MiB: three parts of the smallest size."""


@dataclass(frozen=True)
class Place:
    """An empty bucket of a test's own, and the server that it is on."""

    server: str
    bucket: str

    def insert(self, name: str, data: bytes) -> None:
        insert(self.server, self.bucket, name, data)

    @property
    def names(self) -> list[str]:
        return names(self.server, self.bucket)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with gcs_server() as url:
        yield url


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with threaded_server() as url:
        yield url


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the machine's owner; nobody is asked for an account of this machine."""
    for name in os.environ:
        if name.startswith(("GOOGLE_", "GCS_", "STORAGE_EMULATOR", "CLOUDSDK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture
def place(server: str) -> Place:
    bucket = f"box-{uuid.uuid4().hex}"  # With an x, so that the contract's faults apply to it.
    make_bucket(server, bucket)
    return Place(server, bucket)


@pytest.fixture
def proxy(server: str) -> Iterator[FaultProxy]:
    # A test may have ended it already.
    with FaultProxy(server) as proxy, contextlib.suppress(OSError):
        yield proxy


class TestGCS(HTTPContract):
    refusal = '{"error": {"code": 0, "message": "no", "errors": [{"reason": "other"}]}}'
    upload_method = "POST"

    @pytest.fixture
    def proxy(self, proxy: FaultProxy) -> FaultProxy:
        return proxy

    @pytest.fixture
    def make(self, proxy: FaultProxy, place: Place, monkeypatch: pytest.MonkeyPatch) -> Make:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)

        def make(url: str = f"gs://{place.bucket}/data", **options: Any) -> Store:
            return store_for(url, **options)

        return make

    def test_only_the_prefix_is_seen(self, make: Make, place: Place) -> None:
        for name in ("data/a", "data/folder/", "database", "z"):
            place.insert(name, b"")
        assert list(make().list()) == ["a"]
        assert sorted(make(f"gs://{place.bucket}").list()) == ["data/a", "database", "z"]

    def test_missing_bucket(self, make: Make) -> None:
        store = make("gs://nothing-there/data")
        for ask in (store.check, lambda: list(store.list())):
            with pytest.raises(NotFound, match=r"no such bucket: 'nothing-there'.*Requests go to"):
                ask()
        for ask in (lambda: get(store, "x"), lambda: store.size("x")):
            with pytest.raises(NotFound):
                ask()
        make().check()

    def test_missing_bucket_in_googles_words(self, make: Make, proxy: FaultProxy) -> None:
        proxy.add(Fault(status=404, text="The specified bucket does not exist."))
        with pytest.raises(NotFound, match="there is no such bucket"):
            get(make(), "x")

    def test_missing_bucket_can_not_be_written(self, make: Make, tmp_path: Path) -> None:
        with pytest.raises(NotFound):
            put(make("gs://nothing-there"), tmp_path, "x", b"data")

    def test_rate_limits_are_throttling(self, make: Make, proxy: FaultProxy) -> None:
        text = '{"error": {"message": "slow", "errors": [{"reason": "rateLimitExceeded"}]}}'
        proxy.add(Fault(status=403, text=text, retry_after="3"))
        with pytest.raises(Throttled) as caught:
            get(make(), "x")
        assert caught.value.retry_after_s == 3.0

    def test_a_precondition_is_sent(self, make: Make, proxy: FaultProxy, tmp_path: Path) -> None:
        # The emulator ignores it; what comes is compared in any case (test_etag).
        store = make()
        put(store, tmp_path, "x", b"data")
        etag = store.stat("x").etag
        assert etag is not None
        get(store, "x", etag=etag)
        assert parse_qs(proxy.seen[-1].query)["ifGenerationMatch"] == [etag]

    def test_user_project(self, make: Make, proxy: FaultProxy, tmp_path: Path) -> None:
        store = make(user_project="payer")
        put(store, tmp_path, "x", b"data")
        get(store, "x")
        list(store.list())
        assert all(parse_qs(seen.query)["userProject"] == ["payer"] for seen in proxy.seen)

    @pytest.mark.parametrize("lie", ['{"size": "3"}', '{"size": "4", "md5Hash": "AAAA"}'])
    def test_damaged_upload(self, make: Make, proxy: FaultProxy, tmp_path: Path, lie: str) -> None:
        proxy.add(Fault(status=200, text=lie, method="POST"))
        with pytest.raises(StoreError, match="uploaded") as caught:
            put(make(), tmp_path, "x", b"data")
        assert caught.value.retryable

    def test_large_file_where_there_are_no_parts(
        self, make: Make, place: Place, tmp_path: Path
    ) -> None:
        put(make(multipart_threshold_bytes=MIB), tmp_path, "x", BIG)
        assert get(make(), "x") == BIG

    def test_connections_are_used_again(
        self, make: Make, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        store = make()
        put(store, tmp_path, "x", BIG)
        for _ in range(5):
            get(store, "x")
            store.size("x")
        assert len(proxy._open) == 1

    def test_emulator_without_scheme(
        self, make: Make, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url.removeprefix("http://"))
        assert list(make().list()) == []

    def test_option_comes_before_emulator(
        self, make: Make, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
        assert list(make(endpoint_url=proxy.url, anonymous=True).list()) == []
        monkeypatch.delenv("STORAGE_EMULATOR_HOST")
        assert list(make(endpoint_url=proxy.url).list()) == []  # No credentials are found.

    def test_lists_page_by_page(
        self, make: Make, place: Place, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("streaming.storage.gcs.PAGE_KEYS", 2)
        for name in "abcde":
            place.insert(f"data/{name}", b"")
        keys = make().list()
        assert next(keys) == "a"
        assert proxy.count() == 1
        assert "".join(keys) == "bcde"
        assert proxy.count() == 3


class TestParts:
    """Uploads in parts go by the XML API; the tests' server adds it to the emulator."""

    @pytest.fixture
    def front(self, server: str) -> Iterator[Front]:
        with Front(server) as front:
            yield front

    @pytest.fixture
    def proxy(self, front: Front) -> Iterator[FaultProxy]:
        with FaultProxy(front.url) as proxy:
            yield proxy

    @pytest.fixture
    def store(self, proxy: FaultProxy, place: Place) -> GCSStore:
        store = store_for(
            f"gs://{place.bucket}/data",
            endpoint_url=proxy.url,
            anonymous=True,
            multipart_threshold_bytes=MIB,
            part_bytes=5 * MIB,
        )
        assert isinstance(store, GCSStore)
        store.part_policy = RetryPolicy(retries=2, base_s=0.0)
        return store

    def test_parts(self, store: GCSStore, front: Front, proxy: FaultProxy, tmp_path: Path) -> None:
        fault = proxy.add(Fault(status=503, method="PUT", times=2, skip=1))
        put(store, tmp_path, "a b/%+ü.mds", LARGE)
        assert fault.applied == 2
        assert get(store, "a b/%+ü.mds") == LARGE
        assert front.count("PUT") == 3
        assert front.uploads == {}

    def test_a_small_file_brings_its_checksum(
        self, store: GCSStore, front: Front, tmp_path: Path
    ) -> None:
        put(store, tmp_path, "x", b"data")
        digest = base64.b64encode(hashlib.md5(b"data").digest())
        assert b'"md5Hash": "%b"' % digest in front.seen[0].body
        assert len(front.seen) == 1

    @pytest.mark.parametrize("stage", ["PUT", "POST"])
    def test_failure_leaves_nothing(
        self,
        store: GCSStore,
        place: Place,
        front: Front,
        proxy: FaultProxy,
        tmp_path: Path,
        stage: str,
    ) -> None:
        proxy.add(Fault(status=500, method=stage, skip=int(stage == "POST")))
        with pytest.raises(StoreError) as caught:
            put(store, tmp_path, "big", LARGE)
        assert caught.value.retryable == (stage == "POST")
        assert front.count("DELETE") == 1
        assert front.uploads == {}
        assert place.names == []

    def test_damaged_part(self, store: GCSStore, proxy: FaultProxy, tmp_path: Path) -> None:
        text = "<Error><Code>BadDigest</Code><Message>not what was sent</Message></Error>"
        fault = proxy.add(Fault(status=400, text=text, method="PUT", times=1))
        put(store, tmp_path, "big", LARGE)
        assert fault.applied == 1
        assert get(store, "big") == LARGE

    def test_error_in_a_good_answer(
        self, store: GCSStore, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        text = "<Error><Code>InternalError</Code><Message>sorry</Message></Error>"
        proxy.add(Fault(status=200, text=text, method="POST", skip=1))
        with pytest.raises(StoreError, match="sorry") as caught:
            put(store, tmp_path, "big", LARGE)
        assert caught.value.retryable

    def test_refused(self, store: GCSStore, proxy: FaultProxy, tmp_path: Path) -> None:
        proxy.add(Fault(status=403, method="POST"))
        with pytest.raises(AccessDenied):
            put(store, tmp_path, "big", LARGE)


class TestCredentials:
    """A service account: a signed assertion for a token, and the token with every request."""

    key = new_key()

    @pytest.fixture
    def front(self, server: str) -> Iterator[Front]:
        public = self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        with Front(server, public) as front:
            yield front

    @pytest.fixture
    def file(self, front: Front, tmp_path: Path) -> Path:
        return write_key(tmp_path / "account.json", pem(self.key), front.url)

    def test_default_chain(
        self,
        front: Front,
        place: Place,
        file: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        store = store_for(f"gs://{place.bucket}/data", endpoint_url=front.url)
        put(store, tmp_path, "x", b"data")
        assert get(store, "x") == b"data"
        assert list(store.list()) == ["x"]
        assert front.count("POST", "/token") == 1

    def test_file_in_the_options(self, front: Front, place: Place, file: Path) -> None:
        place.insert("data/x", b"data")
        store = store_for(
            f"gs://{place.bucket}/data", endpoint_url=front.url, credentials_file=file
        )
        assert get(store, "x") == b"data"

    def test_none(self, front: Front, place: Place) -> None:
        store = store_for(f"gs://{place.bucket}", endpoint_url=front.url)
        for ask in (lambda: get(store, "x"), lambda: list(store.list()), lambda: store.size("x")):
            with pytest.raises(AccessDenied, match="without credentials, because none were found"):
                ask()

    def test_anonymous_is_forbidden(self, front: Front, place: Place) -> None:
        store = store_for(f"gs://{place.bucket}", endpoint_url=front.url, anonymous=False)
        with pytest.raises(AccessDenied, match="no usable credentials") as caught:
            get(store, "x")
        assert not caught.value.retryable

    def test_wrong_key(self, front: Front, place: Place, tmp_path: Path) -> None:
        file = write_key(tmp_path / "stranger.json", pem(new_key()), front.url)
        store = store_for(f"gs://{place.bucket}", endpoint_url=front.url, credentials_file=file)
        with pytest.raises(AccessDenied, match="could not be renewed") as caught:
            get(store, "x")
        assert not caught.value.retryable
        assert caught.value.url == f"gs://{place.bucket}/x"

    def test_not_allowed(self, front: Front, place: Place, file: Path, tmp_path: Path) -> None:
        front.denied.add(place.bucket)
        store = store_for(f"gs://{place.bucket}", endpoint_url=front.url, credentials_file=file)
        for ask in (
            lambda: get(store, "x"),
            lambda: put(store, tmp_path, "x", b""),
            lambda: list(store.list()),
            lambda: store.delete("x"),
            store.check,
        ):
            with pytest.raises(AccessDenied, match=r"storage\.objects\.get.*account\.json"):
                ask()

    def test_no_such_file(self, place: Place, tmp_path: Path) -> None:
        store = store_for(f"gs://{place.bucket}", credentials_file=tmp_path / "nothing.json")
        with pytest.raises(AccessDenied, match=r"nothing\.json"):
            store.size("x")

    def test_variable_names_no_file(
        self, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))
        with pytest.raises(AccessDenied, match=r"nothing\.json"):
            store_for(f"gs://{place.bucket}").size("x")

    def test_token_server_is_away(self, place: Place, tmp_path: Path) -> None:
        file = write_key(tmp_path / "account.json", pem(self.key), "http://127.0.0.1:9")
        store = store_for(f"gs://{place.bucket}", credentials_file=file)
        with pytest.raises(StoreError, match="connection") as caught:
            store.size("x")
        assert caught.value.retryable


class TestHMAC:
    """The S3 interface; moto's server takes any key, so what was signed is looked at."""

    @pytest.fixture
    def proxy(self, moto: str) -> Iterator[FaultProxy]:
        with FaultProxy(moto) as proxy:
            yield proxy

    @pytest.fixture
    def bucket(self, moto: str, monkeypatch: pytest.MonkeyPatch) -> str:
        # None of these is meant for Google.
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "amazon")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "amazon")
        monkeypatch.setenv("S3_ENDPOINT_URL", "http://127.0.0.1:9")
        monkeypatch.setenv("S3_CANNED_ACL", "public-read")
        name = f"bucket-{uuid.uuid4().hex}"
        botocore_client(moto).create_bucket(Bucket=name)
        return name

    def test_variables(
        self, proxy: FaultProxy, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GCS_KEY", "GOOG1ETESTS")
        monkeypatch.setenv("GCS_SECRET", "secret")
        store = store_for(f"gs://{bucket}/data", endpoint_url=proxy.url)
        assert isinstance(store, GCSHMACStore)
        put(store, tmp_path, "a/x", b"data")
        assert get(store, "a/x") == b"data"
        assert store.get_range("a/x", 1, 3) == b"at"
        assert store.size("a/x") == 4
        assert list(store.list("a/")) == ["a/x"]
        store.delete("a/x")
        with pytest.raises(NotFound, match=f"gs://{bucket}/data/a/x"):
            get(store, "a/x")
        for seen in proxy.seen:
            assert "Credential=GOOG1ETESTS/" in seen.headers["authorization"]
            assert "/auto/s3/" in seen.headers["authorization"]
            assert "x-amz-acl" not in seen.headers

    def test_options(self, proxy: FaultProxy, bucket: str, tmp_path: Path) -> None:
        store = store_for(
            f"gs://{bucket}", endpoint_url=proxy.url, hmac_key="GOOG1E2", hmac_secret="s"
        )
        put(store, tmp_path, "x", b"data")
        assert "GOOG1E2" in proxy.seen[0].headers["authorization"]

    def test_parts(self, proxy: FaultProxy, bucket: str, tmp_path: Path) -> None:
        store = store_for(
            f"gs://{bucket}",
            endpoint_url=proxy.url,
            hmac_key="GOOG1E2",
            hmac_secret="s",
            multipart_threshold_bytes=MIB,
            part_bytes=5 * MIB,
        )
        put(store, tmp_path, "big", LARGE)
        assert get(store, "big") == LARGE
        assert proxy.count("big", "PUT") == 3

    def test_refused(self, proxy: FaultProxy, bucket: str) -> None:
        store = store_for(
            f"gs://{bucket}", endpoint_url=proxy.url, hmac_key="GOOG1E2", hmac_secret="s"
        )
        proxy.add(Fault(status=403))
        with pytest.raises(AccessDenied):
            get(store, "x")

    def test_goes_to_google(self) -> None:
        store = store_for("gs://bucket", hmac_key="GOOG1E2", hmac_secret="s")
        assert isinstance(store, GCSHMACStore)
        assert "https://storage.googleapis.com" in store._client.how

    def test_other_credentials_come_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GCS_KEY", "GOOG1E2")
        monkeypatch.setenv("GCS_SECRET", "s")
        assert isinstance(store_for("gs://bucket"), GCSHMACStore)
        assert isinstance(store_for("gs://bucket", anonymous=True), GCSStore)
        assert isinstance(store_for("gs://bucket", credentials_file="x"), GCSStore)
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:9")
        assert isinstance(store_for("gs://bucket"), GCSStore)

    def test_half_a_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(ValueError, match="go together"):
            store_for("gs://bucket", hmac_key="GOOG1E2")
        monkeypatch.setenv("GCS_KEY", "GOOG1E2")
        with pytest.raises(ValueError, match="GCS_SECRET is not"):
            store_for("gs://bucket")

    def test_contradictions(self) -> None:
        keys = {"hmac_key": "GOOG1E2", "hmac_secret": "s"}
        with pytest.raises(ValueError, match="not several"):
            store_for("gs://bucket", anonymous=True, **keys)
        with pytest.raises(ValueError, match="user_project"):
            store_for("gs://bucket", user_project="p", **keys)


@pytest.mark.long
def test_a_data_set_goes_up_and_comes_back(
    place: Place, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
    up_and_back(f"gs://{place.bucket}/train", tmp_path, proxy)
    assert "train/index.json" in place.names


@pytest.mark.long
def test_a_data_set_goes_through_the_s3_interface(moto: str, tmp_path: Path) -> None:
    botocore_client(moto).create_bucket(Bucket="whole-set")
    keys = {"hmac_key": "GOOG1E2", "hmac_secret": "s"}
    with FaultProxy(moto) as proxy:
        up_and_back("gs://whole-set/train", tmp_path, proxy, endpoint_url=proxy.url, **keys)


def test_malformed_urls_and_options() -> None:
    with pytest.raises(ValueError, match="gs://bucket/prefix"):
        store_for("gs://", anonymous=True)
    with pytest.raises(ValueError, match="did you mean 'user_project'"):
        store_for("gs://bucket", user_projects="x")
    with pytest.raises(ValueError, match="part_bytes 5 MiB"):
        store_for("gs://bucket", part_bytes=1, anonymous=True)


def test_the_emulator_is_what_the_tests_take_it_for(server: str, place: Place) -> None:
    """What is known of it, and made up for: if it learns this, `Front` may lose some lines."""
    place.insert("x", b"data")
    target = f"/download/storage/v1/b/{place.bucket}/o/x?alt=media&ifGenerationMatch=1"
    assert call(server, "GET", target).status == 200
    assert call(server, "POST", f"/{place.bucket}/x?uploads").status == 400
