"""The documentation is correct: its code runs, its links and paths exist, its tables are true.

A comment on the line before a block of code says how the block is used:

    <!-- not run -->            it is not run
    <!-- file: NAME -->         it is a module that the other blocks of the page may import
    <!-- add to: PATH -->       it belongs at the end of a file of the repository

All other blocks of Python in one page are run as one script. Blocks of `text` in a page show what
that script prints.
"""

import inspect
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.cases import CASES

from pareo import op

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "README.pt-BR.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
OPERATORS = ROOT / "docs" / "operators.md"
NEW_OPERATOR = ROOT / "docs" / "howto-add-an-operator.md"


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=shown)


@dataclass(frozen=True)
class Block:
    """A block of code with its language, the comment before it, and its first line."""

    language: str
    comment: str
    code: str
    line: int

    def named(self, what: str) -> str | None:
        """The text of the comment after `what:`."""
        key, _, value = self.comment.partition(":")
        return value.strip() if key == what else None


def blocks(page: Path) -> list[Block]:
    pattern = r"(?:^<!-- ([^\n]*?) -->\n)?^```(\w*)\n(.*?)^```$"
    text = page.read_text()
    found = []
    for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, match.start(3))
        found.append(Block(match[2], match[1] or "", match[3], line))
    return found


def script_of(page: Path) -> str:
    """The Python of the page, on the same lines as in the page, so that tracebacks fit."""
    script = ""
    for block in blocks(page):
        if block.language == "python" and not block.comment:
            script += "\n" * (block.line - script.count("\n")) + block.code
    return script


def run(command: list[str], folder: Path, **more: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Pages whose code is that of another, or takes long: it imports torch, or compiles
SAME = {ROOT / "README.pt-BR.md": ROOT / "README.md"}
LONG = {ROOT / "docs" / "tutorials" / name for name in ("own-network.md", "operator.md")}
RUN = [
    pytest.param(page, marks=[pytest.mark.slow] if page in LONG else [], id=shown(page))
    for page in PAGES
    if script_of(page) and page not in SAME
]


@pytest.mark.parametrize("page", SAME, ids=shown)
def test_a_translation_has_the_code_and_figures_of_its_original(page: Path) -> None:
    def code(one: Path) -> list[str]:
        return re.sub(r" +#.*", "", "".join(block.code for block in blocks(one))).splitlines()

    def numbers(one: Path) -> list[str]:
        text = re.sub(r"^```.*?^```$|\]\([^)]*\)", "", one.read_text(), flags=re.M | re.S)
        return sorted(re.sub(",", ".", found) for found in re.findall(r"\d+(?:[.,]\d+)?", text))

    assert code(page) == code(SAME[page])
    assert numbers(page) == numbers(SAME[page])


@pytest.mark.parametrize("page", RUN)
def test_code_runs_and_prints_what_is_shown(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        name = block.named("file")
        if name:
            (tmp_path / name).write_text(block.code)
    (tmp_path / page.name).write_text(script_of(page))
    printed = run([sys.executable, "-W", "error", page.name], tmp_path)
    for block in blocks(page):
        if block.language == "text" and not block.comment:
            assert block.code in printed


@every_page
def test_comments_are_understood(page: Path) -> None:
    for block in blocks(page):
        known = block.comment in ("", "not run") or block.named("file") or block.named("add to")
        assert known, f"{page.name}, line {block.line}: <!-- {block.comment} -->"


@pytest.mark.slow
def test_the_new_operator_works_if_pasted(tmp_path: Path) -> None:
    """If it is pasted into a copy of the repository, its example and its tests pass."""
    for folder in ("src/pareo", "tests/operators"):
        ignored = shutil.ignore_patterns("files", "__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    for name in ("pyproject.toml", "conftest.py", "tests/devices.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    added = set()
    for block in blocks(NEW_OPERATOR):
        path = block.named("add to")
        if path:
            added.add(path)
            with (tmp_path / path).open("a") as file:
                file.write("\n\n" + block.code)
    assert len(added) == 8
    with (tmp_path / "src/pareo/operators/__init__.py").open("a") as file:
        file.write("from pareo.operators.elementwise import softplus\n__all__.append('softplus')\n")
    printed = run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         "src/pareo/operators/elementwise.py", "tests/operators", "-k", "softplus"],
        tmp_path,
        PYTHONPATH=str(tmp_path / "src"),
        PAREO_CACHE_DIR=str(tmp_path / "cache"),
    )  # fmt: skip
    # The example, the declaration, and five kinds of test on three devices in two dtypes.
    passed = re.search(r"(\d+) passed", printed)
    assert passed is not None
    assert int(passed[1]) >= 30


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The anchors of a page, as GitHub spells them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = page.parent / path if path else page
        assert goal.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(goal), f"{page.name} links to {target}"


SOURCES = [
    f"/{path.relative_to(ROOT)}"
    for folder in ("src", "tests", "docs", "benchmarks", "examples")
    for path in (ROOT / folder, *(ROOT / folder).rglob("*"))
    if "__pycache__" not in path.parts
]
GENERATED = {"carry/", "site/"}  # by make
# A file or a directory of the repository, from any directory on: `nhwc/rules/`, `cli/networks.py`.
PATH = re.compile(r"`((?:[a-z_][\w.-]*/)*(?:[\w-]+\.(?:py|cu|cuh)|[a-z_][\w-]*/))`")


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=shown)
def test_paths_in_prose_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    own = {block.named("file") for block in blocks(page)}
    for path in PATH.findall(text):
        if path in own | GENERATED or "NAME" in path or "FAMILY" in path:
            continue
        assert any(file.endswith(f"/{path.rstrip('/')}") for file in SOURCES), path


