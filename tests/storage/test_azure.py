"""`azure://` against Azurite, `azure-dl://` against a small server: see its docstring for why."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from streaming.storage import AccessDenied, NotFound, RetryPolicy, Store, StoreError, store_for
from streaming.storage.azure import AzureDataLakeStore, AzureStore
from streaming.storage.azure_identity import _Token, shared_key
from streaming.storage.errors import MissingPackage, Throttled
from tests.servers import azurite
from tests.servers.certificates import make_certificates
from tests.servers.datalake import ACCOUNT, KEY, DataLake
from tests.servers.proxy import Fault, FaultProxy
from tests.servers.rest import Answer, Request, SmallServer, json_answer
from tests.storage.end_to_end import up_and_back
from tests.storage.provider_contract import BIG, HTTPContract, Make, get, put

MIB = 1 << 20
PARTS = {"multipart_threshold_bytes": MIB, "part_bytes": MIB // 2}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings and no logins of the machine's owner."""
    for name in os.environ:
        if name.startswith(("AZURE_", "IDENTITY_", "MSI_", "IMDS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


class IdentityServer(SmallServer):
    """Gives access tokens to whoever runs in an app service, as its environment says where."""

    def __init__(self, tokens: set[str]) -> None:
        super().__init__()
        self.tokens = tokens

    def answer(self, request: Request) -> Answer:
        assert request.headers["x-identity-header"] == "of the tests"
        assert request.query["resource"] == "https://storage.azure.com"
        now = int(time.time())
        claims = {
            "iss": "https://sts.windows.net/00000000-0000-0000-0000-000000000000/",
            "aud": "https://storage.azure.com",
            "nbf": now - 60,
            "iat": now - 60,
            "exp": now + 3600,
            "jti": uuid.uuid4().hex,
        }
        parts = [{"alg": "none", "typ": "JWT"}, claims]
        coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
        token = b".".join([*coded, b"c2lnbmVk"]).decode()
        self.tokens.add(token)
        about = {"expires_on": str(now + 3600), "token_type": "Bearer", "resource": "x"}
        return json_answer({"access_token": token, **about})

    def announce(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{self.url}/token")
        monkeypatch.setenv("IDENTITY_HEADER", "of the tests")


@dataclass
class Witness:
    """A container, seen by Microsoft's own client, past the code under test."""

    name: str
    account_url: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def blobs(self) -> Any:
        from azure.storage.blob import ContainerClient

        key = {"account_name": azurite.ACCOUNT, "account_key": azurite.KEY}
        return ContainerClient(self.account_url, self.name, credential=key, **self.options)

    @property
    def names(self) -> list[str]:
        return list(self.blobs.list_blob_names())


@pytest.fixture(scope="module")
def azurite_url() -> Iterator[str]:
    if azurite.missing():
        pytest.skip(azurite.missing())
    with azurite.azurite() as url:
        yield url


@pytest.fixture
def container(azurite_url: str) -> Witness:
    name = f"box-{uuid.uuid4().hex}"  # With an x, so that the contract's faults apply to it.
    witness = Witness(name, azurite_url)
    witness.blobs.create_container()
    return witness


class AzureContract(HTTPContract):
    """What is the same for blobs and files."""

    scheme: str
    missing: str
    """The service's code for a container that is not there."""

    def test_missing_container(self, make: Make, tmp_path: Path) -> None:
        store = make(f"{self.scheme}://nothing-there/data")
        for ask in (
            store.check,
            lambda: list(store.list()),
            lambda: get(store, "x"),
            lambda: store.size("x"),
            lambda: put(store, tmp_path, "x", b"data"),
        ):
            with pytest.raises(NotFound, match=rf"no such container \({self.missing}.*to http"):
                ask()
        make().check()

    def test_wrong_key(self, make: Make, tmp_path: Path) -> None:
        store = make(account_key=base64.b64encode(b"another").decode())
        for ask in (
            lambda: get(store, "x"),
            lambda: store.size("x"),
            lambda: list(store.list()),
            lambda: put(store, tmp_path, "x", b"data"),
            lambda: store.delete("x"),
        ):
            with pytest.raises(AccessDenied, match="signed with a key of account 'tester'"):
                ask()


@pytest.mark.long
class TestAzure(AzureContract):
    scheme = "azure"
    missing = "ContainerNotFound"
    refusal = "<Error><Code>Other</Code><Message>no</Message></Error>"

    @pytest.fixture
    def proxy(self, azurite_url: str) -> Iterator[FaultProxy]:
        # A test may have ended it already.
        with FaultProxy(azurite_url) as proxy, contextlib.suppress(OSError):
            yield proxy

    @pytest.fixture
    def make(self, proxy: FaultProxy, container: Witness, monkeypatch: pytest.MonkeyPatch) -> Make:
        monkeypatch.setenv("AZURE_ACCOUNT_NAME", azurite.ACCOUNT)
        monkeypatch.setenv("AZURE_ACCOUNT_ACCESS_KEY", azurite.KEY)

        def make(url: str = f"azure://{container.name}/data", **options: Any) -> Store:
            return store_for(url, endpoint_url=f"{proxy.url}/{azurite.ACCOUNT}", **options)

        return make

    def test_only_the_prefix_is_seen(self, make: Make, container: Witness) -> None:
        for name in ("data/a", "data/folder/", "database", "z"):
            container.blobs.upload_blob(name, b"")
        container.blobs.upload_blob("data/sub", b"", metadata={"hdi_isfolder": "true"})
        assert list(make().list()) == ["a"]
        found = sorted(make(f"azure://{container.name}").list())
        assert found == ["data/a", "database", "z"]

    def test_lists_page_by_page(
        self, make: Make, container: Witness, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("streaming.storage.azure.PAGE_KEYS", 2)
        for name in "abcde":
            container.blobs.upload_blob(f"data/{name}", b"")
        assert "".join(make().list()) == "abcde"
        assert proxy.count() == 3

    def test_microsofts_client_reads_it(
        self, make: Make, container: Witness, tmp_path: Path
    ) -> None:
        put(make(), tmp_path, self.odd_key, BIG)
        put(make(**PARTS), tmp_path, "parts", BIG)
        assert container.blobs.download_blob(f"data/{self.odd_key}").readall() == BIG
        assert container.blobs.download_blob("data/parts").readall() == BIG

    def test_anonymous(self, make: Make, container: Witness, tmp_path: Path) -> None:
        put(make(), tmp_path, "x", b"data")
        store = make(anonymous=True)
        with pytest.raises(StoreError, match="x"):
            get(store, "x")
        container.blobs.set_container_access_policy({}, public_access="container")
        assert get(store, "x") == b"data"
        assert list(store.list()) == ["x"]
        with pytest.raises(AccessDenied, match="anonymous=True"):
            put(store, tmp_path, "y", b"data")

    def test_shared_access_signature(
        self, make: Make, container: Witness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import datetime

        from azure.storage.blob import generate_container_sas

        put(make(), tmp_path, "x", b"data")
        monkeypatch.delenv("AZURE_ACCOUNT_ACCESS_KEY")
        token = generate_container_sas(
            azurite.ACCOUNT,
            container.name,
            azurite.KEY,
            permission="rl",
            expiry=datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1),
        )
        store = make(sas_token=token)
        assert get(store, "x") == b"data"
        assert list(store.list()) == ["x"]
        with pytest.raises(AccessDenied, match="with the sas_token given") as caught:
            put(store, tmp_path, "y", b"data")
        assert "sig=" not in str(caught.value) + repr(store._login)  # type: ignore[attr-defined]

    def test_damaged_upload(self, make: Make, proxy: FaultProxy, tmp_path: Path) -> None:
        put(make(), tmp_path, "x", b"data")
        assert "content-md5" in proxy.seen[0].headers
        text = "<Error><Code>Md5Mismatch</Code><Message>damaged</Message></Error>"
        proxy.add(Fault(status=400, text=text, method="PUT"))
        with pytest.raises(StoreError, match="arrived damaged") as caught:
            put(make(), tmp_path, "x", b"data")
        assert caught.value.retryable

    def test_big_file_goes_up_in_parts(self, make: Make, proxy: FaultProxy, tmp_path: Path) -> None:
        store = make(**PARTS)
        assert isinstance(store, AzureStore)
        store.part_policy = RetryPolicy(retries=2, base_s=0.0)
        fault = proxy.add(Fault(status=503, method="PUT", times=2, skip=1))
        put(store, tmp_path, "big", BIG)
        assert fault.applied == 2
        assert get(store, "big") == BIG
        blocks = [s for s in proxy.seen if "comp=block&" in s.query]
        assert len(blocks) == 3 + 2
        assert all("content-md5" in s.headers for s in blocks)

    def test_upload_in_parts_that_fails_leaves_nothing(
        self, make: Make, container: Witness, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        store = make(**PARTS)
        assert isinstance(store, AzureStore)
        store.part_policy = RetryPolicy(retries=1, base_s=0.0)
        proxy.add(Fault(status=500, method="PUT", skip=1))
        with pytest.raises(StoreError, match="uploading part") as caught:
            put(store, tmp_path, "big", BIG)
        assert not caught.value.retryable
        assert container.names == []

    def test_connections_are_used_again(
        self, make: Make, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        store = make()
        put(store, tmp_path, "x", BIG)
        for _ in range(5):
            get(store, "x")
            store.size("x")
        assert len(proxy._open) == 1

    def test_busy(self, make: Make, proxy: FaultProxy) -> None:
        text = "<Error><Code>ServerBusy</Code><Message>later\nRequestId:1</Message></Error>"
        proxy.add(Fault(status=503, text=text, retry_after="2"))
        with pytest.raises(Throttled, match=r"\(ServerBusy: later\)") as caught:
            get(make(), "x")
        assert caught.value.retry_after_s == 2.0


@pytest.mark.long
@pytest.mark.skipif(bool(azurite.missing()), reason=azurite.missing() or "-")
def test_login_by_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DefaultAzureCredential gets a token from the app service's endpoint; Azurite looks at it."""
    trusted, _ = make_certificates(tmp_path)
    with azurite.azurite(tmp_path) as url, IdentityServer(set()) as identity:
        witness = Witness("box", url, {"connection_verify": str(trusted)})
        witness.blobs.create_container()
        identity.announce(monkeypatch)
        store = store_for(
            "azure://box/data", account_name=azurite.ACCOUNT, endpoint_url=url, ca_bundle=trusted
        )
        put(store, tmp_path, "x", b"data")
        assert get(store, "x") == b"data"
        assert list(store.list()) == ["x"]
        assert witness.names == ["data/x"]
        assert identity.count("GET", "/token") == 1
        stranger = store_for("azure://box/data", account_name=azurite.ACCOUNT, endpoint_url=url)
        with pytest.raises(StoreError, match="certificate could not be verified") as caught:
            get(stranger, "x")
        assert not caught.value.retryable


@pytest.mark.long
def test_azurite_has_no_data_lake(container: Witness, tmp_path: Path) -> None:
    """Why there is a small server for it: if this fails, Azurite has learned it."""
    store = store_for(
        f"azure-dl://{container.name}",
        account_name=azurite.ACCOUNT,
        account_key=azurite.KEY,
        endpoint_url=container.account_url,
    )
    with pytest.raises(StoreError, match="status 400"):
        put(store, tmp_path, "x", b"data")
    assert container.names == []


@pytest.fixture
def lake() -> Iterator[DataLake]:
    with DataLake() as lake:
        lake.systems = {"box": {}}
        yield lake


@pytest.fixture
def proxy(lake: DataLake) -> Iterator[FaultProxy]:
    # A test may have ended it already.
    with FaultProxy(lake.url) as proxy, contextlib.suppress(OSError):
        yield proxy


class TestDataLake(AzureContract):
    scheme = "azure-dl"
    missing = "FilesystemNotFound"
    refusal = '{"error": {"code": "Other", "message": "no"}}'

    @pytest.fixture
    def proxy(self, proxy: FaultProxy) -> FaultProxy:
        return proxy

    @pytest.fixture
    def make(self, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Make:
        monkeypatch.setenv("AZURE_ACCOUNT_NAME", ACCOUNT)
        monkeypatch.setenv("AZURE_ACCOUNT_ACCESS_KEY", KEY)

        def make(url: str = "azure-dl://box/data", **options: Any) -> Store:
            return store_for(url, endpoint_url=f"{proxy.url}/{ACCOUNT}", **options)

        return make

    def test_only_the_prefix_is_seen(self, make: Make, lake: DataLake, tmp_path: Path) -> None:
        root = make("azure-dl://box")
        for name in ("data/a", "data/b/c/d", "database", f"data/e.{uuid.uuid4().hex}.uploading"):
            put(root, tmp_path, name, b"")
        assert sorted(make().list()) == ["a", "b/c/d"]
        assert sorted(root.list()) == ["data/a", "data/b/c/d", "database"]
        # Folders are listed, too, three entries a page: five below data/, seven below the root.
        assert lake.count("GET") == 2 + 3

    def test_folders_are_no_objects(self, make: Make, tmp_path: Path) -> None:
        put(make(), tmp_path, "a/b", b"data")
        with pytest.raises(NotFound, match="a folder"):
            make().size("a")

    def test_anonymous(self, make: Make, lake: DataLake, tmp_path: Path) -> None:
        put(make(), tmp_path, "x", b"data")
        lake.public.add("box")
        store = make(anonymous=True)
        assert get(store, "x") == b"data"
        with pytest.raises(AccessDenied, match="anonymous=True"):
            put(store, tmp_path, "y", b"data")

    def test_shared_access_signature(
        self, make: Make, lake: DataLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("AZURE_ACCOUNT_ACCESS_KEY")
        lake.tokens.add("a/b=")
        store = make(sas_token="?sv=2021-12-02&sig=a%2Fb%3D")
        put(store, tmp_path, "x", b"data")
        assert get(store, "x") == b"data"
        assert list(store.list()) == ["x"]
        (rename,) = (one for one in lake.seen if "x-ms-rename-source" in one.headers)
        assert rename.headers["x-ms-rename-source"].endswith("?sv=2021-12-02&sig=a%2Fb%3D")

    def test_login(
        self, make: Make, lake: DataLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("AZURE_ACCOUNT_ACCESS_KEY")
        with IdentityServer(lake.tokens) as identity:
            identity.announce(monkeypatch)
            store = make()
            put(store, tmp_path, "x", b"data")
            assert get(store, "x") == b"data"
            assert identity.count("GET") == 1
            lake.tokens.clear()
            with pytest.raises(AccessDenied, match="DefaultAzureCredential found"):
                get(store, "x")

    def test_appears_when_it_is_whole(
        self, make: Make, lake: DataLake, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        store = make()
        put(store, tmp_path, "x", b"first")
        for method, skip in (("PATCH", 0), ("PATCH", 1), ("PUT", 1)):  # append, flush, rename
            proxy.clear()
            proxy.add(Fault(status=503, method=method, skip=skip, times=9))
            assert isinstance(store, AzureDataLakeStore)
            store.part_policy = RetryPolicy(retries=0)
            with pytest.raises(Throttled):
                put(store, tmp_path, "x", b"second")
            assert {name: file.data for name, file in lake.systems["box"].items()} == {
                "data/x": b"first"
            }

    def test_big_file_goes_up_in_parts(
        self, make: Make, lake: DataLake, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        store = make(**PARTS)
        assert isinstance(store, AzureDataLakeStore)
        store.part_policy = RetryPolicy(retries=2, base_s=0.0)
        fault = proxy.add(Fault(status=503, method="PATCH", times=2, skip=1))
        put(store, tmp_path, "big", BIG)
        assert fault.applied == 2
        assert get(store, "big") == BIG
        appended = [one for one in lake.seen if one.query.get("action") == "append"]
        assert len(appended) == 3
        assert all("content-md5" in one.headers for one in appended)

    def test_damaged_part_is_sent_again(
        self, make: Make, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        store = make()
        assert isinstance(store, AzureDataLakeStore)
        store.part_policy = RetryPolicy(retries=1, base_s=0.0)
        text = '{"error": {"code": "Md5Mismatch", "message": "damaged"}}'
        fault = proxy.add(Fault(status=400, text=text, method="PATCH", times=1))
        put(store, tmp_path, "x", b"data")
        assert fault.applied == 1
        assert get(store, "x") == b"data"

    def test_microsofts_client_agrees(self, make: Make, lake: DataLake, tmp_path: Path) -> None:
        """What it writes we read, and the other way round: so the small server is no fiction."""
        from azure.storage.filedatalake import DataLakeServiceClient

        key = {"account_name": ACCOUNT, "account_key": KEY}
        service = DataLakeServiceClient(lake.account_url, credential=key, retry_total=0)
        system = service.create_file_system("x-files")
        store = make("azure-dl://x-files")
        theirs = system.get_file_client("their folder/a ü")
        theirs.upload_data(BIG, overwrite=True)
        assert get(store, "their folder/a ü") == BIG
        assert list(store.list()) == ["their folder/a ü"]
        put(store, tmp_path, "ours/b %41", BIG)
        ours = system.get_file_client("ours/b %41")
        assert ours.download_file().readall() == BIG
        assert ours.get_file_properties().etag == store.stat("ours/b %41").etag
        found = [path.name for path in system.get_paths() if not path.is_directory]
        assert found == ["ours/b %41", "their folder/a ü"]
        theirs.rename_file("x-files/renamed")
        ours.delete_file()
        assert list(store.list()) == ["renamed"]


@pytest.mark.long
def test_a_data_set_goes_up_and_comes_back(container: Witness, tmp_path: Path) -> None:
    key = {"account_name": azurite.ACCOUNT, "account_key": azurite.KEY}
    with FaultProxy(container.account_url) as proxy:
        endpoint = f"{proxy.url}/{azurite.ACCOUNT}"
        up_and_back(
            f"azure://{container.name}/train", tmp_path, proxy, endpoint_url=endpoint, **key
        )
    assert "train/index.json" in container.names


@pytest.mark.long
def test_a_data_set_goes_into_a_lake(lake: DataLake, proxy: FaultProxy, tmp_path: Path) -> None:
    key = {"account_name": ACCOUNT, "account_key": KEY}
    endpoint = f"{proxy.url}/{ACCOUNT}"
    up_and_back("azure-dl://box/train", tmp_path, proxy, endpoint_url=endpoint, **key)
    assert "train/index.json" in lake.systems["box"]


class TestLogin:
    def test_missing_package(self, lake: DataLake, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "azure.identity", None)
        store = store_for("azure://box", account_name=ACCOUNT, endpoint_url=lake.account_url)
        with pytest.raises(MissingPackage, match=r"pip install 'shardstream\[azure\]'"):
            get(store, "x")
        assert lake.seen == []

    @pytest.mark.long
    def test_no_login_anywhere(
        self, lake: DataLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))  # No command line of Azure's.
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:9")
        store = store_for("azure://box", account_name=ACCOUNT, endpoint_url=lake.account_url)
        with pytest.raises(AccessDenied, match="AZURE_ACCOUNT_ACCESS_KEY, or log in") as caught:
            get(store, "x")
        assert not caught.value.retryable

    def test_token_is_renewed_in_time(self) -> None:
        from azure.core.credentials import AccessToken

        clock = [0.0]
        asked: list[str] = []

        class Credential:
            def get_token(self, scope: str) -> AccessToken:
                asked.append(scope)
                return AccessToken(f"token {len(asked)}", int(clock[0]) + 3600)

        token = _Token(Credential(), lambda: clock[0])
        assert [token.get(), token.get()] == ["token 1", "token 1"]
        clock[0] = 3200.0
        assert token.get() == "token 1"
        clock[0] = 3301.0
        assert token.get() == "token 2"
        assert asked == ["https://storage.azure.com/.default"] * 2

    def test_signs_like_microsofts_client(self, lake: DataLake) -> None:
        from azure.storage.blob import BlobClient

        key = {"account_name": ACCOUNT, "account_key": KEY}
        client = BlobClient(lake.account_url, "box", "a b/ü", credential=key, retry_total=0)
        with contextlib.suppress(Exception):
            client.stage_block("id", b"data", validate_content=True)
        seen = lake.seen[-1]
        assert parse_qs(seen.target.partition("?")[2])["comp"] == ["block"]
        url = f"{lake.url}{seen.target}"
        signature = shared_key(ACCOUNT, KEY, seen.method, url, seen.headers, len(seen.body))
        assert seen.headers["authorization"] == f"SharedKey {ACCOUNT}:{signature}"


@pytest.mark.parametrize(
    ("scheme", "host"), [("azure", "blob.core.windows.net"), ("azure-dl", "dfs.core.windows.net")]
)
def test_account_and_endpoint(scheme: str, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=f"{scheme}://container/prefix"):
        store_for(f"{scheme}://")
    with pytest.raises(ValueError, match="set AZURE_ACCOUNT_NAME"):
        store_for(f"{scheme}://box")
    with pytest.raises(ValueError, match="not base64"):
        store_for(f"{scheme}://box", account_name="a", account_key="a key")
    with pytest.raises(ValueError, match="of an account"):
        store_for(f"{scheme}://box", endpoint_url="http://127.0.0.1:9", account_key=KEY)
    with pytest.raises(ValueError, match="did you mean 'account_name'"):
        store_for(f"{scheme}://box", acount_name="x")
    with pytest.raises(ValueError, match="at least 1"):
        store_for(f"{scheme}://box", account_name="a", part_bytes=0)
    monkeypatch.setenv("AZURE_ACCOUNT_NAME", "ours")
    store = store_for(f"{scheme}://box/data")
    assert isinstance(store, AzureStore)
    assert store.endpoint == f"https://ours.{host}"
    assert KEY not in repr(store_for(f"{scheme}://box", account_key=KEY).__dict__)
