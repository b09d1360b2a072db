"""Copies of parts, which try at a part's first call what a run relies on.

A run may write a part down and make it anew: over the wire, in processes, with a bound on memory,
after a stop. So a copy that was saved and loaded must go on as one that was not. And the same call
must give the same bits. Copies take a few steps on a few rows, once for each class, its settings
and its task; the part itself is left alone.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from . import attributes, generators, reachable
from .arguments import Pass, Stream

_STEPS = 2
_ROWS = 512


@dataclasses.dataclass
class Found:
    """What the copies of a part have shown."""

    draws: bool = False
    """Its training draws from a generator of the process."""
    before: dict[reachable.Path, Any] | None = None
    """The values of a network that has not learnt, beside parameters and moments."""
    lost: str | None = None
    """What a part that was saved and loaded has lost."""
    failed: bool = False
    """The copies could not do it."""


_FOUND: dict[tuple[Any, ...], Found] = {}
_TRYING = threading.local()


class Differs(TypeError):
    """The same call gives other bits."""


def key(part: Any) -> tuple[Any, ...]:
    return part._fl_made.arguments[:3]


def found(part: Any) -> Found | None:
    made = vars(part).get("_fl_made")
    if made is None:
        return None
    return _TRYING.known if made.alone else _FOUND.get(made.arguments[:3])


def forget(part: Any) -> None:
    """Its copies have failed, as the part itself; they try again at the next call."""
    if (known := found(part)) is not None and known.failed:
        _FOUND.pop(key(part), None)


def check_kept(part: Any) -> None:
    """Called when a part that has learnt is saved or loaded."""
    if part._fl_made.fitted and (known := found(part)) is not None and known.lost is not None:
        raise TypeError(known.lost)


def try_training(part: Any, again: Callable, bridge: Any, x: np.ndarray, target: np.ndarray, how: Pass, stream: Stream) -> Found:
    """Trains copies of a part for a few steps, unless that was done. Raises `Differs` if the same
    training gives other bits."""
    if (known := _FOUND.get(key(part))) is not None:
        return known
    with generators.alone():
        if (known := _FOUND.get(key(part))) is not None:
            return known
        if not len(x) or how.epochs == 0 or how.steps == 0:
            return Found()
        return _Training(part, again, bridge, x, target, how, stream).run()


class _Training:
    def __init__(self, part: Any, again: Callable, bridge: Any, x: np.ndarray, target: np.ndarray, how: Pass, stream: Stream):
        rows = min(len(x), _ROWS, _STEPS * max(how.batch, 1))
        self.part, self.again, self.bridge = part, again, bridge
        self.x, self.target = (_frozen(given[:rows]) for given in (x, target))
        self.how = how.trial(_STEPS)
        self.stream, self.known = stream.child("twin"), Found()

    def run(self) -> Found:
        _TRYING.known = self.known  # the copies' own calls find it
        try:
            one = self.copy()
            if graph := self.graph(one):
                # what each part draws for itself is no beginning that all have
                drawn = self.graph(self.bridge.create(*key(self.part), self.stream.child("unlike").key)).changed(graph.read())
                self.known.before = {path: value for path, value in graph.read().items() if path not in drawn}
            begun = self.seen(one, learnt=False)
            self.fit(one, 1)
            self.try_again(one, begun)
        except Differs:
            raise
        except Exception:
            self.known.failed = True  # the part itself will say what it cannot do
        finally:
            _TRYING.known = None
        _FOUND[key(self.part)] = self.known
        return self.known

    def try_again(self, one: Any, begun: dict) -> None:
        other = self.copy()
        if (name := _differ(begun, self.seen(other, learnt=False))) and self.exact():
            raise Differs(f"made twice from one stream, it has other {name}: setup() draws from something that no seed reaches. {_DRAW}")
        try:
            kept = self.bridge._save_state(one)[1]
            self.load(other, kept)
        except TypeError as why:
            self.known.lost = f"{why}. {_KEEP}"
            return
        held = _held(one), _held(other)
        name = _differ(self.seen(one), self.seen(other))
        results = [self.fit(each, 2) for each in (one, other)]
        name = name or _differ(self.seen(one) | {"loss": results[0]}, self.seen(other) | {"loss": results[1]})
        if not self.exact() or not name and not _of_hooks(*held):
            return
        third = self.copy()
        self.load(third, kept)
        self.fit(third, 2)
        if unlike := _differ(self.seen(other), self.seen(third)):
            if unlike == "pickles":
                raise Differs("two models that learnt the same from the same rows have other pickles, such as one that holds the seconds that it took: let estimator() give one that keeps nothing of the clock")
            raise Differs(f"trained twice from one state, on the same rows and with the same stream, it has other {unlike}: fit() draws from something that no seed reaches. {_DRAW}")
        lost = _lost(*held)
        self.known.lost = (
            f"saved and loaded, it goes on with other {name or 'hooks of its optimiser'}, so a run over the wire, in processes or after a stop would have other "
            f"results{f': no state that it saves holds {lost}' if lost else ''}. {_KEEP}"
        )

    # ---- copies

    def copy(self) -> Any:
        made = self.again(self.part)
        made._fl_made.alone = True
        return made

    def load(self, part: Any, kept: dict) -> None:
        with generators.Section(0):
            self.bridge._load_state(part, None, [(0, 1.0, None, kept)], None)
        part._fl_made.fitted = False

    def graph(self, part: Any) -> reachable.Graph | None:
        return part._reached() if hasattr(type(part), "_reached") else None

    def fit(self, part: Any, at: int) -> tuple:
        with generators.Section(self.stream.child("draws", at).seed) as section:
            given = part.fit(self.x, self.target, self.how, self.stream.child("fit", at))
        self.known.draws |= bool(section.moved)
        return tuple(np.asarray(one) for one in given)

    def seen(self, part: Any, learnt: bool = True) -> dict[str, Any]:
        """What a run sees of a model."""
        seen: dict[str, Any] = {}
        with generators.Section(0):
            try:
                seen["predictions"] = np.array(part.predict(self.x))
            except Exception:
                pass  # it must learn first
            if hasattr(part, "params"):
                seen |= {f"parameters (`{name}`)": np.array(value) for name, value in part.params().items()}
            if learnt and self.graph(part):
                seen["moments or schedule"] = part.save_state()
            elif learnt and getattr(part, "pickled", False):
                seen["pickles"] = part.save()
        return seen

    def exact(self) -> bool:
        """Is all computed on the processor, and by code that is not compiled anew? Only then every
        call gives the same bits."""
        torch, jax = (sys.modules.get(name) for name in ("torch", "jax"))
        if not getattr(self.part, "_exact", True):
            return False
        card = torch is not None and getattr(self.part, "device", None) != "cpu" and torch.cuda.is_initialized()
        return not card and (jax is None or jax.default_backend() == "cpu") and getattr(self.part, "device", "cpu") == "cpu"


_DRAW = "Draw from the stream that it is given (`stream.numpy()`, `stream.torch()`, `stream.seed`), and let nothing follow from the clock"
_KEEP = (
    "Keep it as a parameter or a buffer of the network, or as an attribute of the part (numbers, texts, lists, mappings, arrays, tensors), "
    "or let save_state() and load_state(state) hold it"
)


def _frozen(rows: np.ndarray) -> np.ndarray:
    rows = np.array(rows)
    rows.flags.writeable = False
    return rows


def _differ(one: dict[str, Any], other: dict[str, Any]) -> str | None:
    """The name of the first thing that differs."""
    return next((name for name in one if name not in other or not reachable.same(one[name], other[name])), None)


def _held(part: Any) -> dict[reachable.Path, Any]:
    """The values that a part holds, besides those of a network that its state has."""
    held = {name: value for name, value in vars(part).items() if name not in ("_fl_made", "task")}
    if not hasattr(part, "_reached"):
        return reachable.Graph(held, [part]).read()
    known = [*part._model.parameters(), *part._model.state_dict(keep_vars=True).values()]
    return reachable.Graph(held, [part, *known], lambda value: ("state",) if value is part._steps else ("training",)).read()


def _of_hooks(one: dict[reachable.Path, Any], other: dict[reachable.Path, Any]) -> bool:
    """Do hooks of an optimiser hold other values, such as a schedule? They count though the first
    steps are alike."""
    unlike = (path for path, value in one.items() if path not in other or not reachable.same(value, other[path]))
    return any("_optimizer_step_post_hooks" in path or "_optimizer_step_pre_hooks" in path for path in unlike)


def _lost(one: dict[reachable.Path, Any], other: dict[reachable.Path, Any]) -> str | None:
    """The names of values that are not in both."""
    names = [path for path, value in one.items() if path not in other or not reachable.same(value, other[path])]
    return ", ".join(f"`{reachable.shown(path)}`" for path in names[:3]) or None


# ---- parts that do not learn


def _on_card() -> bool:
    """Might a part compute on a card, where last bits differ?"""
    torch, jax = (sys.modules.get(name) for name in ("torch", "jax"))
    return torch is not None and torch.cuda.is_initialized() or jax is not None and jax.default_backend() != "cpu"


class _Still:
    """What a copy may ask of the program: noise of its own, and nothing that changes the run."""

    def __init__(self, host: Any):
        self._host, self._noise = host, Stream(bytes(host.key())).child("twin").numpy()

    def key(self) -> bytes:
        return self._host.key()

    def mean(self, weights: list[float]) -> Any:
        return self._host.mean(weights)

    def log(self, *_: object) -> None:
        pass

    def laplace(self, values: np.ndarray, scale: float) -> None:
        values += self._noise.laplace(0, scale, values.shape)

    def gaussian(self, values: np.ndarray, sigma: float) -> None:
        values += self._noise.normal(0, sigma, values.shape)

    def uniform(self, values: np.ndarray) -> None:
        values[...] = self._noise.random(values.shape)


def try_answer(part: Any, again: Callable, bridge: Any, operation: int, text: str, messages: list, host: Any, given: dict) -> None:
    """Lets copies of a part answer what it has answered, unless that was done. Raises `Differs` if
    one that was saved and loaded answers otherwise than one that was not, or the same one
    otherwise. One that keeps nothing has `given` the answer of any copy."""
    place = (*key(part), operation)
    if place in _FOUND:
        return
    _FOUND[place] = Found()
    name, keeps = bridge.operation_name(operation), attributes.own(part, "save") or attributes._attributes(part)

    def copy(kept: dict) -> Any:
        made = again(part)
        bridge._load(made, None, [(0, 1.0, None, kept or {"state": np.zeros(0, np.uint8)})], None)
        if "_sent" in vars(part):
            object.__setattr__(made, "_sent", vars(part)["_sent"])
        return made

    def answer(of: Any) -> dict[str, Any]:
        still = _Still(host)
        with generators.Section(Stream(still.key()).child("draws").seed):
            return {name: np.array(one) for name, one in bridge._OPERATIONS[operation][1](of, text, messages, still)[1].items()}

    if not keeps:
        if part._fl["role"] == "privacy" or _on_card():  # the noise of a copy is its own
            return
        try:
            other = answer(copy({}))
        except Exception:
            return
        if _differ(given, other):
            del _FOUND[place]
            raise Differs(
                f"asked twice, with the same stream, its {name}() gives other numbers: it keeps something that is no attribute of the part, such as in "
                f"a global or in its class, or draws from something that no seed reaches. Keep it on self, or write save() and load(state). {_DRAW}"
            )
        return
    try:
        one = copy(bridge._save(part)[1])
        answer(one)
        kept = bridge._save(one)[1]
        others = copy(kept), copy(kept)
        lost = _lost(_held(one), _held(others[0]))
        answers = [answer(each) for each in (one, *others)]
    except Exception:
        return  # another call will say it, of the part itself
    if _differ(answers[0], answers[1]) or _differ(answers[1], answers[2]):
        del _FOUND[place]  # it is said each time
    if _differ(answers[1], answers[2]):
        raise Differs(f"asked twice in one state, with the same stream, its {name}() gives other numbers: it draws from something that no seed reaches. {_DRAW}")
    if _differ(answers[0], answers[1]):
        raise Differs(
            f"saved and loaded, its {name}() gives other numbers, so a run after a stop would have other results"
            f"{f': no state that it saves holds {lost}' if lost else ''}. Keep it as an attribute of the part (numbers, texts, lists, "
            "mappings, arrays, tensors), or let save() and load(state) hold it"
        )
