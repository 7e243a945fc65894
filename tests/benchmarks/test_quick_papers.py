"""How long quick papers take: what a row says, and names that are no papers."""

import subprocess
import sys

import replication_result
from benchmarks.quick_papers import row

from pareo.lab.experiment import results


def test_a_row_counts_the_figures_that_have_one_from_here() -> None:
    result = results.checked(replication_result.made(), "made up")
    name, seconds, status, lines, longest = row("lima-zola", 61.6, 0, result)
    assert (name, seconds, status) == ("lima-zola", "62", "0")
    published = [line for line in result.lines if line.published is not None]
    assert lines.split(" of ")[1] == str(len(published))
    assert 0 < int(lines.split(" of ")[0]) <= len(published)
    part = max(result.parts, key=lambda part: part.seconds)
    assert longest == f"{part.name}, {part.seconds:.0f} s"


def test_a_paper_without_a_result_says_so() -> None:
    assert row("melo", 3.2, 2, None) == ["melo", "3", "2", "", ""]


def test_a_name_that_is_no_paper_is_refused() -> None:
    command = [sys.executable, "-m", "benchmarks.quick_papers", "--papers", "melo,theano"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "expects some of lima-zola" in done.stderr
    assert "got 'theano'" in done.stderr
