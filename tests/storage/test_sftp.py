"""`sftp://` against OpenSSH's own server."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.storage import (
    AccessDenied,
    MissingPackage,
    NotFound,
    RetryPolicy,
    Store,
    StoreError,
    store_for,
)
from tests.servers.ssh import SSHServer, new_key, program
from tests.servers.tcp import TCPProxy
from tests.storage.end_to_end import up_and_back
from tests.storage.provider_contract import BIG, Make, StoreContract, get, put, wait_until_it_reads

long = pytest.mark.long


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SSHServer]:
    with SSHServer(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def proxy(server: SSHServer) -> Iterator[TCPProxy]:
    with TCPProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def known_hosts(
    server: SSHServer, proxy: TCPProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The environment of somebody who has set everything up by the variables."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    known = server.known_hosts(tmp_path / "known", server.port, proxy.port)
    monkeypatch.setenv("COMPOSER_SFTP_KEY_FILE", str(server.key))
    monkeypatch.setenv("COMPOSER_SFTP_KNOWN_HOSTS_FILE", str(known))
    return known


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """The folder on the server."""
    folder = tmp_path / "remote data"
    folder.mkdir()
    return folder


@pytest.fixture
def make(server: SSHServer, proxy: TCPProxy, known_hosts: Path, remote: Path) -> Make:
    def make(url: str = "", **options: Any) -> Store:
        default = f"sftp://{server.user}@127.0.0.1:{proxy.port}{remote}"
        return store_for(url or default, **options)

    return make


@long
class TestSFTP(StoreContract):
    odd_key = "a b/%41+ü#1&=?.mds"

    @pytest.fixture
    def make(self, make: Make) -> Make:
        return make

    @pytest.fixture(autouse=True)
    def _folder(self, remote: Path) -> None:
        self.remote = remote

    def let_time_pass(self) -> None:
        for file in self.remote.rglob("*"):
            os.utime(file, (1, 1))  # So that what comes is later.

    def test_writes_where_it_says(self, store: Store, remote: Path, tmp_path: Path) -> None:
        put(store, tmp_path, "a/b", BIG)
        assert (remote / "a" / "b").read_bytes() == BIG
        assert [file.name for file in remote.rglob("*") if file.is_file()] == ["b"]

    def test_half_an_upload_is_not_listed(self, store: Store, remote: Path) -> None:
        (remote / "x.0.uploading").write_bytes(b"")
        (remote / "y").write_bytes(b"")
        assert list(store.list()) == ["y"]

    def test_folder_is_not_a_file(self, store: Store, remote: Path) -> None:
        (remote / "folder").mkdir()
        for call in (lambda: store.size("folder"), lambda: get(store, "folder")):
            with pytest.raises(NotFound, match="folder"):
                call()

    def test_connections_are_kept(self, store: Store, proxy: TCPProxy, tmp_path: Path) -> None:
        put(store, tmp_path, "big", BIG)
        for _ in range(5):
            assert get(store, "big") == BIG
            store.get_range("big", 5, 10)
            with pytest.raises(NotFound):
                store.size("nothing")
        assert proxy.connections == 1

    def test_hung_up_while_idle(self, store: Store, proxy: TCPProxy, tmp_path: Path) -> None:
        put(store, tmp_path, "x", b"data")
        proxy.cut()
        policy = RetryPolicy(retries=1, base_s=0.0)
        assert policy.call(lambda: get(store, "x"), "fetching x") == b"data"

    def test_cut_off(self, store: Store, proxy: TCPProxy, tmp_path: Path) -> None:
        put(store, tmp_path, "big", BIG)
        proxy.cut_after(500_000)
        with pytest.raises(StoreError, match="big") as caught:
            get(store, "big")
        assert caught.value.retryable
        proxy.heal()
        assert get(store, "big") == BIG

    def test_stalled(self, make: Make, proxy: TCPProxy, tmp_path: Path) -> None:
        store = make(timeout_s=1.0)
        put(store, tmp_path, "big", BIG)
        proxy.stall_after(500_000)
        with pytest.raises(StoreError, match="in time") as caught:
            get(store, "big")
        assert caught.value.retryable
        proxy.heal()
        assert get(store, "big") == BIG

    # The connection may go while a thread of paramiko's still sends requests on it.
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_another_thread_ends_a_stalled_read(
        self, store: Store, proxy: TCPProxy, tmp_path: Path
    ) -> None:
        put(store, tmp_path, "big", BIG)
        proxy.stall_after(500_000)
        body = store.open("big")
        stuck: list[BaseException] = []

        def read() -> None:
            try:
                list(body)
            except StoreError as error:
                stuck.append(error)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        wait_until_it_reads(reader, "paramiko")
        body.close()
        reader.join(10)
        assert isinstance(stuck[0], StoreError)
        assert stuck[0].retryable

    def test_nobody_listens(self, make: Make, proxy: TCPProxy) -> None:
        proxy.__exit__()
        with pytest.raises(StoreError) as caught:
            make().size("x")
        assert caught.value.retryable

    def test_failed_upload_leaves_nothing(self, store: Store, remote: Path, tmp_path: Path) -> None:
        (remote / "x" / "there").mkdir(parents=True)  # A folder where the file is to be.
        with pytest.raises(StoreError, match="x"):
            put(store, tmp_path, "x", BIG)
        assert [file for file in remote.rglob("*") if file.is_file()] == []


@long
def test_a_data_set_goes_up_and_comes_back(
    server: SSHServer, known_hosts: Path, remote: Path, tmp_path: Path
) -> None:
    url = f"sftp://{server.user}@127.0.0.1:{server.port}{remote}/train"
    up_and_back(url, tmp_path, None)
    assert (remote / "train" / "index.json").is_file()


@long
class TestAccess:
    def test_unknown_server(self, make: Make, known_hosts: Path, remote: Path) -> None:
        (remote / "x").write_bytes(b"x")
        known_hosts.write_text("")
        with pytest.raises(AccessDenied, match=r"host key is not known.*ssh-keyscan -p"):
            make().size("x")
        assert make(check_host_key=False).size("x") == 1

    def test_another_host_key_than_the_known_one(
        self, make: Make, server: SSHServer, proxy: TCPProxy, tmp_path: Path
    ) -> None:
        other = new_key(tmp_path / "other")
        known = server.known_hosts(tmp_path / "wrong", proxy.port, key=other)
        with pytest.raises(AccessDenied, match="someone may be in between"):
            make(known_hosts_file=known).size("x")

    def test_default_known_hosts_and_keys(
        self,
        make: Make,
        server: SSHServer,
        known_hosts: Path,
        remote: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        (remote / "x").write_bytes(b"x")
        home = tmp_path / "home" / ".ssh"
        home.mkdir(parents=True)
        monkeypatch.delenv("COMPOSER_SFTP_KEY_FILE")
        monkeypatch.delenv("COMPOSER_SFTP_KNOWN_HOSTS_FILE")
        known_hosts.rename(home / "known_hosts")
        with pytest.raises(AccessDenied):
            make().size("x")
        (home / "id_ed25519").write_bytes(server.key.read_bytes())
        assert make().size("x") == 1

    def test_key_that_the_server_does_not_know(self, make: Make, tmp_path: Path) -> None:
        with pytest.raises(AccessDenied, match=r"does not let us in.*stranger"):
            make(key_file=new_key(tmp_path / "stranger")).size("x")

    def test_key_with_a_passphrase(
        self, make: Make, server: SSHServer, remote: Path, tmp_path: Path
    ) -> None:
        (remote / "x").write_bytes(b"x")
        key = new_key(tmp_path / "locked", "open sesame")
        server.authorize(key)
        with pytest.raises(AccessDenied, match="passphrase"):
            make(key_file=key).size("x")
        with pytest.raises(AccessDenied):
            make(key_file=key, key_passphrase="wrong").size("x")
        assert make(key_file=key, key_passphrase="open sesame").size("x") == 1

    def test_files_that_are_not_there_or_not_keys(self, make: Make, tmp_path: Path) -> None:
        for option in ("key_file", "known_hosts_file"):
            with pytest.raises(AccessDenied, match="there is no file"):
                make(**{option: tmp_path / "nothing"}).size("x")
        (tmp_path / "rubbish").write_text("rubbish")
        with pytest.raises(AccessDenied, match="no key or password that could be used"):
            make(key_file=tmp_path / "rubbish").size("x")

    def test_password(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("COMPOSER_SFTP_KEY_FILE")
        with pytest.raises(AccessDenied, match="does not let us in"):
            make(password="secret").size("x")

    @pytest.mark.parametrize(
        ("sftp", "call"),
        [
            ("-R", lambda store, tmp_path: put(store, tmp_path, "x", b"x")),
            ("-R", lambda store, tmp_path: store.delete("there")),
            ("-P open", lambda store, tmp_path: get(store, "there")),
            ("-P stat", lambda store, tmp_path: store.size("there")),
            ("-P opendir", lambda store, tmp_path: list(store.list())),
        ],
    )
    def test_server_denies(
        self, sftp: str, call: Callable[[Store, Path], object], remote: Path, tmp_path: Path
    ) -> None:
        (remote / "there").write_bytes(b"there")
        with SSHServer(tmp_path / "denying", sftp) as server:
            known = server.known_hosts(tmp_path / "known", server.port)
            store = store_for(
                f"sftp://{server.user}@127.0.0.1:{server.port}{remote}",
                key_file=server.key,
                known_hosts_file=known,
            )
            with pytest.raises(AccessDenied, match="denies access"):
                call(store, tmp_path)


@long
def test_server_that_can_not_rename_upon_files(remote: Path, tmp_path: Path) -> None:
    with SSHServer(tmp_path / "plain", "-P posix-rename") as server:
        known = server.known_hosts(tmp_path / "known", server.port)
        url = f"sftp://{server.user}@127.0.0.1:{server.port}{remote}"
        store = store_for(url, key_file=server.key, known_hosts_file=known)
        for data in (b"first", b"second"):
            put(store, tmp_path, "x", data)
            assert get(store, "x") == data
    assert [file.name for file in remote.iterdir()] == ["x"]


def test_password_is_never_shown() -> None:
    store = store_for("sftp://me:se%40cret@example.org/data")
    assert store.url == "sftp://me@example.org/data"
    assert "cret" not in repr(store) + store.url_of("x") + repr(vars(store))


@pytest.mark.parametrize("url", ["sftp://", "sftp:///data"])
def test_malformed_urls(url: str) -> None:
    with pytest.raises(ValueError, match="sftp://user@host:port/path"):
        store_for(url)


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    with pytest.raises(MissingPackage, match=r"pip install 'shardstream\[sftp\]'"):
        store_for("sftp://example.org/data").size("x")


def test_missing_server_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *args, **options: None)
    with pytest.raises(RuntimeError, match="make system"):
        program("sshd")
