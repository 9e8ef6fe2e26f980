"""The code of the page on clusters, on a Spark and a Ray of this machine."""

from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser

from streaming import StreamingDataset
from streaming.convert import convert
from tests.convert.folders import files_of
from tests.convert.ray_cluster import ray  # noqa: F401
from tests.convert.spark_session import spark  # noqa: F401

PAGE = Path(__file__).parents[2] / "docs" / "distributed-conversion.md"

pytestmark = pytest.mark.long


class Py(CodeBlockParser):
    language = "py"

    def evaluate(self, example):
        code = example.parsed.replace("s3://bucket", str(example.namespace["folder"]))
        exec(compile(code, str(PAGE), "exec"), example.namespace)


@pytest.mark.timeout(240)
def test_the_page_on_clusters(spark, ray, tmp_path):  # noqa: F811
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "raw").mkdir()
    for at in range(3):
        texts = [f"a text with words {at} {row}" for row in range(20)]
        table = pa.table({"id": list(range(20)), "text": texts})
        pq.write_table(table, tmp_path / f"raw/{at}.parquet")
    document = Sybil(parsers=[Py()]).parse(PAGE)
    document.namespace["folder"] = tmp_path
    examples = list(document.examples())
    assert len(examples) >= 5
    for example in examples:
        example.evaluate()
    assert files_of(tmp_path / "shards") == files_of(tmp_path / "by-ray")
    how = {"compression": "zstd", "progress": False}
    convert(str(tmp_path / "raw/*.parquet"), tmp_path / "by-processes", workers=2, **how)
    assert files_of(tmp_path / "shards") == files_of(tmp_path / "by-processes")
    words = StreamingDataset(local=str(tmp_path / "words"), batch_size=1)
    assert {words[at]["word"] for at in range(words.num_samples)} == {"text", "with", "words"}
