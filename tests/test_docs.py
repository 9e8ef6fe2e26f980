"""The code in the documentation runs, and the site builds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

from streaming.base.storage import download
from streaming.storage import registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")
OTHERS = [ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "llms.txt")]
SYBIL = Sybil(parsers=[PythonCodeBlockParser()])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_blocks_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # What a page registers is forgotten after it.
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(download, "DOWNLOADER_MAPPINGS", dict(download.DOWNLOADER_MAPPINGS))
    for example in SYBIL.parse(path).examples():
        example.evaluate()


def test_there_are_code_blocks():
    assert sum(1 for path in PAGES for _ in SYBIL.parse(path).examples()) >= 10


@pytest.mark.parametrize("path", [PAGES[0], *OTHERS], ids=lambda path: path.name)
def test_links_of_pages_outside_the_site_lead_somewhere(path):
    for target, _ in LINK.findall(path.read_text()):
        assert (path.parent / target).exists(), target


def test_every_page_is_two_clicks_from_the_front_page():
    reached = {ROOT / "docs" / "index.md"}
    for _ in range(2):
        links = [
            (page.parent / target).resolve()
            for page in reached
            for target, _ in LINK.findall(page.read_text())
            if target.endswith(".md")
        ]
        reached |= {page for page in links if page.exists()}
    assert set(PAGES[1:]) <= reached


@pytest.mark.long
def test_the_site_builds(tmp_path):
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert build.returncode == 0, build.stderr
    assert (tmp_path / "quickstart.html").exists()
