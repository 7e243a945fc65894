"""Compilation up to the plan: a program rewritten for a target, and the memory that it takes."""

from pareo.device import Device
from pareo.program.fuse import fuse
from pareo.program.ir import Program
from pareo.program.passes import remove_common, remove_dead
from pareo.program.plan import fitting_plan, plan
from pareo.program.target import Target
from pareo.program.update import Updates, check, hasten_updates, in_place, own_results


def prepared(program: Program, target: Target) -> Program:
    """The program as a target runs it: without dead or common code, lowered and fused."""
    return fuse(target.lower(remove_dead(remove_common(program))), target)


def prepared_with(
    program: Program, updates: Updates, target: Target
) -> tuple[Program, dict[int, int]]:
    """The program as a target runs it, and the values written over the argument they replace."""
    check(program, updates)
    program = own_results(prepared(program, target), updates, target)
    program = hasten_updates(program, updates)
    return program, in_place(program, updates, target)


def memory(
    program: Program, device: Device, updates: Updates, data: int | None = None, tight: bool = False
) -> int:
    """The bytes that a run takes on a device, inputs included: see `Program.memory`."""
    target: Target = device.backend
    with device, target.scope(device):  # work arrays depend on its threads, or its GPU
        program, over = prepared_with(program, updates, target)
        if tight:
            planned = plan(program, target, over, tight=True).bytes
        else:
            planned = fitting_plan(program, target, over).bytes
    inputs = list(program.inputs)
    if data is not None and target.reads_dataset_in_place(program, inputs[data]):
        del inputs[data]
    constants = sum(constant.nbytes for constant in program.constants.values())
    return sum(program.specs[number].nbytes for number in inputs) + constants + planned
