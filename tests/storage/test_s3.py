"""S3 over HTTP: moto's server behind the proxy."""

import io
import ssl
import subprocess
import sys
import threading

import pytest

from streaming.storage import (
    AccessDenied,
    NotFound,
    RetryPolicy,
    StoreError,
    Throttled,
    store_for,
)
from streaming.storage.s3 import S3Store
from tests.servers.certificates import make_certificates
from tests.servers.proxy import Fault, FaultProxy
from tests.storage.provider_contract import BIG, HTTPContract, get, put

MIB = 1 << 20
QUICK = RetryPolicy(retries=2, base_s=0.0)


class TestContract(HTTPContract):
    refusal = ""

    @pytest.fixture
    def make(self, bucket):
        return lambda **options: store_for(f"{bucket.url}/root", **options)

    @pytest.fixture
    def proxy(self, bucket):
        return bucket.proxy


@pytest.fixture
def store(bucket):
    return store_for(f"{bucket.url}/train")


def test_url_without_a_bucket():
    with pytest.raises(ValueError, match="names no bucket"):
        store_for("s3:///train")


def test_keys_lie_below_the_prefix(bucket, store, tmp_path):
    put(store, tmp_path, "a/b", b"data")
    assert bucket.keys() == ["train/a/b"]
    assert bucket.read("train/a/b") == b"data"
    assert store.url_of("a/b") == f"{bucket.url}/train/a/b"
    bucket.put("training/c", b"beside it")
    bucket.put("train/folder/", b"")  # What a console makes to show a folder.
    assert list(store.list()) == ["a/b"]
    assert sorted(store_for(bucket.url).list()) == ["train/a/b", "training/c"]


def test_lists_page_by_page(bucket, store):
    for i in range(1001):
        bucket.put(f"train/{i:04}", b"")
    keys = store.list()
    assert next(keys) == "0000"
    assert bucket.proxy.count(method="GET") == 1
    assert [*keys] == [f"{i:04}" for i in range(1, 1001)]
    assert bucket.proxy.count(method="GET") == 2


def test_a_range_costs_its_bytes(bucket, store, tmp_path):
    put(store, tmp_path, "big", BIG)
    bucket.proxy.clear()
    assert store.get_range("big", 1000, 1300) == BIG[1000:1300]
    assert bucket.proxy.bytes("big") == 300
    assert bucket.proxy.seen[0].headers["range"] == "bytes=1000-1299"


def test_an_upload_is_checked_by_the_store(bucket, store, tmp_path):
    put(store, tmp_path, "x", b"data")
    upload, check = bucket.proxy.seen
    assert upload.headers["content-md5"] == "jXd/OF09/siBXSD3SWAm3A=="
    assert (check.method, check.status) == ("HEAD", 200)


def test_an_upload_that_may_not_be_read_back(bucket, store, tmp_path):
    bucket.proxy.add(Fault(method="HEAD", status=403))
    put(store, tmp_path, "x", b"data")
    assert bucket.read("train/x") == b"data"


def test_an_upload_of_which_the_store_has_too_little(store, tmp_path, monkeypatch):
    monkeypatch.setattr(S3Store, "size", lambda self, key: 3)
    with pytest.raises(StoreError, match="4 bytes were uploaded, but the store has 3") as caught:
        put(store, tmp_path, "x", b"data")
    assert caught.value.retryable


