"""What importing loads, and what is missing without the extra."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streaming.convert import convert
from streaming.format.errors import MissingExtraError

SCRIPT = """
import sys
from streaming.convert import convert, open_source
heavy = {"torch", "pandas", "pyarrow", "polars", "datasets", "tqdm", "rich", "PIL", "pyspark"}
print(sorted({*heavy, "ray"} & set(sys.modules)))
"""


def test_importing_loads_nothing_that_is_not_needed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "package"),
    [("x.parquet", "pyarrow"), ("x.arrow", "pyarrow"), ("x.jsonl.zst", "zstandard")],
)
def test_a_missing_package_is_named(
    tmp_path: Path, name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    (tmp_path / name).write_bytes(b"x")
    real = importlib.import_module

    def missing(module: str, *more: Any) -> Any:
        if module.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(module, *more)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=rf"{package}: pip install 'shardstream\[convert\]"):
        convert(tmp_path / name, tmp_path / "out", progress=False)


def test_lines_are_parsed_without_msgspec(monkeypatch: pytest.MonkeyPatch) -> None:
    from streaming.convert.sources import jsonl

    lines = b'{"x": 1, "big": 123456789012345678901234567890}\n{"x": -0.0, "s": "\\u00e4"}\n'
    odd = b'{"x": NaN}\n{"x": "\\ud800"}\n'
    both = []
    for decode in (jsonl._decode_lines, jsonl._decode_lines_by_json):
        monkeypatch.setattr(jsonl, "_decode_lines", decode)
        both.append(repr([jsonl.parse_lines(text) for text in (lines, odd, b"{}\n{}, {}\n")]))
    assert both[0] == both[1]


@pytest.mark.long
@pytest.mark.timeout(120)
def test_progress_in_a_notebook(tmp_path: Path) -> None:
    import nbclient
    import nbformat

    cell = f"""
from streaming.convert import convert
convert([{{"x": x}} for x in range(100)], {str(tmp_path / "out")!r}, part_size=80).samples
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
    outputs = notebook.cells[0].outputs
    text = "".join(o.get("text", "") or o["data"].get("text/plain", "") for o in outputs)
    assert "encoding" in text
    assert "100%" in text
    assert "100 rows" in text
    assert "ipywidgets" not in text
    assert text.endswith("\n100")


WINDOWS = """
import pkgutil, sys
import torch, os
sys.platform = "win32"
for name in ("fcntl", "resource"):
    sys.modules[name] = None
import streaming.convert
from streaming.convert import convert
from streaming.convert.engines.processes import ProcessesEngine
for module in pkgutil.walk_packages(streaming.convert.__path__, "streaming.convert."):
    if module.name.rpartition(".")[2] not in ("spark", "ray"):
        __import__(module.name)
print(convert([{"x": 1}], sys.argv[1], progress=False).samples)
"""


@pytest.mark.long
def test_it_works_where_there_are_no_locks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS, str(tmp_path / "out")], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
