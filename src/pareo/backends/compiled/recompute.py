"""A pass that lets the backward pass compute normalised values again, where that saves memory.

After y = batch_norm(x) and z = activation(y), the gradient of the activation reads y or z, and the
gradient of batch_norm reads x. One kernel does both, and computes y from x in a register: y need
not be stored, and z not read. Here the gradient of the activation is made to read
batch_norm_inference(x), a value that the fusions of `kernels/batch_norm.py` keep inside.
"""

from dataclasses import replace

import pareo.operators as op
from pareo.program.ir import Instruction, Program, readers
from pareo.program.passes import rewrite

# The gradients that read the activation's result; all others read its operand.
_FROM_RESULT = {"relu_gradient": "relu"}
_FROM_OPERAND = {
    "clip_gradient": "clip",
    "silu_gradient": "silu",
    "hard_swish_gradient": "hard_swish",
}


@rewrite
def recompute(program: Program) -> Program:
    """The program with what gradients of activations read computed again from x."""
    if not any(instruction.name == "batch_norm" for instruction in program.instructions):
        return program
    made = {number: i for i in program.instructions for number in i.outputs}
    reading = readers(program)
    specs = dict(program.specs)
    free = max(specs) + 1
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        norm = _normalisation(program, instruction, made, reading)
        if norm is not None:
            x, scale, shift = norm.inputs
            again = Instruction(
                op.batch_norm_inference,
                (x, scale, shift, *norm.outputs[1:]),
                (free,),
                dict(norm.attributes),
                flops=0,  # not part of what the program asks for
                bytes=0,
            )
            specs[free] = specs[norm.outputs[0]]
            instructions.append(again)
            instruction = replace(instruction, inputs=(instruction.inputs[0], free))
            free += 1
        instructions.append(instruction)
    return program.changed(instructions=tuple(instructions), specs=specs)


def _normalisation(
    program: Program,
    gradient: Instruction,
    made: dict[int, Instruction],
    reading: dict[int, list[int]],
) -> Instruction | None:
    """The batch_norm whose gradient is all that reads this gradient of an activation."""
    if gradient.name not in _FROM_RESULT and gradient.name not in _FROM_OPERAND:
        return None
    value = gradient.inputs[1]
    if gradient.name in _FROM_RESULT:
        activation = made.get(value)
        if activation is None or activation.name != _FROM_RESULT[gradient.name]:
            return None
        value = activation.inputs[0]
    norm = made.get(value)
    if norm is None or norm.name != "batch_norm" or value != norm.outputs[0]:
        return None
    result = gradient.outputs[0]
    if result in program.outputs or len(reading[result]) != 1:
        return None
    reader = program.instructions[reading[result][0]]
    operands = (result, *norm.inputs[:2], *norm.outputs[1:])
    same = reader.attributes.get("epsilon") == norm.attributes.get("epsilon")
    fits = reader.name == "batch_norm_gradient" and reader.inputs == operands and same
    return norm if fits else None
