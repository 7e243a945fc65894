"""`.pt2` files of `torch.export`: checked before PyTorch reads them, then modules like others.

`torch.export.load` unpickles what a file asks it to, evaluates its expressions and calls any
function of PyTorch that its graph names. So only files without any of that are given to it.
"""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from pareo.errors import DataError
from pareo.nn.torch_import.folded import LIKE, MAKERS, PICKS
from pareo.nn.torch_import.operators import OPERATORS
from pareo.nn.torch_import.quiet import quiet
from pareo.regular_file import regular

# What an archive may hold, below its one folder: weights, the graph, and an example of its inputs.
FILES = re.compile(
    r"data/weights/(weight_\d+|model_weights_config\.json)|models/model\.json"
    r"|data/constants/(tensor_\d+|model_constants_config\.json)|data/sample_inputs/model\.pt"
    r"|archive_format|archive_version|byteorder|version|\.data/(version|serialization_id)"
    r"|\.format_version|\.storage_alignment"
)
# Operators that only check, or that give the size of the batch.
HARMLESS = {"sym_size", "_assert_tensor_metadata", "sym_constrain_range_for_size", "_assert_scalar"}
# Operators without which constants are not made, such as masks and positions; none has effects.
CONSTANTS = MAKERS | LIKE | PICKS | {
    "bitwise_not", "ceil", "cos", "eq", "fill", "floor", "ge", "gt", "le", "lift_fresh_copy",
    "logical_not", "lt", "meshgrid", "ne", "ones_like", "remainder", "round", "sin", "tril", "triu",
    "zero", "zeros_like",
}  # fmt: skip
ARITHMETIC = re.compile(r"_operator\.(getitem|add|sub|mul|floordiv|mod|eq|ne|ge|le|gt|lt)")
# Sizes that depend on the batch: sums and products of symbols, and a few functions of them.
EXPRESSION = re.compile(
    r"(Symbol\('[a-z]\d+'|(positive|integer|nonnegative)=True|Integer|Add|Mul|Pow|Max|Min|Mod"
    r"|FloorDiv|CleanDiv|PythonMod|[suz]?\d+|[-+*/(),\s])*"
)
# Operators that work differently in training, and which of their arguments says so.
TRAINED = {"batch_norm": 5, "dropout": 2, "dropout_": 2}
LARGEST = 64 << 20  # bytes of a graph
LARGEST_FILE = 16 << 30  # bytes; all of it is read into memory
SHOWN = 3  # places of one operator that an error lists
LONGEST = 80  # characters of a name in an error


def exported(path: Path) -> Any:
    """The module in a `.pt2` file; nothing in the file is executed.

    It trains for any batch size, also if it was exported for one, or for evaluation.
    """
    try:
        data = regular(path, LARGEST_FILE).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: expected a .pt2 file; got: {error.strerror}") from error
    except MemoryError as error:
        raise DataError(f"{path}: does not fit in memory") from error
    return unpacked(_checked(path, data), str(path))


def packed(module: Any, shape: tuple[int, ...]) -> bytes:
    """A module as the bytes of such a file, for a process that does not have its class."""
    torch = import_module("torch")
    parameter = next(module.parameters(), None)
    like = torch.zeros(()) if parameter is None else parameter
    images = torch.zeros((2, *shape), dtype=like.dtype, device=like.device)
    batch = {0: torch.export.Dim("batch", min=1, max=1 << 30)}
    with io.BytesIO() as file:
        program = torch.export.export(module.train(), (images,), dynamic_shapes=(batch,))
        torch.export.save(program, file)
        return file.getvalue()


def unpacked(data: bytes, name: str) -> Any:
    """The module in the bytes of a file that was checked, or made here."""
    torch = import_module("torch")
    try:
        with quiet():
            program = torch.export.load(io.BytesIO(data))
            whole = program.module(check_guards=False)
        return _class(torch)(whole, whole.graph).train()
    except Exception as error:  # whatever PyTorch raises of a file
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise DataError(f"{name}: PyTorch cannot read it: {first}") from error


def shape_of(module: Any) -> tuple[int, ...] | None:
    """The shape of one input of a module that was exported; None of any other."""
    found = getattr(module, "_pareo_input", None)
    return None if found is None else tuple(found)


def notes_of(module: Any) -> tuple[str, ...]:
    """What is different in training from what was exported."""
    return tuple(getattr(module, "_pareo_notes", ()))


def _class(torch: Any) -> Any:
    """The class of modules from files, whose `train` and `eval` change their operators."""

    class Exported(torch.fx.GraphModule):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
            value = inputs[0].meta.get("val") if len(inputs) == 1 else None
            if value is not None:
                self._pareo_input = [int(size) for size in value.shape[1:]]
            _free_batch(torch, self.graph, inputs)
            tested = {_name(node.target) for node in self.graph.nodes
                      if _name(node.target) in TRAINED and not _is_training(node)}  # fmt: skip
            if tested and not hasattr(self, "_pareo_notes"):
                names = " and ".join(sorted(name.strip("_") for name in tested))
                self._pareo_notes = [f"it was exported for evaluation: {names} work as in training"]
            self.recompile()

        def train(self, mode: bool = True) -> Any:
            for node in self.graph.nodes:
                place = TRAINED.get(_name(node.target))
                if place is not None:
                    node.update_arg(place, mode)
            self.recompile()
            return super().train(mode)

        def without_chance(self) -> None:
            """Remove dropout; what is drawn for stochastic depth is its mean."""
            for node in list(self.graph.nodes):
                name = _name(node.target)
                if name in ("dropout", "dropout_"):
                    node.replace_all_uses_with(node.args[0])
                    self.graph.erase_node(node)
                elif name == "bernoulli_":
                    node.target = torch.ops.aten.fill_.Scalar
            self.recompile()

    return Exported


