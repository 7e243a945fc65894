"""Which layer each instruction of a training step belongs to.

An instruction that reads a layer's parameters belongs to it. Of the others, one of the forward pass
belongs to the layer before it, as an activation does to its convolution. One of the backward pass
belongs to the layer that alone reads its result, as the gradient of a loss does to the last.
"""

from collections.abc import Sequence

from pareo.nn.network import Sequential
from pareo.program import Program
from pareo.program.ir import readers


def owners(program: Program, paths: Sequence[str]) -> list[str]:
    """The path of a layer for each instruction of a step, whose first inputs are the parameters.

    >>> from pareo import nn
    >>> from pareo.training.step import step_program
    >>> network = nn.Sequential([nn.Dense(3), nn.Tanh(), nn.Dense(2)], (4,))
    >>> program = step_program(network, batch=5)
    >>> found = owners(program, list(network.parameters((4,))))
    >>> [(e.name, o) for e, o in zip(program.instructions, found) if "tanh" in e.name]
    [('tanh', '0'), ('tanh_gradient', '0')]
    """
    own = {
        number: path.rpartition(".")[0] for number, path in zip(program.inputs, paths, strict=False)
    }
    rank = {layer: place for place, layer in enumerate(dict.fromkeys(own.values()))}
    for each in program.instructions:  # a weight that is transposed is still that layer's
        if each.is_view and each.inputs[0] in own:
            own[each.outputs[0]] = own[each.inputs[0]]
    found = [
        max((own[n] for n in each.inputs if n in own), key=rank.__getitem__, default="")
        for each in program.instructions
    ]
    made = {n: place for place, each in enumerate(program.instructions) for n in each.outputs}
    loss = made.get(program.outputs[0], len(found))
    for place, each in enumerate(program.instructions[: loss + 1]):
        before = [found[made[n]] for n in each.inputs if n in made and found[made[n]]]
        found[place] = found[place] or max(before, key=rank.__getitem__, default="")
    reading = readers(program)
    for place in range(len(found) - 1, loss, -1):
        each = program.instructions[place]
        after = {found[at] for n in each.outputs for at in reading.get(n, ())}
        if not found[place] and len(after) == 1:
            found[place] = after.pop()
    for place, each in enumerate(program.instructions):
        before = [found[made[n]] for n in each.inputs if n in made and found[made[n]]]
        found[place] = found[place] or min(before, key=rank.__getitem__, default="")
    return found


def labels(network: Sequential) -> dict[str, str]:
    """The layers with parameters by path, as a reader knows them.

    >>> from pareo import nn
    >>> labels(nn.Sequential([nn.Conv(4, 3), nn.Flatten(), nn.Dense(2)], (1, 5, 5)))
    {'0': 'layer 0, Conv 4 @ 3x3', '2': 'layer 2, Dense 2'}
    """
    shape = network.inputs
    return {
        path: f"layer {path}, {layer.label}"
        for path, layer, _ in network.walk(shape)
        if any(p.rpartition(".")[0] == path for p in network.parameters(shape))
    }
