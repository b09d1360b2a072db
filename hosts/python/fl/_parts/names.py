"""Names of measures."""

from __future__ import annotations

import re

from .. import _fl


def _check_characters(name: str, dots: bool) -> None:
    if not isinstance(name, str) or not re.fullmatch(rf"[a-z0-9][a-z0-9_{'.' * dots}-]{{0,63}}", name):
        raise ValueError(f"a measure's name has small letters, digits, {', '.join(['.'] * dots + ['-'])} and _, got {name!r}")


def check_of_part(name: str) -> str:
    """The name of a measure that stands behind that of a slot."""
    _check_characters(name, True)
    if name.endswith(".std"):
        _fl.ensure_free(name)
    return name


def check(name: str, dots: bool = False) -> str:
    """The name of a measure, which is none of the program's own; those of a protocol may have
    dots."""
    _check_characters(name, dots)
    _fl.ensure_free(name)
    return name
