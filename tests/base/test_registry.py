import dataclasses
import functools
import importlib.metadata
import pickle
import sys
from pathlib import Path

import catalogue
import pytest

from streaming.base.registry_utils import (
    TypedRegistry,
    construct_from_registry,
    create_registry,
    import_file,
    save_registry,
)


@pytest.fixture(autouse=True)
def _clean():
    with save_registry():
        yield


class Base:
    def __init__(self, x=1):
        self.x = x


class Derived(Base):
    pass


def function(**kwargs):
    return kwargs


@pytest.fixture
def registry():
    registry = create_registry("tests", "things", generic_type=object, description="Things.")
    registry.register("base", func=Base)
    registry.register("derived", func=Derived)
    registry.register("function", func=function)
    registry.register("number", func=3)
    return registry


def test_entries_by_call_and_by_decorator(registry):
    @registry.register("decorated")
    def decorated():
        pass

    @registry.register_class("class")
    class Class:
        pass

    assert registry.get("decorated") is decorated
    assert registry.get("class") is Class
    assert registry.register("decorated", func=function) is function
    assert registry.get("decorated") is function
    assert registry("called", function) is function
    assert "called" in registry
    assert "missing" not in registry
    assert set(registry.get_all()) == {
        *("base", "derived", "function", "number", "decorated", "class", "called")
    }


def test_one_namespace_is_one_registry(registry):
    same = TypedRegistry(("tests", "things"))
    assert same.get("base") is Base
    assert same.description == ""
    assert create_registry("tests", "others", generic_type=object).get_all() == {}


def test_missing_entry_lists_those_there_are(registry):
    with pytest.raises(catalogue.RegistryError, match="base, derived, function, number"):
        registry.get("missing")
    assert issubclass(catalogue.RegistryError, ValueError)


def test_entry_points_of_installed_packages(tmp_path, monkeypatch):
    info = tmp_path / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tests_plugged]\nodict = collections:OrderedDict\n")
    monkeypatch.syspath_prepend(tmp_path)
    available = importlib.metadata.entry_points()
    monkeypatch.setattr(catalogue, "AVAILABLE_ENTRY_POINTS", available)
    registry = create_registry("tests", "plugged", generic_type=type, entry_points=True)
    assert registry.get("odict").__name__ == "OrderedDict"
    assert list(registry.get_entry_points()) == ["odict"]
    assert registry.get_entry_point("none", default=dict) is dict
    assert construct_from_registry("odict", registry, kwargs={"a": 1}) == {"a": 1}


def test_construct_class(registry):
    made = construct_from_registry("base", registry, kwargs={"x": 5})
    assert type(made) is Base
    assert made.x == 5
    assert construct_from_registry("base", registry).x == 1


def test_construct_function(registry):
    made = construct_from_registry("function", registry, kwargs={"a": 1})
    assert isinstance(made, functools.partial)
    assert made(b=2) == {"a": 1, "b": 2}
    called = construct_from_registry("function", registry, partial_function=False, kwargs={"a": 1})
    assert called == {"a": 1}


def test_construct_validates(registry):
    seen = []
    assert construct_from_registry("derived", registry, pre_validation_function=Base)
    made = construct_from_registry(
        "derived", registry, True, seen.append, post_validation_function=seen.append
    )
    assert seen == [Derived, made]
    with pytest.raises(ValueError, match=r"'base' of registry tests\.things .*subclass"):
        construct_from_registry("base", registry, pre_validation_function=Derived)
    with pytest.raises(ValueError, match=r"'function' .*subclass"):
        construct_from_registry("function", registry, pre_validation_function=Base)
    with pytest.raises(ValueError, match="class or a function: 3"):
        construct_from_registry("base", registry, pre_validation_function=3)
    with pytest.raises(ValueError, match="no class or function: 3"):
        construct_from_registry("number", registry)


def test_save_registry_undoes(registry):
    with save_registry():
        registry.register("new", func=Base)
        registry.register("base", func=Derived)
    assert "new" not in registry
    assert registry.get("base") is Base


PLUGIN = """
from __future__ import annotations
import dataclasses
from streaming.base.registry_utils import create_registry

@dataclasses.dataclass
class Point:
    x: int = 0

create_registry("tests", "things", generic_type=object).register("point", func=Point)
"""


@pytest.mark.parametrize("kind", [str, Path])
def test_import_file_registers(registry, tmp_path, kind):
    path = tmp_path / "plugin.py"
    path.write_text(PLUGIN)
    module = import_file(kind(path))
    point = construct_from_registry("point", registry, kwargs={"x": 4})
    assert dataclasses.asdict(point) == {"x": 4}
    assert type(point) is module.Point
    assert pickle.loads(pickle.dumps(point)) == point


def test_import_file_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.py"):
        import_file(tmp_path / "missing.py")
    with pytest.raises(FileNotFoundError):
        import_file(tmp_path)
    broken = tmp_path / "broken.py"
    broken.write_text("raise KeyError('q')")
    before = set(sys.modules)
    with pytest.raises(RuntimeError, match=r"broken\.py failed: KeyError: 'q'") as e:
        import_file(broken)
    assert isinstance(e.value.__cause__, KeyError)
    assert set(sys.modules) == before
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    with pytest.raises(RuntimeError, match=r"end in \.py"):
        import_file(text)
