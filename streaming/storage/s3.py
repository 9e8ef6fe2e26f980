"""Amazon S3 and every store that speaks its protocol, through botocore (which boto3 brings)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from streaming.storage.base import CHUNK_BYTES, Body, ObjectInfo, Store
from streaming.storage.clients import environment_token, shared_client
from streaming.storage.errors import NotFound, StoreError
from streaming.storage.parts import content_md5, send_parts, verify_size
from streaming.storage.rest import Rest, range_header, total_of
from streaming.storage.retry import RetryPolicy
from streaming.storage.s3_direct import Way, record_way
from streaming.storage.s3_errors import error_code, s3_error

__all__ = ["S3Store"]

MIB = 1 << 20
MAX_PARTS = 10_000


@dataclass(frozen=True)
class _Options:
    """All that a client depends on."""

    endpoint_url: str | None
    region: str | None
    profile: str | None
    anonymous: bool | None
    ca_bundle: str | None
    access_key_id: str | None
    secret_access_key: str | None
    session_token: str | None
    addressing_style: str | None
    max_connections: int
    timeout_s: float
    environment: str

    def __repr__(self) -> str:
        return f"_Options(endpoint_url={self.endpoint_url!r}, region={self.region!r}, …)"


class _Client(NamedTuple):
    api: Any
    how: str
    """How it introduces itself and to whom, for errors."""
    credentials: Any
    """botocore's, or None."""
    ca_bundle: str | None
    """File of certificates to trust, also where the configuration names it."""


_ways: dict[tuple[_Options, str], Way | None] = {}
"""How the objects of a bucket are asked for, by options and bucket; None if only botocore knows."""


