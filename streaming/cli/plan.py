"""`shardstream plan`: how a run will stream its data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streaming.cli.tables import show
from streaming.simulate import Report, Setup, simulate
from streaming.simulate.show import print_report

__all__ = ["plan", "read_setup"]

# Here, since other commands' tables should not wait for torch, which planning takes.
show.register(Report, print_report)


def read_setup(path: Path) -> Setup:
    """Read a run's settings from a YAML file.

    Args:
        path: The file.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is no YAML, or a setting makes no sense; the message names the file.
    """
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise ImportError("Reading a plan needs PyYAML: pip install 'shardstream[plan]'") from error
    try:
        values: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no YAML: {error}") from error
    try:
        return Setup.of(values)
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
