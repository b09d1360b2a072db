"""Parts under test: `fl.testing.conformance(MyMean)` in a test of pytest."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from . import _fl
from ._data.rows import write
from ._errors import RunError, SpecError, spec_error
from ._parts.calls import create
from ._parts.classes import CLASSES, _files, privacy
from ._run import run
from ._spec import flow, settings_of
from ._tools import check, command, parts


def conformance(part, settings: dict | None = None) -> None:
    """Checks a part against its role and its claims, on seeded cases: the same that
    every part of `fl` is held to. Then the part takes part in short runs, in every way of running
    (`ways`), whose digests must be equal.

    `part` is a class that was declared as a part, one made with settings (`MyMean(beta=0.5)`), or a
    role and a name, such as `"aggregator mean"`. A trainer is tried on the tasks for which it can
    be made. Raises `AssertionError` with the property that does not hold, where, and both values.
    """
    named, settings = _named(part), _settings(part, settings)
    if named.startswith("protocol "):
        raise TypeError("a protocol is tried in a run of its own: fl.testing.ways(spec) and fl.testing.interference(spec)")
    _fl.conformance(named, flow(settings))
    for spec in _short(*named.split(" ", 1), settings):
        protocol = spec["protocol"]["use"]
        try:
            found = ways(spec, processes=1)
        except RunError as error:
            if ": Lacks: " in str(error):
                continue  # it says itself what it does not learn
            raise AssertionError(f"takes part in a run: protocol `{protocol}`: {error}") from None
        if len(set(found.values())) > 1:
            table = ", ".join(f"{way} {digest[:12]}" for way, digest in found.items())
            raise AssertionError(f"same digest in every way of running: protocol `{protocol}`: {table}")


def ways(spec, processes: int = 2) -> dict[str, str]:
    """Digests of a spec by the way of running it: `plain`; over the `wire`; with the clients in so
    many `processes`, if the spec's `plugins` bring its parts; with a bound on `memory`, so that
    clients are written down between two questions; and stopped after two steps and `resumed`. The
    run folders are removed."""
    with tempfile.TemporaryDirectory() as folder:
        how = {"plain": {}, "wire": {"wire": True}, "processes": {"processes": processes}, "memory": {"memory": 1}}
        if not _in_plugins(spec):
            del how["processes"]
        found = {}
        for way, more in how.items():
            found[way] = run(spec, out=f"{folder}/{way}", quiet=True, **more).digest
        stopped = run(spec, stop_after=2, out=f"{folder}/resumed", quiet=True)
        on = run(resume=stopped.folder, quiet=True) if stopped.stopped else stopped
        return found | {"resumed": on.digest}


def interference(spec, set=None, data_dir=None) -> list[str]:
    """Holds a spec's protocol to non-interference: each observer who is promised something must see
    the same, whatever one client has. The run is done twice; the second time, one client has only
    half of its examples. Every mechanism releases a constant, and the accountant is `basic`, so
    that whatever differs came past the mechanisms. Gives the observers who are promised something.

    Raises `AssertionError` with the observer, and the first thing that it sees and should not; or
    if nobody is promised anything, which would prove nothing. A protocol that sends an answer
    without the release that it declares fails already when it runs.
    """
    given = check(spec, set)
    kept = {}
    for slot, filled in given["parts"].items():
        for one in filled if isinstance(filled, list) else [filled]:
            if one and (about := _mechanism(one["use"])):
                kept[slot] = {"use": _constant(about["signature"])}
    if not kept:
        raise ValueError("the spec fills no slot of a privacy mechanism, so nobody is promised anything")
    given["parts"] |= kept | {"accountant": {"use": "basic"}}
    given.pop("budget", None)
    with tempfile.TemporaryDirectory() as folder:
        found, wrong = _fl.interference("spec", flow(given), [], folder, None if data_dir is None else str(data_dir))
    if wrong is not None:
        raise RunError(wrong[1]) if wrong[0] == "run" else spec_error(wrong[1], wrong[2], True)
    promised, seen = found
    if seen:
        raise AssertionError(f"whoever is promised something sees the same whatever one client has: {'; '.join(seen)}")
    if not promised:
        raise AssertionError("nobody is promised anything: an exchange declares no release, or a part of its answer goes past the mechanism")
    return promised


def _mechanism(name: str) -> dict | None:
    found = [one for one in parts() if one["name"] == name and one["role"].split(" ")[0] == "privacy"]
    return found[0] if found else None


def _constant(kind: str) -> str:
    """The name of a mechanism on messages of this kind that releases a constant."""
    name = f"constant-{kind}"
    if not any(cls._fl["name"] == name for cls in CLASSES):

        @privacy(name, on=kind)
        class Constant:
            """Releases the same, whatever comes in: for `fl.testing.interference`."""

            def clip(self, message):
                norm = np.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in message.values()))
                small = np.float32(min(1.0, 1 / norm if norm else 1.0))
                return {n: a * small if kind == "params" else a for n, a in message.items()}

            def price(self, message, cohort):
                return {"Laplace": {"sensitivity": 1.0, "scale": 1.0, "unit": "party"}}

            def perturb(self, message, cohort, noise):
                noise.laplace(np.zeros(1), 1.0)  # a price is believed of noise that was drawn
                fixed = {n for n in message if n.startswith(".") or n in ("rows", "ids")}
                return {n: a.copy() if n in fixed else np.full_like(a, 1 if a.dtype.kind in "iu" else 0.25) for n, a in message.items()}

    return name


_SLOTS = {"trainer": "model", "aggregator": "aggregator", "attack": "attack", "selector": "cohort", "privacy": "privacy"}
_SETS = ({"blobs": {"features": 7, "classes": 3}}, {"glyphs": {"train": 120, "test": 30}})


def _short(role: str, name: str, settings: dict):
    """Short runs with a part, of those protocols that take it. A trainer's models are made anew for
    each question, and last; one without parameters learns alone, and from labels."""
    if role not in _SLOTS:
        return
    slot, part, some = _SLOTS[role], {"use": name, **settings}, {"epochs": 1, "batch": 16}
    together = {"model": {"use": "linear", "lr": 0.05}, "aggregator": {"use": "mean"}, slot: part}
    rounds = {"use": "fedavg", "rounds": 3, "local": some}
    kinds = [[({**rounds, "fresh": fresh}, together, {}) for fresh in ((True, False) if role == "trainer" else (True,))]]
    if role == "trainer":
        labels = {"use": "co-distill", "rounds": 3, "labels": "hard", "samples": 20, "warm-up": some, "local": some, "distil": some}
        taught = {"model": part, "student": part, "ensemble": {"use": "mean-labels"}}
        public = {"public": {"from": {"share": 0.3}}}
        kinds.append([({"use": "solo", "local": some}, {"model": part}, {}), (labels, taught, public)])
    with tempfile.TemporaryDirectory() as folder:
        words = _vocabulary(name, settings) if role == "trainer" else None
        sets = _SETS if words is None else (_in_words(words, Path(folder)),)
        for kind in kinds:
            found = [spec for protocol in kind if (spec := _fitting(sets, role, name, *protocol))]
            yield from found
            if found:
                return


def _vocabulary(name: str, settings: dict) -> int | None:
    """How many words a trainer takes, if it takes words."""
    index = max((at for at, cls in enumerate(CLASSES) if (cls._fl["role"], cls._fl["name"]) == ("trainer", name)), default=None)
    if index is None:
        return None
    try:
        given = _fl.settings(f"trainer {name}", flow(settings))
        return getattr(create(index, given, json.dumps({"input": [7], "kind": {"Classes": 3}}), bytes(32)), "vocabulary", None)
    except Exception:
        return None  # the kit has told why


def _in_words(vocabulary: int, folder: Path) -> dict:
    """A set of three classes, whose rows are seven word numbers below `vocabulary`."""
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 3, 300)
    words = (labels[:, None] * 7 + draws.integers(0, 7, (300, 7))) % vocabulary
    given = write({"train": (words[:240], labels[:240]), "test": (words[240:], labels[240:])}, folder).overrides[0]
    return json.loads(given.removeprefix("data.set="))


def _fitting(sets, role: str, name: str, protocol: dict, parts: dict, data: dict) -> dict | None:
    """The spec on the first data that the part takes; `None`: it is for other messages or data."""
    for each in sets:
        spec = {"name": "kit", "data": {"set": each, "clients": 3, **data}, "protocol": protocol, "parts": parts}
        spec["plugins"] = _plugins(role, name)
        try:
            check(spec)
        except SpecError:
            continue
        return spec
    return None


def _plugins(role: str, name: str) -> list[dict]:
    """The module of a part, unless it is a notebook, or tests that another process cannot
    import."""
    found = (c for c in reversed(CLASSES) if (c._fl["role"], c._fl["name"]) == (role, name))
    if (cls := next(found, None)) is None or (files := _files(cls.__module__)) is None:
        return []
    top = cls.__module__.partition(".")[0]
    if top.startswith("test_") or top == "conftest":
        return []
    return [{"module": cls.__module__, "path": str(files[0])}]


def _in_plugins(spec) -> bool:
    """Do plugins bring all parts of the spec that are Python's?"""
    spec = check(spec)
    modules = [one["module"] for one in spec.get("plugins") or () if one.get("module")]
    for filled in [spec["protocol"], *spec["parts"].values()]:
        for one in filled if isinstance(filled, list) else [filled]:
            for cls in (c for c in CLASSES if one and c._fl["name"] == one["use"]):
                if not any(f"{cls.__module__}.".startswith(f"{module}.") for module in modules):
                    return False
    return True


