"""What a run records of measures in Python."""

from __future__ import annotations

import hashlib
import sys
import types
import typing

from . import metric
from .classes import LOADED, _files, _hash, origin
from .source import hash_of


def fingerprints() -> list[tuple[str, str, str, str]]:
    """For the program: each measure, where it is from, the hash of its source, and which Python it
    is."""
    version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    found = []
    for one in sorted(metric._METRICS.values(), key=lambda one: one.name):
        module = one.module
        files = _files(module)
        if files is not None and module.partition(".")[0] in LOADED:
            continue  # a plugin of a spec brings it, and has its hash there
        sha256 = _hash(files) if files is not None else hash_of(typing.cast(types.FunctionType, one.function))
        found.append((one.name, origin(module), hashlib.sha256(f"{one.task} {sha256}".encode()).hexdigest(), version))
    return found
