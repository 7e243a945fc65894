"""Everything that can be mistyped: one sentence, no traceback, exit status 2.

Commands run in this process; none of them gets as far as measuring anything.
"""

import shlex
from pathlib import Path

import numpy as np
import pytest
from command_line import pareo

from pareo.cli import COMMANDS
from pareo.device import why_unavailable

# The words of a command line, and a part of what is said; {} is a directory with FILES.
WRONG: list[tuple[str, str]] = [
    ("nonsense", "No such command 'nonsense'"),
    ("--nonsense", "No such option"),
    # race
    ("race no-such-network", "a network is one of papers-cnn"),
    ("race --batch 0", "'--batch'"),
    ("race --batch many", "'--batch'"),
    ("race --epochs -1", "'--epochs'"),
    ("race --seconds nan", "'--seconds'"),
    ("race --seconds inf", "--seconds expects a finite number; got inf"),
    ("race --seconds 0", "'--seconds'"),
    ("race --precision float16", "--precision expects one of float32, tf32, bfloat16"),
    ("race --contestants caffe", "no contestant is called 'caffe'"),
    ("race --contestants torch,,jax", "--contestants expects names separated by commas"),
    ("race --against caffe", "--against expects one of pareo-compiled"),
    ("race --target-accuracy 95", "'--target-accuracy'"),
    ("race --data nowhere", "got 'nowhere', which does not exist"),
    ("race --data synthetic:3x8x8", "expects images of shape (1, 28, 28); got (3, 8, 8)"),
    ("race --data synthetic:0x8x8", "of sizes from 1"),
    ("race --data {}/empty", "found none of them"),
    ("race --input 3x8x8", "--input is for a network of your own; got papers-cnn"),
    ("race --json {}/no/race.json", "its directory does not exist"),
    ("race --json {}", "expected a file to write; got a directory"),
    ("race --json {}/a --html {}/a", "expected a different file for each output"),
    ("race --threads 0", "'--threads'"),
    ("race {}/no.py:net", "no.py: there is no such file"),
    ("race {}/own.py:other", "has no object 'other'; it has net"),
    ("race {}/own.py:number", "is of the type int; expected a pareo network"),
    ("race {}/broken.py:net", "failed: ZeroDivisionError: division by zero, line 1"),
    ("race {}/own.py:bare", "give --input, such as --input 3x224x224"),
    ("race {}/own.py:bare --input 3,8", "--input expects a shape such as 3x224x224; got '3,8'"),
    ("race {}/text.onnx", "text.onnx"),
    ("race {}/weights.pth", "a file of torch.save is not executed"),
    ("race --loss hinge", "a loss is one of cross-entropy, squared-error, binary-cross-entropy, "),
    ("race --loss ''", "or FILE.py:OBJECT; got ''"),
    ("race --loss {}/own.py", "expected FILE.py:OBJECT, such as my_network.py:net; got"),
    ("race --loss {}/no.py:loss", "no.py: there is no such file"),
    ("race --loss {}/broken.py:loss", "failed: ZeroDivisionError: division by zero, line 1"),
    ("race --loss {}/losses.py:other", "has no object 'other'; it has rows, plain, single, raises"),
    ("race --loss {}/losses.py:number", "is of the type int; expected a function of outputs and"),
    ("race --loss {}/losses.py:rows", "should be one number of float32; it is float32[128]"),
    ("race --loss {}/losses.py:plain", "the loss plain failed on outputs of shape (128, 10) in"),
    ("race --loss {}/losses.py:plain", "np.exp was given a symbol"),
    ("race --loss {}/losses.py:single", "in float64: hadamard expects operands of one dtype"),
    ("race --loss {}/losses.py:raises", "in float32: KeyError: 'x', line 13 of losses.py"),
    ("race --loss {}/losses.py:steps", "the loss steps has no gradient with respect to the output"),
    ("race --loss {}/losses.py:whole", "got int64 (its labels are classes, as whole numbers)"),
    # arena
    ("arena --kinds rnn", "rnn"),
    ("arena --batch none", "none"),
    ("arena --device tpu", "--device expects one of sequential"),
    ("arena --count 0", "'--count'"),
    ("arena --seed -1", "'--seed'"),
    # sweep
    ("sweep", "Missing argument"),
    ("sweep mlp-small --batches 8..", "8.."),
    ("sweep mlp-small --batches 0,8", "0,8"),
    ("sweep mlp-small --memory-limit much", "expected a size such as 2GB"),
    ("sweep mlp-small --patience nan", "'--patience'"),
    ("sweep alexnet --pixels 8", "'--pixels'"),
    ("sweep mlp-small --contestants caffe", "no contestant is called 'caffe'"),
    # parallel
    ("parallel", "expects either a NETWORK or --papers"),
    ("parallel mlp-small --papers", "expects either a NETWORK or --papers"),
    ("parallel --papers --input 3x8x8", "--input is for a network of your own"),
    ("parallel mlp-small --workers 0", "--workers expects numbers to 64"),
    ("parallel mlp-small --workers two", "--workers expects numbers to 64"),
    ("parallel mlp-small --batches many", "--batches expects numbers separated by commas"),
    # kernels
    ("kernels no-such-network", "a network is one of papers-cnn"),
    ("kernels --contestants torch-best", "kernels are those of one setting"),
    ("kernels --rows -1", "'--rows'"),
    # train
    ("train", "train expects a network; only with --resume"),
    ("train --resume {}/no", "no: expected a checkpoint"),
    ("train no-such-network", "a network is one of papers-cnn"),
    ("train mlp-small --device tpu", "Device expects one of sequential"),
    ("train mlp-small --epochs 0", "epochs to be a whole number from 1"),
    ("train mlp-small --epochs many", "'--epochs'"),
    ("train mlp-small --rate -1", "a rate above 0"),
    ("train mlp-small --optimizer newton", "newton"),
    ("train mlp-small --schedule sometimes", "sometimes"),
    ("train mlp-small --loss hinge", "hinge"),
    ("train mlp-small --augment blur", "blur"),
    ("train mlp-small --class-weights 1,b", "--class-weights expects numbers such as 1,2,0.5"),
    ("train mlp-small --validation 1", "a validation share"),
    ("train mlp-small --workers 2", "--workers needs --on ray"),
    ("train mlp-small --resume {}/no", "expected a checkpoint"),
    ("train mlp-small --resume {}/text.onnx", "text.onnx"),
    ("train mlp-small --weights {}/no", "expected a file of weights"),
    ("train mlp-small --data {}/one.npz", "one.npz"),
    ("train mlp-small --data {}/text.npz", "text.npz"),
    ("train mlp-small --data {}/pets", "expected at least one image"),
    ("train mlp-small --data cifar10:{}/empty", "empty"),
    ("train mlp-small --data fashion-mnist:{}/empty", "empty"),
    ("train alexnet --data mnist", "alexnet does not fit images of shape (1, 28, 28)"),
    ("train mlp-small --device cuda", "the device 'cuda' is not available"),
    # tune
    ("tune mlp-small", "Missing option '--space'"),
    ("tune mlp-small --space {}/no.toml", "no.toml"),
    ("tune mlp-small --space {}/text.npz", "text.npz"),
    ("tune mlp-small --space {}/space.toml --sampler grid", "--sampler expects one of"),
    ("tune mlp-small --space {}/space.toml --pruner none-such", "--pruner expects one of"),
    ("tune mlp-small --space {}/space.toml --trials 0", "'--trials'"),
    # predict
    ("predict", "Missing argument"),
    ("predict mlp-small {}/a.png", "has no weights of its own: give --weights"),
    ("predict {}/no {}/a.png", "a checkpoint"),
    # ops, ceilings
    ("ops --ops frobnicate", "frobnicate"),
    ("ops --sizes big", "big"),
    ("ops --peers caffe", "--peers expects some of numpy, torch, jax"),
    ("ops --devices tpu", "Device expects one of"),
    ("ops --direction sideways", "--direction expects one of forward, backward, both"),
    ("ceilings --device tpu", "--device expects cpu or cuda; got 'tpu'"),
    ("ceilings --quick --json {}/a.json", "--quick is not kept"),
    # results
    ("history extra", "unexpected extra argument"),
    ("compare last", "Missing argument"),
    ("compare 1 2", "nothing is kept here yet"),
    ("compare {}/no.json {}/no.json", "no.json"),
    ("compare {}/text.npz {}/text.npz", "text.npz"),
    ("report 99", "nothing is kept here yet"),
    ("report {}/no.json", "no.json"),
    ("report {}/own.json", "own.json"),
    ("export {}/no {}/a.onnx", "expected a checkpoint"),
    ("export {}/empty {}/a.txt", ""),
    # papers, and commands without arguments
    ("paper knuth", "a paper is one of lima-zola"),
    ("paper", "Missing argument"),
    ("papers extra", "unexpected extra argument"),
    ("networks --nonsense", "No such option"),
    ("contestants extra", "unexpected extra argument"),
    ("doctor --fix", "No such option"),
    ("devices extra", "unexpected extra argument"),
]  # fmt: skip
# The contents of more files that are not what they should be.
TEXTS = {
    "empty.toml": "", "broken.toml": "rate = [", "words.toml": 'rate = ["a", "b"]\n',
    "list.json": "[]", "deep.json": "[" * 100_000, "syntax.py": "def net(:\n",
    "exit.py": "import sys; sys.exit(3)\n", "none.py": "def net():\n    return None\n",
    "raise.py": "def net():\n    raise RuntimeError('no')\n",
}  # fmt: skip

