"""What `make docs` adds to mkdocs: pages from the root of the repository, and links to them.

In the repository README.md and CONTRIBUTING.md are at the root, and pages in docs/ link to them by
relative paths. On the site they are pages in project/. A link to any other file outside docs/, such
as a source, becomes its text.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Each page of the site, and the file at the root that it is made from
PAGES = {
    "project/readme.md": "README.md",
    "project/readme.pt-BR.md": "README.pt-BR.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/changelog.md": "CHANGELOG.md",
}
# [text](target) or ![text](target), but no links in code, which may go on in the next line
LINK = re.compile(r"^```.*?^```$|`(?:[^`\n]|\n(?!\n))*`|(!?)\[([^\]]*)\]\(([^)\s]+)\)", re.M | re.S)


# Where a page belongs that `nav` in mkdocs.yml does not place
ROOMS = {
    "howto-": "How-tos",
    "results/": "Results",
    "tutorials/": "Tutorials",
    "explanation/": "Explanation",
    "": "Reference",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from the root, and place pages that the navigation leaves out."""
    rooms = {name: pages for room in config["nav"] for name, pages in room.items()}
    placed = str(config["nav"])
    for file in files.documentation_pages():
        if repr(file.src_uri) not in placed:
            room = next(name for start, name in ROOMS.items() if file.src_uri.startswith(start))
            rooms[room].append(file.src_uri)
    for page, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let all links lead to pages of the site."""
    here = page.file.src_uri
    source = PAGES.get(here, f"docs/{here}")

    def turned(match: re.Match[str]) -> str:
        image, text, target = match[1], match[2], match[3]
        if target is None or re.match(r"[a-z]+:|#", target):
            return match[0]
        path, mark, anchor = target.partition("#")
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        known = {root: name for name, root in PAGES.items()}.get(meant)
        if known is None and meant.startswith("docs/"):
            known = meant.removeprefix("docs/")
        if known is None:
            return text
        link = posixpath.relpath(known, posixpath.dirname(here) or ".")
        return f"{image}[{text}]({link}{mark}{anchor})"

    return LINK.sub(turned, markdown)


class Examples(griffe.Extension):
    """Show the doctests of docstrings as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the examples of one docstring."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring with its doctests between fences."""
    return re.sub(r"^( *)>>> .*(?:\n *\S.*)*", r"\1```pycon\n\g<0>\n\1```", text, flags=re.M)
