"""Start the page."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from streaming.simulate.setup import Setup
from streaming.simulate.web.fields import SECTIONS, STREAMS

__all__ = ["command", "serve"]

APP = Path(__file__).with_name("app.py")


def command(plans: Sequence[dict[str, Any]], host: str, port: int, show: bool) -> list[str]:
    """The command that serves the page.

    Args:
        plans: What plans to begin with.
        host: The address to listen on.
        port: The port.
        show: Whether to open a browser.

    Raises:
        ImportError: If Streamlit is missing.
    """
    if importlib.util.find_spec("streamlit") is None:
        raise ImportError("The planner's page needs Streamlit: pip install 'shardstream[page]'")
    options = {
        "server.address": host,
        "server.port": port,
        "server.headless": not show,
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "minimal",
        "runner.magicEnabled": False,
        "server.fileWatcherType": "none",
    }
    given = [json.dumps(_as_put_in(plan)) for plan in plans]
    settings = [f"--{name}={str(value).lower()}" for name, value in options.items()]
    return [sys.executable, "-m", "streamlit", "run", str(APP), *settings, "--", *given]


def _as_put_in(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan as the page's fields hold it: numbers for sliders, several streams as text.

    Example:
        >>> _as_put_in({"remote": "s3://bucket", "workers": "8", "cache_limit": "1gb"})
        {'remote': 's3://bucket', 'workers': 8, 'cache_limit': '1gb'}
    """
    setup, put = Setup.of(plan), dict(plan)
    for field in chain(*SECTIONS.values()):
        if field.name in plan and (field.most is not None or field.choices):
            put[field.name] = getattr(setup, field.name)
    if STREAMS in plan:
        import yaml

        put[STREAMS] = yaml.safe_dump(plan[STREAMS], sort_keys=False)
    return put


def serve(plans: Sequence[dict[str, Any]], host: str, port: int, show: bool = True) -> None:
    """Serve the page until it is interrupted.

    Args:
        plans: What plans to begin with, as settings by their names; none for an example.
        host: The address to listen on.
        port: The port.
        show: Whether to open a browser.

    Raises:
        ImportError: If Streamlit is missing.
        RuntimeError: If it could not be served.
    """
    with subprocess.Popen(command(plans, host, port, show)) as page:
        try:
            status = page.wait()
        except KeyboardInterrupt:  # how it is meant to end; the page was interrupted, too
            page.wait()
            return
    if status:
        raise RuntimeError(f"The page ended with status {status}: see what it says above.")
