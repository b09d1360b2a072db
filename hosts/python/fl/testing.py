"""Parts under test: `fl.testing.conformance(MyMean)` in a test of pytest."""

from __future__ import annotations

import json
from pathlib import Path

from . import _fl
from ._spec import flow
from ._tools import command


def conformance(part, settings: dict | None = None) -> None:
    """Holds a part to what its role asks and to what it claims, on seeded cases: the same that every part of `fl` is held to.

    `part` is a class that was declared as a part, or a role and a name, such as `"aggregator mean"`. A
    trainer is tried on the tasks for which it can be made. Raises `AssertionError` with the property that does not hold, where, and
    both values.
    """
    _fl.conformance(_named(part), flow(settings or {}))


def cases(*paths, accept: bool = False) -> str:
    """Holds parts to files of cases, as `fl test` does: what they answered last, a bound, or a refusal. `accept` takes what they
    answer now as right. Gives what `fl test` prints; raises `AssertionError` on a difference."""
    code, out, err = _fl.command(["fl", "test", *map(str, paths), *(["--accept"] if accept else [])])
    if code == 1:
        raise AssertionError(out.strip() or err.strip())
    if code != 0:
        raise ValueError(err.strip())
    return out.strip()


def answer(part, input: dict, settings: dict | None = None, seed: int = 0) -> dict:
    """One part's answer to numbers, as `fl try` gives it: `fl.testing.answer(MyMean, {"messages": [..]})`."""
    import tempfile

    role, _, name = _named(part).partition(" ")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "input.json"
        file.write_text(json.dumps(input), encoding="utf-8")
        args = ["try", role, name, "--settings", flow(settings or {}), "--input", str(file), "--seed", str(seed)]
        return json.loads(command(*args))


def seconds(part, settings: dict | None = None, *, clients: int = 100, numbers: int = 1_000_000, times: int = 5, threads: int = 1) -> list[float]:
    """How long each of a few calls of an aggregator of parameters takes, checks of its answer included: to compare it with
    `"aggregator mean"`, and for nothing that a test decides by."""
    return _fl.seconds(_named(part), flow(settings or {}), clients, numbers, times, threads)


def _named(part) -> str:
    return part if isinstance(part, str) else f"{part._fl['role']} {part._fl['name']}"
