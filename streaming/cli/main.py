"""What the script `shardstream` calls."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]

FAILED = 2
"""The exit status of a command that could not do its work; 1 is a command's own "no"."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The arguments after the program's name; those of this process unless given.

    Returns:
        The exit status: 0; 1 if what was checked or compared is not as it should be; 2 if that
        could not be found out (one line on the error output says why); 130 if interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        from streaming.cli.commands import app
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in ("typer", "rich", "click"):
            raise
        _say(
            f"the command line needs the package {exc.name!r}, which is not installed: "
            "pip install 'shardstream[cli]'"
        )
        return FAILED
    try:
        status = app(arguments, prog_name="shardstream", standalone_mode=False)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # Whoever read our output has read enough.
        sys.stdout = None
        return 0
    except Exception as exc:
        if "--traceback" in arguments:
            raise
        if type(exc).__name__ == "Abort":
            return 130
        _say(describe(exc))
        return FAILED
    return status if isinstance(status, int) else 0


_OPTIONS = {
    "set allow_unsafe_types=True": "pass --allow-unsafe-types",
    "resume=False": "--no-resume",
    'pass mode="append" or mode="overwrite"': "use append, or pass --force",
    'convert with mode="create"': "use convert",
}
"""What messages call arguments in Python, and how they are given here."""


def describe(exc: BaseException) -> str:
    r"""An exception as one line.

    Example:
        >>> describe(ValueError("no such\n  place")), describe(KeyError("x")), describe(OSError())
        ('no such place', "KeyError: 'x'", 'OSError')
    """
    formatted = getattr(exc, "format_message", None)  # typer's errors of usage
    text = " ".join((formatted() if formatted is not None else str(exc)).split())
    for argument, option in _OPTIONS.items():
        text = text.replace(argument, option)
    # What a KeyError or the like says makes no sense without its name.
    plain = formatted is not None or isinstance(exc, (OSError, ValueError, ImportError))
    plain = plain or type(exc).__module__.startswith("streaming.") or type(exc) is RuntimeError
    name = type(exc).__name__
    return text if plain and text else f"{name}: {text}" if text else name


def _say(message: str) -> None:
    print(f"shardstream: {message}", file=sys.stderr)
