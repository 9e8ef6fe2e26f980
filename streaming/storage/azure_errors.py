"""What the answers of Azure Storage, and azure-identity's exceptions, mean."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from html import unescape

from streaming.storage.errors import (
    AccessDenied,
    NotFound,
    ObjectChanged,
    StoreError,
    Throttled,
    from_status,
    retry_after_seconds,
)
from streaming.storage.rest import StatusError

__all__ = ["azure_error", "code_of"]

_NO_CONTAINER = "there is no such container"
_PLAINLY_MISSING = ("BlobNotFound", "PathNotFound")
_SIGN = "the account does not accept how the request was signed"

# The service's codes, where they say more than the HTTP status: kind, what it means, whether to try
# again.
CODES: Mapping[str, tuple[type[StoreError], str, bool]] = {
    "BlobNotFound": (NotFound, "there is no such object", False),
    "PathNotFound": (NotFound, "there is no such object", False),
    "ContainerNotFound": (NotFound, _NO_CONTAINER, False),
    "FilesystemNotFound": (NotFound, _NO_CONTAINER, False),
    "ContainerBeingDeleted": (NotFound, "the container is being deleted", False),
    "FilesystemBeingDeleted": (NotFound, "the container is being deleted", False),
    "ResourceNotFound": (
        NotFound,
        "there is no such object or container, or we may not know of it",
        False,
    ),
    "AuthenticationFailed": (AccessDenied, _SIGN, False),
    "InvalidAuthenticationInfo": (AccessDenied, _SIGN, False),
    "NoAuthenticationInformation": (AccessDenied, "access was denied: it wants a login", False),
    "PublicAccessNotPermitted": (AccessDenied, "access was denied: it wants a login", False),
    "AuthorizationPermissionMismatch": (
        AccessDenied,
        "access was denied: the login lacks a role such as Storage Blob Data Reader",
        False,
    ),
    "AccountIsDisabled": (AccessDenied, "the account is disabled", False),
    "KeyBasedAuthenticationNotPermitted": (AccessDenied, "the account allows no keys", False),
    "ConditionNotMet": (ObjectChanged, "the object has changed since it was first read", False),
    "BlobArchived": (StoreError, "the object is archived; rehydrate it first", False),
    "BlobBeingRehydrated": (StoreError, "the object is still being rehydrated", False),
    "ServerBusy": (Throttled, "the store asks for fewer requests", True),
    "OperationTimedOut": (StoreError, "the store took too long", True),
    "InternalError": (StoreError, "the store failed", True),
    "Md5Mismatch": (StoreError, "the upload arrived damaged", True),
    "RequestBodyInvalid": (StoreError, "the upload arrived incomplete", True),
}


def code_of(exc: StatusError) -> str:
    """The service's code in an answer, "" if there is none."""
    code: str | None = exc.headers.get("x-ms-error-code")
    if code:
        return code
    match = re.search(r'<Code>([^<]*)</Code>|"code": ?"([^"]*)"', exc.text)
    return (match[1] or match[2]) if match else ""


def azure_error(exc: BaseException, url: str, *, how: str) -> StoreError | None:
    """Turn an answer's status, or one of azure-identity's exceptions, into our error.

    Args:
        exc: The exception.
        url: The object's URL.
        how: To whom we speak and as whom, for errors about access.

    Returns:
        The error; None if the exception is about the connection, or nothing of this store's.
    """
    if isinstance(exc, StatusError):
        return _from_answer(exc, url, how)
    if not type(exc).__module__.startswith("azure."):
        return None
    names = [ancestor.__name__ for ancestor in type(exc).__mro__]
    if "ClientAuthenticationError" in names:  # Its message tells each login that was tried.
        hint = "Set AZURE_ACCOUNT_ACCESS_KEY, or log in (az login)"
        return AccessDenied(f"{url}: no login was found. {hint}. {exc}", url=url)
    if "AzureError" in names:
        return StoreError(f"{url}: no login could be had ({exc})", url=url, retryable=True)
    return None


def _from_answer(exc: StatusError, url: str, how: str) -> StoreError:
    code, said = code_of(exc), _words(exc.text)
    after = exc.headers.get("retry-after")
    if code not in CODES:
        detail = ": ".join(part for part in (code, said) if part)
        hint = how if exc.status in (400, 401, 403) else ""
        return from_status(exc.status, url, detail=detail, hint=hint, retry_after=after)
    kind, what, retryable = CODES[code]
    told = f"{code}: {said}" if said else code
    doubtful = kind is AccessDenied or (kind is NotFound and code not in _PLAINLY_MISSING)
    hint = f". {how}" if doubtful else ""
    return kind(
        f"{url}: {what} ({told}){hint}",
        url=url,
        retryable=retryable,
        retry_after_s=retry_after_seconds(after),
    )


def _words(text: str) -> str:
    """What an answer says happened: the first line of its message."""
    with contextlib.suppress(ValueError, AttributeError, TypeError, LookupError):
        return str(json.loads(text)["error"]["message"]).partition("\n")[0]
    match = re.search(r"<Message>([^<]*)</Message>", text)
    words = unescape(match[1]).partition("\n")[0] if match else " ".join(text.split())
    return words.strip()[:200]
