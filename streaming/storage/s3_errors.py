"""What the answers of S3, and botocore's own exceptions, mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streaming.storage.errors import (
    AccessDenied,
    NotFound,
    ObjectChanged,
    StoreError,
    Throttled,
    from_connection,
    from_status,
    retry_after_seconds,
)

__all__ = ["error_code", "s3_error"]

# The service's error codes: kind, what it means, whether to try again. Codes that are not here
# are judged by their HTTP status.
CODES: Mapping[str, tuple[type[StoreError], str, bool]] = {
    "NoSuchKey": (NotFound, "there is no such object", False),
    "NoSuchBucket": (NotFound, "there is no such bucket: {bucket!r}", False),
    "NoSuchUpload": (NotFound, "the upload was aborted or has expired", False),
    "AccessDenied": (AccessDenied, "access was denied", False),
    "AllAccessDisabled": (AccessDenied, "access is disabled", False),
    "InvalidAccessKeyId": (AccessDenied, "the access key is not known there", False),
    "SignatureDoesNotMatch": (AccessDenied, "the secret key is wrong for the access key", False),
    "ExpiredToken": (AccessDenied, "the credentials have expired", False),
    "InvalidToken": (AccessDenied, "the session token is not valid", False),
    "RequestTimeTooSkewed": (AccessDenied, "this machine's clock is wrong", False),
    "InvalidObjectState": (StoreError, "the object is archived; restore it first", False),
    "PreconditionFailed": (ObjectChanged, "the object has changed since it was first read", False),
    "InvalidRange": (StoreError, "the object does not have the bytes asked for", False),
    "PermanentRedirect": (StoreError, "the bucket is in another region", False),
    "AuthorizationHeaderMalformed": (StoreError, "the bucket is in another region", False),
    "SlowDown": (Throttled, "the store asks for fewer requests", True),
    "Throttling": (Throttled, "the store asks for fewer requests", True),
    "ThrottlingException": (Throttled, "the store asks for fewer requests", True),
    "RequestLimitExceeded": (Throttled, "the store asks for fewer requests", True),
    "TooManyRequests": (Throttled, "the store asks for fewer requests", True),
    "ServiceUnavailable": (Throttled, "the store is overloaded", True),
    "InternalError": (StoreError, "the store failed", True),
    "RequestTimeout": (StoreError, "the request's bytes did not reach the store in time", True),
    "IncompleteBody": (StoreError, "the upload arrived incomplete", True),
    "BadDigest": (StoreError, "the upload arrived damaged", True),
    "OperationAborted": (StoreError, "another operation was in the way", True),
}

# What botocore raises before a request is sent, by class name.
LOCAL: Mapping[str, str] = {
    "NoCredentialsError": "no credentials were found",
    "PartialCredentialsError": "the credentials found are incomplete",
    "CredentialRetrievalError": "the credentials could not be fetched",
    "ProfileNotFound": "there is no such profile in ~/.aws",
    "SSOError": "the single sign-on has to be renewed (aws sso login)",
    "TokenRetrievalError": "the single sign-on has to be renewed (aws sso login)",
    "MetadataRetrievalError": "the machine's role could not be asked for",
}


def error_code(exc: BaseException) -> str:
    """The service's code in an exception ("NoSuchKey"; a status where it gave none), or ""."""
    response = getattr(exc, "response", None)
    if not isinstance(response, dict):
        return ""
    return str(response.get("Error", {}).get("Code", ""))


def s3_error(
    exc: BaseException, url: str, *, bucket: str, how: Callable[[], str]
) -> StoreError | None:
    """Turn one of botocore's exceptions into the error that stands for it.

    Args:
        exc: The exception.
        url: The object's URL.
        bucket: The bucket's name.
        how: Says to whom we speak and as whom, for errors about access.

    Returns:
        The error; None if the exception is about the connection, or nothing of botocore's.
    """
    response = getattr(exc, "response", None)
    if isinstance(response, dict) and "ResponseMetadata" in response:
        return _from_response(response, error_code(exc), url, bucket, how)
    for ancestor in type(exc).__mro__:
        if ancestor.__name__ in LOCAL and ancestor.__module__.startswith("botocore"):
            return AccessDenied(f"{url}: {LOCAL[ancestor.__name__]} ({exc})", url=url)
    if isinstance(exc, RecursionError):  # botocore looks for the region by what is redirected, too
        what = "the server redirects without end, and without naming the bucket's region"
        return StoreError(f"{url}: {what}. Is endpoint_url right? {how()}", url=url)
    if type(exc).__module__ == "botocore.exceptions":
        return from_connection(exc, url) or StoreError(f"{url}: {exc}", url=url)
    return None


def _from_response(
    response: dict[str, dict[str, object]], code: str, url: str, bucket: str, how: Callable[[], str]
) -> StoreError:
    metadata = response["ResponseMetadata"]
    headers = metadata.get("HTTPHeaders")
    header = headers.get if isinstance(headers, dict) else {}.get
    after = header("retry-after")
    said = str(response.get("Error", {}).get("Message", "") or "")
    if code not in CODES:
        status = int(str(metadata.get("HTTPStatusCode", 0)))
        detail = ", ".join(part for part in (code if code != str(status) else "", said) if part)
        hint = how() if status in (400, 401, 403) else ""
        return from_status(status, url, detail=detail, hint=hint, retry_after=after)
    kind, what, retryable = CODES[code]
    parts = [f"{url}: {what.format(bucket=bucket)} ({code}: {said})"]
    region = header("x-amz-bucket-region")
    if kind is StoreError and "region" in what and region:
        parts.append(f"It is in {region}: give region={region!r}")
    elif kind is AccessDenied or code == "NoSuchBucket" or "region" in what:
        parts.append(how())
    return kind(
        ". ".join(parts), url=url, retryable=retryable, retry_after_s=retry_after_seconds(after)
    )
