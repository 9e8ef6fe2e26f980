"""Google Cloud Storage, by its JSON API; with HMAC keys by its S3 interface.

Of Google's packages only google-auth is needed at run time: their storage client reads bodies in
pieces of its own size, one request after another, and repeats requests unseen.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from streaming.storage.base import CHUNK_BYTES, Body, ObjectInfo, Store
from streaming.storage.errors import NotFound, StoreError
from streaming.storage.gcs_errors import gcs_error
from streaming.storage.gcs_identity import Identity, Login, identity_for, login_environment
from streaming.storage.parts import content_md5, send_parts, verify_size
from streaming.storage.rest import Rest, StatusError, body_of, path_quote, range_header
from streaming.storage.retry import RetryPolicy
from streaming.storage.s3 import S3Store

__all__ = ["GCSHMACStore", "GCSStore", "gcs_store"]

MIB = 1 << 20
MAX_PARTS = 10_000
PAGE_KEYS = 1000
GOOGLE = "https://storage.googleapis.com"


def gcs_store(
    url: str,
    *,
    timeout_s: float = 60.0,
    hmac_key: str | None = None,
    hmac_secret: str | None = None,
    endpoint_url: str | None = None,
    anonymous: bool | None = None,
    credentials_file: str | os.PathLike[str] | None = None,
    user_project: str | None = None,
    ca_bundle: str | os.PathLike[str] | None = None,
    max_connections: int = 64,
    multipart_threshold_bytes: int = 64 * MIB,
    part_bytes: int = 16 * MIB,
) -> Store:
    """The store at `gs://bucket/prefix`.

    HMAC keys are used if they are given here, or if `GCS_KEY` and `GCS_SECRET` are set and nothing
    else is said: no `credentials_file`, no `anonymous`, no `STORAGE_EMULATOR_HOST`.

    Args:
        url: Bucket and prefix.
        timeout_s: Longest wait for a connection and for the next bytes on one, in seconds.
        hmac_key: Access ID of an HMAC key, for the S3 interface.
        hmac_secret: The key's secret.
        endpoint_url: Where the service is; `STORAGE_EMULATOR_HOST`, then Google unless given.
        anonymous: True never introduces itself, False never goes without credentials; None: goes
            without if there are none.
        credentials_file: A service account's key, or any other file that google-auth reads; the
            default chain (`GOOGLE_APPLICATION_CREDENTIALS`, gcloud's login, the machine's account)
            unless given.
        user_project: The project that pays for requests, in buckets where the requester does.
        ca_bundle: File of certificates to trust.
        max_connections: Most connections that a process keeps open.
        multipart_threshold_bytes: Files above this size are uploaded in parts, side by side.
        part_bytes: Size of a part, at least 5 MiB; raised where a file would need over 10,000.

    Returns:
        A `GCSStore`, or with HMAC keys a `GCSHMACStore`.

    Raises:
        ValueError: If the URL names no bucket, or options contradict each other.

    Example:
        >>> gcs_store("gs://bucket/train", anonymous=True)
        GCSStore('gs://bucket/train')
        >>> gcs_store("gs://bucket/train", hmac_key="GOOG1EX", hmac_secret="secret")
        GCSHMACStore('gs://bucket/train')
    """
    if (hmac_key is None) != (hmac_secret is None):
        raise ValueError(f"{url}: hmac_key and hmac_secret go together")
    if hmac_key is not None and (anonymous or credentials_file is not None):
        raise ValueError(f"{url}: give hmac_key, credentials_file or anonymous=True, not several")
    if hmac_key is None and not anonymous and credentials_file is None:
        hmac_key, hmac_secret = _hmac_of_environment(url)
    parts: dict[str, Any] = {
        "timeout_s": timeout_s,
        "endpoint_url": endpoint_url,
        "ca_bundle": ca_bundle,
        "max_connections": max_connections,
        "multipart_threshold_bytes": multipart_threshold_bytes,
        "part_bytes": part_bytes,
    }
    if hmac_key is not None and hmac_secret is not None:
        if user_project is not None:
            raise ValueError(f"{url}: user_project can't be used together with HMAC keys")
        return GCSHMACStore(url, hmac_key=hmac_key, hmac_secret=hmac_secret, **parts)
    return GCSStore(
        url,
        anonymous=anonymous,
        credentials_file=credentials_file,
        user_project=user_project,
        **parts,
    )


def _hmac_of_environment(url: str) -> tuple[str | None, str | None]:
    key, secret = os.environ.get("GCS_KEY") or None, os.environ.get("GCS_SECRET") or None
    if os.environ.get("STORAGE_EMULATOR_HOST"):
        return None, None  # An emulator of Google's own interface, which wants no keys.
    if (key is None) != (secret is None):
        there, missing = ("GCS_KEY", "GCS_SECRET") if key else ("GCS_SECRET", "GCS_KEY")
        raise ValueError(f"{url}: {there} is set, but {missing} is not; they go together")
    return key, secret


class GCSHMACStore(S3Store):
    """Objects of a bucket, through Google's S3 interface, signed with an HMAC key.

    Args:
        url: Bucket and prefix.
        hmac_key: Access ID of the key.
        hmac_secret: Its secret.
        endpoint_url: Where the service is; Google unless given.
        options: The other options of `S3Store`.
    """

    def __init__(
        self,
        url: str,
        *,
        hmac_key: str,
        hmac_secret: str,
        endpoint_url: str | None = None,
        **options: Any,
    ) -> None:
        # What is said of Amazon's buckets in the environment is not meant for Google's.
        super().__init__(
            url,
            access_key_id=hmac_key,
            secret_access_key=hmac_secret,
            endpoint_url=endpoint_url or GOOGLE,
            region="auto",
            addressing_style="path",
            requester_pays=False,
            acl="",
            **options,
        )


class GCSStore(Store):
    """Objects of a bucket, by the JSON API; `gcs_store` says what the options mean.

    An object's version is its generation, which changes even when the same bytes are written anew.

    Raises:
        ValueError: If the URL names no bucket, or a number makes no sense.

    Example:
        >>> store = GCSStore("gs://bucket/train", endpoint_url="http://127.0.0.1:4443")
        >>> store.bucket, store.prefix, store.endpoint
        ('bucket', 'train/', 'http://127.0.0.1:4443')
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 60.0,
        endpoint_url: str | None = None,
        anonymous: bool | None = None,
        credentials_file: str | os.PathLike[str] | None = None,
        user_project: str | None = None,
        ca_bundle: str | os.PathLike[str] | None = None,
        max_connections: int = 64,
        multipart_threshold_bytes: int = 64 * MIB,
        part_bytes: int = 16 * MIB,
    ) -> None:
        super().__init__(url, timeout_s=timeout_s)
        self.bucket, _, prefix = self.url.partition("://")[2].partition("/")
        if not self.bucket:
            raise ValueError(f"{url} names no bucket: write gs://bucket/prefix")
        if max_connections < 1 or part_bytes < 5 * MIB:
            raise ValueError(f"{url}: max_connections must be at least 1, part_bytes 5 MiB")
        self.prefix = f"{prefix}/" if prefix else ""
        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
        if emulator and endpoint_url is None:
            endpoint_url = emulator if "://" in emulator else f"http://{emulator}"
            anonymous = True if anonymous is None and credentials_file is None else anonymous
        self.endpoint = (endpoint_url or GOOGLE).rstrip("/")
        self._user_project = user_project
        self._threshold = multipart_threshold_bytes
        self._part_bytes = part_bytes
        # For the parts of one upload; a whole upload begins again only by its caller's policy.
        self.part_policy = RetryPolicy()
        self._rest = Rest(
            timeout_s=timeout_s,
            max_connections=max_connections,
            ca_bundle=None if ca_bundle is None else os.fspath(ca_bundle),
        )
        self._login = Login(
            credentials_file=None if credentials_file is None else os.fspath(credentials_file),
            anonymous=anonymous,
            timeout_s=timeout_s,
            environment=login_environment(),
        )

    @property
    def _identity(self) -> Identity:
        return identity_for(self._login, self.url)

    # Requests.

    def _send(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, **what: Any
    ) -> Any:
        """Make one authenticated request; `Rest.send` says what comes of it."""
        sent = {"User-Agent": "shardstream", **(headers or {})}
        self._identity.introduce(method, url, sent)
        return self._rest.send(method, url, sent, **what)

    def _json(self, method: str, url: str, **what: Any) -> Any:
        answer = self._send(method, url, **what)
        text = answer.read()
        answer.release_conn()
        return json.loads(text) if text.strip() else {}

    def _objects(self, key: str | None = None, *, way: str = "", **query: str | None) -> str:
        """The JSON API's URL of the bucket's objects, or of one of them."""
        if self._user_project is not None:
            query["userProject"] = self._user_project
        given = urlencode({name: value for name, value in query.items() if value is not None})
        name = "" if key is None else "/" + quote(self.prefix + key, safe="")
        return f"{self.endpoint}{way}/storage/v1/b/{quote(self.bucket)}/o{name}?{given}"

    # What `Store` asks for.

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        answer = self._send(
            "GET",
            self._objects(key, way="/download", alt="media", ifGenerationMatch=etag),
            # Objects that are stored compressed come as they are stored, with their own size.
            {**range_header(start, stop), "Accept-Encoding": "gzip"},
        )
        version = answer.headers.get("x-goog-generation")
        return body_of(answer, start, stop, etag=version, url=self.url_of(key))

    def _stat(self, key: str) -> ObjectInfo:
        found = self._json("GET", self._objects(key, fields="size,generation"))
        return ObjectInfo(key, int(found["size"]), found.get("generation"))

    def _put(self, path: Path, size: int, key: str) -> None:
        if size <= self._threshold or not self._put_parts(path, size, key):
            self._put_whole(path, size, key)

    def _put_whole(self, path: Path, size: int, key: str) -> None:
        md5 = content_md5(path)
        # The service compares the digest before the object appears.
        about = json.dumps({"name": self.prefix + key, "md5Hash": md5}).encode()
        mark = uuid.uuid4().hex
        head = (
            b"--%b\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n%b\r\n"
            b"--%b\r\nContent-Type: application/octet-stream\r\n\r\n"
        ) % (mark.encode(), about, mark.encode())
        tail = b"\r\n--%b--\r\n" % mark.encode()
        stored = self._json(
            "POST",
            self._objects(way="/upload", uploadType="multipart", fields="size,md5Hash"),
            headers={
                "Content-Type": f"multipart/related; boundary={mark}",
                "Content-Length": str(len(head) + size + len(tail)),
            },
            body=_framed(head, path, size, tail),
        )
        if (int(stored["size"]), stored.get("md5Hash", md5)) != (size, md5):
            url = self.url_of(key)
            message = f"{url}: the store has {stored['size']} other bytes than the {size} uploaded"
            raise StoreError(message, url=url, retryable=True)

    def _put_parts(self, path: Path, size: int, key: str) -> bool:
        """Upload in parts, by the XML API, which alone has them.

        Returns:
            Whether it was done; False if this store (an emulator) does not know how.
        """
        place = f"{self.endpoint}/{quote(self.bucket)}/{path_quote(self.prefix + key)}"
        payer = {} if self._user_project is None else {"x-goog-user-project": self._user_project}
        kind = {"Content-Type": "application/octet-stream"}
        try:
            begun = self._send("POST", f"{place}?uploads", {**payer, **kind}, body=b"")
        except StatusError as error:
            if error.status in (400, 404, 405, 501):
                return False
            raise
        upload = urlencode({"uploadId": _element(begun.read(), "UploadId")})

        def send(number: int, data: bytes) -> tuple[int, str]:
            part = f"{place}?partNumber={number}&{upload}"
            with self._guard(key):
                sent = self._send(
                    "PUT", part, {**payer, "Content-MD5": content_md5(data)}, body=data
                )
                sent.drain_conn()
            return number, sent.headers["etag"]

        step = max(self._part_bytes, -(-size // MAX_PARTS))
        try:
            parts = send_parts(
                path, size, step, send, policy=self.part_policy, what=self.url_of(key)
            )
            done = self._send("POST", f"{place}?{upload}", payer, body=_completion(parts)).read()
            _element(done, "ETag")
        except BaseException:
            # Parts of an upload that is left open are kept, and paid for, without being seen.
            with contextlib.suppress(Exception):
                self._send("DELETE", f"{place}?{upload}", payer).drain_conn()
            raise
        verify_size(self, key, size)
        return True

    def _list(self, prefix: str) -> Iterator[str]:
        token: str | None = None
        while True:
            found = self._page(prefix, token, PAGE_KEYS)
            for one in found.get("items", ()):
                key: str = one["name"][len(self.prefix) :]
                if key and not key.endswith("/"):  # What the console makes to show a folder.
                    yield key
            token = found.get("nextPageToken")
            if not token:
                return

    def _page(self, prefix: str, token: str | None, most: int) -> Any:
        url = self._objects(
            prefix=self.prefix + prefix,
            pageToken=token,
            maxResults=str(most),
            fields="items(name),nextPageToken",
        )
        try:
            return self._json("GET", url)
        except StatusError as error:
            if error.status == 404:  # Nothing but the bucket can be missing here.
                who = self._how()
                message = f"{self.url}: there is no such bucket: {self.bucket!r}. {who}"
                raise NotFound(message, url=self.url) from error
            raise

    def _delete(self, key: str) -> None:
        self._send("DELETE", self._objects(key), fine=(200, 204, 404)).drain_conn()

    def _check(self) -> None:
        self._page("", None, 1)

    def _how(self) -> str:
        return f"Requests go to {self.endpoint}, {self._identity.who}"

    def _error(self, exc: BaseException, url: str) -> StoreError | None:
        return gcs_error(exc, url, how=self._how)


def _framed(head: bytes, path: Path, size: int, tail: bytes) -> Iterator[bytes]:
    """A file's bytes between what a form wants before and after them."""
    yield head
    with open(path, "rb") as file:
        while size and (piece := file.read(min(size, CHUNK_BYTES))):
            size -= len(piece)
            yield piece
    if size:
        raise StoreError(f"{path} became {size} bytes shorter while it was being uploaded")
    yield tail


def _completion(parts: list[tuple[int, str]]) -> bytes:
    root = ElementTree.Element("CompleteMultipartUpload")
    for number, etag in parts:
        part = ElementTree.SubElement(root, "Part")
        ElementTree.SubElement(part, "PartNumber").text = str(number)
        ElementTree.SubElement(part, "ETag").text = etag
    return ElementTree.tostring(root)


def _element(answer: bytes, name: str) -> str:
    """The text of an element of an XML answer, whatever its namespace."""
    for element in ElementTree.fromstring(answer).iter():
        if element.tag.rpartition("}")[2] == name:
            return element.text or ""
    said = " ".join(answer.decode("utf-8", "replace").split())[:200]
    raise StoreError(f"the store's answer has no {name}: {said}", retryable=True)
