"""What the figures say: shares of the step, FLOPs, and the paper's finding; and the report."""

from pathlib import Path

import pytest
from damage import damaged
from kernels_result import PLAIN, kernel, kernels, made

from pareo.cli.tables import kernels as kernels_table
from pareo.errors import DataError, PareoError
from pareo.lab import report
from pareo.lab.contestants.registry import chosen
from pareo.lab.experiment import records, results
from pareo.lab.experiment.tasks import task_for
from pareo.lab.kernels.study import Study
from pareo.lab.kernels.summary import accounts, finding, sections, total_rows

pytestmark = pytest.mark.smoke


def test_shares_are_of_the_step_as_raced() -> None:
    (section,) = sections(kernels(*PLAIN))
    assert section.in_kernels == pytest.approx(0.96)
    assert section.accounted == pytest.approx(1.0)
    said = accounts(section, kernels(*PLAIN))
    assert "kernels are 96.0% of the step as raced (1 s)" in said
    assert "have 100.0% of the program's FLOPs" in said


def test_whoever_goes_image_by_image_is_named() -> None:
    told = finding(kernels(*PLAIN))
    assert "No contestant goes image by image any more: 4 calls." in told[0]
    assert "239,799" in told[1]
    assert "torch: 4 products a step, as many as the program has, 150 ms each" in told[2]
    many = kernels(kernel("sgemm", "gemm", 32, 0.96, None), PLAIN[2])
    assert "torch still goes image by image: 32 calls." in finding(many)[0]
    assert "8 times as many as the program has" in finding(many)[2]


def test_batched_products_are_counted_apart() -> None:
    few = kernels(kernel("bmm", "batched gemm", 2, 0.5, None), *PLAIN)
    assert "4 products, 2 batched products a step" in finding(few)[2]


def test_a_step_that_is_one_piece_has_no_calls() -> None:
    loop = kernels(kernel("(the whole step)", "other", 1, 1.0, 110.0), PLAIN[2])
    assert "a step is one piece" in finding(loop)[0]
    (section,) = sections(loop)
    assert "FLOPs are those of the program" in accounts(section, loop)


def test_a_long_table_is_cut_and_says_so() -> None:
    many = [kernel(f"k{n}", "elementwise", 1, 0.01, None) for n in range(9)]
    (section,) = sections(kernels(*many, PLAIN[2]))
    assert kernels_table.kernels(section, most=4).row_count == 6  # "and 5 more", and the rest
    assert kernels_table.kernels(section, most=0).row_count == 10


def test_the_report_has_every_kernel_and_escapes_its_name(tmp_path: Path) -> None:
    strange = kernel("void f<float>(&x)", "gemm", 1, 0.5, 100.0)
    report.write(kernels(strange, PLAIN[2]), tmp_path / "kernels.html")
    text = (tmp_path / "kernels.html").read_text()
    assert "void f&lt;float&gt;(&amp;x)" in text
    assert "void f<float>" not in text
    assert "No contestant goes image by image" in text


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("rows", 0, "profiles"), None, "a list in rows[0].profiles; got None"),
        (("rows", 0, "profiles", 0, "rows"), [], "of length >= 1 in rows[0].profiles[0].rows"),
        (
            ("rows", 0, "profiles", 0, "rows", 0, "kind"),
            "sgemm",
            "one of batched gemm, convolution, copy, elementwise, gemm, other, reduction in "
            "rows[0].profiles[0].rows[0].kind; got 'sgemm'",
        ),
        (("rows", 0, "profiles", 0, "rows", 0, "calls"), "1", "rows[0].calls; got '1'"),
        (("matrix_instructions",), None, "in matrix_instructions; got None"),
        (("flops_by_kind",), [], "an object in flops_by_kind"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(path: tuple, value: object, said: str) -> None:
    with pytest.raises(DataError) as error:
        results.checked(damaged(made(), path, value), "some file")
    assert said in str(error.value)


def test_a_field_of_a_later_version_is_ignored() -> None:
    later = damaged(made(), ("rows", 0, "profiles", 0, "rows", 0, "more"), 1)
    assert results.checked(later, "some file") == kernels()


def test_a_kind_whose_flops_are_not_all_known_has_no_rate() -> None:
    some = [kernel("known", "gemm", 1, 0.1, 100.0), kernel("unknown", "gemm", 1, 0.9, None)]
    convolution = kernel("conv", "convolution", 1, 0.1, 7.0)
    (section,) = sections(kernels(*some, convolution, PLAIN[2]))
    shown = {cells[0]: cells for cells in total_rows(kernels(*some), section)}
    assert shown["gemm"][-2:] == ["", ""]
    assert shown["convolution"][-2:] != ["", ""]
    assert section.matrix.flops == 107.0
    (other,) = sections(kernels(convolution, *some[1:], PLAIN[2]))  # whichever kind comes last
    assert other.matrix.flops == 7.0


def test_a_study_is_kept_like_a_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "kept.sqlite"))
    assert records.load(records.save(kernels())) == kernels()


def test_a_choice_of_settings_has_no_kernels_of_its_own() -> None:
    task = task_for("papers-cnn", 8, threads=1)
    with pytest.raises(PareoError, match="kernels are those of one setting: name torch, "):
        Study(task, chosen(["torch-best"]))