def test_the_citation_is_of_the_last_release() -> None:
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    released = re.search(r"^## (\d\S*) - ", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert cited is not None
    assert released is not None
    assert cited[1] == released[1]


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.parent == ROOT / "docs"], ids=lambda p: p.name
)
def test_every_page_is_in_the_index(page: Path) -> None:
    index = ROOT / "docs" / "index.md"
    assert page == index or f"({page.name})" in index.read_text()


# A row of the table: | `name(arguments)` | meaning | `FLOPs` | gradient |
ROW = re.compile(r"^\| `((\w+)\(.*?\))` \| ([^|]+) \| `([^`|]+)` \| ([^|]+) \|$", re.M)
ROWS = {row[2]: row for row in ROW.finditer(OPERATORS.read_text())}


def test_the_table_has_every_operator_and_no_other() -> None:
    assert ROWS.keys() == op.registry.keys()


@pytest.mark.parametrize("name", op.registry)
def test_signature_in_the_table(name: str) -> None:
    assert ROWS[name][1] == f"{name}{inspect.signature(op.registry[name])}"


@pytest.mark.parametrize("name", op.registry)
def test_gradient_in_the_table(name: str) -> None:
    assert (ROWS[name][5] == "none") == (not op.registry[name].differentiable)


def places(image: Any, pooled: Any, how: dict[str, Any]) -> int:
    """The number of pixels of all pooling windows, counted one by one."""
    size, stride = how["size"], how["stride"]
    inside = np.pad(np.ones(image[2:]), [(before, 99) for before in how["padding"][:2]])
    corners = [(i * stride[0], j * stride[1]) for i, j in np.ndindex(pooled[2:])]
    seen = sum(inside[i : i + size[0], j : j + size[1]].sum() for i, j in corners)
    return int(seen) * image[0] * image[1]


def near(shape: Any, size: int) -> int:
    """The number of channels that normalise all elements, counted one by one."""
    pairs = [(c, other) for c in range(shape[1]) for other in range(shape[1])]
    found = sum(c - size // 2 <= other < c - size // 2 + size for c, other in pairs)
    return found * shape[0] * shape[2] * shape[3]


def numbers(name: str, specs: Any, attributes: Any, result: Any) -> dict[str, Any]:
    """The values of the names in the FLOPs column, for one call."""
    parameters = inspect.signature(op.registry[name]).parameters
    operands = [p for p in parameters if p not in attributes and p != "out"]
    found = {p: spec.size for p, spec in zip(operands, specs, strict=False)}
    found["out"] = getattr(result, "size", None)
    first = specs[0].shape
    if name == "dot":
        found["inner"] = first[-1]
    if name.startswith("conv"):
        found["taps"] = math.prod((result if "weight" in name else specs[1]).shape[1:])
    if "pool" in name:
        image, pooled = (result, specs[0]) if "gradient" in name else (specs[0], result)
        found["places"] = places(image.shape, pooled.shape, attributes)
    found |= {name: value for name, value in attributes.items() if isinstance(value, bool)}
    found["elements"] = sum(spec.size for spec in specs)
    if name.startswith("attention"):
        q, k, v = specs[1:4] if "gradient" in name else specs[:3]
        queries, keys = q.shape[-2], k.shape[-2]
        seen = np.tri(queries, keys) if attributes["causal"] else np.ones((queries, keys))
        found["pairs"] = int(seen.sum()) * math.prod(q.shape[:-2])
        found |= {"rows": math.prod(q.shape[:-1]), "d": q.shape[-1], "e": v.shape[-1]}
    if name.startswith("layer_norm"):
        found["lines"] = specs[0].size // first[attributes["axis"]]
    if name == "log_softmax":
        found["lines"] = specs[0].size // first[attributes["axis"]]
    if name.startswith("lrn"):
        found["near"] = near(specs[0].shape, attributes["size"])
    return found


@pytest.mark.parametrize("name", op.registry)
@given(data=st.data())
@settings(max_examples=5)
def test_flops_in_the_table(name: str, data: Any) -> None:
    operator = op.registry[name]
    call = data.draw(CASES[name].calls("float32", "C"))
    arguments = (call.operands,) if call.many else call.operands
    _, attributes, specs, result = operator.bind(arguments, call.attributes)
    said = eval(ROWS[name][4], {}, numbers(name, specs, attributes, result))
    assert said == operator.count_flops(result, specs, attributes)
