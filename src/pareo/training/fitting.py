"""A network and data that fit each other: images are resized, outputs are as many as classes."""

from dataclasses import replace

from pareo.data import Dataset, load
from pareo.data.sources import is_image_folder
from pareo.errors import ShapeError
from pareo.nn import networks
from pareo.nn.layers import Shape
from pareo.nn.networks import with_outputs
from pareo.training.own import Own, find, is_own

MNIST = "mnist"
INVENTED = 72  # images, a sixth of them for testing, where MNIST does not fit the network


def fitting(
    name: str, source: str | None = None, shape: Shape | None = None, usual: str = MNIST
) -> tuple[Own, Dataset]:
    """The named network, and the data of a source, which fit each other.

    A network that takes any images takes those of the data; otherwise images of a folder are
    resized. Its outputs are as many as the data has classes. The notes of both say what was done.

    Args:
        name: as on the command line.
        source: as `--data` names it; None is `usual`, or synthetic images if it does not fit.
        shape: of one input, for a network of the user's own.

    >>> own, data = fitting("googlenet", "synthetic:3x64x64:5:12")
    >>> own.network.inputs, own.network.classes
    ((3, 64, 64), 5)
    >>> fitting("alexnet")[1].notes
    ('alexnet does not fit mnist: it trains on synthetic images, which show its speed alone',)
    """
    if source is None:
        return _usual(name, shape, usual)
    data = load(source)
    if not is_image_folder(source):
        return _found(name, shape, data), data
    wanted = _resized(name, shape, data)
    if wanted != data.shape:
        data = load(source, shape=wanted)
    return _found(name, shape, data), data


def _usual(name: str, shape: Shape | None, usual: str) -> tuple[Own, Dataset]:
    """With the usual data, or synthetic images of the network's own shape if that does not fit."""
    data = load(usual)
    try:
        found = _found(name, shape, data)
        if found.network.inputs == data.shape:
            return found, data
    except ShapeError:
        pass
    found = find(name, shape)
    if len(found.network.inputs) not in (1, 3) or _holds(found.network.inputs, data.shape):
        return found, data
    sizes = "x".join(map(str, found.network.inputs))
    made = load(f"synthetic:{sizes}:{max(2, found.network.classes)}:{INVENTED}")
    said = (
        f"{found.network.name} does not fit {usual}: it trains on synthetic images, which show its "
        "speed alone"
    )
    return found, replace(made, notes=(said,))


def _holds(wanted: Shape, given: Shape) -> bool:
    """Whether a flat input takes images of a shape, as `as_inputs` does."""
    size = 1
    for one in given:
        size *= one
    return len(wanted) == 1 and wanted[0] == size


def _resized(name: str, shape: Shape | None, data: Dataset) -> Shape:
    """The shape to which images of a folder are resized; their own where the network takes it."""
    alike = not data.notes and data.shape[1] == data.shape[2]
    if is_own(name) or name not in networks.SIZED or not alike:
        inputs = find(name, shape, (data.shape, data.outputs) if is_own(name) else None)
        wanted = inputs.network.inputs
        return wanted if len(wanted) == 3 and wanted[0] in (1, 3) else data.shape
    try:
        return find(name, shape, (data.shape, data.outputs)).network.inputs
    except ShapeError:  # images that are too small for it
        return networks.by_name(name).inputs


def _found(name: str, shape: Shape | None, data: Dataset) -> Own:
    try:
        found = find(name, shape, (data.shape, data.outputs))
    except ShapeError as error:
        raise ShapeError(f"{name} does not fit images of shape {data.shape}: {error}") from error
    network = found.network
    # A module of PyTorch races and trains as it is.
    if not is_own(name) or found.original is not None or network.classes == data.outputs:
        return found
    if network.classes > data.outputs and found.parameters is None:
        return found  # as its author wrote it; some outputs are never right
    changed = with_outputs(network, data.outputs)
    if changed is None:
        return found
    said = f"its last layer is new, for {data.outputs} outputs instead of {network.classes}"
    parameters = found.parameters
    if parameters is not None:
        last = changed.names[-1]
        shapes = changed.parameters(changed.inputs)
        parameters = {
            path: array
            for path, array in parameters.items()
            if not (path.startswith(f"{last}.") and tuple(array.shape) != shapes[path].shape)
        }
    return replace(found, network=changed, parameters=parameters, notes=(*found.notes, said))
