"""Alipan (Aliyun Drive), as its web page speaks.

AliPCS-Py logs in, signs for this device, and knows the encryption that its users' files have; the
requests for files are our own, because it has no time-outs and takes failed uploads for good ones.
"""

from __future__ import annotations

import functools
import json
import math
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streaming.storage.alipan_crypt import HEAD_BYTES, cut, decrypt, encrypt, take
from streaming.storage.base import Body, ObjectInfo, Store
from streaming.storage.clients import require, shared_client
from streaming.storage.errors import (
    AccessDenied,
    NotFound,
    ObjectChanged,
    StoreError,
    Throttled,
    from_connection,
)
from streaming.storage.rest import Rest, StatusError, body_of, range_header

__all__ = ["AlipanStore"]

MIB = 1 << 20
MAX_PARTS = 10_000
_TYPES = ("No", "Simple", "ChaCha20", "AES256CBC")


@dataclass(frozen=True)
class _Options:
    """All that a login depends on."""

    refresh_token: str = field(repr=False)
    timeout_s: float


class AlipanStore(Store):
    """Files of a drive: `alipan:///path` (three slashes: there is no host).

    With a password, encrypted files are decrypted as they are read, and files are encrypted as they
    are written if a type is given. Only ranges of files that are not encrypted cost no more than
    themselves.

    Args:
        url: The folder.
        timeout_s: Longest wait for a connection and for the next bytes on one, in seconds.
        refresh_token: The web page's refresh token; `ALIPAN_WEB_REFRESH_TOKEN` unless given.
        encrypt_password: Encrypts and decrypts; `ALIPAN_ENCRYPT_PASSWORD` unless given.
        encrypt_type: How files are encrypted when they are written: "No", "Simple" (weak),
            "ChaCha20" or "AES256CBC"; `ALIPAN_ENCRYPT_TYPE`, then "No" unless given.
        max_connections: Most connections to one host that a process keeps open.
        part_bytes: Size of the parts of an upload.

    Raises:
        ValueError: If the URL names a host, or the type of encryption is unknown or lacks its
            password.

    Example:
        >>> AlipanStore("alipan:///datasets/train").root
        '/datasets/train'
        >>> AlipanStore("alipan://datasets/train")
        Traceback (most recent call last):
        ValueError: alipan://datasets/train: write alipan:///datasets/train, with three slashes
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 60.0,
        refresh_token: str | None = None,
        encrypt_password: str | None = None,
        encrypt_type: str | None = None,
        max_connections: int = 64,
        part_bytes: int = 16 * MIB,
    ) -> None:
        super().__init__(url, timeout_s=timeout_s)
        host, path = urlsplit(url).netloc, url.partition("://")[2]
        if host:
            raise ValueError(f"{url}: write alipan:///{path}, with three slashes")
        password = encrypt_password or os.environ.get("ALIPAN_ENCRYPT_PASSWORD") or ""
        kind = encrypt_type or os.environ.get("ALIPAN_ENCRYPT_TYPE") or "No"
        if kind not in _TYPES:
            raise ValueError(f"{url}: the type of encryption is {kind!r}; it is one of {_TYPES}")
        if kind != "No" and not password:
            raise ValueError(f"{url}: encryption needs a password: set ALIPAN_ENCRYPT_PASSWORD")
        self.root = "/" + path.strip("/")
        self._password = password.encode()
        self._kind = kind
        self._part_bytes = part_bytes
        self._rest = Rest(timeout_s, max_connections)
        token = refresh_token or os.environ.get("ALIPAN_WEB_REFRESH_TOKEN") or ""
        self._options = _Options(token, timeout_s)

    def path(self, key: str) -> str:
        """An object's path in the drive; the root's for an empty key."""
        return f"{self.root.rstrip('/')}/{key}" if key else self.root

    @property
    def _drive(self) -> _Drive:
        require("alipcs_py.alipcs.pcs", package="shardstream[alipan]", url=self.url)
        options = self._options
        if not options.refresh_token:
            raise AccessDenied(f"{self.url}: there is no refresh token. {_HINT}", url=self.url)
        drive: _Drive = shared_client(options, lambda: _Drive(options))
        return drive

    def _ask(self, what: str, **body: Any) -> Any:
        """Make a request to the drive's API."""
        url, drive_id, headers = self._drive.login()
        answer = self._rest.json("POST", f"{url}/{what}", headers, {"drive_id": drive_id, **body})
        if isinstance(answer, dict) and "code" in answer and "file_id" not in answer:
            raise StatusError(400, {}, json.dumps(answer))
        return answer

    def _meta(self, path: str) -> dict[str, Any]:
        if path == "/":
            return {"file_id": "root", "type": "folder"}
        found: dict[str, Any] = self._ask("v2/file/get_by_path", file_path=path)
        return found

    def _file(self, key: str) -> dict[str, Any]:
        found = self._meta(self.path(key))
        if found["type"] != "file":
            url = self.url_of(key)
            raise NotFound(f"{url}: that is a folder, not a file", url=url)
        return found

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        found = self._file(key)
        version = _version(found)
        if etag is not None and etag != version:
            url = self.url_of(key)
            raise ObjectChanged(f"{url}: the file has changed since it was first read", url=url)
        if not self._password:
            return self._raw(key, found, start, stop)
        whole = self._raw(key, found, 0, None)
        plain, size = decrypt(whole, found["size"], self._password)
        stop = size if stop is None else min(stop, size)
        chunks = cut(plain, start, stop)
        length = max(0, stop - start)
        return Body(chunks, length=length, etag=version, close=whole.close, interrupt=whole.close)

    def _raw(self, key: str, found: Mapping[str, Any], start: int, stop: int | None) -> Body:
        """A file's bytes, as they are kept."""
        target = self._ask("v2/file/get_download_url", file_id=found["file_id"])
        headers = {**self._drive.agent(), **range_header(start, stop)}
        answer = self._rest.send("GET", target["url"], headers)
        etag = _version(found)
        return body_of(answer, start, stop, etag=etag, url=self.url_of(key))

    def _stat(self, key: str) -> ObjectInfo:
        found = self._file(key)
        size = found["size"]
        if self._password and size >= HEAD_BYTES:
            with self._raw(key, found, 0, HEAD_BYTES) as head:
                _, size = decrypt(head, size, self._password)
        return ObjectInfo(key, size, _version(found))

    def _put(self, path: Path, size: int, key: str) -> None:
        folder, _, name = self.path(key).rpartition("/")
        parent = self._make_folders(folder or "/")
        with open(path, "rb") as plain:
            source, size = encrypt(plain, size, self._kind, self._password)
            step = max(self._part_bytes, -(-size // MAX_PARTS))
            count = max(1, math.ceil(size / step))
            made = self._ask(
                "adrive/v2/file/createWithFolders",
                parent_file_id=parent,
                name=name,
                type="file",
                size=size,
                check_name_mode="overwrite",
                part_info_list=[{"part_number": number} for number in range(1, count + 1)],
            )
            for part in made["part_info_list"]:
                data = take(source, step)
                self._rest.send(
                    "PUT", part["upload_url"], self._drive.agent(), body=data
                ).drain_conn()
        done = self._ask("v2/file/complete", file_id=made["file_id"], upload_id=made["upload_id"])
        if done["size"] != size:
            url = self.url_of(key)
            raise StoreError(
                f"{url}: {size} bytes were uploaded, but {done['size']} are there",
                url=url,
                retryable=True,
            )

    def _make_folders(self, path: str) -> str:
        """Make a folder and those above it, as far as they are not there; its id."""
        try:
            found: str = self._meta(path)["file_id"]
            return found
        except StatusError as exc:
            if not exc.code.startswith("NotFound"):
                raise
        above, _, name = path.rpartition("/")
        made: str = self._ask(
            "adrive/v2/file/createWithFolders",
            parent_file_id=self._make_folders(above or "/"),
            name=name,
            type="folder",
            check_name_mode="refuse",
        )["file_id"]
        return made

    def _list(self, prefix: str) -> Iterator[str]:
        folder = prefix.rpartition("/")[0]
        try:
            found = self._meta(self.path(folder))
        except StatusError as exc:
            if exc.code.startswith("NotFound"):
                return
            raise
        if found["type"] == "folder":
            yield from self._walk(found["file_id"], folder, prefix)

    def _walk(self, folder_id: str, folder: str, prefix: str) -> Iterator[str]:
        marker = ""
        while True:
            page = self._ask(
                "adrive/v3/file/list", parent_file_id=folder_id, limit=200, marker=marker
            )
            for entry in page["items"]:
                key = f"{folder}/{entry['name']}" if folder else entry["name"]
                if entry["type"] == "file":
                    if key.startswith(prefix):
                        yield key
                elif (key + "/").startswith(prefix) or prefix.startswith(key + "/"):
                    yield from self._walk(entry["file_id"], key, prefix)
            marker = page.get("next_marker") or ""
            if not marker:
                return

    def _delete(self, key: str) -> None:
        try:
            self._ask("v2/recyclebin/trash", file_id=self._file(key)["file_id"])
        except NotFound:
            return
        except StatusError as exc:
            if not exc.code.startswith("NotFound"):
                raise

    def _check(self) -> None:
        self._drive.login()

    def _error(self, exc: BaseException, url: str) -> StoreError | None:
        if type(exc).__name__ == "AliPCSError":
            # What logging in has failed of: the connection, or the token.
            failed = None if exc.__cause__ is None else from_connection(exc.__cause__, url)
            what = f"{url}: logging in failed ({exc}). {_HINT}"
            return failed or AccessDenied(what, url=url)
        if not isinstance(exc, StatusError):
            return None
        for begin, (kind, what, retryable) in CODES.items():
            if exc.code.startswith(begin):
                if kind is StoreError:
                    self._drive.forget()
                return kind(f"{url}: {what} ({exc.code}: {exc.said})", url=url, retryable=retryable)
        return exc.as_store_error(url)


_HINT = "Set ALIPAN_WEB_REFRESH_TOKEN, or give refresh_token"

# How the drive's own codes begin: kind, what it means, whether to try again. Other codes are judged
# by their HTTP status. After the plain errors here we log in anew.
CODES: Mapping[str, tuple[type[StoreError], str, bool]] = {
    "NotFound": (NotFound, "there is no such file", False),
    "Forbidden": (AccessDenied, "access was denied", False),
    "UserDeviceOffline": (AccessDenied, "the drive has logged this device out", False),
    "AccessTokenInvalid": (StoreError, "the login has expired", True),
    "AccessTokenExpired": (StoreError, "the login has expired", True),
    "DeviceSessionSignatureInvalid": (StoreError, "the device's session has expired", True),
    "ParamFlowException": (Throttled, "the drive asks for fewer requests", True),
    "TooManyRequests": (Throttled, "the drive asks for fewer requests", True),
}


class _Drive:
    """The process's login to a drive."""

    def __init__(self, options: _Options) -> None:
        from alipcs_py.alipcs import pcs

        self._module = pcs
        self._lock = threading.Lock()
        self._pcs = pcs.AliPCS(options.refresh_token, error_max_retries=1, connection_max_retries=0)
        session = self._pcs._session
        session.request = functools.partial(session.request, timeout=options.timeout_s)

    def agent(self) -> dict[str, str]:
        """Headers by which the drive's servers take us for a web page, as they want it."""
        return dict(self._module.PCS_HEADERS)

    def login(self) -> tuple[str, str, dict[str, str]]:
        """The API's URL, the drive's id, and headers that say who we are."""
        with self._lock:
            pcs = self._pcs
            headers = {
                **self.agent(),
                "Authorization": f"{pcs.token_type} {pcs.access_token}",
                "x-device-id": pcs.device_id,
                "x-signature": pcs.signature,
            }
            return self._module.ALIYUNDRIVE_COM_API, pcs.default_drive_id, headers

    def forget(self) -> None:
        """Log in anew before the next request."""
        with self._lock:
            self._pcs._access_token = self._pcs._signature = ""


def _version(found: Mapping[str, Any]) -> str:
    return str(found.get("content_hash") or f"{found.get('updated_at')}-{found['size']}")
