"""Results that are kept, compared, and refused when they are damaged."""

import json
import sqlite3
import threading
from dataclasses import replace

import pytest
from race_result import made, race
from typer.testing import CliRunner

from pareo.cli import app
from pareo.errors import DataError
from pareo.lab.experiment import records, results
from pareo.lab.machine.floors import Floor
from pareo.lab.race.result_diff import changes, verdicts


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "deep" / "records.sqlite"))
    return tmp_path / "deep" / "records.sqlite"


def said(*words):
    """What a command prints on a wide terminal."""
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "160"})
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def test_what_is_kept_comes_back_with_every_sample():
    first, second = race(), race(made(seed=2))
    assert (records.save(first), records.save(second)) == (1, 2)
    assert records.load(1) == first
    assert records.find("2") == records.find("last") == second
    assert [number for number, _ in records.everything()] == [1, 2]


def test_the_default_place_is_the_users_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("PAREO_RECORDS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert records.place() == tmp_path / "pareo" / "records.sqlite"


def test_two_races_that_end_at_once_are_both_kept():
    threads = [threading.Thread(target=records.save, args=(race(made(seed=n)),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(records.everything()) == 6


def test_nothing_kept_yet():
    assert records.everything() == []
    assert "Nothing is saved in" in said("history")
    with pytest.raises(DataError, match="nothing is kept here yet"):
        records.find("last")
    with pytest.raises(DataError, match="nothing is kept here yet"):
        records.load(1)


def test_a_number_that_is_not_there():
    records.save(race())
    with pytest.raises(DataError, match="there is no result 7"):
        records.load(7)


def test_a_damaged_file_is_one_sentence(path):
    records.save(race())
    whole = path.read_bytes()
    path.write_bytes(b"no database " * 100)
    with pytest.raises(DataError, match=r"records\.sqlite: expected pareo's records; got: "):
        records.everything()
    with pytest.raises(DataError, match="expected pareo's records"):
        records.save(race())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="expected pareo's records"):
        records.everything()


def test_another_programs_database_is_left_alone(path):
    path.parent.mkdir()
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE theirs (x)")
    file.close()
    before = path.read_bytes()
    with pytest.raises(DataError, match="expected pareo's records of version 1; got 0"):
        records.save(race())
    assert path.read_bytes() == before


def test_a_result_that_was_tampered_with_is_told_by_its_number(path):
    records.save(race())
    with sqlite3.connect(path) as file:
        file.execute("UPDATE results SET result = replace(result, '\"ok\"', '\"fine\"')")
    file.close()
    with pytest.raises(DataError, match=r"result 1: expected one of .*ok, .* in rows\[0\]\.status"):
        records.load(1)


def test_one_damaged_result_hides_no_other(path, capsys):
    for _ in range(3):
        records.save(race())
    with sqlite3.connect(path) as file:
        file.execute("UPDATE results SET result = substr(result, 1, 90) WHERE number = 3")
    file.close()
    assert [number for number, _ in records.everything()] == [1, 2]
    assert "result 3: expected JSON" in capsys.readouterr().err
    assert records.find("last") == records.load(2)


def test_a_row_that_is_no_text_hides_no_other(path, capsys):
    for _ in range(3):
        records.save(race())
    with sqlite3.connect(path) as file:
        file.execute("UPDATE results SET result = CAST(x'ff00fe' AS TEXT) WHERE number = 2")
    file.close()
    assert [number for number, _ in records.everything()] == [1, 3]
    assert "result 2: expected JSON; got bytes that are no text" in capsys.readouterr().err


def test_a_locked_file_is_said_soon(path, monkeypatch):
    records.save(race())
    monkeypatch.setattr(records, "PATIENCE", 0.05)
    with sqlite3.connect(path) as file:
        file.execute("BEGIN EXCLUSIVE")
        for use in (records.everything, lambda: records.save(race()), lambda: records.load(1)):
            with pytest.raises(DataError, match=r"another process has locked it for more than"):
                use()
    file.close()
    assert len(records.everything()) == 1


@pytest.mark.parametrize("sample", [1e-320, 1e101, 1.7e308])
def test_numbers_whose_ratios_overflow_are_refused(sample):
    result = made()
    result["rows"][0]["samples"][0] = sample
    with pytest.raises(DataError, match=r"expected a number .* in rows\[0\]\.samples"):
        results.parsed(json.dumps(result), "a file")


def test_a_number_that_no_result_can_have_is_a_name():
    with pytest.raises(DataError, match="expected a file to read"):
        records.find("9" * 30)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda r: r.pop("schema"), "expected 2 in schema$"),
        (lambda r: r.update(schema=3), "expected 2 in schema; got 3"),
        (lambda r: r.update(schema=1), "an object in floor$"),
        (lambda r: r.update(data=7), "text or null in data; got 7"),
        (lambda r: r.update(batch="128"), "a whole number in batch; got '128'"),
        (lambda r: r.update(batch=0), "a whole number >= 1 in batch; got 0"),
        (lambda r: r.update(batch=True), "in batch; got True"),
        (lambda r: r.update(batch=10**400), "a whole number <= .* in batch; got 1000"),
        (lambda r: r.update(rows={}), "a list in rows"),
        (lambda r: r["rows"][0].pop("contestant"), r"expected contestant in rows\[0\]"),
        (lambda r: r["rows"][0].update(curve=None), r"a list in rows\[0\]\.curve; got None"),
        (lambda r: r["rows"][0]["samples"].__setitem__(3, -1.0), r"> 0.0 in rows\[0\]\.samples"),
        (lambda r: r["rows"][0]["rounds"].pop(), r"20 rounds in rows\[0\]; got 19"),
        (lambda r: r["rows"][0].update(slice=0), r"a slice above 0 .* in rows\[0\]"),
        (lambda r: r["rows"][0]["parity"].update(loss="x"), r"rows\[0\]\.parity"),
        (lambda r: r["rows"][0].update(floor=None), r"an object in rows\[0\]\.floor; got None"),
        (lambda r: r["rows"][0]["floor"].update(peak_flops=[]), r"in rows\[0\]\.floor\.peak_flops"),
        (
            lambda r: r["rows"][0]["ledger"].update(peak_memory_bytes="x"),
            r"peak_memory_bytes in rows\[0\]; got 'x'",
        ),
    ],
)
def test_a_file_with_a_wrong_field_is_refused(tmp_path, spoil, message):
    result = made()
    spoil(result)
    file = tmp_path / "race.json"
    file.write_text(json.dumps(result))
    with pytest.raises(DataError, match=message):
        results.read(file)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", "NaN", '"text"', "\xff\x00"])
