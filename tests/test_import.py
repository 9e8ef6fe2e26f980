"""Importing is quick, because it imports nothing that isn't needed yet."""

import functools
import json
import os
import subprocess
import sys

import pytest

import streaming
from tests.public_names import resolve

HEAVY = {
    *("boto3", "botocore", "google", "oci", "azure", "paramiko", "databricks", "huggingface_hub"),
    *("PIL", "pandas", "pyspark", "ray", "requests", "urllib3", "sklearn", "scipy", "tqdm"),
    *(
        "matplotlib",
        "transformers",
        "tokenizers",
        "torchvision",
        "brotli",
        "snappy",
        "moto",
        "pytest",
    ),
}

WRITERS = ["CSVWriter", "JSONWriter", "MDSWriter", "TSVWriter", "XSVWriter"]

COMPAT = {
    "streaming": ["LocalDataset", "Stream", "StreamingDataLoader", "StreamingDataset", *WRITERS],
    "streaming.base": ["LocalDataset", "Stream", "StreamingDataLoader", "StreamingDataset"],
    "streaming.base.array": ["Array"],
    "streaming.base.batching": ["generate_work"],
    "streaming.base.compression": [
        *("compress", "decompress", "get_compressions", "get_compression_extension"),
        *("is_compression", "Brotli", "Bzip2", "Gzip", "Snappy", "Zstandard"),
    ],
    "streaming.base.converters": [
        *("dataframe_to_mds", "infer_dataframe_schema", "is_json_compatible"),
    ],
    "streaming.base.constant": ["DEFAULT_TIMEOUT", "TICK", "SHM_TO_CLEAN", "LOCALS", "BARRIER"],
    "streaming.base.dataloader": ["StreamingDataLoader"],
    "streaming.base.dataset": ["StreamingDataset"],
    "streaming.base.distributed": [
        *("get_rank", "get_local_rank", "get_world_size", "get_local_world_size", "barrier"),
        *("broadcast", "all_gather", "all_gather_object", "maybe_init_dist"),
    ],
    "streaming.base.format": [
        *(*WRITERS, "Reader", "Writer", "reader_from_json", "get_index_basename", "FileInfo"),
    ],
    "streaming.base.format.mds.encodings": [
        *("Encoding", "Bytes", "Str", "Int", "NDArray", "StrInt", "StrFloat", "StrDecimal"),
        *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)),
        *("Float16", "Float32", "Float64", "PIL", "JPEG", "JPEGArray", "PNG", "PILList"),
        *("JPEGList", "PNGList", "Pickle", "JSON", "get_mds_encodings", "is_mds_encoding"),
        *("is_mds_encoding_safe", "get_mds_encoded_size", "mds_encode", "mds_decode"),
        *("register_encoding", "_encodings"),
    ],
    "streaming.base.format.json.encodings": [
        *("Str", "Int", "Float", "is_json_encoded", "is_json_encoding"),
    ],
    "streaming.base.format.xsv.encodings": [
        *("Str", "Int", "Float", "is_xsv_encoding", "xsv_encode", "xsv_decode"),
    ],
    "streaming.base.hashing": ["get_hash", "get_hashes", "is_hash"],
    "streaming.base.local": ["LocalDataset"],
    "streaming.base.partition": ["get_partitions"],
    "streaming.base.registry_utils": [
        *("create_registry", "construct_from_registry", "TypedRegistry", "import_file"),
    ],
    "streaming.base.sampling": ["get_sampling"],
    "streaming.base.shuffle": [
        *("get_shuffle", "get_shuffle_py1e", "get_shuffle_py1br", "get_shuffle_py1s"),
        *("get_shuffle_py2s", "get_shuffle_naive"),
    ],
    "streaming.base.spanner": ["Spanner"],
    "streaming.base.storage": ["CloudDownloader", "CloudUploader"],
    "streaming.base.storage.download": ["CloudDownloader", "S3Downloader", "DOWNLOADER_MAPPINGS"],
    "streaming.base.storage.upload": ["CloudUploader", "S3Uploader"],
    "streaming.base.stream": ["Stream", "streams_registry"],
    "streaming.base.util": [
        *("bytes_to_int", "number_abbrev_to_int", "get_list_arg", "retry", "merge_index"),
        *("wait_for_file_to_exist", "clean_stale_shared_memory"),
    ],
    "streaming.base.world": ["World"],
}
"""The names that code written against mosaicml-streaming imports."""


@functools.cache
def imported_by(code: str) -> frozenset[str]:
    """The top-level packages that are there after running some code in a new interpreter."""
    report = "import json, sys; print(json.dumps(sorted({n.split('.')[0] for n in sys.modules})))"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COV_", "PYTEST"))}
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"],
        capture_output=True,
        text=True,
        check=True,
        env=env,
    )
    return frozenset(json.loads(run.stdout.splitlines()[-1]))


def test_import_streaming_imports_nothing_from_elsewhere():
    # Less what is there already: an editable install hooks into the start of the interpreter.
    new = imported_by("import streaming") - imported_by("")
    assert new - set(sys.stdlib_module_names) == {"streaming"}


@pytest.mark.parametrize(
    "code",
    [
        "from streaming import StreamingDataset, MDSWriter",
        "from streaming import *",
        "from streaming.vision import *",
        "from streaming.text import *",
        "from streaming.multimodal import *",
        "import streaming.base.util, streaming.base.storage, streaming.base.distributed",
    ],
)
def test_importing_the_public_names_imports_nothing_heavy(code):
    with_torch = "import torch, torch.utils.data, numpy, torch.distributed"
    assert not (imported_by(code) - imported_by(with_torch)) & HEAVY


def test_writing_does_not_import_torch(tmp_path):
    code = f"""
from streaming import MDSWriter
with MDSWriter(out={str(tmp_path / "out")!r}, columns={{"x": "int"}}) as out:
    out.write({{"x": 1}})
"""
    assert "torch" not in imported_by(code)


@pytest.mark.parametrize("module", COMPAT)
def test_compatible_names(module):
    for name in COMPAT[module]:
        assert resolve(f"{module}.{name}") is not None


def test_subpackages_are_attributes():
    assert streaming.base.util.clean_stale_shared_memory() is None
    assert streaming.vision.StreamingImageNet.__mro__[1] is streaming.vision.StreamingVisionDataset
    assert streaming.text.StreamingC4.__module__ == "streaming.text.c4"


def test_dir_and_all_agree_with_what_is_there():
    for package in (streaming, streaming.base, streaming.vision, streaming.text):
        assert set(package.__all__) <= set(dir(package))
        for name in package.__all__:
            getattr(package, name)
    with pytest.raises(AttributeError, match="'streaming' has no attribute 'nothing'"):
        streaming.nothing  # noqa: B018


def test_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert streaming.__version__ == version("shardstream")
