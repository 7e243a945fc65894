"""Scripts whose processes would start again what started them, refused before the first one."""

import ast
import sys
from pathlib import Path
from types import FrameType

from pareo.errors import PareoError


def check(name: str) -> None:
    """Refuse a call from a script that is not below `if __name__ == "__main__":`.

    A process of a contestant imports the script, which would make the same call again.

    Raises:
        PareoError: the script calls `name` at its top level, outside such a block.
    """
    main = sys.modules.get("__main__")
    frame = _top_level(main.__dict__ if main else {})
    if frame is None or getattr(main, "__spec__", None) is not None:  # python -m: not imported so
        return
    file = Path(frame.f_code.co_filename)
    if file.is_file() and not guarded(file.read_text(encoding="utf-8"), frame.f_lineno):
        raise PareoError(
            f'{file.name}: {name} is called below `if __name__ == "__main__":`, because the '
            "processes of contestants import this file; line "
            f"{frame.f_lineno} is outside of such a block"
        )


def guarded(source: str, line: int) -> bool:
    """Whether a line is in a block that depends on `__name__`, or in no block known here.

    >>> guarded('a()\\nif __name__ == "__main__":\\n    b()', 3)
    True
    >>> guarded('a()\\nif __name__ == "__main__":\\n    b()', 1)
    False
    """
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return True
    for number, part in enumerate(body):
        if part.lineno <= line <= (part.end_lineno or part.lineno):
            return any(_asks(one) for one in body[: number + 1])
    return True


def _asks(part: ast.stmt) -> bool:
    """Whether it is an `if` on `__name__`: the block itself, or one that leaves the script."""
    return isinstance(part, ast.If) and "__name__" in ast.unparse(part.test)


def _top_level(names: dict[str, object]) -> FrameType | None:
    """The frame of the script's own lines; None if this call comes from elsewhere."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals is names:
            return frame
        frame = frame.f_back
    return None
