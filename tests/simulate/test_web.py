"""The planner's page: what it makes of its fields, without a browser."""

import json
import sys
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from streamlit.testing.v1 import AppTest

from streaming import MDSWriter
from streaming.cli.main import main
from streaming.simulate import Setup, StreamSetup, simulate
from streaming.simulate.web.fields import DESCRIBED, REMOTE, SECTIONS, START, check
from streaming.simulate.web.serve import APP, command

SMALL: dict[str, Any] = {
    "shards": "40",
    "samples": "500",
    "sample_bytes": "10kb",
    "ranks": 2,
    "workers": 2,
    "nodes": 1,
    "step_s": 0.05,
    "decode_s": 0.004,
    "shuffle_block_size": "5k",
}
MANY_STREAMS = """
- {shards: 30, samples: 100, sample_bytes: 1kb, proportion: 0.7}
- {shards: 10, samples: 100, sample_bytes: 1kb, proportion: 0.3}
"""


def page(monkeypatch: pytest.MonkeyPatch, *plans: dict[str, Any]) -> AppTest:
    monkeypatch.setattr(sys, "argv", [str(APP), *map(json.dumps, plans)])
    shown = AppTest.from_file(str(APP), default_timeout=60).run()
    assert not shown.exception
    return shown


def throughput(shown: AppTest) -> list[str]:
    return [each.value for each in shown.metric]


def expected(**settings: Any) -> str:
    return f"{simulate(Setup.of({**SMALL, **settings}), False).samples_per_s:,.0f} samples/s"


def test_every_field_is_a_setting() -> None:
    of_stream = {each.name for each in fields(StreamSetup)}
    of_run = {each.name for each in fields(Setup)}
    assert {field.name for field in (*DESCRIBED, REMOTE)} <= of_stream
    assert {field.name for field in chain(*SECTIONS.values())} <= of_run


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cache_limit": "lots"}, {"cache_limit"}),
        ({"cache_limit": "-1", "shards": "many"}, {"cache_limit", "shards"}),
        ({"bandwidth": ""}, set()),
        ({"samples": ""}, {""}),
        ({"step_s": -1}, {"step_s"}),
        ({"shuffle_algo": "riffle"}, {"shuffle_algo"}),
        ({"streams": "- ["}, {"streams"}),
        ({"rank": 8}, {""}),
    ],
)
def test_what_is_wrong(changes: dict[str, Any], named: set[str]) -> None:
    setup, wrong = check({**SMALL, **changes})
    assert set(wrong) == named
    assert (setup is None) == bool(named)
    assert all(said.strip() for said in wrong.values())


def test_a_changed_field_changes_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = page(monkeypatch, SMALL)
    assert throughput(shown) == [expected()]
    shown.slider(key="A.workers").set_value(6).run()
    assert not shown.exception
    assert throughput(shown) == [expected(workers=6)] != [expected()]
    shown.text_input(key="A.bandwidth").set_value("1mb").run()
    assert throughput(shown) == [expected(workers=6, bandwidth="1mb")]


def test_bad_input_is_explained_beside_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = page(monkeypatch, SMALL)
    shown.text_input(key="A.cache_limit").set_value("lots").run()
    assert not shown.exception
    (said,) = shown.error
    assert "give a number of bytes" in said.value
    assert not throughput(shown)
    shown.text_input(key="A.cache_limit").set_value("1kb").run()
    (said,) = shown.error
    assert "too little for a shard" in said.value
    shown.text_input(key="A.cache_limit").set_value("1gb").run()
    assert not shown.error
    assert throughput(shown) == [expected(cache_limit="1gb")]


def test_plans_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = page(monkeypatch, SMALL, {**SMALL, "workers": 4})
    assert throughput(shown) == [expected(), expected(workers=4)]
    next(each for each in shown.button if each.label == "Copy").click().run()
    assert len(throughput(shown)) == 3
    shown.slider(key="C.workers").set_value(1).run()
    assert throughput(shown) == [expected(), expected(workers=4), expected(workers=1)]
    next(each for each in shown.button if each.label == "Remove").click().run()
    assert throughput(shown) == [expected(), expected(workers=4)]
    assert not shown.exception


def test_a_suggestion_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = page(monkeypatch, SMALL)
    shown.toggle(key="suggesting").set_value(True).run()
    better = {each.setting: each for each in simulate(Setup.of(SMALL)).suggestions}["workers"]
    assert any(better.reason in each.value for each in shown.markdown)
    next(each for each in shown.button if each.key == "take.workers").click().run()
    assert not shown.exception
    assert shown.slider(key="A.workers").value == better.value
    assert throughput(shown) == [f"{better.samples_per_s:,.0f} samples/s"]


def test_a_data_set_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path / "set"), columns={"x": "int"}, size_limit=1000) as writer:
        for x in range(2000):
            writer.write({"x": x})
    shown = page(monkeypatch, {**START, "ranks": 1, "nodes": 1})
    shown.toggle(key="A.is_there").set_value(True).run()
    shown.text_input(key="A.remote").set_value(str(tmp_path / "none")).run()
    assert str(tmp_path / "none") in shown.error[0].value
    shown.text_input(key="A.remote").set_value(str(tmp_path / "set")).run()
    assert not shown.error
    assert len(throughput(shown)) == 1


def test_several_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {key: value for key, value in SMALL.items() if key not in ("samples", "sample_bytes")}
    del plan["shards"]
    shown = page(monkeypatch, {**plan, "streams": MANY_STREAMS})
    assert len(throughput(shown)) == 1
    shown.text_area(key="A.streams").set_value("- {shards: 0}").run()
    assert "Stream 0" in shown.error[0].value


def test_the_command(tmp_path: Path) -> None:
    plan = {"streams": yaml.safe_load(MANY_STREAMS), "workers": "8"}
    *_, given = command([plan], "127.0.0.1", 8000, show=False)
    put = json.loads(given)
    assert put["workers"] == 8
    assert yaml.safe_load(put["streams"]) == plan["streams"]


def test_how_many_files_are_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan"]) == 2
    assert "--serve" in capsys.readouterr().err
    assert main(["plan", "--serve", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_without_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["plan", "--serve"]) == 2
    assert "pip install 'shardstream[page]'" in capsys.readouterr().err
