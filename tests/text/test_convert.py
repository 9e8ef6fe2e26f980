"""The converters, on small files in the layout of the original data sets."""

import gzip
import json

import numpy as np
import pytest
import zstandard

from streaming import StreamingDataset
from streaming.text import StreamingEnWiki
from streaming.text.convert import c4, enwiki_text, pile
from streaming.text.convert.enwiki.mds import (
    create_pretraining_data,
    make_train_parallel,
    merge_shard_groups,
    pick_eval_samples,
)
from tests.convert.folders import files_of


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def read(folder):
    data = StreamingDataset(local=str(folder), batch_size=1)
    return [data[at] for at in range(len(data))]


@pytest.fixture
def the_pile(tmp_path):
    root = tmp_path / "pile"
    (root / "train").mkdir(parents=True)

    def write(name, count):
        rows = [
            {"text": f"{name} {at} é\n", "meta": {"pile_set_name": ("Pile-CC", "Books3")[at % 2]}}
            for at in range(count)
        ]
        (root / f"{name}.jsonl.zst").write_bytes(zstandard.compress(lines(rows)))
        return rows

    names = {"train": ["train/00", "train/01"], "val": ["val"], "test": ["test"]}
    return root, {split: [row for n in of for row in write(n, 9)] for split, of in names.items()}


def test_pile(the_pile, tmp_path):
    root, rows = the_pile
    pile.run(["--in_root", str(root), "--out_root", str(tmp_path / "out"), "--workers", "2"])
    for split, wanted in rows.items():
        assert read(tmp_path / "out" / split) == [pile.flat(row) for row in wanted]
    shard = json.loads((tmp_path / "out/val/index.json").read_text())["shards"][0]
    assert (shard["compression"], shard["hashes"]) == ("zstd:16", ["sha1", "xxh64"])
    with pytest.raises(FileNotFoundError, match=r"no val.jsonl.zst in"):
        pile.source(str(tmp_path), "val")


def test_pile_that_is_decompressed(the_pile, tmp_path):
    root, rows = the_pile
    for path in list(root.rglob("*.zst")):
        path.with_suffix("").write_bytes(zstandard.decompress(path.read_bytes()))
    pile.run(["--in_root", str(root), "--out_root", str(tmp_path / "out"), "--workers", "2"])
    assert len(read(tmp_path / "out/train")) == len(rows["train"])  # not twice as many


def test_c4(tmp_path):
    rows = [
        {"text": f"page {at}", "timestamp": "2019-04-25T12:57:54Z", "url": f"http://x/{at}"}
        for at in range(12)
    ]
    for name, of in (("train.00000-of-00002", rows[:6]), ("train.00001-of-00002", rows[6:])):
        (tmp_path / f"c4-{name}.json.gz").write_bytes(gzip.compress(lines(of)))
    (tmp_path / "c4-validation.00000-of-00001.json.gz").write_bytes(gzip.compress(lines(rows[:2])))
    out = tmp_path / "out"
    c4.run(
        [
            *("--in_root", str(tmp_path), "--out_root", str(out), "--batch_size", "7"),
            *("--progress_bar", "0", "--workers", "2"),
        ]
    )
    assert read(out / "train") == rows
    assert read(out / "val") == rows[:2]


def test_enwiki_text(tmp_path):
    root = tmp_path / "in"
    root.mkdir()
    for at in range(3):
        text = f"File {at} , one .\nTwo é .\n\nAnother article .\n"
        (root / f"part-{at:05}-of-00003").write_text(text, encoding="utf-8")
    (root / "eval.txt").write_text("\nOnly this .\n")
    args = ["--in_root", str(root), "--out_root", str(tmp_path / "out"), "--progress_bar", "0"]
    enwiki_text.run(args)
    texts = [sample["text"] for sample in read(tmp_path / "out/train")]
    assert texts[3:6] == ["File 1 , one .", "Two é .", "Another article ."]
    assert len(texts) == 9
    assert read(tmp_path / "out/val") == [{"text": "Only this ."}]
    (root / "part-00001-of-00003").unlink()
    with pytest.raises(ValueError, match=r"has 2 files .*, not 3"):
        enwiki_text.source(str(root), "train")


WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "far", "away", "from", "here"]


@pytest.fixture
def wikipedia(tmp_path):
    """Three files of documents, and a vocabulary."""
    random = np.random.default_rng(3)
    root = tmp_path / "results4"
    root.mkdir()
    for at in range(3):
        documents = [
            "\n".join(
                " ".join(random.choice(WORDS, random.integers(3, 9))) + " ."
                for _ in range(random.integers(1, 8))
            )
            for _ in range(5)
        ]
        (root / f"part-{at:05}-of-00003").write_text("\n\n".join(documents) + "\n")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return root, tmp_path / "vocab.txt"


