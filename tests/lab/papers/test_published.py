"""The papers' figures: every one has a place, and files that are wrong are refused."""

import math
import tomllib
from importlib.resources import files

import pytest

from pareo.errors import DataError, PareoError
from pareo.lab.experiment.results import convert
from pareo.lab.papers import costa_banevicius, melo, trindade_lima
from pareo.lab.papers.published import NAMES, Paper, paper

PLACES = ("Abstract", "Section", "Figure", "Table")
SOURCES = {file.name: file.read_text(encoding="utf-8")
           for file in files("pareo.lab.papers").iterdir()
           if file.name.endswith(".toml")}  # fmt: skip


@pytest.mark.smoke
def test_every_file_is_a_paper() -> None:
    assert set(SOURCES) == {f"{name}.toml" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_a_place_in_the_paper(name: str) -> None:
    one = paper(name)
    published = [*one.figures, *one.tables]
    assert published
    assert len({figure.id for figure in published}) == len(published)
    for figure in published:
        assert any(word in figure.place for word in PLACES), figure
    assert all(math.isfinite(figure.value) for figure in one.figures)
    for table in one.tables:
        numbers = [cell for row in table.rows for cell in row if not isinstance(cell, str)]
        assert all(math.isfinite(number) and number >= 0 for number in numbers)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (('place = "Figure 6"\n', ""), "place"),
        (('place = "Figure 6"', 'place = ""'), "place"),
        (("value = 62.5", 'value = "62,5"'), "expected a number"),
        (('["fit", 97.83, 61.47, 1]', '["fit", 97.83]'), "Expected 4 cells in profile"),
        (('year = "2017"\n', ""), "year"),
    ],
)
def test_a_file_that_is_wrong_is_refused(changes: tuple[str, str], reason: str) -> None:
    text = SOURCES["finardi-david.toml"]
    assert changes[0] in text
    with pytest.raises(DataError, match=f"(?i){reason}"):
        convert(tomllib.loads(text.replace(*changes)), Paper, "a file")


def test_another_name_is_refused() -> None:
    with pytest.raises(PareoError, match=r"a paper is one of lima-zola, .*; got 'knuth'"):
        paper("knuth")


def test_the_tables_of_melo_are_whole() -> None:
    sizes = {name: list(rows) for name, rows in melo.PUBLISHED.items()}
    first, second = [6, 12, 24, 48, 96], [2**power for power in range(1, 11)]
    assert sizes == {
        "add": first, "mul": first, "dot": [5, 9, 17, 33, 65],
        "scalar": second, "sigmoid": second, "tanh": second,
    }  # fmt: skip
    for rows in melo.PUBLISHED.values():
        for cells in rows.values():
            assert len(cells) == len(melo.GPUS) == 3
            assert all(0 < share < 100 < rate for rate, share in cells)
    # Table 2, the last row of DOT, and Table 3, the first row of Tanh.
    assert melo.PUBLISHED["dot"][65][2] == (3_869_462.63, 86.94)
    assert melo.PUBLISHED["tanh"][2][0] == (14_651.79, 9.28)


def test_other_tables_are_as_printed() -> None:
    assert costa_banevicius.PUBLISHED["one thread"] == (5672.29, 107.02)
    assert (costa_banevicius.EPOCHS, costa_banevicius.BATCH) == (256, 128)
    assert trindade_lima.sgemm()["Caffe"]["128x64_nn"] == (6.9006, 75264)
    assert "128x64_tn" not in trindade_lima.sgemm()["TensorFlow"]
    assert trindade_lima.LARGEST == {"Caffe": 128, "TensorFlow": 256}
    assert trindade_lima.FINDINGS[0][1].startswith("TensorFlow's time per image is up to 49 % less")
