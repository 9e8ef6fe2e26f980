"""An engine whose package is missing says what to install."""

import sys

import pytest

from streaming.convert import convert
from streaming.format.errors import MissingExtraError


@pytest.mark.parametrize("engine", ["spark", "ray"])
def test_a_missing_package_is_named(engine, tmp_path, monkeypatch):
    package = {"spark": "pyspark", "ray": "ray"}[engine]
    for name in [*sys.modules]:
        if name.partition(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'shardstream\[{engine}\]'"):
        convert([{"x": 1}], tmp_path, columns={"x": "int"}, engine=engine, progress=False)


def test_ray_data_without_ray(monkeypatch):
    for name in [*sys.modules]:
        if name.partition(".")[0] == "ray" or name == "streaming.ray":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'shardstream\[ray\]'"):
        import streaming.ray  # noqa: F401
