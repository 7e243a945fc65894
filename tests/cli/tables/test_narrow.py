"""Tables on terminals of any width: numbers whole, or their column gone and named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pareo.cli.tables.narrow import Figures

pytestmark = pytest.mark.smoke

LEAST = ("shape", "calls", "of peak")


def drawn(width: int, rows: list[tuple[str, ...]], least: tuple[str, ...] = LEAST) -> list[str]:
    table = Figures(title="kernels", caption="as raced", least=least)
    table.add_column("kernel", max_width=44, no_wrap=True)
    table.add_column("shape", max_width=40)
    for head in ("calls", "ms a step", "of peak"):
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*row)
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()


NUMBERS = st.integers(0, 10**7).map(lambda n: f"{n:,}")
NAMES = st.text("abc_<>, ", min_size=1, max_size=60).map(lambda text: text.replace("<", "\\<"))


@given(
    st.integers(34, 200),
    st.lists(st.tuples(NAMES, NAMES, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=4),
)
def test_numbers_are_whole_or_gone(width: int, rows: list[tuple[str, ...]]) -> None:
    lines = drawn(width, rows)
    assert max(len(line) for line in lines) <= width
    text = "\n".join(lines)
    gone = " ".join(text.partition("Too narrow for:")[2].split())  # it may wrap
    for _, _, calls, seconds, peak in rows:
        assert seconds in text
        assert calls in text or "calls" in gone
        assert peak in text or "of peak" in gone


@pytest.mark.parametrize("width", [44, 200])
def test_what_is_left_out_is_named_beneath(width: int) -> None:
    row = ("a_kernel_with_a_very_long_name_indeed", "128x64, 64x10 -> 128x10", "3", "1.25", "98%")
    text = "\n".join(drawn(width, [row]))
    assert ("Too narrow for: shape." in text) == (width == 44)
    assert "as raced" in text
    assert ("128x64" in text) == (width == 200)


def test_an_empty_column_is_not_missed() -> None:
    text = "\n".join(drawn(40, [("a_kernel_of_some_length", "", "12", "1.25", "98%")]))
    assert "Too narrow" not in text
    assert "98%" in text
