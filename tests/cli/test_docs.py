"""The page of the command line: what it runs, and what it says comes out."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_page(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    out, shown = "", set()
    for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), names)
        elif language == "bash":
            out = ""
            for line in text.splitlines():
                command, _, comment = line.partition("  #")
                arguments = shlex.split(command)
                if arguments[0] != "shardstream":
                    subprocess.run(arguments, check=True)
                    continue
                shown.add(arguments[1])
                out += cli(*arguments[1:], status=1 if "exits with 1" in comment else 0).out
        else:
            assert language == "text"
            assert doctest.OutputChecker().check_output(text, out, FLAGS), out
    from tests.cli.test_main import COMMANDS

    assert shown == COMMANDS
