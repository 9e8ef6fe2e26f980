"""A folder of files over HTTP, with ranges, versions and conditions, as stores give them."""

from __future__ import annotations

from pathlib import Path

from tests.servers.rest import Answer, Request, SmallServer, bytes_answer, etag_of


class Files(SmallServer):
    """Serves the files below a folder.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def answer(self, request: Request) -> Answer:
        try:
            data = (self.root / request.path.lstrip("/")).read_bytes()
        except OSError:
            return Answer(404, b"no such file")
        etag = f'"{etag_of(data)}"'
        if request.headers.get("if-match", etag) != etag:
            return Answer(412, b"another version")
        return bytes_answer(request, data, {"ETag": etag})
