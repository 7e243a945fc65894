"""Running: the same bits each time, the caller's arrays untouched, wrong calls refused."""

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from devices import DEVICES, home, placed
from networks_for_tests import papers_cnn

from pareo import Device, Spec, op, trace
from pareo.errors import DtypeError, PareoError, ShapeError
from pareo.program import differentiate


@pytest.mark.parametrize("device", ["vectorized", "compiled"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_repeated_with_the_same_threads_gives_the_same_bits(device: str, threads: int) -> None:
    loss, arguments = papers_cnn(batch=37)
    program = differentiate(trace(loss, *arguments), wrt=range(2, 8))
    run = program.compile(Device(device, threads=threads))
    first = [np.array(a) for a in run(*arguments)]
    for again in (run, run, program.compile(Device(device, threads=threads))):
        for a, b in zip(first, again(*arguments), strict=True):
            assert a.tobytes() == b.tobytes()


def test_results_live_until_the_next_call() -> None:
    double = trace(lambda x: op.scale(2, x), Spec((2,))).compile()
    first = double(np.ones(2, np.float32))
    assert first.tolist() == [2, 2]
    double(np.zeros(2, np.float32))
    assert first.tolist() == [0, 0]


@pytest.mark.parametrize("device", ["sequential", "vectorized", "compiled"])
def test_the_callers_arrays_are_not_kept(device: str) -> None:
    """Nor by what only looks at them, as a reshaped one does."""
    run = trace(lambda x: op.exp(op.reshape(x, (4,))), Spec((2, 2))).compile(Device(device))
    called, bound = (np.ones((2, 2), np.float32) for _ in range(2))
    alive = [weakref.ref(array) for array in (called, bound)]
    run(called)
    run.bind(bound)()
    run.release()
    del called, bound
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


def test_a_result_may_be_the_next_argument() -> None:
    def step(x: np.ndarray) -> np.ndarray:
        return op.add(op.exp(op.scale(0, x)), x)  # x + 1, with intermediates in between

    run = trace(step, Spec((4,), "float64")).compile()
    x = np.zeros(4)
    for _ in range(5):
        x = run(x)
    assert x.tolist() == [5, 5, 5, 5]


def test_arguments_of_any_layout_and_python_numbers() -> None:
    run = trace(lambda x, y: op.scale(y, x), Spec((2, 3)), Spec(())).compile()
    x = np.arange(6, dtype=np.float32).reshape(3, 2).T
    assert run(x, 2.0).tolist() == (2 * x).tolist()


def test_a_second_thread_is_refused_while_the_first_runs() -> None:
    run = trace(lambda x: op.dot(x, x), Spec((300, 300), "float64")).compile(Device("sequential"))
    refused = threading.Event()
    with run._lock, pytest.raises(PareoError, match="compile one for each"):
        run(np.ones((300, 300)))
    small = trace(lambda x: op.relu(x), Spec((1,))).compile()

    def work() -> None:
        while not refused.is_set():
            try:
                small(np.ones(1, np.float32))
            except PareoError:
                refused.set()

    # Two threads that never pause must meet inside a call before long.
    workers = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert refused.wait(60)
    for worker in workers:
        worker.join()
    assert small(np.ones(1, np.float32)) == 1, "and it still runs"


def test_dicts_bind_by_their_keys() -> None:
    def line(given: dict[str, Any], x: Any) -> dict[str, Any]:
        return {"y": op.add(op.scale(given["slope"], x), given["start"])}

    specs = {"slope": Spec(()), "start": Spec(())}
    run = trace(line, specs, Spec((2,))).compile()
    x = np.array([1, 2], np.float32)
    assert run({"start": 10.0, "slope": 2.0}, x)["y"].tolist() == [12, 14]
    assert run(2.0, 10.0, x)["y"].tolist() == [12, 14], "leaves alone go by their order"
    with pytest.raises(TypeError, match="argument 0 must have the keys 'slope', 'start'; got 'a'"):
        run({"a": 1.0}, x)
    with pytest.raises(TypeError, match="argument 1 must not be a dict"):
        run({"start": 10.0, "slope": 2.0}, {"x": x})


def test_whole_numbers_are_not_rounded_to() -> None:
    run = trace(lambda x, seed: op.dropout(x, 0.5, seed), Spec((8,)), Spec((), "int64")).compile()
    x = np.ones(8, np.float32)
    for wrong in (2.9, True, 2**70):
        with pytest.raises(DtypeError, match=r"argument 1 must be int64\[\]; got"):
            run(x, wrong)
    assert run(x, 2).tolist() == op.dropout(x, 0.5, 2).tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_writing_into_a_constant_result_changes_no_later_call(device: str) -> None:
    with Device(device):
        ones = placed(device, np.ones((2, 2), np.float32))
        run = trace(lambda x: (ones, op.transpose(ones), op.add(x, ones)), Spec((2, 2))).compile()
        x = placed(device, np.zeros((2, 2), np.float32))
        for _ in range(3):
            for result in run(x):
                assert home(device, result).tolist() == [[1, 1], [1, 1]]
                result[...] = 7
        assert home(device, ones).tolist() == [[1, 1], [1, 1]]


class Silent(np.ndarray):
    """Answers NumPy's functions without doing what they ask for, as wrappers with units may."""

    def __array_ufunc__(self, *_: Any, **__: Any) -> None:
        return None


@pytest.mark.parametrize("device", ["sequential", "vectorized", "compiled"])
def test_subclasses_of_arrays_are_read_as_arrays(device: str) -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    quiet = a.copy().view(Silent)
    with Device(device):
        for operator in (op.add, op.div, op.hadamard):
            assert operator(quiet, quiet)[1:].tolist() == operator(a, a)[1:].tolist()
        out = np.zeros((2, 3), np.float32).view(Silent)
        assert op.exp(a, out=out) is out
        assert out.tolist() == op.exp(a).tolist()
        run = trace(lambda x: op.relu(op.sub(x, quiet)), Spec((2, 3))).compile()
        assert run(quiet).tolist() == np.zeros((2, 3)).tolist()


@pytest.mark.parametrize(
    ("arguments", "kind", "sentence"),
    [
        ((), TypeError, "expects 1 arrays; got 0"),
        (
            (np.ones(3, np.float32),),
            ShapeError,
            r"argument 0 must be float32\[2\]; got shape \(3,\)",
        ),
        ((np.ones(2),), DtypeError, r"argument 0 must be float32\[2\]; got float64"),
        (("ab",), Exception, "argument 0 on 'vectorized' expects NumPy arrays"),
        ((np.ma.array([1, 2], dtype="f4"),), DtypeError, "argument 0 expects .* without a mask"),
    ],
)
def test_wrong_arguments_are_one_clear_sentence(arguments, kind, sentence) -> None:
    run = trace(lambda x: op.relu(x), Spec((2,))).compile()
    with pytest.raises(kind, match=sentence):
        run(*arguments)
    assert run(np.ones(2, np.float32)).tolist() == [1, 1], "and nothing is lost"


def test_labels_are_checked_while_a_program_runs() -> None:
    for device in ("sequential", "vectorized", "compiled"):
        run = trace(op.cross_entropy, Spec((2, 3)), Spec((2,), "int64")).compile(Device(device))
        with pytest.raises(ShapeError, match="labels from 0 to 2; got 7"):
            run(np.ones((2, 3), np.float32), np.array([0, 7]))