# Empty words, sizes beyond reason, files that are empty or something else.
MORE: list[tuple[str, str]] = [
    ("race ''", "a network is one of papers-cnn"),
    ("race papers-cnn mlp-big", "unexpected extra argument"),
    ("race mlp-small --batch 1e9", "'--batch'"),
    ("race mlp-small --contestants ''", "--contestants expects names separated by commas"),
    ("race mlp-small --contestants pareo", "no contestant is called 'pareo'"),
    ("race mlp-small --against torch --contestants jax", "--against expects one of jax"),
    ("race mlp-small --repeat 0", "'--repeat'"),
    ("race mlp-small --repeat 2 --every soon", "--every expects a time such as 30m or 1h"),
    ("race mlp-small --repeat 2 --every -5m", "--every expects a time such as 30m or 1h"),
    ("race mlp-small --repeat 2 --json {}/a.json", "it expects no --json and no --html"),
    ("race mlp-small --every 1h", "--every expects --repeat 2 or more"),
    ("race mlp-small --threads 100000", "'--threads'"),
    ("race mlp-small --target-accuracy nan", "'--target-accuracy'"),
    ("race mlp-small --data synthetic", "such as synthetic:3x32x32:10:600"),
    ("race mlp-small --data synthetic:1x28x28:0", "expected at least 2 classes; got 0"),
    ("race mlp-small --data synthetic:1x28x28:10:0", "expected at least 2 images; got 0"),
    ("race mlp-small --data {}/zero.npz", "expected a complete NPZ file; got 0 bytes"),
    ("race mlp-small --data {}/unlabelled.npz", "expected the arrays images and labels"),
    ("race mlp-small --data {}/negative.npz", "negative.npz"),
    ("race mlp-small --data {}/nan.npz", "expected finite numbers"),
    ("race mlp-small --json /dev/null/x.json", "its directory does not exist"),
    ("race mlp-small --html ''", "expected a file to write; got a directory"),
    ("race {}/syntax.py:net", "failed: SyntaxError"),
    ("race {}/exit.py:net", "failed: SystemExit: 3, line 1"),
    ("race {}/raise.py:net", "failed: RuntimeError: no, line 2"),
    ("race {}/none.py:net", "is of the type NoneType; expected a pareo network"),
    ("race {}/own.py", "expected FILE.py:OBJECT"),
    ("race {}/own.py:", "expected FILE.py:OBJECT"),
    ("race {}/own.py:none", "no parameters to train"),
    ("race os:path", "is of the type module; expected a pareo network"),
    ("race no.such.module:net", "there is no module 'no.such.module'"),
    ("race {}/zero.onnx", "expected an ONNX file"),
    ("race {}/zero.pt2", "is not a file of torch.export.save"),
    ("race {}/zero.safetensors", "expected a complete safetensors file"),
    ("arena --device cuda", "the device 'cuda' is not available"),
    ("arena --kinds ''", "--kinds expects some of mlp, cnn, mid"),
    ("arena --batch 4..2", "--batch expects sizes"),
    ("arena --patience 0", "'--patience'"),
    ("sweep mlp-small --batches ''", "--batches expects sizes"),
    ("sweep mlp-small --batches 8..2", "--batches expects sizes"),
    ("sweep mlp-small --batches 1..999999999999", "up to 1,048,576"),
    ("sweep mlp-small --memory-limit -2GB", "expected a size such as 2GB"),
    ("sweep mlp-small --interleave 0", "'--interleave'"),
    ("sweep mlp-small --pixels 32", "--pixels expects synthetic images for one of"),
    ("sweep mlp-small --precision float64", "--precision expects one of float32"),
    ("kernels mlp-small --threads -2", "'--threads'"),
    ("kernels mlp-small --pixels 32", "--pixels expects synthetic images for one of"),
    ("ops --sizes 0", "--sizes expects sizes such as 2MB..1GB"),
    ("ops --sizes 1e30GB", "--sizes expects sizes such as 2MB..1GB"),
    ("ops --ops ''", "no operator is called ''"),
    ("ops --seconds nan", "'--seconds'"),
    ("parallel mlp-small --workers ''", "--workers expects numbers to 64"),
    ("parallel mlp-small --turn -1", "'--turn'"),
    ("parallel mlp-small --images 0", "'--images'"),
    ("tune mlp-small --space {}/empty.toml", "expected something to search"),
    ("tune mlp-small --space {}/broken.toml", "expected TOML"),
    ("tune mlp-small --space {}/words.toml", "rate expects numbers above 0; got 'a'"),
    ("tune mlp-small --space {}", "expected a file to read"),
    ("train mlp-small --device ''", "Device expects one of sequential"),
    ("train mlp-small --train-only ''", "--train-only expects the start of a path"),
    ("train mlp-small --train-only nowhere", "nowhere"),
    ("train mlp-small --checkpoint {}/zero.npz", "--checkpoint expects a directory; got a file"),
    ("train mlp-small --threads 1000000", "'--threads'"),
    ("train mlp-small --rate nan", "a rate above 0; got nan"),
    ("train mlp-small --momentum 2", "a momentum from 0 to below 1"),
    ("train mlp-small --clip 0", "a clip above 0"),
    ("train mlp-small --seed -1", "seed to be a whole number from 0"),
    ("train mlp-small --precision bfloat16", "bfloat16 is for 'cuda'"),
    ("train mlp-small --optimizer adam:2", "a beta1 from 0 to below 1"),
    ("train mlp-small --optimizer sgd:0.9 --momentum 0.5", "one momentum; got 0.5 and sgd:0.9"),
    ("train mlp-small --schedule step:0:0.1", "the epochs between steps"),
    ("train mlp-small --on spark", "--on expects ray, or ray://HOST:PORT; got 'spark'"),
    ("train mlp-small --data ''", ""),
    ("predict {}/zero.safetensors {}/a.png", "expected a complete safetensors file"),
    ("compare {}/zero.json {}/zero.json", "zero.json"),
    ("compare {}/list.json {}/list.json", "list.json"),
    ("compare last last --fail-over x%", "--fail-over"),
    ("report {}/deep.json", "deep.json"),
    ("report {}/bytes.json", "bytes.json"),
    ("report {}", ""),
    ("export {}/zero.safetensors {}/a.onnx", "expected a complete safetensors file"),
    ("history --import {}/nowhere", "nowhere"),
    ("history --import {}/list.json", "list.json"),
    ("history --steps --json", "history expects one of --json, --steps"),
    ("paper Melo", "a paper is one of lima-zola"),
    ("paper melo lima-zola", "unexpected extra argument"),
    ("paper melo --json {}", "expected a file to write; got a directory"),
    ("paper melo --resume {}/no.json", "no.json: expected a file to read"),
    ("paper melo --resume {}/zero.json", "zero.json: expected JSON"),
    ("paper melo --resume {}/list.json", "list.json: expected an object"),
    ("paper melo --resume {}/own.json", "own.json: expected one of race"),
    ("ceilings --device ''", "--device expects cpu or cuda; got ''"),
]  # fmt: skip


