"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streaming.cli.place import Access, parse_options

__all__ = [
    "AsJson",
    "Force",
    "Options",
    "Other",
    "OutOptions",
    "Present",
    "Share",
    "Timeout",
    "Trace",
    "Unsafe",
    "Url",
    "Workers",
    "access_of",
    "finish",
]

Url = Annotated[str, typer.Argument(help="A data set: a folder or a URL.", show_default=False)]
Other = Annotated[str, typer.Argument(help="Another one.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Trace = Annotated[bool, typer.Option("--traceback", help="Show an error's traceback.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", help="An option of the store, as name=value.", metavar="N=V"),
]
OutOptions = Annotated[
    list[str] | None,
    typer.Option("--out-option", help="One of the second place's store.", metavar="N=V"),
]
Timeout = Annotated[float, typer.Option(help="Longest wait for the next bytes, in seconds.")]
Unsafe = Annotated[
    bool, typer.Option(help="Decode pkl columns, which runs code of whoever wrote them.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="How many files are handled at once.", show_default=False)
]
Share = Annotated[str, typer.Option(help="Share of the samples to decode: 0.01, 1%, all, none.")]
Present = Annotated[
    bool, typer.Option("--present", help="Shards may be missing, as they are in a cache.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace a data set that is there.")]


def access_of(options: list[str] | None, timeout_s: float) -> Access:
    """How a store is reached, as the command line says."""
    return Access(timeout_s=timeout_s, options=parse_options(options or ()))


def finish(result: Any, as_json: bool) -> None:
    """Print a result; end with status 1 if it says that something is not as it should be."""
    from streaming.cli import output

    if as_json:
        typer.echo(output.as_json(result))
    else:
        from streaming.cli.tables import console, show

        show(result, console())
    if not getattr(result, "ok", True):
        raise typer.Exit(1)