def test_a_file_that_is_no_result_is_refused(tmp_path, text):
    file = tmp_path / "race.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"race\.json: expected"):
        results.read(file)


def test_nan_among_the_samples_is_refused(tmp_path):
    result = made()
    result["rows"][0]["samples"][0] = float("nan")
    file = tmp_path / "race.json"
    file.write_text(json.dumps(result))
    with pytest.raises(DataError, match=r"rows\[0\]\.samples\[0\]; got nan"):
        results.read(file)


def as_schema_1(result, cards):
    """The result as it was written when one floor had to do for all."""
    floor = {k: v for k, v in result["rows"][0]["floor"].items() if k not in ("place", "precision")}
    rows = [{k: v for k, v in row.items() if k != "floor"} for row in result["rows"]]
    machine = {**result["machine"], "cards": cards}
    old = {**result, "schema": 1, "floor": floor, "rows": rows, "machine": machine}
    del old["data"]
    return old


def test_a_result_of_the_first_schema_is_read_as_one_of_this():
    assert results.checked(as_schema_1(made(), cards=[]), "old") == race()


def test_one_floor_was_the_cards_where_there_was_one():
    old = as_schema_1(made(), cards=[{"name": "a card"}])
    old["rows"][0]["contestant"] = "pareo-cuda"
    rows = race(old).rows
    assert rows[0].floor == replace(race().rows[0].floor, place="cuda")
    assert rows[1].floor == Floor(place="cpu", precision="float32")


def test_a_file_that_is_not_there():
    with pytest.raises(DataError, match=r"nowhere\.json: expected a file to read"):
        records.find("nowhere.json")


def test_history_names_the_fastest():
    records.save(race())
    records.save(race({**made(), "rows": []}))
    text = said("history")
    assert "pareo-compiled" in text
    assert "papers-cnn" in text
    assert "nothing was timed" in text
    assert [r["number"] for r in json.loads(said("history", "--json"))] == [1, 2]


def test_what_changed_is_named_and_the_verdict_given():
    before, after = race(), race(made({"torch": 1.1, "jax": 0.8}, seed=2))
    after.versions["torch"] = "2.14.0"
    after.threads = 1
    assert [c.field for c in changes(before, after)] == ["threads", "versions.torch"]
    words = {name: getattr(v, "word", v) for name, v in verdicts(before, after).items()}
    assert words["torch"] == "slower"
    assert words["jax"] == "faster"
    assert words["pareo-compiled"] == "cannot tell"
    assert words["wrong"] == "not timed in the first"


def test_other_work_has_no_verdict():
    assert verdicts(race(), race({**made(), "batch": 32}))["torch"] == "not the same work: batch"


def test_compare_prints_both_and_the_verdict(tmp_path):
    records.save(race())
    file = tmp_path / "after.json"
    after = made({"torch": 1.1}, seed=2)
    after["machine"]["processor"] = "another [red]one"
    file.write_text(json.dumps(after))
    text = said("compare", "1", str(file))
    assert "another [red]one" in text
    (line,) = [line for line in text.splitlines() if line.strip().startswith("torch ")]
    assert "slower: takes 1." in line
    assert "are the same" in said("compare", "1", "1")


def test_a_contestant_in_one_race_only_is_no_change_of_settings():
    before, after = race(), race()
    gone = after.rows.pop(1)
    assert changes(before, after) == []
    assert verdicts(before, after)[gone.contestant] == "only in the first"