def cases(*paths, accept: bool | str | list[str] = False, only: str | list[str] = ()) -> str:
    """Holds parts and runs to files of cases, as `fl test` does. `only` chooses cases by their
    names. `accept=True` accepts the present answers of all cases, and `accept="NAME"` that of one.
    Gives what `fl test` prints; raises `AssertionError` on a difference."""
    accepted = [accept] if isinstance(accept, str) else accept if isinstance(accept, list) else []
    args = [f"--accept={name}" for name in accepted] + (["--accept"] if accept is True else [])
    args += [f"--only={name}" for name in ([only] if isinstance(only, str) else only)]
    code, out, err = _fl.command(["fl", "test", *map(str, paths), *args])
    if code == 1:
        raise AssertionError(out.strip() or err.strip())
    if code != 0:
        raise ValueError(err.strip())
    return out.strip()


def answer(part, input: dict | None = None, settings: dict | None = None, seed: int = 0, rounds: list[dict] | None = None) -> dict:
    """One part's answer to numbers, as `fl try` gives it: `fl.testing.answer(MyMean(beta=0.5),
    {"messages": [..]})`. With `rounds`, an input for each, the part keeps its state, and the answer
    has a list of `rounds`."""
    if (input is None) == (rounds is None):
        raise TypeError("answer() takes an `input`, or a list of inputs as `rounds`")
    role, _, name = _named(part).partition(" ")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "input.json"
        file.write_text(flow(input if rounds is None else {"rounds": rounds}), encoding="utf-8")
        args = ["try", role, name, "--settings", flow(_settings(part, settings)), "--input", str(file), "--seed", str(seed)]
        return json.loads(command(*args))


def seconds(part, settings: dict | None = None, *, clients: int = 100, numbers: int = 1_000_000, times: int = 5, threads: int = 1) -> list[float]:
    """How long each of a few calls of an aggregator of parameters takes, checks of its answer
    included: to compare it with `"aggregator mean"`, and for nothing that a test decides by."""
    return _fl.seconds(_named(part), flow(_settings(part, settings)), clients, numbers, times, threads)


def _named(part) -> str:
    return part if isinstance(part, str) else f"{part._fl['role']} {part._fl['name']}"


def _settings(part, settings: dict | None) -> dict:
    return settings_of(part) | (settings or {})
