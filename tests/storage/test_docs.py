"""What docs/storage.md shows runs, and what it says of options is so."""

import inspect
import re
from pathlib import Path

import pytest

from streaming.base.storage import download
from streaming.storage import registry
from streaming.storage.alipan import AlipanStore
from streaming.storage.azure import AzureDataLakeStore, AzureStore
from streaming.storage.databricks import databricks_store
from streaming.storage.gcs import gcs_store
from streaming.storage.hf import HFStore
from streaming.storage.oci import OCIStore
from streaming.storage.s3 import S3Store
from streaming.storage.sftp import SFTPStore
from streaming.storage.web import HTTPStore

PAGE = (Path(__file__).parents[2] / "docs" / "storage.md").read_text(encoding="utf-8")


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(download, "DOWNLOADER_MAPPINGS", dict(download.DOWNLOADER_MAPPINGS))
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 12
    names = {"__name__": "example"}
    for block in blocks:
        exec(block, names)
    assert registry._registered["zip"] is names["ZipStore"]


@pytest.mark.parametrize(
    ("store", "title"),
    [
        (S3Store, "S3"),
        (gcs_store, "Google Cloud Storage"),
        (AzureStore, "Azure"),
        (AzureDataLakeStore, "Azure"),
        (OCIStore, "Oracle Cloud"),
        (HFStore, "Hugging Face Hub"),
        (databricks_store, "Databricks"),
        (SFTPStore, "SFTP"),
        (AlipanStore, "Alipan"),
        (HTTPStore, "Web servers"),
    ],
)
def test_the_tables_have_every_option(store, title):
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    shown = {
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert shown == set(inspect.signature(store).parameters) - {"url", "timeout_s"}
