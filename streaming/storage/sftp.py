"""Folders on SSH servers, by SFTP, through paramiko."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from streaming.storage.base import CHUNK_BYTES, Body, ObjectInfo, Store
from streaming.storage.clients import require, shared_client
from streaming.storage.errors import AccessDenied, NotFound, ObjectChanged, StoreError
from streaming.storage.sftp_connections import Connection, Connections, Options, is_answer

__all__ = ["SFTPStore"]

_ASIDE = ".uploading"
_WRITE_BYTES = 1 << 15
_SPANS_AHEAD = 128  # 32 MiB


class SFTPStore(Store):
    """Files on a server: `sftp://user@host:port/absolute/path`.

    The server has to be known: its key is looked up in `known_hosts`, and a server with another
    key, or none, is refused. Uploads are written beside their place and renamed. Each transfer has
    a connection of its own; they are kept for the next one.

    Args:
        url: User, host, port and folder. A password in it works, too, and is never shown.
        timeout_s: Longest wait for a connection and for the next bytes on one, in seconds.
        username: Who to log in as; the URL's, then the local user's name unless given.
        password: A password, for servers that take one.
        key_file: Private key; `COMPOSER_SFTP_KEY_FILE`, then the SSH agent's keys and those in
            `~/.ssh` unless given.
        key_passphrase: What the key file is encrypted with.
        known_hosts_file: The servers' keys; `COMPOSER_SFTP_KNOWN_HOSTS_FILE`, then
            `~/.ssh/known_hosts` and `/etc/ssh/ssh_known_hosts` unless given.
        check_host_key: False takes any server for the right one. Only for tests.
        max_connections: Most connections that a process keeps open while they are not used.

    Raises:
        ValueError: If the URL names no server.

    Example:
        >>> store = SFTPStore("sftp://me:secret@example.org:2222/data/train")
        >>> store.url, store.root
        ('sftp://me@example.org:2222/data/train', '/data/train')
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 60.0,
        username: str | None = None,
        password: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        key_passphrase: str | None = None,
        known_hosts_file: str | os.PathLike[str] | None = None,
        check_host_key: bool = True,
        max_connections: int = 16,
    ) -> None:
        parts = urlsplit(url, allow_fragments=False)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        if not parts.hostname:
            raise ValueError("an SFTP URL names a server: write sftp://user@host:port/path")
        named = None if parts.username is None else unquote(parts.username)
        who, _, host = parts.netloc.rpartition("@")
        shown = f"{who.partition(':')[0]}@{host}" if who else host
        super().__init__(f"sftp://{shown}{path}", timeout_s=timeout_s)
        self.root = "/" + path.strip("/")
        if password is None and parts.password is not None:
            password = unquote(parts.password)
        self._options = Options(
            host=parts.hostname,
            port=parts.port or 22,
            username=username or named,
            password=password,
            key_file=_path(key_file, "COMPOSER_SFTP_KEY_FILE"),
            key_passphrase=key_passphrase,
            known_hosts_file=_path(known_hosts_file, "COMPOSER_SFTP_KNOWN_HOSTS_FILE"),
            check_host_key=check_host_key,
            max_connections=max_connections,
            timeout_s=timeout_s,
        )

    def path(self, key: str) -> str:
        """An object's path on the server."""
        return f"{self.root.rstrip('/')}/{key}"

    @property
    def _connections(self) -> Connections:
        require("paramiko", package="shardstream[sftp]", url=self.url)
        options = self._options
        pool: Connections = shared_client(options, lambda: Connections(options))
        return pool

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        pool = self._connections
        connection = pool.take()
        try:
            file = connection.sftp.open(self.path(key), "rb", bufsize=0)
            info = self._info(key, file.stat())
            if etag is not None and etag != info.etag:
                url = self.url_of(key)
                raise ObjectChanged(f"{url}: the file has changed since it was first read", url=url)
        except BaseException as exc:
            pool.give(connection, sound=is_answer(exc))
            raise
        stop = info.size if stop is None else min(stop, info.size)
        reading = _Reading(pool, connection, file, start, stop)
        return Body(
            reading.chunks(),
            length=max(0, stop - start),
            etag=info.etag,
            close=reading.close,
            interrupt=connection.drop,
        )

    def _info(self, key: str, status: Any) -> ObjectInfo:
        if stat.S_ISDIR(status.st_mode):
            url = self.url_of(key)
            raise NotFound(f"{url}: that is a folder, not a file", url=url)
        return ObjectInfo(key, status.st_size, f"{status.st_mtime}-{status.st_size}")

    def _stat(self, key: str) -> ObjectInfo:
        with self._connections.lend() as sftp:
            return self._info(key, sftp.stat(self.path(key)))

    def _put(self, path: Path, size: int, key: str) -> None:
        target = self.path(key)
        aside = f"{target}.{uuid.uuid4().hex}{_ASIDE}"
        with self._connections.lend() as sftp:
            _make_folders(sftp, target.rpartition("/")[0])
            try:
                with open(path, "rb") as source, sftp.open(aside, "wb", bufsize=0) as file:
                    file.set_pipelined(True)
                    while piece := source.read(_WRITE_BYTES):
                        file.write(piece)
                stored = sftp.stat(aside).st_size
                if stored != size:
                    url = self.url_of(key)
                    raise StoreError(
                        f"{url}: {size} bytes were uploaded, but {stored} are there",
                        url=url,
                        retryable=True,
                    )
                _replace(sftp, aside, target)
            except BaseException:
                with contextlib.suppress(Exception):
                    sftp.remove(aside)
                raise

    def _list(self, prefix: str) -> Iterator[str]:
        yield from self._walk(prefix.rpartition("/")[0], prefix)

    def _walk(self, folder: str, prefix: str) -> Iterator[str]:
        with self._connections.lend() as sftp:
            try:
                entries = sftp.listdir_attr(self.path(folder) if folder else self.root)
            except FileNotFoundError:
                return
        for entry in sorted(entries, key=lambda e: e.filename + "/" * stat.S_ISDIR(e.st_mode)):
            key = f"{folder}/{entry.filename}" if folder else entry.filename
            if stat.S_ISDIR(entry.st_mode):
                if (key + "/").startswith(prefix) or prefix.startswith(key + "/"):
                    yield from self._walk(key, prefix)
            elif key.startswith(prefix) and not key.endswith(_ASIDE):
                yield key

    def _delete(self, key: str) -> None:
        with self._connections.lend() as sftp, contextlib.suppress(FileNotFoundError):
            sftp.remove(self.path(key))

    def _check(self) -> None:
        with self._connections.lend() as sftp:
            sftp.stat(self.root)

    def _error(self, exc: BaseException, url: str) -> StoreError | None:
        names = [ancestor.__name__ for ancestor in type(exc).__mro__]
        if "AuthenticationException" in names and "timeout" in str(exc).lower():
            names = ["SSHException"]  # Nobody has refused us.
        for name in names:
            if name in ERRORS:
                kind, what, retryable = ERRORS[name]
                hint = f". {self._how()}" if issubclass(kind, AccessDenied) else ""
                return kind(f"{url}: {what} ({exc}){hint}", url=url, retryable=retryable)
        if type(exc) is OSError and exc.errno is None:  # What paramiko makes of other refusals.
            return StoreError(f"{url}: the server refused: {exc}", url=url)
        return None

    def _how(self) -> str:
        options = self._options
        key = options.key_file or "the agent's keys and those in ~/.ssh"
        known = options.known_hosts_file or "~/.ssh/known_hosts"
        who = options.username or "ourselves"
        return (
            f"We spoke to {options.host}, port {options.port}, as {who} with {key}; its host key "
            f"has to be in {known}"
        )