def _name(target: Any) -> str:
    schema = getattr(target, "_schema", None)
    return schema.name.removeprefix("aten::") if schema else ""


def _is_training(node: Any) -> bool:
    return bool(node.args[TRAINED[_name(node.target)]])


def _free_batch(torch: Any, graph: Any, inputs: list[Any]) -> None:
    """Let shapes that have the number of images in them follow that of the input."""
    value = inputs[0].meta.get("val") if len(inputs) == 1 else None
    batch = None if value is None else value.shape[0]
    for node in list(graph.nodes):
        if _name(node.target) == "_assert_tensor_metadata":  # it names the dtype
            graph.erase_node(node)
    if type(batch) is not int:
        return
    with graph.inserting_after(inputs[0]):
        size = graph.call_function(torch.ops.aten.sym_size.int, (inputs[0], 0))
    for node in graph.nodes:
        if _name(node.target) in ("view", "reshape", "expand", "_unsafe_view"):
            sizes = list(node.args[1])
            made = node.meta.get("val")
            if sizes and sizes[0] == batch and (made is None or made.shape[0] == batch):
                node.update_arg(1, [size, *sizes[1:]])
        if _name(node.target) in ("empty", "new_empty"):
            place = 0 if _name(node.target) == "empty" else 1
            sizes = list(node.args[place])
            if sizes and sizes[0] == batch:
                node.update_arg(place, [size, *sizes[1:]])


def _checked(path: Path, data: bytes) -> bytes:
    """The archive, unless it has another form or something in it would be executed.

    It is written again, so that PyTorch reads what was checked: two readers of an archive that is
    malformed may find different files in it.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found = {}
            for entry in archive.infolist():
                name = entry.filename.partition("/")[2]
                if not FILES.fullmatch(name) or name in found:
                    raise DataError(
                        f"{path}: has {_word(entry.filename)}, which pareo does not read"
                    )
                if entry.compress_type != zipfile.ZIP_STORED:
                    raise DataError(f"{path}: its {_word(entry.filename)} is compressed")
                found[name] = entry
            for name in ("models/model.json", "data/sample_inputs/model.pt"):
                if name not in found:
                    raise DataError(f"{path}: is not a file of torch.export.save: has no {name}")
            for name, entry in found.items():
                if name.endswith(".json"):
                    if entry.file_size > LARGEST:
                        raise DataError(f"{path}: its {name} has {entry.file_size:,} bytes")
                    _check_json(path, json.loads(archive.read(entry)))
            contents = {name: archive.read(entry) for name, entry in found.items()}
    except DataError:
        raise
    except (zipfile.BadZipFile, ValueError, RecursionError, EOFError) as error:
        raise DataError(f"{path}: is not a file of torch.export.save: {error}") from error
    try:
        example = io.BytesIO(contents["data/sample_inputs/model.pt"])
        import_module("torch").load(example, weights_only=True)
    except Exception as error:  # of any kind: PyTorch would unpickle it without limits
        raise DataError(f"{path}: its example of inputs is not made of tensors") from error
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in contents.items():
            archive.writestr(f"model/{name}", content)
    return made.getvalue()


def _check_json(path: Path, tree: Any) -> None:
    unknown: dict[str, list[str]] = {}
    for one in _dicts(tree):
        if one.get("use_pickle"):
            raise DataError(f"{path}: has pickled values, which pareo does not load")
        expression = one.get("expr_str")
        if expression is not None and not EXPRESSION.fullmatch(str(expression)):
            raise DataError(f"{path}: has the expression {expression!r:.60}, which is not a size")
        target = one.get("target")
        if "inputs" in one and isinstance(target, str) and not _is_known(target):
            places = unknown.setdefault(_word(target.removeprefix("torch.ops.")), [])
            place = _place(one)
            if place and place not in places:
                places.append(place)
    if unknown:
        listed = "; ".join(
            f"{name} in {', '.join(places[:SHOWN])}" if places else name
            for name, places in unknown.items()
        )
        raise DataError(f"{path} has operators that pareo does not: {listed}")


def _is_known(target: str) -> bool:
    if ARITHMETIC.fullmatch(target):
        return True
    parts = target.split(".")
    if parts[:3] != ["torch", "ops", "aten"] or len(parts) != 5:
        return False
    name = parts[3]
    known = name.rstrip("_") if not name.startswith("_") else name
    return name in HARMLESS or known in OPERATORS or known in CONSTANTS


def _place(node: dict[str, Any]) -> str:
    """The file and line that a node was made by, from its notes."""
    notes = node.get("metadata")
    trace = notes.get("stack_trace") if isinstance(notes, dict) else None
    frames = re.findall(r'File "([^"]+)", line (\d+)', trace if isinstance(trace, str) else "")
    outside = [frame for frame in frames if "/torch/" not in frame[0]]
    return _word(f"{Path(outside[-1][0]).name}, line {outside[-1][1]}") if outside else ""


def _word(text: str) -> str:
    """Text of a file as part of a sentence, whatever characters it has."""
    shown = text if len(text) <= LONGEST else text[:LONGEST] + "..."
    return shown if shown.isprintable() and shown else repr(shown)


def _dicts(tree: Any) -> Iterator[dict[str, Any]]:
    left = [tree]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield one
            left += one.values()
        elif isinstance(one, list):
            left += one
