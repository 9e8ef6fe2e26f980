"""The example notebooks run from top to bottom."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SAID = {
    "convert.ipynb": "all samples, each once",
    "plan_and_watch.ipynb": "the trainer waited",
    "quickstart.ipynb": "the same as without the interruption",
}


def printed(notebook):
    return "".join(
        output.get("text", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_runs(path, tmp_path, monkeypatch):
    # The kernel of this environment, whatever kernels the machine has, and its own settings.
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "save it without outputs"
    client = NotebookClient(
        notebook, timeout=90, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    assert SAID[path.name] in printed(notebook)


def test_there_are_notebooks():
    assert {path.name for path in NOTEBOOKS} == set(SAID)
