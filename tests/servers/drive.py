"""The used part of Alipan's API: logins, a device's session, files by id, uploads in parts."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field
from typing import Any

from tests.servers.rest import Answer, Request, SmallServer, bytes_answer, json_answer

REFRESH_TOKEN = "refresh-tests"
DEVICE = "device-tests"
DRIVE = "drive-tests"
FOLDER, FILE = "folder", "file"


@dataclass
class Node:
    name: str
    parent: str
    kind: str
    data: bytes = b""
    parts: dict[int, bytes] = field(default_factory=dict)
    pending: bool = False


class Drive(SmallServer):
    """One user's drive."""

    page = 2

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[str, Node] = {}
        self.denied: set[str] = set()
        """Names that the user may not touch."""
        self._access_tokens: set[str] = set()
        self.logins = 0
        self._signatures: set[str] = set()
        self._ids = (f"id{number}" for number in itertools.count(1))

    def expire(self) -> None:
        """Let all logins and the device's sessions run out."""
        self._access_tokens.clear()
        self._signatures.clear()

    def answer(self, request: Request) -> Answer:
        with self.lock:
            if request.path.startswith("/blob/"):
                return self._blob(request)
            if request.path == "/token/refresh":
                return self._refresh(request.json())
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            if token not in self._access_tokens:
                return _error(401, "AccessTokenInvalid", "AccessToken is invalid")
            signature = request.headers.get("x-signature", "")
            if request.path == "/users/v1/users/device/create_session":
                assert len(bytes.fromhex(request.json()["pubKey"])) == 64
                self._signatures.add(signature)
                return json_answer({"result": True, "success": True})
            if request.headers.get("x-device-id") != DEVICE or signature not in self._signatures:
                return _error(400, "DeviceSessionSignatureInvalid", "no session")
            given = request.json()
            if given["drive_id"] != DRIVE:
                return _error(404, "NotFound.Drive", "no such drive")
            answer = _API.get(request.path)
            if answer is None:
                return _error(404, "NotFound.Api", request.path)
            return answer(self, given)

    def _refresh(self, given: dict[str, Any]) -> Answer:
        if given["refresh_token"] != REFRESH_TOKEN:
            return _error(400, "InvalidParameter.RefreshToken", "refresh_token is not valid")
        self.logins += 1
        self._access_tokens.add(f"access-{self.logins}")
        names = ("user_id", "user_name", "nick_name", "role", "status")
        return json_answer(
            {
                **dict.fromkeys(names, "tests"),
                "refresh_token": REFRESH_TOKEN,
                "access_token": f"access-{self.logins}",
                "token_type": "Bearer",
                "expire_time": "2100-01-01T00:00:00Z",
                "device_id": DEVICE,
                "default_drive_id": DRIVE,
            }
        )

    def _blob(self, request: Request) -> Answer:
        """What signed URLs lead to."""
        if "aliyundrive.com" not in request.headers.get("referer", ""):
            return Answer(403, b"<Code>AccessDenied</Code>")
        _, _, node_id, part = request.path.split("/")
        node = self.nodes[node_id]
        if request.method == "PUT":
            node.parts[int(part)] = request.body
            return Answer(200)
        return bytes_answer(request, node.data, {"ETag": '"of the bucket"'})

    def _find(self, parent: str, name: str) -> str | None:
        for node_id, node in self.nodes.items():
            if (node.parent, node.name, node.pending) == (parent, name, False):
                return node_id
        return None

    def _entry(self, node_id: str) -> dict[str, Any]:
        node = self.nodes[node_id]
        entry: dict[str, Any] = {"file_id": node_id, "name": node.name, "type": node.kind}
        if node.kind == FILE:
            entry["size"] = len(node.data)
            entry["content_hash"] = hashlib.sha1(node.data).hexdigest().upper()
        return entry

    def by_path(self, given: dict[str, Any]) -> Answer:
        node_id: str | None = "root"
        for name in given["file_path"].strip("/").split("/"):
            node_id = self._find(node_id or "", name)
            if node_id is None:
                return _error(404, "NotFound.File", "The resource file cannot be found")
            if name in self.denied:
                return _error(403, "ForbiddenNoPermission.File", "No Permission")
        assert node_id is not None
        return json_answer(self._entry(node_id))

    def listing(self, given: dict[str, Any]) -> Answer:
        parent = given["parent_file_id"]
        names = sorted(
            (node.name, node_id)
            for node_id, node in self.nodes.items()
            if node.parent == parent and not node.pending
        )
        start = int(given.get("marker") or 0)
        items = [self._entry(node_id) for _, node_id in names[start : start + self.page]]
        rest = names[start + self.page :]
        return json_answer({"items": items, "next_marker": str(start + self.page) if rest else ""})

    def create(self, given: dict[str, Any]) -> Answer:
        parent, name = given["parent_file_id"], given["name"]
        if name in self.denied:
            return _error(403, "ForbiddenNoPermission.File", "No Permission")
        if parent != "root" and parent not in self.nodes:
            return _error(404, "NotFound.ParentFileId", "no such folder")
        there = self._find(parent, name)
        if given["type"] == FOLDER and there is not None:
            return json_answer({"file_id": there, "exist": True})
        node_id = next(self._ids)
        self.nodes[node_id] = Node(name, parent, given["type"], pending=given["type"] == FILE)
        parts = [
            {**part, "upload_url": f"{self.url}/blob/{node_id}/{part['part_number']}"}
            for part in given.get("part_info_list", ())
        ]
        return json_answer(
            {"file_id": node_id, "upload_id": "u" + node_id, "part_info_list": parts}
        )

    def complete(self, given: dict[str, Any]) -> Answer:
        node = self.nodes[given["file_id"]]
        assert given["upload_id"] == "u" + given["file_id"]
        there = self._find(node.parent, node.name)
        if there is not None:
            del self.nodes[there]
        node.data = b"".join(node.parts[number] for number in sorted(node.parts))
        node.pending = False
        return json_answer(self._entry(given["file_id"]))

    def download_url(self, given: dict[str, Any]) -> Answer:
        url = f"{self.url}/blob/{given['file_id']}/0"
        return json_answer({"file_id": given["file_id"], "url": url})

    def trash(self, given: dict[str, Any]) -> Answer:
        del self.nodes[given["file_id"]]
        return Answer(204)


_API = {
    "/v2/file/get_by_path": Drive.by_path,
    "/adrive/v3/file/list": Drive.listing,
    "/adrive/v2/file/createWithFolders": Drive.create,
    "/v2/file/complete": Drive.complete,
    "/v2/file/get_download_url": Drive.download_url,
    "/v2/recyclebin/trash": Drive.trash,
}


def _error(status: int, code: str, message: str) -> Answer:
    return json_answer({"code": code, "message": message}, status)
