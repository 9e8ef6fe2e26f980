"""Who we are to Azure Storage: an account's key, a shared access signature, or a login."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from streaming.storage.clients import environment_token, require, shared_client

__all__ = ["API_VERSION", "AzureLogin", "login_environment", "shared_key"]

API_VERSION = "2021-12-02"
"""Of Azure Storage's REST interface."""
SCOPE = "https://storage.azure.com/.default"
RENEW_S = 300
"""Seconds before its end at which a token is renewed."""

# The header fields that are signed, in this order, whether they are there or not.
_SIGNED = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)


@dataclass(frozen=True)
class AzureLogin:
    """How requests are introduced; the first of these that is given decides.

    Args:
        anonymous: Not at all.
        account_key: Signed by the account's key, base64.
        sas_token: With a shared access signature, a URL's query.
        account: The account's name.
        environment: A token of the environment variables that azure-identity reads.

    Raises:
        ValueError: If there is a key that is not base64, or of no account.
    """

    anonymous: bool
    account_key: str | None = field(repr=False)
    sas_token: str | None = field(repr=False)
    account: str
    environment: str = field(repr=False)

    def __post_init__(self) -> None:
        if self.account_key is None:
            return
        if not self.account:
            raise ValueError("a key is of an account: give account_name, or set AZURE_ACCOUNT_NAME")
        try:
            base64.b64decode(self.account_key, validate=True)
        except binascii.Error as exc:
            raise ValueError(f"the key of account {self.account!r} is not base64: {exc}") from None

    @property
    def who(self) -> str:
        """As whom we ask, for errors; it gives nothing away."""
        if self.anonymous:
            return "without credentials, because anonymous=True was given"
        if self.account_key is not None:
            return f"signed with a key of account {self.account!r}"
        if self.sas_token is not None:
            return "with the sas_token given"
        return "with the login that azure-identity's DefaultAzureCredential found"

    def address(self, url: str) -> str:
        """The URL to ask for, which holds the shared access signature if there is one."""
        if self.anonymous or self.account_key is not None or self.sas_token is None:
            return url
        return f"{url}{'&' if '?' in url else '?'}{self.sas_token.lstrip('?')}"

    def introduce(
        self, method: str, url: str, headers: Mapping[str, str], *, length: int, for_url: str
    ) -> dict[str, str]:
        """A request's header fields, with those that every request needs.

        Args:
            method: GET, PUT, …
            url: Where it goes.
            headers: Its own header fields.
            length: Bytes of its body.
            for_url: For whose sake, for errors.

        Returns:
            All header fields.

        Raises:
            MissingPackage: If a login is needed, and azure-identity is not there to find one.
            azure.core.exceptions.AzureError: If it finds none.
        """
        date = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": API_VERSION}
        sent = {"User-Agent": "shardstream", **headers, **date}
        if self.anonymous:
            return sent
        if self.account_key is not None:
            signature = shared_key(self.account, self.account_key, method, url, sent, length)
            return {**sent, "Authorization": f"SharedKey {self.account}:{signature}"}
        if self.sas_token is not None:
            return sent
        identity = require("azure.identity", package="shardstream[azure]", url=for_url)
        token: _Token = shared_client(self, lambda: _Token(identity.DefaultAzureCredential()))
        return {**sent, "Authorization": f"Bearer {token.get()}"}


def login_environment() -> str:
    """A token of the environment variables that azure-identity reads."""
    return environment_token("AZURE_", "IDENTITY_", "MSI_", "IMDS_", "HOME")


def shared_key(
    account: str, key: str, method: str, url: str, headers: Mapping[str, str], length: int
) -> str:
    """Sign a request with an account's key.

    See "Authorize with Shared Key" in the reference of Azure Storage's REST interface.

    Args:
        account: The account's name.
        key: The key, base64.
        method: GET, PUT, …
        url: The whole URL, as it is sent.
        headers: All header fields.
        length: Bytes of the body.

    Returns:
        The signature, base64.

    Example:
        >>> url = "https://account.blob.core.windows.net/bucket/key?comp=metadata"
        >>> shared_key("account", "c2VjcmV0", "GET", url, {"x-ms-version": "2021-12-02"}, 0)
        'PM1zHDBkTOUy43gnnt/PtY0Y73mAdfrUrtMIFHAuf+w='
    """
    given = {name.lower(): value.strip() for name, value in headers.items()}
    given["content-length"] = str(length) if length else ""
    lines = [method, *(given.get(name, "") for name in _SIGNED)]
    lines += [f"{name}:{given[name]}" for name in sorted(given) if name.startswith("x-ms-")]
    parts = urlsplit(url)
    lines.append(f"/{account}{parts.path or '/'}")
    asked = sorted(parse_qsl(parts.query, keep_blank_values=True))
    lines += [f"{name.lower()}:{value}" for name, value in asked]
    secret = base64.b64decode(key)
    digest = hmac.new(secret, "\n".join(lines).encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


class _Token:
    """A login's access token, renewed by one thread only; those that have a good one don't wait.

    azure-identity does not keep them for all of its logins (Azure's command line is asked anew).
    """

    def __init__(self, credential: Any, now: Callable[[], float] = time.time) -> None:
        self._credential = credential
        self._now = now
        self._lock = threading.Lock()
        self._token: Any = None

    def get(self) -> str:
        token = self._token
        if not self._good(token):
            with self._lock:
                token = self._token
                if not self._good(token):
                    token = self._token = self._credential.get_token(SCOPE)
        return str(token.token)

    def _good(self, token: Any) -> bool:
        return token is not None and token.expires_on - self._now() > RENEW_S
