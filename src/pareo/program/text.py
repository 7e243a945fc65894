"""A program as text: one line an instruction, with its shape, FLOPs and bytes."""

from pareo.program.ir import Instruction, Program


def amount(number: float, unit: str, base: int = 1000) -> str:
    """A number with its unit, in at most four digits.

    >>> amount(22_118_400, "FLOP"), amount(401_408, "B")
    ('22.1 MFLOP', '401 kB')
    """
    for prefix in ("", "k", "M", "G", "T"):
        if number < base or prefix == "T":
            break
        number /= base
    digits = f"{number:.0f}" if not prefix or number >= 100 else f"{number:.3g}"
    return f"{digits} {prefix}{unit}"


def text(program: Program) -> str:
    """The listing that `print(program)` shows."""
    lines = [f"input %{number}: {program.specs[number]}" for number in program.inputs]
    for number, constant in program.constants.items():
        shown = f" = {constant.item():g}" if constant.size == 1 else ""
        lines.append(f"constant %{number}: {program.specs[number]}{shown}")
    calls = [_call(instruction) for instruction in program.instructions]
    wide = max(map(len, calls), default=0)
    for call, instruction in zip(calls, program.instructions, strict=True):
        shapes = ", ".join(str(program.specs[number]) for number in instruction.outputs)
        cost = f"{amount(instruction.flops, 'FLOP'):>12} {amount(instruction.bytes, 'B'):>10}"
        lines.append(f"{call:<{wide}}  {shapes:<24} {cost}")
    lines.append("return " + ", ".join(f"%{number}" for number in program.outputs))
    lines.append(
        f"{len(calls)} instructions, {amount(program.flops, 'FLOP')}, "
        f"{amount(program.bytes, 'B')} moved"
    )
    return "\n".join(lines)


def _call(instruction: Instruction) -> str:
    results = ", ".join(f"%{number}" for number in instruction.outputs)
    given = [f"%{number}" for number in instruction.inputs]
    usual = getattr(instruction.operator, "usual", lambda *_: False)
    for name, value in instruction.attributes.items():
        if not usual(name, value):
            given.append(f"{name}={value}")
    return f"{results} = {instruction.name}({', '.join(given)})"
