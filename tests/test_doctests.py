"""The examples in the docstrings, module by module."""

import doctest
import importlib
import pkgutil
import tempfile

import pytest

import streaming

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def _modules() -> list[str]:
    found = pkgutil.walk_packages(streaming.__path__, "streaming.", onerror=_raise)
    return ["streaming", *(module.name for module in found)]


def _raise(name: str) -> None:
    raise ImportError(f"{name} can't be imported")


MODULES = _modules()


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, monkeypatch, tmp_path):
    module = importlib.import_module(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = doctest.testmod(module, optionflags=FLAGS)
    assert result.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = sum(
        len(test.examples)
        for name in MODULES
        for test in finder.find(importlib.import_module(name))
    )
    assert examples > 100