class TestParts:
    @pytest.fixture
    def data(self):
        return bytes(range(256)) * (11 * MIB // 256) + b"the last part is short"

    @pytest.fixture
    def parts(self, bucket):
        store = store_for(bucket.url, multipart_threshold_bytes=6 * MIB, part_bytes=5 * MIB)
        store.part_policy = QUICK
        return store

    def test_big_files_go_in_parts(self, bucket, parts, tmp_path, data):
        put(parts, tmp_path, "big", data)
        assert bucket.read("big") == data
        sizes = sorted(s.received for s in bucket.proxy.matching("big", "PUT"))
        assert sizes == [MIB + 22, 5 * MIB, 5 * MIB]
        assert all("content-md5" in s.headers for s in bucket.proxy.matching("big", "PUT"))
        put(parts, tmp_path, "small", BIG)
        assert bucket.proxy.count("small", "PUT") == 1
        assert bucket.proxy.count("small", "POST") == 0

    def test_a_part_is_sent_again_alone(self, bucket, parts, tmp_path, data):
        bucket.proxy.add(Fault(method="PUT", status=500, times=2))
        put(parts, tmp_path, "big", data)
        assert bucket.read("big") == data
        assert bucket.proxy.count("big", "PUT") == 5
        assert bucket.proxy.count("big", "POST") == 2

    def test_nothing_stays_of_a_failed_upload(self, bucket, parts, tmp_path, data):
        bucket.proxy.add(Fault(method="PUT", status=500))
        with pytest.raises(StoreError, match=r"uploading part . of .* failed after 3") as caught:
            put(parts, tmp_path, "big", data)
        assert not caught.value.retryable
        assert bucket.keys() == []
        assert "Uploads" not in bucket.direct.list_multipart_uploads(Bucket=bucket.name)


class TestMissing:
    def test_object(self, store, bucket):
        with pytest.raises(NotFound, match=f"{bucket.url}/train/x: there is no such object"):
            get(store, "x")

    def test_bucket(self, bucket, tmp_path):
        store = store_for("s3://no-such-bucket/train")
        for call in (
            lambda: get(store, "x"),
            lambda: store.get_range("x", 0, 1),
            lambda: store.size("x"),
            lambda: list(store.list()),
            lambda: put(store, tmp_path, "x", b"data"),
            store.check,
        ):
            with pytest.raises(NotFound, match="no such bucket: 'no-such-bucket'") as caught:
                call()
            assert bucket.proxy.url in str(caught.value)
            assert not caught.value.retryable


class TestAccess:
    """Who asks, and what is said when it is not enough."""

    def test_denied(self, bucket, store, tmp_path):
        bucket.proxy.add(Fault(status=403))
        for call in (
            lambda: get(store, "x"),
            lambda: store.get_range("x", 0, 1),
            lambda: store.size("x"),
            lambda: list(store.list()),
            lambda: put(store, tmp_path, "x", b"data"),
            lambda: store.delete("x"),
            store.check,
        ):
            with pytest.raises(AccessDenied) as caught:
                call()
            message = str(caught.value)
            assert f"{bucket.url}" in message
            assert f"Requests go to {bucket.proxy.url} (region us-east-1)" in message
            assert "credentials from 'env'" in message
            assert not caught.value.retryable

    @pytest.mark.parametrize(
        ("code", "said"),
        [
            ("InvalidAccessKeyId", "access key is not known"),
            ("SignatureDoesNotMatch", "secret key is wrong"),
            ("ExpiredToken", "have expired"),
            ("RequestTimeTooSkewed", "clock is wrong"),
        ],
    )
    def test_reasons(self, bucket, store, code, said):
        text = f"<Error><Code>{code}</Code><Message>told</Message></Error>"
        bucket.proxy.add(Fault(status=403, text=text))
        with pytest.raises(AccessDenied, match=said):
            get(store, "x")

    def test_unsigned_where_there_are_no_credentials(self, bucket, clean_environment):
        bucket.put("train/x", b"public", public=True)
        bucket.put("train/private", b"private")
        clean_environment.delenv("AWS_ACCESS_KEY_ID")
        clean_environment.delenv("AWS_SECRET_ACCESS_KEY")
        store = store_for(f"{bucket.url}/train")
        assert get(store, "x") == b"public"
        assert "authorization" not in bucket.proxy.seen[0].headers
        with pytest.raises(AccessDenied, match="unsigned, because no credentials were found in"):
            get(store, "private")
        with pytest.raises(AccessDenied, match="no credentials were found"):
            get(store_for(bucket.url, anonymous=False), "x")

    def test_unsigned_on_request(self, bucket):
        bucket.put("x", b"public", public=True)
        bucket.put("private", b"private")
        assert get(store_for(bucket.url, anonymous=True), "x") == b"public"
        assert "authorization" not in bucket.proxy.seen[0].headers
        with pytest.raises(AccessDenied, match="anonymous=True was given"):
            get(store_for(bucket.url, anonymous=True), "private")
        assert get(store_for(bucket.url), "private") == b"private"

    def test_signed_by_options(self, bucket):
        bucket.put("x", b"data")
        store = store_for(
            bucket.url, access_key_id="OTHER", secret_access_key="s", session_token="t"
        )
        get(store, "x")
        headers = bucket.proxy.seen[0].headers
        assert "Credential=OTHER/" in headers["authorization"]
        assert headers["x-amz-security-token"] == "t"
        with pytest.raises(ValueError, match="go together"):
            store_for(bucket.url, access_key_id="OTHER")

    def test_secrets_are_not_shown(self, bucket):
        store = store_for(bucket.url, access_key_id="OTHER", secret_access_key="hush")
        bucket.proxy.add(Fault(status=403))
        with pytest.raises(AccessDenied) as caught:
            get(store, "x")
        for text in (str(caught.value), repr(store), repr(store._options)):
            assert "hush" not in text

    def test_profile_and_region(self, bucket, clean_environment, tmp_path):
        bucket.put("x", b"data", public=True)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            clean_environment.delenv(name)
        config = tmp_path / "config"
        config.write_text(
            "[profile work]\nregion = eu-west-3\n"
            "aws_access_key_id = WORK\naws_secret_access_key = s\n"
        )
        clean_environment.setenv("AWS_CONFIG_FILE", str(config))
        get(store_for(bucket.url, profile="work"), "x")
        get(store_for(bucket.url, profile="work", region="eu-north-1"), "x")
        get(store_for(bucket.url, region="eu-north-1"), "x")
        signed = [seen.headers.get("authorization", "") for seen in bucket.proxy.seen]
        assert "/eu-west-3/s3/" in signed[0]
        assert "Credential=WORK/" in signed[0]
        assert "/eu-north-1/s3/" in signed[1]
        assert signed[2] == ""
        with pytest.raises(AccessDenied, match="no such profile"):
            get(store_for(bucket.url, profile="nobody"), "x")

    def test_a_changed_environment_makes_a_new_client(self, bucket, clean_environment):
        bucket.put("x", b"data")
        get(store_for(bucket.url), "x")
        clean_environment.setenv("AWS_ACCESS_KEY_ID", "LATER")
        get(store_for(bucket.url), "x")
        assert "Credential=LATER/" in bucket.proxy.seen[1].headers["authorization"]

    def test_the_store_in_another_region(self, bucket, store):
        text = "<Error><Code>PermanentRedirect</Code><Message>moved</Message></Error>"
        bucket.proxy.add(Fault(status=400, text=text))
        with pytest.raises(StoreError, match="in another region"):
            get(store, "x")


class TestOptions:
    def test_endpoint(self, bucket, clean_environment):
        bucket.put("x", b"data")
        clean_environment.delenv("S3_ENDPOINT_URL")
        assert get(store_for(bucket.url, endpoint_url=bucket.proxy.url), "x") == b"data"
        clean_environment.setenv("AWS_ENDPOINT_URL_S3", bucket.proxy.url)
        assert get(store_for(bucket.url), "x") == b"data"
        assert bucket.proxy.count("x") == 2

    @pytest.mark.parametrize("how", ["option", "variable"])
    def test_requester_pays(self, bucket, clean_environment, tmp_path, how):
        options = {"requester_pays": True} if how == "option" else {}
        if how == "variable":
            names = f"another, {bucket.name}"
            clean_environment.setenv("MOSAICML_STREAMING_AWS_REQUESTER_PAYS", names)
        store = store_for(bucket.url, multipart_threshold_bytes=5 * MIB, **options)
        put(store, tmp_path, "x", b"data")
        put(store, tmp_path, "big", b"0" * (6 * MIB))
        get(store, "x")
        list(store.list())
        store.delete("x")
        assert bucket.proxy.count() == 9
        assert {s.headers.get("x-amz-request-payer") for s in bucket.proxy.seen} == {"requester"}

    def test_nobody_else_pays(self, bucket, clean_environment):
        bucket.put("x", b"data")
        clean_environment.setenv("MOSAICML_STREAMING_AWS_REQUESTER_PAYS", "another")
        get(store_for(bucket.url), "x")
        assert "x-amz-request-payer" not in bucket.proxy.seen[0].headers

    @pytest.mark.parametrize("how", ["option", "variable"])
    def test_acl(self, bucket, clean_environment, tmp_path, how):
        options = {"acl": "public-read"} if how == "option" else {}
        if how == "variable":
            clean_environment.setenv("S3_CANNED_ACL", "public-read")
        store = store_for(bucket.url, multipart_threshold_bytes=5 * MIB, **options)
        put(store, tmp_path, "x", b"data")
        put(store, tmp_path, "big", b"0" * (6 * MIB))
        for key in ("x", "big"):
            grants = bucket.direct.get_object_acl(Bucket=bucket.name, Key=key)["Grants"]
            assert "READ" in [
                grant["Permission"]
                for grant in grants
                if grant["Grantee"].get("URI", "").endswith("/AllUsers")
            ]

    def test_unknown_option(self):
        with pytest.raises(ValueError, match="did you mean 'endpoint_url'"):
            store_for("s3://bucket", endpoint="http://x")
        with pytest.raises(ValueError, match="timeout_s is 0"):
            store_for("s3://bucket", timeout_s=0)

    @pytest.mark.parametrize("how", ["option", "variable"])
    def test_certificate_authority(self, bucket, moto_url, clean_environment, tmp_path, how):
        bucket.put("x", b"data")
        trusted, context = make_certificates(tmp_path)
        with FaultProxy(moto_url, tls=context) as proxy:
            untrusting = store_for(bucket.url, endpoint_url=proxy.url)
            with pytest.raises(StoreError, match="certificate could not be verified") as caught:
                get(untrusting, "x")
            assert not caught.value.retryable
            if how == "option":
                store = store_for(bucket.url, endpoint_url=proxy.url, ca_bundle=trusted)
            else:
                clean_environment.setenv("AWS_CA_BUNDLE", str(trusted))
                store = store_for(bucket.url, endpoint_url=proxy.url)
            assert get(store, "x") == b"data"
            put(store, tmp_path, "y", b"over TLS")
            assert bucket.read("y") == b"over TLS"
        assert isinstance(context, ssl.SSLContext)


class TestFaults:
    """What the shared contract does not have."""

    @pytest.mark.parametrize(
        ("status", "code", "kind"),
        [
            (503, "SlowDown", Throttled),
            (503, "ServiceUnavailable", Throttled),
            (429, "TooManyRequests", Throttled),
            (400, "RequestTimeout", StoreError),
            (500, "InternalError", StoreError),
            (400, "BadDigest", StoreError),
        ],
    )
    def test_codes_worth_a_retry(self, bucket, store, status, code, kind):
        text = f"<Error><Code>{code}</Code><Message>told</Message></Error>"
        bucket.proxy.add(Fault(status=status, text=text, retry_after="3"))
        with pytest.raises(kind, match=code) as caught:
            get(store, "x")
        assert caught.value.retryable
        assert caught.value.retry_after_s == 3.0
        assert bucket.proxy.count() == 1

    def test_a_policy_brings_a_transfer_through_everything(self, bucket, store, tmp_path):
        put(store, tmp_path, "x", BIG)
        bucket.proxy.clear()
        for fault in (
            Fault(status=503, retry_after="0"),
            Fault(status=500),
            Fault(cut_after=100_000),
            Fault(short_by=1),
        ):
            fault.times = 1
            bucket.proxy.add(fault)
        file, retried = io.BytesIO(), []

        def fetch():
            file.seek(0)
            file.truncate()
            return store.get("x", file)

        RetryPolicy(retries=3, base_s=0.0).call(fetch, "fetching x", retried.append)
        assert file.getvalue() == BIG
        assert [type(error) for error in retried] == [Throttled, StoreError, StoreError, StoreError]
        assert bucket.proxy.spoiled == 4

    def test_a_share_of_requests_fails(self, bucket, store):
        bucket.put("train/x", b"data")
        bucket.proxy.add(Fault(status=503, share=0.2))
        retried = []
        for _ in range(50):
            policy = RetryPolicy(retries=5, base_s=0.0)
            assert policy.call(lambda: get(store, "x"), "fetching x", retried.append) == b"data"
        assert len(retried) == bucket.proxy.spoiled > 0

    def test_what_is_there_no_more_is_no_longer_waited_for(self, bucket, store):
        with pytest.raises(NotFound):
            QUICK.call(lambda: get(store, "x"), "fetching x")
        assert bucket.proxy.count() == 1

    def test_the_progress_counts_not_the_whole(self, bucket):
        bucket.put("x", BIG)
        bucket.proxy.add(Fault(bandwidth=2e6))
        store = store_for(bucket.url, timeout_s=0.5)
        assert get(store, "x") == BIG  # Takes longer than the time-out.

    def test_a_stalled_answer(self, bucket):
        bucket.proxy.add(Fault(delay_s=60))
        store = store_for(bucket.url, timeout_s=0.2)
        with pytest.raises(StoreError, match="no data came in time") as caught:
            get(store, "x")
        assert caught.value.retryable


def test_one_client_for_a_process_and_its_options(bucket):
    stores = [store_for(f"{bucket.url}/{i}") for i in range(8)]
    barrier, found = threading.Barrier(8), []

    def look(store):
        barrier.wait(30)
        found.append(store._client)

    threads = [threading.Thread(target=look, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({id(client) for client in found}) == 1
    assert store_for(bucket.url, max_connections=7)._client is not found[0]


def test_models_of_services_are_read_once(bucket, store, monkeypatch):
    """Not for each client: each worker of a loader has its own, and waits for it."""
    from botocore.loaders import JSONFileLoader

    assert store._client.api
    read, load = [], JSONFileLoader.load_file
    monkeypatch.setattr(
        JSONFileLoader, "load_file", lambda self, path: read.append(path) or load(self, path)
    )
    other = store_for(bucket.url, max_connections=9)
    bucket.put("y", b"data")
    assert get(other, "y") == b"data"
    assert other._client is not store._client
    assert [path for path in read if load(JSONFileLoader(), path)] == []


def test_connections_are_kept(bucket, store):
    bucket.put("train/x", BIG)
    for _ in range(20):
        get(store, "x")
        store.get_range("x", 5, 10)
    # One is botocore's, which shows the way; all else goes over another.
    assert bucket.proxy.connections == 2


def test_a_version_is_asked_for_without_botocores_client(bucket, store, monkeypatch):
    bucket.put("train/x", b"data")
    expected = store.stat("x")
    monkeypatch.setattr(S3Store, "_client", property(lambda self: pytest.fail("it was asked for")))
    assert store.stat("x") == expected
    monkeypatch.undo()
    with pytest.raises(NotFound, match="no"):
        store.stat("no")


def test_nothing_is_imported_before_it_is_needed():
    code = (
        "import sys, streaming.storage as s; s.store_for('s3://b/x'); s.store_for('http://h/x')\n"
        "s.store_for('.'); import streaming.base.storage\n"
        "heavy = {'boto3', 'botocore', 'urllib3', 'requests', 'google', 'oci', 'tqdm', 'torch'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
