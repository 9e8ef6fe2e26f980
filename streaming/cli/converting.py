"""The commands that convert: what they take."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streaming.cli.arguments import Force, OutOptions, Run, command

__all__ = ["add_commands"]

Source = Annotated[
    list[str],
    typer.Argument(help="Files, folders, patterns; of any store.", show_default=False),
]
Out = Annotated[str, typer.Argument(help="Where to: a folder or a URL.", show_default=False)]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", "-c", help="A column's encoding; repeat for more.", metavar="N=ENC"),
]
Transform = Annotated[
    str | None,
    typer.Option(help="A function that makes samples of a row.", metavar="MODULE:FUNCTION"),
]
Engine = Annotated[str, typer.Option(help="What runs it: processes, spark or ray.")]
Jobs = Annotated[
    int | None, typer.Option("--workers", min=0, help="How many parts are converted at once.")
]
Format = Annotated[str | None, typer.Option(help="What the files are, if names don't say it.")]
PartSize = Annotated[
    str | None, typer.Option(help="How much of the source a part reads, as in 64mb.")
]
Skip = Annotated[
    bool, typer.Option("--skip-errors", help="Leave out what can't be converted, and list it.")
]
MaxErrors = Annotated[int, typer.Option(min=0, help="How many samples may be left out.")]
Anew = Annotated[
    bool, typer.Option("--no-resume", help="Remove what an unfinished conversion has left.")
]
Compression = Annotated[str | None, typer.Option(help="As in zstd or zstd:7.")]
Hashes = Annotated[
    list[str] | None, typer.Option("--hash", help="A hash to keep; repeat for more.")
]
SizeLimit = Annotated[str, typer.Option(help="Most bytes in a shard before compression.")]


def add_commands(app: typer.Typer) -> None:
    """Add the commands to the program."""

    @command(app)
    def convert(
        run: Run,
        source: Source,
        out: Out,
        column: Columns = None,
        transform: Transform = None,
        format: Format = None,
        engine: Engine = "processes",
        workers: Jobs = None,
        compression: Compression = None,
        hash: Hashes = None,
        size_limit: SizeLimit = "64mb",
        part_size: PartSize = None,
        skip_errors: Skip = False,
        max_errors: MaxErrors = 100,
        no_resume: Anew = False,
        force: Force = False,
        out_option: OutOptions = None,
    ) -> None:
        """Convert Parquet, Arrow, CSV, JSON lines, tars, images and more into shards.

        Run again after a crash, it goes on where it was.
        """
        mode = "overwrite" if force else "create"
        _convert(**{name: value for name, value in locals().items() if name != "force"})

    @command(app)
    def append(
        run: Run,
        source: Source,
        out: Out,
        column: Columns = None,
        transform: Transform = None,
        format: Format = None,
        engine: Engine = "processes",
        workers: Jobs = None,
        compression: Compression = None,
        hash: Hashes = None,
        size_limit: SizeLimit = "64mb",
        part_size: PartSize = None,
        skip_errors: Skip = False,
        max_errors: MaxErrors = 100,
        no_resume: Anew = False,
        out_option: OutOptions = None,
    ) -> None:
        """Convert more, and add it to a data set in one step.

        The old index is kept under a version's name; who reads the data set is not disturbed.
        Compression and hashes are the data set's own unless given.
        """
        mode = "append"
        _convert(**locals())


def _convert(
    run: Run,
    source: list[str],
    out: str,
    mode: str,
    column: list[str] | None,
    hash: list[str] | None,
    skip_errors: bool,
    no_resume: bool,
    out_option: list[str] | None,
    **same: Any,
) -> None:
    from streaming.cli.convert import convert as work

    done = work(
        source,
        out,
        run.access,
        run.other(out_option),
        mode=mode,
        columns=column or (),
        hashes=hash,
        on_error="skip" if skip_errors else "raise",
        resume=not no_resume,
        **same,
    )
    run.finish(done)
