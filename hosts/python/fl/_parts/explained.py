"""Exceptions of a part as the program takes them."""

from __future__ import annotations

import json

from .._errors import own_lines
from .arguments import Lacks, Shape, Unpriced

_CODES = {Unpriced: 4, Shape: 5, Lacks: 6, FloatingPointError: 7}


def explain(error: BaseException, trace=None) -> tuple[int, str, str | None]:
    """A code and a text for the program: the exception, and the last lines of the part's own code
    that it came through. A protocol's is also an error of the program, as JSON."""
    if told := getattr(error, "_fl_told", None):
        return 1, told["text"], json.dumps(told)
    code = next((c for kind, c in _CODES.items() if isinstance(error, kind)), 1)
    text = f"{type(error).__name__}: {error}{own_lines(trace or error.__traceback__)}"
    while error is not None:  # frames hold arrays that were lent
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
    return code, text, None
