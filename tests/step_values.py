"""Values of training steps, for tests of kernels that compute several instructions."""

import numpy as np
from recipes import sgd

from pareo import Device
from pareo.moving import to_device, to_host
from pareo.training.step import Step


def use(monkeypatch, way):
    """Compute steps in this way wherever it can, not in the one that is expected to be faster."""
    from pareo.backends.cuda import ways

    def chosen(program):
        return way if way in ways.expected(program) else ways.OTHERWISE

    monkeypatch.setattr(ways, "chosen", chosen)


def values_of(program, seed=0):
    """Every value of a program in float64, computed by NumPy, from drawn inputs."""
    random = np.random.default_rng(seed)
    values = {}
    for number in program.inputs:
        spec = program.specs[number]
        if spec.dtype.kind in "iu":
            values[number] = random.integers(0, 2, spec.shape)
        else:
            scale = 1 / np.sqrt(max(1, np.prod(spec.shape[1:]))) if spec.batch is None else 1.0
            values[number] = (random.standard_normal(spec.shape) * scale).astype(np.float32)
    values |= {number: np.asarray(a) for number, a in program.constants.items()}
    exact = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in values.items()}
    with Device("vectorized"):
        for one in program.instructions:
            given = [exact[n] for n in one.inputs]
            given = [given] if one.name == "concat" else given
            found = one.operator(*given, **one.attributes)
            found = found if isinstance(found, tuple) else (found,)
            exact |= dict(zip(one.outputs, found, strict=True))
    rounded = {n: a.astype(np.float32) for n, a in exact.items() if a.dtype.kind == "f"}
    return rounded | values, exact


def trained(network, batch, device, dtype, momentum):
    """Losses and parameters after four steps."""
    random = np.random.default_rng(5)
    images = random.standard_normal((60, *network.inputs)).astype(dtype)
    labels = random.integers(0, network.classes, 60)
    order = random.integers(0, 60, (4, batch))
    place = Device(device)
    with place:
        parameters = {
            path: to_device(array.astype(dtype)) for path, array in network.initialise(3).items()
        }
        slots = {
            f"velocity.{path}": to_device(np.zeros(array.shape, dtype))
            for path, array in parameters.items()
            if path not in network.state
        }
        step = Step(network, batch, place, sgd(momentum, 0.01 * momentum), dtype=dtype)
        given = to_device(images), to_device(labels)
        losses = step.run(parameters, slots if momentum else {}, *given, order, rate=0.02)
        found = {path: np.array(to_host(array)) for path, array in parameters.items()}
    return np.array(to_host(losses)), found, step
