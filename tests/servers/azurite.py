"""Azure's Blob Storage on loopback: Azurite, Microsoft's own emulator, from npm."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.servers.processes import serving

ACCOUNT = "tester"
KEY = "c2VjcmV0IG9mIHRoZSB0ZXN0cw=="
PROGRAM = (
    Path(__file__).parents[2] / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
)


def missing() -> str:
    """What keeps Azurite from running here, and what to do about it; "" if nothing does."""
    if shutil.which("node") is None:
        return "Azurite needs node, which is not installed"
    if not PROGRAM.exists():
        return "Azurite is not installed: run `make node_modules/.ready`"
    return ""


@contextlib.contextmanager
def azurite(certificates: Path | None = None) -> Iterator[str]:
    """Run Azurite, with one account; gives the account's URL.

    Args:
        certificates: Folder of server.pem and server.key: speak https, and take access tokens too
            (whose issuer, audience and time it looks at, and not their signature).
    """
    command = ["node", str(PROGRAM), "--blobHost", "127.0.0.1", "--blobPort", "0"]
    command += ["--inMemoryPersistence", "--silent", "--disableTelemetry"]
    command += ["--skipApiVersionCheck"]  # Microsoft's client may be newer than it.
    if certificates is not None:
        pem, key = certificates / "server.pem", certificates / "server.key"
        command += ["--cert", str(pem), "--key", str(key), "--oauth", "basic"]
    # Only these accounts are known.
    command = ["env", f"AZURITE_ACCOUNTS={ACCOUNT}:{KEY}", *command]
    with serving(command, r"successfully listens on (\S+)") as found:
        yield f"{found[1]}/{ACCOUNT}"