# What paramiko raises, by class name: kind, what it means, whether to try again.
ERRORS: Mapping[str, tuple[type[StoreError], str, bool]] = {
    "FileNotFoundError": (NotFound, "there is no such file", False),
    "PermissionError": (AccessDenied, "the server denies access", False),
    "UnknownHostError": (AccessDenied, "the server's host key is not known", False),
    "BadHostKeyException": (
        AccessDenied,
        "the server's host key is another than the known one: someone may be in between",
        False,
    ),
    "PasswordRequiredException": (AccessDenied, "the private key has a passphrase", False),
    "AuthenticationException": (AccessDenied, "the server does not let us in", False),
    "LoginError": (AccessDenied, "there is no key or password that could be used", False),
    "UnknownKeyType": (AccessDenied, "the private key can't be read", False),
    "NoValidConnectionsError": (StoreError, "no connection could be made", True),
    "IncompatiblePeer": (StoreError, "the server and we have no algorithms in common", False),
    "SSHException": (StoreError, "the connection failed", True),
    "SFTPError": (StoreError, "the server's answer makes no sense", True),
}


class _Reading:
    """The bytes [start, stop) of an open file, asked for ahead of their use."""

    def __init__(
        self, pool: Connections, connection: Connection, file: Any, start: int, stop: int
    ) -> None:
        self._pool = pool
        self._connection = connection
        self._file = file
        self._spans = [(at, min(CHUNK_BYTES, stop - at)) for at in range(start, stop, CHUNK_BYTES)]
        self._complete = False

    def chunks(self) -> Iterator[bytes]:
        # A thread of paramiko's sends all requests of one call. It should be done soon: if the
        # connection breaks meanwhile, its traceback is printed for all to see.
        for first in range(0, len(self._spans), _SPANS_AHEAD):
            yield from self._file.readv(self._spans[first : first + _SPANS_AHEAD])
        self._complete = True

    def close(self) -> None:
        # Where bytes are left, their answers are still under way, and would be taken for others'.
        if self._complete:
            try:
                self._file.close()
            except Exception:
                self._complete = False
        self._pool.give(self._connection, sound=self._complete)


def _replace(sftp: Any, aside: str, target: str) -> None:
    """Give a file its name, even if another has it."""
    try:
        sftp.posix_rename(aside, target)
    except OSError as exc:
        if isinstance(exc, TimeoutError) or exc.errno not in (None, errno.EACCES):
            raise
        # SFTP itself knows no renaming upon another file; not every server adds it.
        with contextlib.suppress(FileNotFoundError):
            sftp.remove(target)
        sftp.rename(aside, target)


def _make_folders(sftp: Any, folder: str) -> None:
    """Make a folder and those above it, as far as they are not there."""
    try:
        if not folder or stat.S_ISDIR(sftp.stat(folder).st_mode):
            return
    except FileNotFoundError:
        _make_folders(sftp, folder.rpartition("/")[0])
    try:
        sftp.mkdir(folder)
    except OSError:
        sftp.stat(folder)  # Another upload has made it first, or that says why not.


def _path(given: str | os.PathLike[str] | None, variable: str) -> str | None:
    found = os.environ.get(variable) if given is None else os.fspath(given)
    return os.path.expanduser(found) if found else None
