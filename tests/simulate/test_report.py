"""Reports: what they add up to, how they are shown, and what settings are refused."""

import json
import math
import re
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from streaming import MDSWriter
from streaming.cli.main import main
from streaming.simulate import Report, Setup, StreamSetup, simulate
from streaming.simulate import predict as predictions
from streaming.simulate.cache_limit import smallest_cache_limit
from streaming.simulate.data import Data
from streaming.simulate.predict import predict

LARGE: dict[str, Any] = {
    "shards": 12_208,
    "samples": 8192,
    "sample_bytes": 8192,
    "nodes": 8,
    "batch_size": 32,
    "step_s": 0.1,
}


def middle(**given: Any) -> Setup:
    stream = StreamSetup(shards=150, samples=500, sample_bytes=100_000)
    defaults: dict[str, Any] = {
        "ranks": 2,
        "workers": 2,
        "shuffle_block_size": 10_000,
        "step_s": 0.02,
        "epochs": 1,
        "validate_hash": True,
    }
    return Setup(streams=[stream], **{**defaults, **given})


@pytest.fixture(scope="module")
def report() -> Report:
    return simulate(middle(nodes=2, epochs=2, price_per_gb=0.09, decode_s=0.002))


def test_numbers_add_up(report: Report) -> None:
    assert report.is_exact
    assert report.seconds == pytest.approx(sum(epoch.seconds for epoch in report.epochs))
    assert report.bytes == sum(report.bytes_by_node) == report.data_bytes
    assert report.cost == pytest.approx(report.bytes / 1e9 * 0.09)
    assert report.steps == 2 * math.ceil(75_000 / 128)
    for epoch in report.epochs:
        assert epoch.seconds == pytest.approx(epoch.steps * 0.02 + epoch.waited_s)
    assert sum(report.timeline.samples_per_s) > 0
    assert max(report.timeline.waited) <= 1 + 1e-9


