"""`shardstream plan`: how a run will stream its data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming.cli.tables import show
from streaming.simulate import Report, Setup, simulate
from streaming.simulate.show import print_report

__all__ = ["only", "plan", "read_setup", "serve"]

# Here, since other commands' tables should not wait for torch, which planning takes.
show.register(Report, print_report)


def only(paths: Sequence[Path]) -> Path:
    """The one file of settings that was given.

    Raises:
        ValueError: If there were none, or several.
    """
    if len(paths) != 1:
        raise ValueError(
            f"{len(paths)} files of settings were given: give one to have its plan printed, or "
            "--serve for a page that compares several"
        )
    return paths[0]


def read_setup(path: Path) -> Setup:
    """Read a run's settings from a YAML file.

    Args:
        path: The file.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is no YAML, or a setting makes no sense; the message names the file.
    """
    return _read(path)[0]


def _read(path: Path) -> tuple[Setup, dict[str, Any]]:
    """A run's settings, checked and as they are in the file."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise ImportError("Reading a plan needs PyYAML: pip install 'shardstream[plan]'") from error
    try:
        values: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no YAML: {error}") from error
    try:
        return Setup.of(values), dict(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def plan(path: Path, html: Path | None = None, suggestions: bool = True) -> Report:
    """Predict how a run will stream its data.

    Args:
        path: Its settings, as YAML.
        html: Where to write the report as a page, or None.
        suggestions: Whether to look for better settings.

    Raises:
        FileNotFoundError: If there are no settings, or no data set where they say.
        ValueError: If settings make no sense.
    """
    report = simulate(read_setup(path), suggestions)
    if html is not None:
        html.write_text(report.html(), encoding="utf-8")
    return report


def serve(paths: Sequence[Path], host: str, port: int, browser: bool) -> None:
    """Show a page where plans are changed and compared, until it is interrupted.

    Args:
        paths: Settings to begin with, as YAML; none for an example.
        host: The address to listen on.
        port: The port.
        browser: Whether to open it.

    Raises:
        FileNotFoundError: If there are no settings.
        ValueError: If settings make no sense.
    """
    from streaming.simulate.web.serve import serve as work

    work([_read(path)[1] for path in paths], host, port, browser)
