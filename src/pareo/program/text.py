"""Amounts as text, for listings of programs and networks."""


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
