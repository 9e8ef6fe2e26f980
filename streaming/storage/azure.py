"""Azure's Blob Storage, and its Data Lake Storage (accounts with a hierarchical namespace).

Of Microsoft's packages only azure-identity is used, and that only where there is neither a key nor
a shared access signature: their storage clients fetch a blob in requests of 4 MiB, and repeat each
of them three times whatever they are told.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlencode
from xml.etree import ElementTree

from streaming.storage.azure_errors import azure_error, code_of
from streaming.storage.azure_identity import AzureLogin, login_environment
from streaming.storage.base import Body, ObjectInfo, Store
from streaming.storage.errors import StoreError
from streaming.storage.parts import content_md5, send_parts, verify_size
from streaming.storage.rest import Rest, StatusError, body_of, path_quote, range_header
from streaming.storage.retry import RetryPolicy
from streaming.storage.urls import scheme_of

__all__ = ["AzureDataLakeStore", "AzureStore"]

MIB = 1 << 20
MAX_PARTS = 50_000
PAGE_KEYS = 5000
_ASIDE = ".uploading"


class AzureStore(Store):
    """Blobs of a container: `azure://container/prefix`.

    How requests are introduced: by `anonymous`, `account_key`, `sas_token`, or the variable
    `AZURE_ACCOUNT_ACCESS_KEY`, whichever of these is there first; else by what azure-identity's
    DefaultAzureCredential finds (variables, the machine's identity, Azure's command line …), which
    needs `pip install 'shardstream[azure]'`.

    Args:
        url: Container and prefix.
        timeout_s: Longest wait for a connection and for the next bytes on one, in seconds.
        account_name: The storage account; `AZURE_ACCOUNT_NAME` unless given.
        account_key: One of its keys, base64.
        sas_token: A shared access signature: "sv=…&sig=…".
        anonymous: Whether to ask without credentials, as public containers allow.
        endpoint_url: Where the account is; "https://ACCOUNT.blob.core.windows.net" unless given.
        ca_bundle: File of certificates to trust.
        max_connections: Most connections that a process keeps open.
        multipart_threshold_bytes: Files above this size are uploaded in parts, side by side.
        part_bytes: Size of a part; raised where a file would need over 50,000 of them.

    Raises:
        ValueError: If the URL names no container, there is no account, or an option makes no sense.

    Example:
        >>> store = AzureStore("azure://images/train", account_name="tenant", anonymous=True)
        >>> store.container, store.prefix, store.endpoint
        ('images', 'train/', 'https://tenant.blob.core.windows.net')
    """

    service: ClassVar[str] = "blob"
    """Which of an account's services this is, as its host is named."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 60.0,
        account_name: str | None = None,
        account_key: str | None = None,
        sas_token: str | None = None,
        anonymous: bool = False,
        endpoint_url: str | None = None,
        ca_bundle: str | os.PathLike[str] | None = None,
        max_connections: int = 64,
        multipart_threshold_bytes: int = 64 * MIB,
        part_bytes: int = 16 * MIB,
    ) -> None:
        super().__init__(url, timeout_s=timeout_s)
        self.container, _, prefix = self.url.partition("://")[2].partition("/")
        if not self.container:
            raise ValueError(f"{url} names no container: write {scheme_of(url)}://container/prefix")
        if max_connections < 1 or part_bytes < 1 or multipart_threshold_bytes < 1:
            raise ValueError(f"{url}: max_connections and the sizes of parts must be at least 1")
        account = account_name or os.environ.get("AZURE_ACCOUNT_NAME") or ""
        if not account and endpoint_url is None:
            raise ValueError(f"{url}: which account? Give account_name, or set AZURE_ACCOUNT_NAME")
        if account_key is None and sas_token is None:
            account_key = os.environ.get("AZURE_ACCOUNT_ACCESS_KEY") or None
        self.prefix = f"{prefix}/" if prefix else ""
        host = f"https://{account}.{self.service}.core.windows.net"
        self.endpoint = (endpoint_url or host).rstrip("/")
        self._threshold = multipart_threshold_bytes
        self._part_bytes = part_bytes
        # For the parts of one upload; a whole upload begins again only by its caller's policy.
        self.part_policy = RetryPolicy()
        self._rest = Rest(
            timeout_s=timeout_s,
            max_connections=max_connections,
            ca_bundle=None if ca_bundle is None else os.fspath(ca_bundle),
        )
        self._login = AzureLogin(
            anonymous=anonymous,
            account_key=account_key,
            sas_token=sas_token,
            account=account,
            environment=login_environment(),
        )

    def _place(self, key: str | None = None, **query: str | int | None) -> str:
        """The URL of the container, or of an object in it."""
        place = f"{self.endpoint}/{path_quote(self.container)}"
        if key is not None:
            place += f"/{path_quote(self.prefix + key)}"
        asked = urlencode({name: value for name, value in query.items() if value is not None})
        return f"{place}?{asked}" if asked else place

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        body: bytes | None = None,
        file: Path | None = None,
        size: int = 0,
        fine: tuple[int, ...] = (200, 201, 202, 206),
    ) -> Any:
        """Make one authenticated request; `Rest.send` says what comes of it."""
        length = size if body is None else len(body)
        sent = self._login.introduce(method, url, headers or {}, length=length, for_url=self.url)
        url = self._login.address(url)
        return self._rest.send(method, url, sent, body=body, file=file, size=size, fine=fine)

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        wanted = range_header(start, stop)
        if etag is not None:
            wanted["If-Match"] = etag
        answer = self._send("GET", self._place(key), wanted)
        version = answer.headers.get("etag")
        return body_of(answer, start, stop, etag=version, url=self.url_of(key))

    def _stat(self, key: str) -> ObjectInfo:
        answer = self._send("HEAD", self._place(key))
        answer.drain_conn()
        if answer.headers.get("x-ms-resource-type") == "directory":
            raise StatusError(404, {"x-ms-error-code": "PathNotFound"}, "it is a folder")
        return ObjectInfo(key, int(answer.headers["content-length"]), answer.headers.get("etag"))

    def _put(self, path: Path, size: int, key: str) -> None:
        if size > self._threshold:
            self._put_parts(path, size, key)
        else:
            # The service compares the digest, and so the size, before the object appears.
            headers = {"x-ms-blob-type": "BlockBlob", "Content-MD5": content_md5(path)}
            self._send("PUT", self._place(key), headers, file=path, size=size).drain_conn()

    def _put_parts(self, path: Path, size: int, key: str) -> None:
        # Names of one length, and of this upload alone. Blocks that are never committed are
        # dropped by the service after a week; there is no way to drop them sooner.
        upload = uuid.uuid4().hex

        def send(number: int, data: bytes) -> str:
            block = base64.b64encode(f"{upload}-{number:06}".encode()).decode()
            place = self._place(key, comp="block", blockid=block)
            self._send_part("PUT", place, data, key)
            return block

        step = max(self._part_bytes, -(-size // MAX_PARTS))
        blocks = send_parts(path, size, step, send, policy=self.part_policy, what=self.url_of(key))
        root = ElementTree.Element("BlockList")
        for block in blocks:
            ElementTree.SubElement(root, "Latest").text = block
        listed = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
        self._send("PUT", self._place(key, comp="blocklist"), body=listed).drain_conn()
        verify_size(self, key, size)

    def _send_part(self, method: str, place: str, data: bytes, key: str) -> None:
        with self._guard(key):
            self._send(method, place, {"Content-MD5": content_md5(data)}, body=data).drain_conn()

    def _list(self, prefix: str) -> Iterator[str]:
        marker: str | None = None
        while True:
            answer = self._page(prefix, marker, PAGE_KEYS)
            for blob in answer.iterfind("Blobs/Blob"):
                key = _blob_name(blob)[len(self.prefix) :]
                if key and not key.endswith("/") and not _is_folder(blob):
                    yield key
            marker = answer.findtext("NextMarker")
            if not marker:
                return

    def _page(self, prefix: str, marker: str | None, most: int) -> ElementTree.Element:
        place = self._place(
            restype="container",
            comp="list",
            include="metadata",
            prefix=self.prefix + prefix or None,
            marker=marker,
            maxresults=most,
        )
        return ElementTree.fromstring(self._send("GET", place).read())

    def _delete(self, key: str) -> None:
        self._send("DELETE", self._place(key), fine=(200, 202, 404)).drain_conn()

    def _check(self) -> None:
        self._page("", None, 1)

    def _error(self, exc: BaseException, url: str) -> StoreError | None:
        how = f"Requests go to {self.endpoint}, {self._login.who}"
        return azure_error(exc, url, how=how)


def _blob_name(blob: ElementTree.Element) -> str:
    """A listed blob's name; %-escaped where XML can't hold it."""
    element = blob.find("Name")
    name = "" if element is None else element.text or ""
    return unquote(name) if element is not None and element.get("Encoded") == "true" else name


def _is_folder(blob: ElementTree.Element) -> bool:
    """Whether a listed blob is how a hierarchical namespace, or a driver of Hadoop's, shows one."""
    flag = blob.findtext("Metadata/hdi_isfolder") or blob.findtext("Metadata/Hdi_isfolder") or ""
    return flag == "true" or blob.findtext("Properties/ResourceType") == "directory"


class AzureDataLakeStore(AzureStore):
    """Files of a container, by the Data Lake interface: `azure-dl://container/prefix`.

    For accounts with a hierarchical namespace; only there a finished upload can be renamed to its
    place. The options are those of `AzureStore`, the host "https://ACCOUNT.dfs.core.windows.net".

    Example:
        >>> AzureDataLakeStore("azure-dl://images/train", account_name="tenant").endpoint
        'https://tenant.dfs.core.windows.net'
    """

    service: ClassVar[str] = "dfs"

    def _put(self, path: Path, size: int, key: str) -> None:
        # A file is there, empty, as soon as it is created: so it is made under another name.
        aside = f"{key}.{uuid.uuid4().hex}{_ASIDE}"
        try:
            self._send("PUT", self._place(aside, resource="file")).drain_conn()
            if size:
                self._append(path, size, aside)
            source = f"/{path_quote(self.container)}/{path_quote(self.prefix + aside)}"
            headers = {"x-ms-rename-source": self._login.address(source)}
            self._send("PUT", self._place(key), headers).drain_conn()
        except BaseException:
            with contextlib.suppress(Exception):
                self._delete(aside)
            raise
        verify_size(self, key, size)

    def _append(self, path: Path, size: int, aside: str) -> None:
        step = size if size <= self._threshold else self._part_bytes

        def send(number: int, data: bytes) -> None:
            place = self._place(aside, action="append", position=(number - 1) * step)
            self._send_part("PATCH", place, data, aside)

        send_parts(path, size, step, send, policy=self.part_policy, what=self.url_of(aside))
        place = self._place(aside, action="flush", position=size, close="true")
        self._send("PATCH", place).drain_conn()

    def _list(self, prefix: str) -> Iterator[str]:
        # Only folders can be listed: the prefix's own is, and within it names decide.
        start = self.prefix + prefix
        folder = start.rpartition("/")[0]
        token: str | None = None
        while True:
            try:
                answer = self._folder(folder, token, PAGE_KEYS)
            except StatusError as error:
                if code_of(error) == "PathNotFound":
                    return
                raise
            for one in json.loads(answer.read())["paths"]:
                name: str = one["name"]
                hidden = one.get("isDirectory") == "true" or name.endswith(_ASIDE)
                if name.startswith(start) and not hidden:
                    yield name[len(self.prefix) :]
            token = answer.headers.get("x-ms-continuation")
            if not token:
                return

    def _folder(self, folder: str, token: str | None, most: int) -> Any:
        place = self._place(
            resource="filesystem",
            recursive="true",
            directory=folder or None,
            continuation=token,
            maxResults=most,
        )
        return self._send("GET", place)

    def _check(self) -> None:
        self._folder("", None, 1).drain_conn()