class S3Store(Store):
    """Objects of a bucket: `s3://bucket/prefix`.

    What is not given is looked for where Amazon's tools look: `AWS_*` variables, `~/.aws`, the
    machine's role. Where no credentials are found at all, requests go unsigned, as public buckets
    want them. botocore's own retrying is off; `RetryPolicy` decides.

    Args:
        url: Bucket and prefix.
        timeout_s: Longest wait for a connection and for the next bytes on one, in seconds.
        endpoint_url: Where the service is; `S3_ENDPOINT_URL`, then `AWS_ENDPOINT_URL_S3`, then
            Amazon unless given.
        region: The bucket's region; `AWS_DEFAULT_REGION` and the profile's unless given.
        profile: A section of `~/.aws/config`; `AWS_PROFILE` unless given.
        anonymous: True never signs, False never goes without credentials; None: only signs with
            credentials, if there are any.
        requester_pays: Whether the requests are on our bill; unless given, whether the bucket is
            among the comma-separated names in `MOSAICML_STREAMING_AWS_REQUESTER_PAYS`.
        acl: Canned ACL of what is uploaded ("bucket-owner-full-control"); `S3_CANNED_ACL` unless
            given.
        ca_bundle: File of certificates to trust; `AWS_CA_BUNDLE` unless given.
        access_key_id: With the two below, credentials to use instead of the chain's.
        secret_access_key: See above.
        session_token: See above; only for temporary credentials.
        addressing_style: "path" or "virtual"; botocore's choice unless given.
        max_connections: Most connections that a process keeps open.
        multipart_threshold_bytes: Files above this size are uploaded in parts, side by side.
        part_bytes: Size of a part; raised where a file would need over 10,000 of them.

    Raises:
        ValueError: If the URL names no bucket, or a number makes no sense.

    Example:
        >>> store = S3Store("s3://bucket/train", endpoint_url="http://127.0.0.1:9000")
        >>> store.url_of("shard.00000.mds"), store.bucket, store.prefix
        ('s3://bucket/train/shard.00000.mds', 'bucket', 'train/')
    """

    can_write: ClassVar[bool] = True

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 60.0,
        endpoint_url: str | None = None,
        region: str | None = None,
        profile: str | None = None,
        anonymous: bool | None = None,
        requester_pays: bool | None = None,
        acl: str | None = None,
        ca_bundle: str | os.PathLike[str] | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        session_token: str | None = None,
        addressing_style: str | None = None,
        max_connections: int = 64,
        multipart_threshold_bytes: int = 64 * MIB,
        part_bytes: int = 16 * MIB,
    ) -> None:
        super().__init__(url, timeout_s=timeout_s)
        self.bucket, _, prefix = self.url.partition("://")[2].partition("/")
        if not self.bucket:
            raise ValueError(f"{url} names no bucket: write s3://bucket/prefix")
        if (access_key_id is None) != (secret_access_key is None):
            raise ValueError(f"{url}: access_key_id and secret_access_key go together")
        if max_connections < 1 or part_bytes < 5 * MIB:
            raise ValueError(f"{url}: max_connections must be at least 1, part_bytes 5 MiB")
        self.prefix = f"{prefix}/" if prefix else ""
        payers = os.environ.get("MOSAICML_STREAMING_AWS_REQUESTER_PAYS", "").split(",")
        if requester_pays is None:
            requester_pays = self.bucket in [name.strip() for name in payers]
        self._payer = {"RequestPayer": "requester"} if requester_pays else {}
        acl = os.environ.get("S3_CANNED_ACL") if acl is None else acl
        self._acl = {"ACL": acl} if acl else {}
        self._threshold = multipart_threshold_bytes
        self._part_bytes = part_bytes
        # For the parts of one upload; a whole upload begins again only by its caller's policy.
        self.part_policy = RetryPolicy()
        self._options = _Options(
            endpoint_url=endpoint_url or os.environ.get("S3_ENDPOINT_URL") or None,
            region=region,
            profile=profile,
            anonymous=anonymous,
            ca_bundle=None if ca_bundle is None else os.fspath(ca_bundle),
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            session_token=session_token,
            addressing_style=addressing_style,
            max_connections=max_connections,
            timeout_s=timeout_s,
            environment=environment_token("AWS_"),
        )

    @property
    def _client(self) -> _Client:
        options = self._options
        client: _Client = shared_client(options, lambda: _make_client(options))
        return client

    def _names(self, key: str) -> dict[str, Any]:
        return {"Bucket": self.bucket, "Key": self.prefix + key}

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        name = self._options, self.bucket
        way = _ways.get(name)
        if way is not None:
            headers = range_header(start, stop)
            if etag is not None:
                headers["If-Match"] = etag
            if self._payer:
                headers["x-amz-request-payer"] = "requester"
            body = way.open(self.prefix + key, headers, start, stop)
            if body is not None:
                return body
            _ways[name] = None
        wanted: dict[str, str] = {**self._payer, **range_header(start, stop)}
        if etag is not None:
            wanted["IfMatch"] = etag
        with self._way_found(name, self.prefix + key, "GetObject"):
            answer = self._client.api.get_object(**self._names(key), **wanted)
        stream = answer["Body"]
        return Body(
            iter(lambda: stream.read(CHUNK_BYTES), b""),
            length=answer["ContentLength"],
            etag=answer.get("ETag"),
            close=stream.close,
            total=total_of(answer.get("ContentRange")),
            interrupt=lambda: stream._raw_stream.shutdown(),
        )

    @contextlib.contextmanager
    def _way_found(self, name: tuple[_Options, str], key: str, operation: str) -> Iterator[None]:
        """Keep the way that botocore's request goes, if it succeeds."""
        if name in _ways:
            yield
            return
        sent: list[Any] = []
        client = self._client
        event = f"before-send.s3.{operation}"
        client.api.meta.events.register(event, watch := _Watch(sent))
        try:
            yield
        finally:
            client.api.meta.events.unregister(event, watch)
        # Of another thread's request meanwhile the key is another, and so it shows no way.
        if sent:
            rest = Rest(self.timeout_s, self._options.max_connections, client.ca_bundle)
            way = record_way(sent[-1], key, client.credentials, rest)
            if way is not None:
                _ways[name] = way

    def _stat(self, key: str) -> ObjectInfo:
        name = self._options, self.bucket
        way = _ways.get(name)
        if way is not None:
            headers = {"x-amz-request-payer": "requester"} if self._payer else {}
            found = way.stat(self.prefix + key, headers)
            if found is not None:
                return ObjectInfo(key, *found)
        try:
            with self._way_found(name, self.prefix + key, "HeadObject"):
                answer = self._client.api.head_object(**self._names(key), **self._payer)
        except Exception as exc:
            # The answer to HEAD has no body, and so does not say what it is that is missing.
            if error_code(exc) == "404":
                self._check()
            raise
        return ObjectInfo(key, answer["ContentLength"], answer.get("ETag"))

    def _put(self, path: Path, size: int, key: str) -> None:
        if size > self._threshold:
            self._put_parts(path, size, key)
        else:
            with open(path, "rb") as file:
                self._client.api.put_object(
                    **self._names(key),
                    **self._acl,
                    **self._payer,
                    Body=file,
                    ContentMD5=content_md5(path),
                )
        verify_size(self, key, size)  # The store has checked the MD5 itself.

    def _put_parts(self, path: Path, size: int, key: str) -> None:
        api, names = self._client.api, self._names(key)
        upload = api.create_multipart_upload(**names, **self._acl, **self._payer)["UploadId"]

        def send(number: int, data: bytes) -> dict[str, Any]:
            with self._guard(key):
                answer = api.upload_part(
                    **names,
                    **self._payer,
                    UploadId=upload,
                    PartNumber=number,
                    Body=data,
                    ContentMD5=content_md5(data),
                )
            return {"PartNumber": number, "ETag": answer["ETag"]}

        try:
            step = max(self._part_bytes, -(-size // MAX_PARTS))
            policy, what = self.part_policy, self.url_of(key)
            parts = send_parts(path, size, step, send, policy=policy, what=what)
            api.complete_multipart_upload(
                **names, **self._payer, UploadId=upload, MultipartUpload={"Parts": parts}
            )
        except BaseException:
            # Parts of an upload that is left open are kept, and paid for, without being seen.
            with contextlib.suppress(Exception):
                api.abort_multipart_upload(**names, **self._payer, UploadId=upload)
            raise

    def _list(self, prefix: str) -> Iterator[str]:
        page: dict[str, Any] = {}
        while True:
            answer = self._client.api.list_objects_v2(
                Bucket=self.bucket, Prefix=self.prefix + prefix, **self._payer, **page
            )
            for found in answer.get("Contents", ()):
                key: str = found["Key"][len(self.prefix) :]
                if not key.endswith("/"):  # What consoles make to show a folder.
                    yield key
            if not answer.get("IsTruncated"):
                return
            page = {"ContinuationToken": answer["NextContinuationToken"]}

    def _delete(self, key: str) -> None:
        self._client.api.delete_object(**self._names(key), **self._payer)

    def _check(self) -> None:
        try:
            self._client.api.head_bucket(Bucket=self.bucket)
        except Exception as exc:
            if error_code(exc) == "404":
                raise NotFound(_no_bucket(self), url=self.url) from exc
            raise

    def _error(self, exc: BaseException, url: str) -> StoreError | None:
        return s3_error(exc, url, bucket=self.bucket, how=lambda: self._client.how)


class _Watch:
    """Notes the requests that botocore sends."""

    def __init__(self, sent: list[Any]) -> None:
        self._sent = sent

    def __call__(self, request: Any, **_: Any) -> None:
        self._sent.append(request)


def _no_bucket(store: S3Store) -> str:
    return f"{store.url}: there is no such bucket: {store.bucket!r}. {store._client.how}"


def _make_client(options: _Options) -> _Client:
    import botocore.session
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.exceptions import NoCredentialsError

    session = botocore.session.Session(profile=options.profile)
    _share_models(session)
    if options.access_key_id is not None:
        session.set_credentials(
            options.access_key_id, options.secret_access_key, options.session_token
        )
    credentials = None if options.anonymous else session.get_credentials()
    if credentials is None and options.anonymous is False:
        raise NoCredentialsError()
    config = Config(
        connect_timeout=options.timeout_s,
        read_timeout=options.timeout_s,
        max_pool_connections=options.max_connections,
        retries={"total_max_attempts": 1, "mode": "standard"},
        signature_version=UNSIGNED if credentials is None else None,
        s3={"addressing_style": options.addressing_style} if options.addressing_style else None,
        tcp_keepalive=True,
        # Trailing checksums are unknown to many stores that otherwise speak S3; uploads carry
        # Content-MD5, which all of them check.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="shardstream",
    )
    api = session.create_client(
        "s3",
        region_name=options.region,
        endpoint_url=options.endpoint_url,
        verify=options.ca_bundle,
        config=config,
    )
    ca_bundle = options.ca_bundle or session.get_config_variable("ca_bundle")
    return _Client(api, _describe(api, credentials, options), credentials, ca_bundle)


_models: dict[Any, Any] = {}


def _share_models(session: Any) -> None:
    """Have botocore read its models of services only once, and not again in forked processes.

    They are large files of JSON, and parsing them is most of what making a client takes, in each of
    a loader's workers just before its first batch. Nothing but such data is shared.
    """
    path = session.get_config_variable("data_path")
    if path in _models:
        session.register_component("data_loader", _models[path])
    else:
        _models[path] = session.get_component("data_loader")


def _describe(api: Any, credentials: Any, options: _Options) -> str:
    """Say to whom a client speaks, and as whom, without giving anything away."""
    if credentials is not None:
        where = "storage_options" if options.access_key_id else credentials.method
        who = f"signed with the credentials from {where!r}"
        if options.profile:
            who += f" (profile {options.profile!r})"
    elif options.anonymous:
        who = "unsigned, because anonymous=True was given"
    else:
        who = (
            "unsigned, because no credentials were found in storage_options, AWS_* variables, "
            "~/.aws, or the machine's role"
        )
    region = api.meta.region_name or "none"
    return f"Requests go to {api.meta.endpoint_url} (region {region}), {who}"
