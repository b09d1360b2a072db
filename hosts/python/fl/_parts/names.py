"""Names of measures."""

from __future__ import annotations

import re

_TAKEN = ("accuracy", "auc", "mauc", "dice", "psnr", "rmse", "mae", "r2", "training-loss", "seconds", "bytes", "epsilon")


def _check_characters(name: str, dots: bool) -> None:
    if not isinstance(name, str) or not re.fullmatch(rf"[a-z0-9][a-z0-9_{'.' * dots}-]{{0,63}}", name):
        raise ValueError(f"a measure's name has small letters, digits, {', '.join(['.'] * dots + ['-'])} and _, got {name!r}")


def _kept(name: str) -> ValueError:
    return ValueError(f"names such as `{name}` are those of what the program measures itself; try {name.replace('.', '-')}")


def check_of_part(name: str) -> str:
    """The name of a measure that stands behind that of a slot."""
    _check_characters(name, True)
    if name.endswith(".std"):
        raise _kept(name)
    return name


def check(name: str, dots: bool = False) -> str:
    """The name of a measure, which is none of the program's own; those of a protocol may have
    dots."""
    _check_characters(name, dots)
    if name in _TAKEN:
        raise ValueError(f"the program measures `{name}` itself; try my-{name}")
    if name.startswith(("clients.", "own.")) or name.endswith(".std"):
        raise _kept(name)
    return name
