"""Reading from S3 without botocore's client, once one of its requests has shown the way.

botocore knows all ways to credentials, regions and addresses, and takes a fifth of a second for it
in each process, and milliseconds for each request. So the first request goes through it; where that
one went, and how it was signed, is kept, also by forked workers. Later ones are made here and
signed by botocore's own signer. What looks as if the way had changed goes through botocore again.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from streaming.storage.base import Body
from streaming.storage.rest import Rest, StatusError, body_of

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

__all__ = ["S3Answer", "Way", "record_way"]

_SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=[^/]+/\d+/([^/]+)/s3/aws4_request")
_SENT = {"Accept-Encoding": "identity", "User-Agent": "shardstream"}
_ELSEWHERE = (301, 302, 307, 308, 400)
"""Statuses that may mean that requests have to go elsewhere, or be signed in another way."""


class S3Answer(Exception):  # noqa: N818  (it is what botocore's ClientError is)
    """An answer that says what is wrong, as botocore would put it.

    Args:
        error: What the server answered.
    """

    def __init__(self, error: StatusError) -> None:
        super().__init__(str(error))
        found = {tag: _text(tag, error.text) for tag in ("Code", "Message")}
        self.response = {
            "Error": {
                "Code": found["Code"] or str(error.status),
                "Message": found["Message"],
            },
            "ResponseMetadata": {
                "HTTPStatusCode": error.status,
                "HTTPHeaders": {name.lower(): value for name, value in error.headers.items()},
            },
        }


def _text(tag: str, xml: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", xml, re.DOTALL)
    return found[1] if found else ""


@dataclass(frozen=True)
class Way:
    """Where a bucket's objects are asked for, and how.

    Args:
        base: What precedes a key in a URL.
        region: The region that requests are signed for.
        credentials: botocore's, which renew themselves; None to sign nothing.
        rest: Makes requests.
    """

    base: str
    region: str
    credentials: Any
    rest: Rest

    def open(
        self, key: str, headers: Mapping[str, str], start: int, stop: int | None
    ) -> Body | None:
        """Ask for an object, or a part of it.

        Args:
            key: Its key in the bucket.
            headers: Header fields, among them what says which part.
            start: First byte asked for.
            stop: Byte to stop before; None for the object's end.

        Returns:
            What comes; None if requests seem to have to go another way.

        Raises:
            S3Answer: If the store refuses.
        """
        answer = self._ask("GET", key, headers, _ELSEWHERE)
        if answer is None:
            return None
        url = self.base + _quoted(key)
        return body_of(answer, start, stop, etag=answer.headers.get("ETag"), url=url)

    def stat(self, key: str, headers: Mapping[str, str]) -> tuple[int, str | None] | None:
        """Ask for an object's size and ETag.

        Args:
            key: Its key in the bucket.
            headers: Header fields.

        Returns:
            Both; None if requests seem to have to go another way, or if there is no such object:
            an answer without a body does not say what it is that is missing.

        Raises:
            S3Answer: If the store refuses.
        """
        answer = self._ask("HEAD", key, headers, (404, *_ELSEWHERE))
        if answer is None:
            return None
        answer.drain_conn()
        length = answer.headers.get("Content-Length")
        return None if length is None else (int(length), answer.headers.get("ETag"))

    def _ask(
        self, method: str, key: str, headers: Mapping[str, str], elsewhere: Container[int]
    ) -> BaseHTTPResponse | None:
        """Send a request; None if the answer's status is one of these."""
        url = self.base + _quoted(key)
        sent = {**_SENT, **headers}
        if self.credentials is not None:
            sent = self._signed(method, url, sent)
        try:
            return self.rest.send(method, url, sent, fine=(200, 206))
        except StatusError as error:
            if error.status in elsewhere:
                return None
            raise S3Answer(error) from error

    def _signed(self, method: str, url: str, headers: Mapping[str, str]) -> dict[str, str]:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        request = AWSRequest(method, url, headers=dict(headers))
        S3SigV4Auth(self.credentials, "s3", self.region).add_auth(request)
        return dict(request.headers.items())


def _quoted(key: str) -> str:
    return quote(key, safe="/~")


def record_way(request: Any, key: str, credentials: Any, rest: Rest) -> Way | None:
    """The way that one of botocore's requests for an object went; None if it is a special one.

    Args:
        request: The request as it was sent.
        key: The object's key in the bucket.
        credentials: What it was signed with; None if it was not.
        rest: Makes requests.

    Example:
        >>> from types import SimpleNamespace
        >>> request = SimpleNamespace(url="https://b.s3.amazonaws.com/a/k%20", headers={})
        >>> record_way(request, "a/k ", None, Rest(60.0)).base
        'https://b.s3.amazonaws.com/'
    """
    parts, quoted = urlsplit(request.url), _quoted(key)
    if parts.query or not parts.path.endswith(f"/{quoted}"):
        return None
    base = request.url[: -len(quoted)]
    said = request.headers.get("Authorization")
    said = said.decode() if isinstance(said, bytes) else said
    if credentials is None:
        return None if said else Way(base, "", None, rest)
    signed = _SIGNED.match(said or "")
    return Way(base, signed[1], credentials, rest) if signed else None