def prepare(wikipedia, out, *more):
    root, vocabulary = wikipedia
    make_train_parallel.run(
        [
            *("--in_root", str(root), "--in_pattern", "part-%05d-of-00003", "--in_num_shards", "3"),
            *("--out_root", str(out), "--vocab_file", str(vocabulary), "--max_seq_length", "32"),
            *("--max_predictions_per_seq", "5", "--dupe_factor", "2", "--progress_bar", "0"),
            *("--workers", "2", *more),
        ]
    )


def test_wikipedia_becomes_masked_pairs(wikipedia, tmp_path):
    prepare(wikipedia, tmp_path / "out")
    raw = read(tmp_path / "out")
    data = StreamingEnWiki(local=str(tmp_path / "out"), batch_size=1)
    masked, replaced, kept, follows = 0, 0, 0, []
    for number, sample in enumerate(raw):
        values = {name: np.frombuffer(sample[name], "<i4") for name in sample}
        weights = np.frombuffer(sample["masked_lm_weights"], "<f4")
        length = int(values["input_mask"].sum())
        ids, segments = values["input_ids"], values["segment_ids"]
        assert len(ids) == len(segments) == 32
        assert (ids[0], ids[length - 1]) == (2, 3)
        assert not ids[length:].any()
        assert segments[:length].tolist() == sorted(segments[:length])
        second = int(np.flatnonzero(segments)[0])
        assert ids[second - 1] == 3
        assert second < length - 1  # neither span is empty
        count = int(weights.sum())
        assert 1 <= count <= 5
        places = values["masked_lm_positions"][:count]
        assert places.tolist() == sorted(set(places.tolist()))
        answers = values["masked_lm_ids"][:count]
        assert not set(answers.tolist()) & {0, 2, 3, 4}
        for place, answer in zip(places, answers, strict=True):
            assert place not in (0, second - 1, length - 1)
            masked += ids[place] == 4
            kept += ids[place] == answer
            replaced += ids[place] not in (4, answer)
        follows.append(not values["next_sentence_labels"][0])
        labels = data[number]["labels"]
        assert (labels[places] == answers).all()
    assert masked > 4 * (kept + replaced) * 0.5
    assert 0.2 < np.mean(follows) < 0.8


def test_wikipedia_is_prepared_the_same_each_time(wikipedia, tmp_path):
    prepare(wikipedia, tmp_path / "a")
    prepare(wikipedia, tmp_path / "b")
    prepare(wikipedia, tmp_path / "c", "--random_seed", "7")
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    assert read(tmp_path / "a") != read(tmp_path / "c")
    root, _ = wikipedia
    (root / "part-00002-of-00003").unlink()
    with pytest.raises(FileNotFoundError, match="part-00002-of-00003; 1 are missing"):
        prepare(wikipedia, tmp_path / "d")


def test_samples_are_picked_evenly_and_groups_merged(wikipedia, tmp_path):
    prepare(wikipedia, tmp_path / "out", "--size_limit", "4096")
    samples = read(tmp_path / "out")
    pick_eval_samples.run(
        [
            *("--in_root", str(tmp_path / "out"), "--out_root", str(tmp_path / "eval")),
            *("--num_examples_to_pick", "10", "--workers", "0"),
        ]
    )
    picked = [samples[at * len(samples) // 10] for at in range(10)]
    assert read(tmp_path / "eval") == picked
    with pytest.raises(ValueError, match="can't be picked"):
        pick_eval_samples.source(str(tmp_path / "out"), 10**6)

    groups = tmp_path / "groups"
    for at in range(2):
        prepare(wikipedia, groups / f"group-{at:03}", "--random_seed", str(at))
    merge_shard_groups.run(["--in_root", str(groups), "--out_root", str(tmp_path / "merged")])
    assert read(tmp_path / "merged") == [
        sample for at in range(2) for sample in read(groups / f"group-{at:03}")
    ]
    with pytest.raises(FileExistsError, match="is not empty"):
        merge_shard_groups.merge(str(groups), str(tmp_path / "merged"))


def test_what_makes_no_sense_is_refused(tmp_path):
    with pytest.raises(ValueError, match="max_seq_length is 4"):
        create_pretraining_data.Masking(max_seq_length=4)
    with pytest.raises(ValueError, match="masked_lm_prob is 2"):
        create_pretraining_data.Masking(masked_lm_prob=2)
    (tmp_path / "vocab.txt").write_text("[PAD]\nword\n")
    with pytest.raises(ValueError, match=r"lacks \[UNK\], \[CLS\]"):
        make_train_parallel.Vocabulary(str(tmp_path / "vocab.txt"))
