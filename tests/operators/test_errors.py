"""What a wrong call is answered with: one sentence that says what was expected, and what came."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pareo import Device, op
from pareo.errors import DtypeError, PareoError, ShapeError

X = np.ones((2, 3))
X32 = np.ones((2, 3), "float32")
V = np.ones(3)
NUMBER = np.array(1.0)
IMAGE = np.ones((1, 2, 4, 4))
W = np.ones((3, 2, 2, 2))
Y = np.ones((1, 3, 3, 3))
LABELS = np.array([0, 1])
EMPTY = np.ones((0, 3))
READ_ONLY = np.ones((2, 3))
READ_ONLY.flags.writeable = False

Wrong = tuple[Callable[[], Any], type[Exception], str]

ANY_OPERATOR: list[Wrong] = [
    (lambda: op.add([1.0], V), DtypeError, "add expects an array for a; got a list"),
    (lambda: op.add(X, None), DtypeError, "add expects an array for b; got None"),
    (lambda: op.add(X, "1"), DtypeError, "add expects an array for b; got '1'"),
    (lambda: op.add(True, X), DtypeError, "add expects an array for a; got True"),
    (lambda: op.add(X, 1j), DtypeError, "add expects an array for b; got a complex"),
    (lambda: op.exp(1.0), DtypeError, "exp expects an array for a; got 1.0"),
    (
        lambda: op.add(X, X32),
        DtypeError,
        "add expects operands of one dtype; got float64 and, for b, float32",
    ),
    (
        lambda: op.add(X, np.ones((2, 3), "int64")),
        DtypeError,
        "add expects b to be float32 or float64; got int64",
    ),
    (
        lambda: op.exp(np.ones(2, "float16")),
        DtypeError,
        "exp expects a to be float32 or float64; got float16",
    ),
    (
        lambda: op.exp(X.astype(">f8")),
        DtypeError,
        "exp expects a to be float32 or float64; got >f8",
    ),
    (
        lambda: op.add(X, 2**63),
        DtypeError,
        "add expects b to fit into 64 bits; got 9223372036854775808",
    ),
    (lambda: op.add(X), TypeError, "add expects (a, b); got 1 positional argument"),
    (lambda: op.add(X, X, X), TypeError, "add expects (a, b); got 3 positional arguments"),
    (lambda: op.add(X, c=X), TypeError, "add expects (a, b); got 1 positional argument"),
    (lambda: op.add(X, X, b=X), TypeError, "add expects (a, b); got 2 positional arguments and b"),
    (lambda: op.sum(X, axes=0), TypeError, "sum expects (a, axis=..., keepdims=...); got 1 "),
]

ELEMENTWISE: list[Wrong] = [
    (
        lambda: op.add(X, np.ones(2)),
        ShapeError,
        "add expects shapes that broadcast together; got (2, 3) and (2,)",
    ),
    (
        lambda: op.div(X, np.ones((3, 2))),
        ShapeError,
        "div expects shapes that broadcast together; got (2, 3) and (3, 2)",
    ),
    (
        lambda: op.scale(V, X),
        ShapeError,
        "scale expects alpha to be one number; got an array of (3,)",
    ),
    (lambda: op.scale(2, 3.0), DtypeError, "scale expects an array for a; got 3.0"),
    (
        lambda: op.sigmoid_gradient(X, V),
        ShapeError,
        "sigmoid_gradient expects two arrays of one shape; got (2, 3) and (3,)",
    ),
    (
        lambda: op.relu_gradient(X, V),
        ShapeError,
        "relu_gradient expects two arrays of one shape; got (2, 3) and (3,)",
    ),
    (
        lambda: op.broadcast(X, (3,)),
        ShapeError,
        "broadcast expects a shape that (2, 3) can be repeated to; got (3,)",
    ),
    (
        lambda: op.broadcast(X, (2, -3)),
        ShapeError,
        "broadcast expects shape to be a shape of sizes of at least 0; got (2, -3)",
    ),
    (
        lambda: op.broadcast(X, (2, 3.0)),
        ShapeError,
        "broadcast expects shape to be a shape of sizes of at least 0; got (2, 3.0)",
    ),
]

LINEAR: list[Wrong] = [
    (
        lambda: op.dot(V, X),
        ShapeError,
        "dot expects matrices, or stacks of matrices; got shapes (3,) and (2, 3)",
    ),
    (
        lambda: op.dot(X, X),
        ShapeError,
        "dot expects as many columns in a as rows in b; got shapes (2, 3) and (2, 3)",
    ),
    (
        lambda: op.dot(np.ones((2, 2, 3)), np.ones((3, 3, 2))),
        ShapeError,
        "dot expects leading axes that broadcast together; got shapes (2, 2, 3) and (3, 3, 2)",
    ),
    (
        lambda: op.transpose(X, (0, 0)),
        ShapeError,
        "transpose expects axes to be an order of all 2 axes; got (0, 0)",
    ),
    (
        lambda: op.transpose(X, (0, 2)),
        ShapeError,
        "transpose expects axes to be an axis of an array of 2 dimensions; got 2",
    ),
    (
        lambda: op.reshape(X, (4, -1)),
        ShapeError,
        "reshape expects shape to be a shape of the 6 elements of (2, 3); got (4, -1)",
    ),
    (
        lambda: op.reshape(X, (-1, -1)),
        ShapeError,
        "reshape expects shape to be a shape, with at most one size left as -1; got (-1, -1)",
    ),
    (
        lambda: op.reshape(EMPTY, (-1, 0)),
        ShapeError,
        "reshape expects shape to be a shape of the 0 elements of (0, 3); got (-1, 0)",
    ),
    (
        lambda: op.add_bias(V, V),
        ShapeError,
        "add_bias expects a of shape (N, features) or (N, C, H, W); got (3,)",
    ),
    (
        lambda: op.add_bias(X, np.ones(2)),
        ShapeError,
        "add_bias expects b of shape (3,) for a of shape (2, 3); got (2,)",
    ),
    (
        lambda: op.concat(X, 0),
        DtypeError,
        "concat expects arrays to be a list of at least one array; got a ndarray",
    ),
    (
        lambda: op.concat([], 0),
        DtypeError,
        "concat expects arrays to be a list of at least one array; got a list",
    ),
    (
        lambda: op.concat([X, X32], 0),
        DtypeError,
        "concat expects operands of one dtype; got float64 and, for arrays[1], float32",
    ),
    (
        lambda: op.concat([V, NUMBER], 0),
        ShapeError,
        "concat expects shapes that differ only along axis 0; got (3,) and ()",
    ),
    (
        lambda: op.concat([X, np.ones((2, 2))], 0),
        ShapeError,
        "concat expects shapes that differ only along axis 0; got (2, 3) and (2, 2)",
    ),
    (
        lambda: op.part(X, 0, (1, 4)),
        ShapeError,
        "part expects between to be a range within 0 to 2 on axis 0; got (1, 4)",
    ),
    (
        lambda: op.part(X, -1, (2, 1)),
        ShapeError,
        "part expects between to be a range within 0 to 3 on axis 1; got (2, 1)",
    ),
    (
        lambda: op.part_gradient(X, 0, (0, 1), 3),
        ShapeError,
        "part_gradient expects g with 1 elements on axis 0; got (2, 3)",
    ),
]

CONVOLUTION: list[Wrong] = [
    (lambda: op.conv(X, W), ShapeError, "conv expects x of shape (N, C, H, W); got (2, 3)"),
    (
        lambda: op.conv(IMAGE, X),
        ShapeError,
        "conv expects w of shape (K, C / groups, kh, kw); got (2, 3)",
    ),
    (
        lambda: op.conv(IMAGE, np.ones((3, 1, 2, 2)), groups=2),
        ShapeError,
        "conv expects filters (K, C / groups, kh, kw) with C = 2, groups = 2 "
        "and K a multiple of groups; got (3, 1, 2, 2)",
    ),
    (
        lambda: op.conv(IMAGE, W, dilation=4),
        ShapeError,
        "conv expects a window of at least 1 that fits into the padded image; got a window of "
        "(2, 2) with dilation (4, 4) on an image of (4, 4) with padding (0, 0, 0, 0)",
    ),
    (
        lambda: op.conv(IMAGE, W, stride=0),
        ShapeError,
        "conv expects stride to be one or two whole numbers of at least 1; got 0",
    ),
    (
        lambda: op.conv(IMAGE, W, stride=(1, 2, 3)),
        ShapeError,
        "conv expects stride to be one or two whole numbers of at least 1; got (1, 2, 3)",
    ),
    (
        lambda: op.conv(IMAGE, W, padding=(1, 2, 3)),
        ShapeError,
        "conv expects padding to be (vertical, horizontal) or (top, left, bottom, right) "
        "of at least 0; got (1, 2, 3)",
    ),
    (
        lambda: op.conv(IMAGE, W, groups=True),
        ShapeError,
        "conv expects groups to be a whole number of at least 1; got True",
    ),
    (
        lambda: op.conv_input_gradient(IMAGE, W, (4, 4)),
        ShapeError,
        "conv_input_gradient expects g of shape (1, 3, 3, 3); got (1, 2, 4, 4)",
    ),
    (
        lambda: op.conv_weight_gradient(IMAGE, IMAGE, (2, 2)),
        ShapeError,
        "conv_weight_gradient expects g of shape (1, 2, 3, 3); got (1, 2, 4, 4)",
    ),
    (
        lambda: op.conv_weight_gradient(IMAGE, Y, (2, 2), groups=2),
        ShapeError,
        "conv_weight_gradient expects channels that 2 groups divide; got 2 and 3",
    ),
]

POOLING: list[Wrong] = [
    (lambda: op.max_pool(X, 2), ShapeError, "max_pool expects x of shape (N, C, H, W); got (2, 3)"),
    (
        lambda: op.max_pool(IMAGE, 0),
        ShapeError,
        "max_pool expects size to be one or two whole numbers of at least 1; got 0",
    ),
    (
        lambda: op.max_pool(IMAGE, 2, padding=2),
        ShapeError,
        "max_pool expects padding smaller than its window (2, 2); got (2, 2, 2, 2)",
    ),
    (
        lambda: op.max_pool(IMAGE, 2, ceil=1),
        ShapeError,
        "max_pool expects ceil to be True or False; got 1",
    ),
    (
        lambda: op.average_pool(np.ones((1, 1, 0, 3)), 1),
        ShapeError,
        "average_pool expects images of at least one pixel; got (0, 3)",
    ),
    (
        lambda: op.max_pool_gradient(IMAGE, IMAGE, 2),
        ShapeError,
        "max_pool_gradient expects g of shape (1, 2, 2, 2); got (1, 2, 4, 4)",
    ),
    (
        lambda: op.average_pool_gradient(X, (4, 4), 2),
        ShapeError,
        "average_pool_gradient expects g of shape (N, C, H, W); got (2, 3)",
    ),
    (
        lambda: op.subsample(IMAGE, V, 0.0, 2),
        ShapeError,
        "subsample expects w of shape (kh, kw); got (3,)",
    ),
    (
        lambda: op.subsample(IMAGE, np.ones((2, 2)), V, 2),
        ShapeError,
        "subsample expects b to be one number; got an array of (3,)",
    ),
]

NORMALISATION: list[Wrong] = [
    (lambda: op.lrn(X, 5), ShapeError, "lrn expects x of shape (N, C, H, W); got (2, 3)"),
    (
        lambda: op.lrn(IMAGE, 0),
        ShapeError,
        "lrn expects size to be a whole number of at least 1; got 0",
    ),
    (
        lambda: op.lrn(IMAGE, 5, beta=np.inf),
        ShapeError,
        "lrn expects beta to be a finite number; got inf",
    ),
    (
        lambda: op.lrn_gradient(Y, IMAGE, 5),
        ShapeError,
        "lrn_gradient expects g of shape (1, 2, 4, 4); got (1, 3, 3, 3)",
    ),
    (
        lambda: op.dropout(X, 1, 0),
        ShapeError,
        "dropout expects rate to be at least 0 and below 1; got 1",
    ),
    (
        lambda: op.dropout(X, 0.5, LABELS),
        ShapeError,
        "dropout expects seed to be one whole number; got (2,)",
    ),
    (
        lambda: op.dropout(X, 0.5, -(2**63) - 1),
        DtypeError,
        "dropout expects seed to fit into 64 bits; got -9223372036854775809",
    ),
]

REDUCTION: list[Wrong] = [
    (
        lambda: op.sum(X, 2),
        ShapeError,
        "sum expects axis to be an axis of an array of 2 dimensions; got 2",
    ),
    (
        lambda: op.sum(X, (0, -2)),
        ShapeError,
        "sum expects axis to be axes that differ from each other; got (0, -2)",
    ),
    (
        lambda: op.sum(X, 0.5),
        ShapeError,
        "sum expects axis to be an axis, several axes, or None for all; got 0.5",
    ),
    (
        lambda: op.sum(X, keepdims=1),
        ShapeError,
        "sum expects keepdims to be True or False; got 1",
    ),
    (
        lambda: op.mean(EMPTY, 0),
        ShapeError,
        "mean expects at least one element to reduce; got shape (0, 3)",
    ),
    (
        lambda: op.max(EMPTY),
        ShapeError,
        "max expects at least one element to reduce; got shape (0, 3)",
    ),
    (
        lambda: op.argmax(X, (0, 1)),
        ShapeError,
        "argmax expects axis to be an axis of an array of 2 dimensions; got (0, 1)",
    ),
    (
        lambda: op.max_gradient(X, X, X, 0),
        ShapeError,
        "max_gradient expects g and y of shape (1, 3); got (2, 3), (2, 3)",
    ),
]

LOSS: list[Wrong] = [
    (
        lambda: op.softmax(NUMBER),
        ShapeError,
        "softmax expects axis to be an axis of an array of 0 dimensions; got -1",
    ),
    (
        lambda: op.log_softmax(EMPTY.T),
        ShapeError,
        "log_softmax expects at least one element along axis 1; got (3, 0)",
    ),
    (
        lambda: op.cross_entropy(EMPTY, np.ones(0, "int64")),
        ShapeError,
        "cross_entropy expects logits of shape (N, classes), neither of them 0; got (0, 3)",
    ),
    (
        lambda: op.cross_entropy(X, LABELS[:1]),
        ShapeError,
        "cross_entropy expects labels of shape (2,); got (1,)",
    ),
    (
        lambda: op.cross_entropy(X, [0, 1]),
        DtypeError,
        "cross_entropy expects an array for labels; got a list",
    ),
    (
        lambda: op.cross_entropy(X, LABELS.astype(float)),
        DtypeError,
        "cross_entropy expects labels to hold integers; got float64",
    ),
    (
        lambda: op.cross_entropy_gradient(V, X, LABELS),
        ShapeError,
        "cross_entropy_gradient expects g to be one number; got (3,)",
    ),
    (
        lambda: op.squared_error(X, V),
        ShapeError,
        "squared_error expects two arrays of one shape, not empty; got (2, 3), (3,)",
    ),
]

UPDATE: list[Wrong] = [
    (
        lambda: op.sgd(X, V, X, 0.1),
        ShapeError,
        "sgd expects gradient and velocity of shape (2, 3); got (3,) and (2, 3)",
    ),
    (
        lambda: op.sgd(X, X, X, np.ones(2)),
        ShapeError,
        "sgd expects rate to be one number or to broadcast to (2, 3); got (2,)",
    ),
    (
        lambda: op.sgd(X, X, X, 0.1, momentum=np.ones((1, 2, 3))),
        ShapeError,
        "sgd expects momentum to be one number or to broadcast to (2, 3); got (1, 2, 3)",
    ),
]

TODAY: list[Wrong] = [
    (
        lambda: op.gelu_gradient(X, V),
        ShapeError,
        "gelu_gradient expects two arrays of one shape; got (2, 3) and (3,)",
    ),
    (lambda: op.clip(X, 2, 1), ShapeError, "clip expects low to be at most high; got 2 and 1"),
    (
        lambda: op.pad(X, [(1, 1)]),
        ShapeError,
        "pad expects widths to be a pair (before, after) of at least 0 for each of 2 axes",
    ),
    (lambda: op.split(X, (1, 1)), ShapeError, "split expects sizes with the sum 3; got (1, 1)"),
    (
        lambda: op.take(np.ones((0, 3)), LABELS),
        ShapeError,
        "take expects an array with at least one row; got (0, 3)",
    ),
    (
        lambda: op.take_gradient(X, np.array([0, 1, 2]), 3),
        ShapeError,
        "take_gradient expects g to begin with the axes of index (3,); got (2, 3)",
    ),
    (lambda: op.batch_norm(V, V, V), ShapeError, "batch_norm expects x of shape (N, C, ...)"),
    (
        lambda: op.batch_norm(X, V, LABELS * 1.0),
        ShapeError,
        "batch_norm expects shift of shape (3,) for x of shape (2, 3); got (2,)",
    ),
    (
        lambda: op.batch_norm(EMPTY, V, V),
        ShapeError,
        "batch_norm expects at least one element a channel; got (0, 3)",
    ),
    (
        lambda: op.layer_norm(X, V, V, epsilon=0),
        ShapeError,
        "layer_norm expects epsilon to be above 0; got 0",
    ),
    (
        lambda: op.attention(X, X, IMAGE),
        ShapeError,
        "attention expects q, k and v with the same leading axes; got q (2, 3)",
    ),
    (
        lambda: op.attention(X, X, X, np.ones(3)),
        ShapeError,
        "attention expects a mask that broadcasts to the scores (2, 2); got (3,)",
    ),
    (lambda: op.augment(X, 1), ShapeError, "augment expects x of shape (N, C, H, W); got (2, 3)"),
    (
        lambda: op.adam(X, X, V, X, 0.1),
        ShapeError,
        "adam expects gradient, first and second of shape (2, 3); got (2, 3) and (3,) and (2, 3)",
    ),
    (
        lambda: op.lion(X, X, X, np.ones(2)),
        ShapeError,
        "lion expects rate to be one number or to broadcast to (2, 3); got (2,)",
    ),
]

# These are found out by the device, so every device must find them out.
ON_A_DEVICE: list[Wrong] = [
    (
        lambda: op.exp(X, out=np.ones(2)),
        ShapeError,
        "exp expects out of shape (2, 3); got (2,)",
    ),
    (
        lambda: op.exp(X, out=X32.copy()),
        DtypeError,
        "exp expects out of dtype float64; got float32",
    ),
    (
        lambda: op.exp(X, out=READ_ONLY),
        DtypeError,
        "exp expects out to be writable; got a read-only array",
    ),
    (lambda: op.exp(X, out="here"), DtypeError, "exp expects out to be an array; got 'here'"),
    (
        lambda: op.sgd(X, X, X, 0.1, out=X.copy()),
        ShapeError,
        "sgd expects out to be 2 arrays; got 1",
    ),
    (
        lambda: op.sgd(X, X, X, 0.1, out=(X.copy(), V.copy())),
        ShapeError,
        "sgd expects out of shape (2, 3); got (3,)",
    ),
    (
        lambda: op.cross_entropy(X, np.array([0, 3])),
        ShapeError,
        "cross_entropy expects labels from 0 to 2; got 3",
    ),
    (
        lambda: op.cross_entropy(X, np.array([-1, 0])),
        ShapeError,
        "cross_entropy expects labels from 0 to 2; got -1",
    ),
    (
        lambda: op.cross_entropy(X, np.array([0, 255], "uint8")),
        ShapeError,
        "cross_entropy expects labels from 0 to 2; got 255",
    ),
    (
        lambda: op.take(X, np.array([0, 2])),
        ShapeError,
        "take expects index from 0 to 1; got 2",
    ),
    (
        lambda: op.take_gradient(X, np.array([0, -1]), 2),
        ShapeError,
        "take_gradient expects index from 0 to 1; got -1",
    ),
    (
        lambda: op.cross_entropy_gradient(NUMBER, X, np.array([0, 3])),
        ShapeError,
        "cross_entropy expects labels from 0 to 2; got 3",
    ),
]


def check(call: Callable[[], Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(sentence)}") as caught:
        call()
    assert type(caught.value) is error
    assert issubclass(error, PareoError) or error is TypeError
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        pytest.param(*wrong, id=wrong[2])
        for family in (
            ANY_OPERATOR,
            ELEMENTWISE,
            LINEAR,
            CONVOLUTION,
            POOLING,
            NORMALISATION,
            REDUCTION,
            LOSS,
            UPDATE,
            TODAY,
        )
        for wrong in family
    ],
)
def test_wrong_call(call: Callable[[], Any], error: type[Exception], sentence: str) -> None:
    check(call, error, sentence)


@pytest.mark.parametrize("device", ["sequential", "vectorized", "compiled"])
@pytest.mark.parametrize(
    ("call", "error", "sentence"), [pytest.param(*wrong, id=wrong[2]) for wrong in ON_A_DEVICE]
)
def test_wrong_call_on_a_device(
    call: Callable[[], Any], error: type[Exception], sentence: str, device: str
) -> None:
    with Device(device):
        check(call, error, sentence)


def test_a_refused_call_leaves_out_alone() -> None:
    out = np.full((), 7.0)
    with pytest.raises(ShapeError, match="labels from 0 to 2"):
        op.cross_entropy(X, np.array([0, 3]), out=out)
    assert out == 7


def test_a_shape_that_was_right_before_excuses_no_other() -> None:
    a, b = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    for _ in range(2):  # the second time from memory
        assert op.dot(a, b).shape == (2, 2)
        with pytest.raises(ShapeError):
            op.dot(a, a)
        with pytest.raises(DtypeError, match="one dtype"):
            op.dot(a, b.astype(np.float64))
        with pytest.raises(DtypeError, match="float32 or float64"):
            op.dot(a, b.astype(">f4"))
        with pytest.raises(DtypeError, match="got a MaskedArray"):
            op.dot(a, np.ma.masked_array(b))


def test_only_so_many_shapes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pareo.operators.core.MAX_KNOWN", 3)
    op.exp._known.clear()
    for size in [*range(1, 9), *range(1, 9)]:
        assert op.exp(np.zeros(size)).tolist() == [1.0] * size
        assert len(op.exp._known) <= 4


def test_shapes_are_remembered_and_numbers_are_not() -> None:
    x, seed = np.ones((2, 3), np.float32), np.array(7)
    for _ in range(2):
        for number in (2.0, -0.5):
            assert (op.scale(number, x) == number).all()
            assert op.scale(number, x.astype(np.float64)).dtype == np.float64
        moved, _ = op.sgd(x, x, x, np.float32(0.5).reshape(()))  # the other numbers by default
        assert (moved == 0.5).all()
        assert (op.dropout(x, 0.0, seed) == 1).all()
        assert (op.dropout(x, 0.5, seed) != 1).all()
