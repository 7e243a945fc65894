"""The documentation as a site: every page is in it, links lead somewhere, nothing is fetched."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

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


def test_the_site_is_built_with_links_that_lead_somewhere(tmp_path: Path) -> None:
    """One test, so that the site is built once, which takes seven seconds."""
    site = built(tmp_path.resolve())
    assert len(site) > 50
    for path, page in site.items():
        assert not dead_links(path, page, site)
        assert not [asset for asset in page.assets if urlsplit(asset).netloc], path.name
    (page,) = (path for path in site if path.match("reference/training.html"))
    text = page.read_text(encoding="utf-8")
    assert "Layers in sequence; with an input shape, a network that can be trained." in text
    assert '<span class="gp">&gt;&gt;&gt; </span>' in text
    assert "<blockquote>" not in text


def built(folder: Path) -> dict[Path, Page]:
    """The pages of the site, built as `make docs` does."""
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


def dead_links(path: Path, page: Page, site: dict[Path, Page]) -> list[str]:
    """The links of a page that lead to no file or to no anchor of the site."""
    if path.name == "404.html":  # it is served at any address, so its links begin with /
        return []
    dead = []
    for link in page.links:
        parts = urlsplit(link)
        if parts.scheme in ("http", "https"):
            continue
        goal = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        anchors = site[goal].anchors if goal in site else None
        lost = parts.fragment and anchors is not None and unquote(parts.fragment) not in anchors
        if lost or not goal.exists():
            dead.append(f"{path.name} links to {link}")
    return dead


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    here, there = tmp_path / "here.html", tmp_path / "there.html"
    there.write_text('<p id="a">')
    here.write_text(
        '<a href="there.html#a">1</a><a href="there.html#b">2</a><a href="lost.html">3</a>'
    )
    site = {path: Page(path) for path in (here, there)}
    dead = ["here.html links to there.html#b", "here.html links to lost.html"]
    assert dead_links(here, site[here], site) == dead


def test_pictures_are_small() -> None:
    pictures = [*(ROOT / "docs" / "images").glob("*.png")]
    assert pictures
    assert [picture.name for picture in pictures if picture.stat().st_size > 150_000] == []
