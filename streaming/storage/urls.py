"""What kind of place a URL names."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

__all__ = ["is_local", "local_path", "scheme_of", "split_url"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_DRIVE = re.compile(r"/?[A-Za-z]:[/\\]")


def scheme_of(url: str | os.PathLike[str]) -> str:
    r"""The scheme of a URL in lower case, "" for a plain path.

    A single letter is a drive, not a scheme. `dbfs:/` alone is written with one slash.

    Example:
        >>> scheme_of("s3://bucket/x"), scheme_of("dbfs:/Volumes/a"), scheme_of("C:/data")
        ('s3', 'dbfs', '')
        >>> scheme_of(r"C:\data"), scheme_of("/data/a:b"), scheme_of("file:///data")
        ('', '', 'file')
    """
    text = os.fspath(url)
    match = _SCHEME.match(text)
    if match:
        return match.group(1).lower()
    return "dbfs" if text.startswith("dbfs:/") else ""


def is_local(url: str | os.PathLike[str]) -> bool:
    r"""Whether a URL names a place in this machine's file system: a path, or `file://`.

    Example:
        >>> [is_local(u) for u in ("/data", "data", "file:///data", r"C:\data", "s3://b")]
        [True, True, True, True, False]
    """
    return scheme_of(url) in ("", "file")


def split_url(url: str) -> tuple[str, str]:
    """Take an object's URL apart into a store's root and a key below it.

    Args:
        url: A URL or path. A web address keeps its query with the root, where `HTTPStore` wants it.

    Returns:
        The URL of the folder, and the last component.

    Example:
        >>> split_url("s3://bucket/train/index.json"), split_url("index.json"), split_url("/a")
        (('s3://bucket/train', 'index.json'), ('.', 'index.json'), ('/', 'a'))
        >>> split_url("https://host/a%20b/c?token=x")
        ('https://host/a%20b?token=x', 'c')
        >>> split_url("file:///a%20b")
        ('file:///', 'a b')
    """
    scheme = scheme_of(url)
    if scheme in ("http", "https"):
        parts = urlsplit(url)
        folder, _, key = parts.path.rpartition("/")
        return parts._replace(path=folder).geturl(), unquote(key)
    if scheme == "":
        url = url.replace(os.sep, "/")
    folder, _, key = url.rpartition("/")
    if scheme == "file":
        return f"{folder}/", unquote(key)  # With the slash, lest file:///a lie in "file://".
    return folder or ("/" if url.startswith("/") else "."), key


def local_path(url: str | os.PathLike[str]) -> str:
    r"""The path that a local URL names; %-escapes are decoded in `file://` URLs and only there.

    Args:
        url: A plain path, `C:\…`, `C:/…`, or a `file://` URL.

    Returns:
        The path, as it is, relative or absolute.

    Raises:
        ValueError: If the URL is not local, or names another machine.

    Example:
        >>> local_path("file:///my%20data/x"), local_path("/my%20data/x")
        ('/my data/x', '/my%20data/x')
        >>> local_path("file:///C:/data")
        'C:/data'
    """
    text = os.fspath(url)
    scheme = scheme_of(text)
    if scheme == "":
        return text
    if scheme != "file":
        raise ValueError(f"{text} is not a local path")
    parts = urlsplit(text, allow_fragments=False)
    if parts.netloc not in ("", "localhost"):
        raise ValueError(
            f"{text} names the machine {parts.netloc!r}; a file URL of this one has three slashes: "
            f"file:///{parts.netloc}{parts.path}"
        )
    path = unquote(parts.path + (f"?{parts.query}" if parts.query else ""))
    return path[1:] if path.startswith("/") and _DRIVE.match(path) else path