LOSSES = """
import numpy as np
from pareo import op
number = 3
def rows(outputs, labels):
    return op.sum(outputs, axis=1)
def plain(outputs, labels):
    return op.sum(np.exp(outputs))
def single(outputs, labels):
    return op.mean(outputs * np.ones(10, "float32"))
def raises(outputs, labels):
    found = {}
    return found["x"]
def steps(outputs, labels):
    return op.sum(op.take(np.eye(10, dtype=outputs.dtype), op.argmax(outputs, axis=1)))
def whole(outputs, labels):
    return op.mean(op.sub(outputs, labels))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("misuse")
    (found / "empty").mkdir()
    (found / "pets" / "cat").mkdir(parents=True)
    pixels, labels = np.zeros((4, 1, 28, 28), np.float32), np.array([0, 1, 1, 2])
    np.savez(found / "one.npz", images=np.zeros((1, 2)))
    np.savez(found / "unlabelled.npz", x=pixels)
    np.savez(found / "negative.npz", images=pixels, labels=-labels)
    np.savez(found / "nan.npz", images=pixels * np.nan, labels=labels)
    for kind in ("npz", "onnx", "pt2", "safetensors", "json"):
        (found / f"zero.{kind}").write_bytes(b"")
    for name, text in TEXTS.items():
        (found / name).write_text(text)
    (found / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for name in ("text.onnx", "text.npz", "weights.pth", "own.json"):
        (found / name).write_text('{"kind": "no such"}')
    (found / "space.toml").write_text("rate = [0.01, 0.1]\n")
    (found / "broken.py").write_text("net = 1 / 0\n")
    (found / "losses.py").write_text(LOSSES)
    (found / "own.py").write_text(
        "from pareo import nn\n"
        "net = nn.Sequential([nn.Dense(3)], (8,))\n"
        "bare, number = nn.Dense(3), 5\n"
        "none = nn.Sequential([nn.ReLU()], (8,))\n"
    )
    return found


def test_there_are_enough_and_every_command_is_tried() -> None:
    assert len(WRONG) >= 60
    assert len(MORE) >= 60
    assert {words.split()[0] for words, _ in WRONG} >= set(COMMANDS)


@pytest.mark.parametrize(("words", "said"), WRONG + MORE, ids=[words for words, _ in WRONG + MORE])
def test_misuse_is_one_sentence_and_status_2(
    words: str, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "--device cuda" in words and why_unavailable("cuda") is None:
        pytest.skip("there is a GPU")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PAREO_RECORDS", str(folder / "kept.sqlite"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr("pareo.cli.live.idle_cores", lambda seconds: 0.0)  # nothing is measured
    done = pareo(*shlex.split(words.format(*[folder] * words.count("{}"))))
    assert done.status == 2, done.err
    assert said in done.err
    assert "Traceback" not in done.err
    ours = [line for line in done.err.splitlines() if line.startswith("pareo: ")]
    assert len(ours) == 1 or "Usage: pareo" in done.err
    assert not done.out
