"""The documentation as a site: every page is in it, links lead somewhere, nothing is fetched."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
ASSETS = ("img", "link", "script", "iframe", "source", "video", "audio")


class Page(HTMLParser):
    """The links, assets and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.assets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("id", "name"):
                self.anchors.add(value)
            if value and name in ("href", "src"):
                (self.assets if tag in ASSETS else self.links).append(value)


def test_the_navigation_has_each_page_once_and_no_other() -> None:
    named = re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    docs = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert len(named) > 50
    assert sorted(named) == sorted({*named})
    assert {name for name in named if not name.startswith("project/")} <= docs


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """The pages of the site, built as `make docs` does."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site").resolve()
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path: Page(path) for path in folder.rglob("*.html")}


@pytest.mark.slow
def test_links_lead_to_pages_and_anchors(site: dict[Path, Page]) -> None:
    assert len(site) > 50
    for path, page in site.items():
        if path.name == "404.html":  # it is served at any address, so its links begin with /
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https"):
                continue
            goal = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert goal.exists(), f"{path.name} links to {link}"
            if parts.fragment and goal in site:
                anchors = site[goal].anchors
                assert unquote(parts.fragment) in anchors, f"{path.name} links to {link}"


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: dict[Path, Page]) -> None:
    for path, page in site.items():
        for asset in page.assets:
            assert not urlsplit(asset).netloc, f"{path.name} loads {asset}"


@pytest.mark.slow
def test_the_reference_has_docstrings_and_examples(site: dict[Path, Page]) -> None:
    (page,) = (path for path in site if path.match("reference/training.html"))
    text = page.read_text(encoding="utf-8")
    assert "Layers in sequence; with an input shape, a network that can be trained." in text
    assert '<span class="gp">&gt;&gt;&gt; </span>' in text
    assert "<blockquote>" not in text


def test_pictures_are_small() -> None:
    pictures = [*(ROOT / "docs" / "images").glob("*.png")]
    assert pictures
    assert [picture.name for picture in pictures if picture.stat().st_size > 150_000] == []