@pytest.mark.parametrize("algo", ["py1e", "py1br", "blockwise"])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_smallest_limit_is_enough_and_less_is_not(algo: str, workers: int) -> None:
    data = Data(middle(shuffle_algo=algo, workers=workers))
    smallest = smallest_cache_limit(data, data.work(0, 0))
    for factor, thrashes in (1.0, False), (0.6, True):
        found = predict(data.ordered_by(data.setup.but(cache_limit=int(smallest * factor))))
        assert found.thrashes is thrashes
        assert found.smallest_cache_limit == smallest


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"decode_s": 0.003},
        {"bandwidth": "100mb"},
        {"cache_limit": "2gb", "epochs": 2},
        {"nodes": 2},
        {"workers": 0, "decode_s": 0.001},
    ],
)
def test_a_coarse_simulation_comes_to_the_same(
    changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Data(middle(**changed))
    fine = predict(data)
    monkeypatch.setattr(predictions, "MOST_SAMPLES", 10_000)
    monkeypatch.setattr(predictions, "MOST_STEPS", 600)
    monkeypatch.setattr(predictions, "MOST_FETCHES", 60)
    coarse = predict(data)
    assert fine.is_exact
    assert not coarse.is_exact
    assert coarse.samples_per_s == pytest.approx(fine.samples_per_s, rel=0.1)
    assert coarse.bytes == pytest.approx(fine.bytes, rel=0.05)
    assert coarse.steps == pytest.approx(fine.steps, rel=0.01)
    assert coarse.smallest_cache_limit == pytest.approx(fine.smallest_cache_limit, rel=0.15)
    assert coarse.thrashes == fine.thrashes


def test_streams_that_are_gone_through_several_times_are_not_kept_meanwhile() -> None:
    small = StreamSetup(shards=20, samples=500, sample_bytes=100_000, repeat=4)
    large = StreamSetup(shards=180, samples=500, sample_bytes=100_000)
    setup = middle(shuffle_block_size=5000).but(streams=(small, large))
    data = Data(setup)
    found = predict(data)
    assert found.smallest_cache_limit < found.data_bytes // 4
    limited = predict(data.ordered_by(setup.but(cache_limit=found.smallest_cache_limit)))
    assert not limited.thrashes
    assert limited.bytes > limited.data_bytes


def test_a_hundred_million_samples_take_seconds() -> None:
    started = time.process_time()
    found = simulate(Setup.of(LARGE), suggestions=False)
    assert time.process_time() - started < 10  # one or two where nothing else runs
    assert sum(epoch.samples for epoch in found.epochs) >= 2 * 100_000_000
    assert found.epochs[0].bytes == pytest.approx(found.data_bytes, rel=0.01)
    assert found.epochs[1].bytes == 0
    assert found.timeline.is_whole == ("the rest taken to go on so" not in found.note)
    assert not found.timeline.is_whole


def suggested(setup: Setup) -> dict[str, Any]:
    found = simulate(setup)
    assert all(each.reason and each.samples_per_s > 0 for each in found.suggestions)
    return {each.setting: each.value for each in found.suggestions}


def test_more_workers_are_suggested_where_decoding_is_slow() -> None:
    # A batch of 32 takes 0.16 s, a step 0.02 s: 8 workers keep up, and a tenth more is asked for.
    assert suggested(middle(decode_s=0.005))["workers"] == 9
    assert "workers" not in suggested(middle(decode_s=0.0001))


def test_a_larger_cache_or_a_smaller_block_is_suggested_where_it_thrashes() -> None:
    found = suggested(middle(cache_limit="700mb"))
    assert found["cache_limit"] > 700 << 20
    assert found["shuffle_block_size"] < 10_000
    for setting, value in found.items():
        assert not predict(Data(middle(**{"cache_limit": "700mb", setting: value}))).thrashes


def test_more_connections_and_no_predownload_where_the_network_waits() -> None:
    slow = {"connection_bandwidth": "10mb", "max_connections": 4, "bandwidth": "500mb"}
    assert suggested(middle(**slow))["max_connections"] == 50
    ahead = middle(predownload=32, latency_s=0.2, shuffle=False, step_s=0.04)
    assert suggested(ahead) == {"predownload": None}


def test_canonical_nodes_where_nodes_fetch_the_same() -> None:
    found = suggested(middle(nodes=4, num_canonical_nodes=1))
    assert found["num_canonical_nodes"] == 4


def test_a_real_index_is_read(tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path), columns={"x": "bytes"}, size_limit=5000) as writer:
        for number in range(100):
            writer.write({"x": bytes(number * 4)})
    setup = Setup.of({"remote": str(tmp_path), "ranks": 1, "workers": 1, "epochs": 1})
    found = simulate(setup)
    files = sum(file.stat().st_size for file in tmp_path.glob("*.mds"))
    assert found.data_bytes == found.bytes == files


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "remote"),
        ({"shards": 1, "samples": 1}, "sample_bytes"),
        ({"shards": 1, "samples": 1, "sample_bytes": "x"}, "`sample_bytes` is 'x'"),
        ({"remote": "a", "shards": 1}, "not both"),
        ({"streams": []}, "at least one"),
        ({"streams": [{"shards": 1}]}, "Stream 0"),
        ({"streams": [{"remote": "a"}], "shards": 2}, "under `streams`"),
        ({**LARGE, "batch_sise": 2}, "Did you mean `batch_size`"),
        ({**LARGE, "ranks": 0}, "`ranks` is 0: give 1 or more"),
        ({**LARGE, "ranks": 1.5}, "`ranks` is 1.5"),
        ({**LARGE, "latency_s": -1}, "`latency_s` is -1"),
        ({**LARGE, "step_s": "fast"}, "give a number"),
        ({**LARGE, "shuffle": "yes"}, "true or false"),
        ({**LARGE, "shuffle_algo": "py9"}, "py1e"),
        ({**LARGE, "bandwidth": 0}, "`bandwidth` is 0"),
        ([], "names with values"),
    ],
)
def test_settings_that_make_no_sense(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Setup.of(values)


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="epoch_size"):
        simulate(Setup.of({**LARGE, "epoch_size": 0}))
    with pytest.raises(ValueError, match="divide"):
        simulate(middle(nodes=3, num_canonical_nodes=2, partition_algo="orig"))


def test_tables_tell_the_numbers(report: Report) -> None:
    text = report.text()
    assert f"{report.samples_per_s:,.0f} samples/s" in text
    for word in "Epochs", "Nodes", "Suggestions", "cost of egress", "workers":
        assert word in text


def test_the_page_stands_alone(report: Report) -> None:
    page = report.html()
    assert page.count("<svg") == 2
    assert f"{report.samples_per_s:,.0f} samples/s" in page
    for elsewhere in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert elsewhere.startswith("#")
    assert "<script" not in page
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(drawing)


def test_notebooks_show_the_page_in_a_frame(report: Report) -> None:
    frame = ElementTree.fromstring(report._repr_html_())
    # XML makes blanks of the ends of lines there, HTML does not.
    assert frame.attrib["srcdoc"] == report.html().replace("\n", " ")
    assert "2 nodes of 2 ranks, each with 2 workers" in frame.attrib["srcdoc"]


def test_json_is_plain(report: Report) -> None:
    found = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert found["samples_per_s"] == report.samples_per_s
    assert len(found["epochs"][0]["nodes"]) == 2


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, page = tmp_path / "plan.yaml", tmp_path / "plan.html"
    config.write_text("shards: 20\nsamples: 100\nsample_bytes: 1kb\nranks: 1\nworkers: 1\n")
    assert main(["plan", str(config), "--html", str(page)]) == 0
    assert "samples/s" in capsys.readouterr().out
    assert "<svg" in page.read_text()
    assert main(["plan", str(config), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 20 * 100 * 1024
    config.write_text("shards: many\n")
    assert main(["plan", str(config)]) == 2
    error = capsys.readouterr().err
    assert "plan.yaml" in error
    assert "`shards` is 'many'" in error
    config.write_text("a: [1\n")
    assert main(["plan", str(config)]) == 2
    assert "no YAML" in capsys.readouterr().err
