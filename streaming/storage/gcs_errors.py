"""What the answers of Google Cloud Storage, and google-auth's exceptions, mean."""

from __future__ import annotations

import contextlib
import json
import re
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
from streaming.storage.rest import StatusError

__all__ = ["gcs_error"]

# The service's own reasons (JSON) and codes (XML), where they say more than the HTTP status: kind,
# what it means, whether to try again.
CODES: Mapping[str, tuple[type[StoreError], str, bool]] = {
    "rateLimitExceeded": (Throttled, "the store asks for fewer requests", True),
    "userRateLimitExceeded": (Throttled, "the store asks for fewer requests", True),
    "SlowDown": (Throttled, "the store asks for fewer requests", True),
    "ServiceUnavailable": (Throttled, "the store is overloaded", True),
    "backendError": (Throttled, "the store is overloaded", True),
    "internalError": (StoreError, "the store failed", True),
    "InternalError": (StoreError, "the store failed", True),
    "NoSuchBucket": (NotFound, "there is no such bucket", False),
    "NoSuchUpload": (NotFound, "the upload was aborted or has expired", False),
    "BadDigest": (StoreError, "the upload arrived damaged", True),
    "IncompleteBody": (StoreError, "the upload arrived incomplete", True),
    "RequestTimeout": (StoreError, "the request's bytes did not reach the store in time", True),
    "conditionNotMet": (ObjectChanged, "the object has changed since it was first read", False),
    "UserProjectMissing": (
        AccessDenied,
        "the requester pays here: give the option user_project",
        False,
    ),
    "required": (AccessDenied, "access was denied: we have not said who we are", False),
    "authError": (AccessDenied, "the credentials were not accepted", False),
}

# What google-auth raises before a request is sent, by class name.
LOCAL: Mapping[str, str] = {
    "DefaultCredentialsError": "no usable credentials were found",
    "MalformedError": "the credentials' file is not what it should be",
    "ReauthFailError": "the login has to be renewed (gcloud auth application-default login)",
    "RefreshError": "the credentials could not be renewed",
    "UserAccessTokenError": "gcloud gave no token (gcloud auth login)",
}


def gcs_error(exc: BaseException, url: str, *, how: Callable[[], str]) -> StoreError | None:
    """Turn an answer's status, or one of google-auth's exceptions, into the error it stands for.

    Args:
        exc: The exception.
        url: The object's URL.
        how: Says to whom we speak and as whom, for errors about access.

    Returns:
        The error; None if the exception is about the connection, or nothing of this store's.
    """
    if isinstance(exc, StatusError):
        return _from_answer(exc, url, how)
    if not type(exc).__module__.startswith("google.auth"):
        return None
    known = from_connection(exc, url)
    if known is not None:
        return known
    retryable = bool(getattr(exc, "retryable", False))
    for ancestor in type(exc).__mro__:
        if ancestor.__name__ in LOCAL:
            what = LOCAL[ancestor.__name__]
            return AccessDenied(f"{url}: {what} ({exc})", url=url, retryable=retryable)
    return StoreError(f"{url}: no credentials could be had ({exc})", url=url, retryable=True)


def _from_answer(exc: StatusError, url: str, how: Callable[[], str]) -> StoreError:
    code, said = _reason(exc.text)
    after = exc.headers.get("retry-after")
    if exc.status == 404 and "bucket does not exist" in said:
        code = "NoSuchBucket"
    if code not in CODES or (code == "required" and exc.status != 401):
        hint = how() if exc.status in (401, 403) else ""
        return from_status(exc.status, url, detail=said, hint=hint, retry_after=after)
    kind, what, retryable = CODES[code]
    hint = f". {how()}" if kind in (AccessDenied, NotFound) else ""
    return kind(
        f"{url}: {what} ({code}: {said}){hint}",
        url=url,
        retryable=retryable,
        retry_after_s=retry_after_seconds(after),
    )


def _reason(text: str) -> tuple[str, str]:
    """The reason or code in an answer, "" if there is none; and what it says in words."""
    with contextlib.suppress(ValueError, AttributeError, TypeError, LookupError):
        error = json.loads(text)["error"]
        reasons = [str(one.get("reason", "")) for one in error.get("errors", ())]
        return next(iter(reasons), ""), str(error.get("message", ""))
    code = re.search(r"<Code>([^<]*)</Code>", text)
    message = re.search(r"<Message>([^<]*)</Message>", text)
    words = message[1] if message else " ".join(text.split())[:200]
    return (code[1] if code else ""), words
