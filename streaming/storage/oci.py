"""Oracle Cloud's Object Storage, through its own client."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streaming.storage.base import Body, ObjectInfo, Store
from streaming.storage.clients import environment_token, require, shared_client
from streaming.storage.errors import (
    AccessDenied,
    NotFound,
    ObjectChanged,
    StoreError,
    Throttled,
    from_status,
    retry_after_seconds,
)
from streaming.storage.parts import content_md5, send_parts, verify_size
from streaming.storage.rest import body_of, range_header
from streaming.storage.retry import RetryPolicy

__all__ = ["OCIStore"]

MIB = 1 << 20
MAX_PARTS = 10_000
_AUTH = ("api_key", "instance_principal", "resource_principal", "security_token")


@dataclass(frozen=True)
class _Options:
    """All that a client depends on."""

    config_file: str | None
    profile: str
    auth: str | None
    region: str | None
    endpoint_url: str | None
    federation_endpoint: str | None
    timeout_s: float
    max_connections: int
    environment: str = field(repr=False)


@dataclass(frozen=True)
class _Client:
    api: Any
    how: str
    """To whom it speaks, and as whom, for errors."""


class OCIStore(Store):
    """Objects of a bucket: `oci://bucket@namespace/prefix`, or `oci://bucket/prefix`.

    Without a namespace it is the tenancy's own, asked for once. The client's own retrying and its
    circuit breaker are off; `RetryPolicy` decides.

    Args:
        url: Bucket, namespace and prefix.
        timeout_s: Longest wait for a connection and for the next bytes on one, in seconds.
        config_file: The file with user, key and region; `OCI_CONFIG_FILE`, then `~/.oci/config`
            unless given.
        profile: The file's section; `OCI_CLI_PROFILE`, then "DEFAULT" unless given.
        auth: "api_key" or "security_token" (both by the file), "instance_principal" or
            "resource_principal". Unless given: `OCI_CLI_AUTH`; else the file if there is one; else
            what the machine or the function is allowed to do.
        region: "eu-frankfurt-1"; the file's or the machine's unless given.
        endpoint_url: Where the service is; the region's unless given.
        federation_endpoint: Where a machine gets its tokens; the region's unless given.
        max_connections: Most connections that a process keeps open.
        multipart_threshold_bytes: Files above this size are uploaded in parts, side by side.
        part_bytes: Size of a part; raised where a file would need over 10,000 of them.

    Raises:
        ValueError: If the URL names no bucket, or an option makes no sense.

    Example:
        >>> store = OCIStore("oci://bucket@tenant/train")
        >>> store.bucket, store.namespace, store.prefix
        ('bucket', 'tenant', 'train/')
        >>> OCIStore("oci://bucket/train").namespace is None
        True
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 60.0,
        config_file: str | os.PathLike[str] | None = None,
        profile: str | None = None,
        auth: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        federation_endpoint: str | None = None,
        max_connections: int = 64,
        multipart_threshold_bytes: int = 64 * MIB,
        part_bytes: int = 16 * MIB,
    ) -> None:
        super().__init__(url, timeout_s=timeout_s)
        root, _, prefix = self.url.partition("://")[2].partition("/")
        self.bucket, at, namespace = root.partition("@")
        if not self.bucket or (at and not namespace):
            raise ValueError(f"{url}: write oci://bucket@namespace/prefix or oci://bucket/prefix")
        if auth not in (None, *_AUTH):
            raise ValueError(f"{url}: auth is {auth!r}; there are {', '.join(_AUTH)}")
        if max_connections < 1 or part_bytes < 1 or multipart_threshold_bytes < 1:
            raise ValueError(f"{url}: max_connections and the sizes of parts must be at least 1")
        self.namespace = namespace or None
        self.prefix = f"{prefix}/" if prefix else ""
        self._threshold = multipart_threshold_bytes
        self._part_bytes = part_bytes
        # For the parts of one upload; a whole upload begins again only by its caller's policy.
        self.part_policy = RetryPolicy()
        self._options = _Options(
            config_file=None if config_file is None else os.fspath(config_file),
            profile=profile or os.environ.get("OCI_CLI_PROFILE") or "DEFAULT",
            auth=auth or os.environ.get("OCI_CLI_AUTH") or None,
            region=region,
            endpoint_url=endpoint_url,
            federation_endpoint=federation_endpoint,
            timeout_s=timeout_s,
            max_connections=max_connections,
            environment=environment_token("OCI_", "HOME"),
        )

    @property
    def _client(self) -> _Client:
        options = self._options
        require("oci", package="oci", url=self.url)
        try:
            client: _Client = shared_client(options, lambda: _make_client(options))
        except AccessDenied as error:
            raise error.retold(f"{self.url}: {error}. {_HINT}") from error
        return client

    def _call(self, operation: str, *names: Any, **options: Any) -> Any:
        """Call one of the client's operations on the bucket."""
        call: Callable[..., Any] = getattr(self._client.api, operation)
        return call(self._namespace(), self.bucket, *names, **options)

    def _namespace(self) -> str:
        if self.namespace is not None:
            return self.namespace
        api, name = self._client.api, (self._options, "namespace")
        found: str = shared_client(name, lambda: api.get_namespace().data)
        return found

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        wanted = {name.lower(): value for name, value in range_header(start, stop).items()}
        if etag is not None:
            wanted["if_match"] = etag
        answer = self._call("get_object", self.prefix + key, **wanted)
        version = answer.headers.get("etag")
        return body_of(answer.data.raw, start, stop, etag=version, url=self.url_of(key))

    def _stat(self, key: str) -> ObjectInfo:
        try:
            headers = self._call("head_object", self.prefix + key).headers
        except Exception as exc:
            # The answer to HEAD has no body, and so does not say what it is that is missing.
            if getattr(exc, "status", None) == 404:
                self._check()
            raise
        return ObjectInfo(key, int(headers["content-length"]), headers.get("etag"))

    def _put(self, path: Path, size: int, key: str) -> None:
        if size > self._threshold:
            self._put_parts(path, size, key)
            return
        with open(path, "rb") as file:
            # The service compares the digest, and so the size, before the object appears.
            self._call(
                "put_object",
                self.prefix + key,
                file,
                content_length=size,
                content_md5=content_md5(path),
            )

    def _put_parts(self, path: Path, size: int, key: str) -> None:
        import oci

        name = self.prefix + key
        models = oci.object_storage.models
        upload = self._call(
            "create_multipart_upload", models.CreateMultipartUploadDetails(object=name)
        ).data.upload_id
        step = max(self._part_bytes, -(-size // MAX_PARTS))

        def send(number: int, data: bytes) -> Any:
            with self._guard(key):
                sent = self._call(
                    "upload_part", name, upload, number, data, content_md5=content_md5(data)
                )
            return models.CommitMultipartUploadPartDetails(
                part_num=number, etag=sent.headers["etag"]
            )

        try:
            parts = send_parts(
                path, size, step, send, policy=self.part_policy, what=self.url_of(key)
            )
            self._call(
                "commit_multipart_upload",
                name,
                upload,
                models.CommitMultipartUploadDetails(parts_to_commit=parts),
            )
        except BaseException:
            # Parts of an upload that is left open are kept, and paid for, without being seen.
            with contextlib.suppress(Exception):
                self._call("abort_multipart_upload", name, upload)
            raise
        verify_size(self, key, size)

    def _list(self, prefix: str) -> Iterator[str]:
        page: dict[str, Any] = {}
        while True:
            found = self._call("list_objects", prefix=self.prefix + prefix, fields="name", **page)
            for one in found.data.objects:
                key: str = one.name[len(self.prefix) :]
                if key and not key.endswith("/"):  # What the console makes to show a folder.
                    yield key
            if not found.data.next_start_with:
                return
            page = {"start": found.data.next_start_with}

    def _delete(self, key: str) -> None:
        try:
            self._call("delete_object", self.prefix + key)
        except Exception as exc:
            if getattr(exc, "code", None) != "ObjectNotFound":
                raise

    def _check(self) -> None:
        try:
            self._call("head_bucket")
        except Exception as exc:
            if getattr(exc, "status", None) == 404:
                what, retryable = CODES["BucketNotFound"][1:]
                message = f"{self.url}: {what}. {self._client.how}"
                raise NotFound(message, url=self.url, retryable=retryable) from exc
            raise

    def _error(self, exc: BaseException, url: str) -> StoreError | None:
        names = [ancestor.__name__ for ancestor in type(exc).__mro__]
        if not type(exc).__module__.startswith("oci."):
            return None
        if "ServiceError" in names:
            return _from_service(exc, url, lambda: self._client.how)
        for name in names:
            if name in LOCAL:
                return AccessDenied(f"{url}: {LOCAL[name]} ({exc}). {_HINT}", url=url)
        return None


_HINT = (
    "Credentials come from the option config_file, OCI_CONFIG_FILE or ~/.oci/config; on a machine "
    "of Oracle's cloud give auth='instance_principal'"
)

# The service's error codes: kind, what it means, whether to try again. Codes that are not here
# are judged by their HTTP status.
CODES: Mapping[str, tuple[type[StoreError], str, bool]] = {
    "ObjectNotFound": (NotFound, "there is no such object", False),
    "BucketNotFound": (
        NotFound,
        "there is no such bucket in that namespace, or we may not know of it",
        False,
    ),
    "NamespaceNotFound": (NotFound, "there is no such namespace, or it is not ours", False),
    "NotAuthorizedOrNotFound": (NotFound, "it is not there, or we may not know of it", False),
    "NotAuthenticated": (AccessDenied, "the request's signature was not accepted", False),
    "NotAuthorized": (AccessDenied, "access was denied", False),
    "SignUpRequired": (AccessDenied, "the tenancy has not signed up for this service", False),
    "IfMatchFailed": (ObjectChanged, "the object has changed since it was first read", False),
    "InvalidRange": (StoreError, "the object does not have the bytes asked for", False),
    "UnmatchedContentMD5": (StoreError, "the upload arrived damaged", True),
    "RequestTimeout": (StoreError, "the request's bytes did not reach the store in time", True),
    "ConcurrentObjectUpdate": (StoreError, "another upload was in the way", True),
    "TooManyRequests": (Throttled, "the store asks for fewer requests", True),
    "SlowDown": (Throttled, "the store asks for fewer requests", True),
    "ServiceUnavailable": (Throttled, "the store is overloaded", True),
    "InternalError": (StoreError, "the store failed", True),
    "InternalServerError": (StoreError, "the store failed", True),
}

# What the client raises before a request is sent, by class name.
LOCAL: Mapping[str, str] = {
    "ConfigFileNotFound": "there is no such configuration file",
    "ProfileNotFound": "the configuration file has no such section",
    "InvalidConfig": "the configuration file is not complete",
    "InvalidKeyFilePath": "the configuration file names a key file that is not there",
    "InvalidPrivateKey": "the private key can't be used",
    "MissingPrivateKeyPassphrase": "the private key has a passphrase that was not given",
    "InvalidResourcePrincipalArguments": "the function's credentials are not complete",
}


def _from_service(exc: Any, url: str, how: Callable[[], str]) -> StoreError:
    after = exc.headers.get("retry-after")
    said = str(exc.message or "")
    if exc.code not in CODES:
        hint = how() if exc.status in (400, 401, 403) else ""
        detail = ": ".join(part for part in (exc.code or "", said) if part)
        return from_status(exc.status, url, detail=detail, hint=hint, retry_after=after)
    kind, what, retryable = CODES[exc.code]
    hint = f". {how()}" if kind in (AccessDenied, NotFound) else ""
    return kind(
        f"{url}: {what} ({exc.code}: {said}){hint}",
        url=url,
        retryable=retryable,
        retry_after_s=retry_after_seconds(after),
    )


def _make_client(options: _Options) -> _Client:
    import oci

    config, signer, who = _credentials(options)
    if options.region:
        config["region"] = options.region
    settings: dict[str, Any] = {} if signer is None else {"signer": signer}
    if options.endpoint_url:
        settings["service_endpoint"] = options.endpoint_url.rstrip("/")
    api = oci.object_storage.ObjectStorageClient(
        config,
        retry_strategy=oci.retry.NoneRetryStrategy(),
        circuit_breaker_strategy=oci.circuit_breaker.NoCircuitBreakerStrategy(),
        timeout=(options.timeout_s, options.timeout_s),
        enable_strict_url_encoding=True,
        **settings,
    )
    session = api.base_client.session
    for scheme in ("https://", "http://"):
        adapter = type(session.get_adapter(scheme))
        session.mount(scheme, adapter(pool_maxsize=options.max_connections))
    return _Client(api, f"Requests go to {api.base_client.endpoint}, {who}")


def _credentials(options: _Options) -> tuple[dict[str, Any], Any, str]:
    """The client's configuration, its signer if that is not made from it, and who we are."""
    import oci

    found = options.config_file or os.environ.get("OCI_CONFIG_FILE")
    path = os.path.expanduser(found or os.path.join("~", ".oci", "config"))
    auth = options.auth
    if auth is None and (found or os.path.exists(path)):
        auth = "api_key"
    if auth is None and "OCI_RESOURCE_PRINCIPAL_VERSION" in os.environ:
        auth = "resource_principal"
    if auth == "resource_principal":
        signer = oci.auth.signers.get_resource_principals_signer()
        return {"region": signer.region}, signer, "as this function (resource principal)"
    if auth in (None, "instance_principal"):
        signer = _machine(options, path if auth is None else None)
        return {"region": signer.region}, signer, "as this machine (instance principal)"
    config = oci.config.from_file(path, options.profile)
    who = f"as section {options.profile!r} of {path} says"
    if auth == "security_token":
        token = Path(config["security_token_file"]).expanduser().read_text().strip()
        key = oci.signer.load_private_key_from_file(config["key_file"], config.get("pass_phrase"))
        return config, oci.auth.signers.SecurityTokenSigner(token, key), who
    return config, None, who


def _machine(options: _Options, instead_of: str | None) -> Any:
    """Sign as the machine that we run on.

    Args:
        options: The store's options.
        instead_of: The configuration file that is not there, if that is why.
    """
    import oci

    try:
        return oci.auth.signers.InstancePrincipalsSecurityTokenSigner(
            retry_strategy=oci.retry.NoneRetryStrategy(),
            federation_client_retry_strategy=oci.retry.NoneRetryStrategy(),
            federation_endpoint=options.federation_endpoint,
        )
    except Exception as exc:
        if instead_of is None:
            raise
        raise AccessDenied(
            f"there is no {instead_of}, and this machine has no identity ({type(exc).__name__})"
        ) from exc
