"""Who we are to Google: credentials from google-auth, one set for each process."""

from __future__ import annotations

import functools
import os
import threading
import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streaming.storage.clients import environment_token, require, shared_client

__all__ = ["Identity", "Login", "identity_for", "login_environment"]

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


@dataclass(frozen=True)
class Login:
    """All that credentials depend on."""

    credentials_file: str | None
    """A file that google-auth reads; None for the default chain."""
    anonymous: bool | None
    """True: none; False: never go without; None: without if there are none."""
    timeout_s: float
    """Longest wait for the bytes of an answer, in seconds."""
    environment: str = field(repr=False)
    """A token of the environment variables that google-auth reads."""


class Identity(NamedTuple):
    """A process's credentials."""

    credentials: Any
    request: Any
    """What they are renewed with."""
    lock: threading.Lock
    """Held while they are looked at, so that they are renewed by one thread only."""
    who: str
    """As whom, for errors."""

    def introduce(self, method: str, url: str, headers: dict[str, str]) -> None:
        """Add the header fields that say who asks, after renewing them if they are old."""
        with self.lock:
            self.credentials.before_request(self.request, method, url, headers)


def login_environment() -> str:
    """A token of the environment variables that google-auth reads."""
    return environment_token("GOOGLE_", "CLOUDSDK_", "GCE_", "NO_GCE_", "HOME")


def identity_for(login: Login, url: str) -> Identity:
    """The process's credentials.

    Args:
        login: What is known of them.
        url: For whose sake, for errors.

    Returns:
        The same for equal logins.

    Raises:
        MissingPackage: If google-auth is not there.
        google.auth.exceptions.GoogleAuthError: If there are none, and there should be.
    """
    auth = require("google.auth", package="google-cloud-storage", url=url)
    identity: Identity = shared_client(login, lambda: _make_identity(auth, login))
    return identity


def _make_identity(auth: Any, login: Login) -> Identity:
    import google.auth.credentials
    import google.auth.exceptions
    import google.auth.transport.requests

    anonymous: Any = google.auth.credentials.AnonymousCredentials
    if login.anonymous:
        credentials = anonymous()
        who = "without credentials, because anonymous=True was given or there is an emulator"
    elif login.credentials_file is not None:
        with warnings.catch_warnings():
            # It warns of files that strangers wrote; this one the user has named.
            warnings.simplefilter("ignore", DeprecationWarning)
            credentials, _ = auth.load_credentials_from_file(login.credentials_file, [SCOPE])
        who = f"with the credentials in {login.credentials_file}"
    else:
        try:
            credentials, _ = auth.default(scopes=[SCOPE])
            name = getattr(credentials, "service_account_email", None)
            who = f"with Google's default credentials{f' ({name})' if name else ''}"
        except google.auth.exceptions.DefaultCredentialsError:
            if login.anonymous is False or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
                raise  # There should be some, and saying nothing would only hide why not.
            credentials = anonymous()
            who = (
                "without credentials, because none were found in storage_options, "
                "GOOGLE_APPLICATION_CREDENTIALS, gcloud's login, or the machine's account"
            )
    send = functools.partial(google.auth.transport.requests.Request(), timeout=login.timeout_s)
    return Identity(credentials, send, threading.Lock(), who)
