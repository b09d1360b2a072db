"""What the methods of a protocol in Python ask of the program, in the middle of its call."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .._parts import generators, state as _state
from .._parts.arguments import Mail, Refused
from .._parts.arrays import array_of, declared_array
from .._parts.classes import origin
from .._parts.explained import explain
from .declarations import Array, Arrays, Part, Slot, members


class _Program:
    """The program, during one call of a protocol."""

    def __init__(self, part: Part, host: Any, facts: dict[str, Any]):
        self.part, self.host = part, host
        self.filled = frozenset(facts["filled"])
        #: That of the step that is being done, or that asks a client; 0 if it is no round.
        self.round_number = 0
        self._numbers: dict[tuple[str, str], int] = {}

    def ask(self, do: str, *messages: tuple[Any, ...], back: Any = None, **more: Any) -> tuple[Any, dict[str, Array]]:
        """What the program answers: a value, and arrays of ours by name."""
        return self._call(0, do, more, messages, bytes(32), back)

    def number(self, do: str, slot: str) -> int:
        """The number of the `model` or `generator` in this slot."""
        if (do, slot) not in self._numbers:
            self._numbers[do, slot] = self.ask(do, slot=slot)[0]
        return self._numbers[do, slot]

    def do(self, number: int, operation: str, /, *messages: tuple[Any, ...], key: bytes = bytes(32), back: Any = None, **facts: Any) -> tuple[Any, dict[str, Array]]:
        """What the part with this number gives for an operation that draws from the stream of this
        key: a value, and arrays by name."""
        return self._call(number, operation, facts, messages, key, back)

    def _call(self, number: int, operation: str, facts: dict[str, Any], messages: Any, key: bytes, back: Any) -> tuple[Any, dict[str, Array]]:
        with generators.paused():
            why, text, tensors = self.host.ask(number, operation, key, json.dumps(facts), list(messages), back)
        if why is not None:
            raise Refused.read(why)
        return (None if text is None else json.loads(text)), {name: np.asarray(memoryview(held)) for name, held in tensors.items()}

    def slot(self, slot: Slot | str, role: str = "") -> Slot:
        """The protocol's own slot of this name, for parts of this role."""
        known = {one.name: one for one in members(type(self.part), Slot)}
        name = slot if isinstance(slot, str) else slot.name
        if name not in known:
            raise LookupError(f"the protocol has no slot `{name}`; it has {', '.join(known)}")
        if role and known[name].role != role:
            raise TypeError(f"parts.{name} is for {known[name].role} parts, and this needs {role}")
        return known[name]

    def name(self, slot: Slot | str, role: str = "") -> str:
        return self.slot(slot, role).name


_COLUMNS: dict[str, dict[str, str]] = {}


def packed(kind: str, message: Any) -> dict[str, Array]:
    """The arrays of a message of this kind, in the types that it declares, without a copy where
    they have them."""
    from .. import _fl

    if kind not in _COLUMNS:
        _COLUMNS[kind] = dict(_fl.columns(kind))
    columns = _COLUMNS[kind]
    if message is None and not columns:
        return {}
    if not isinstance(message, Mapping):
        if len(columns) != 1 or "*" in columns or message is None:
            raise TypeError(f"a message of kind `{kind}` is arrays by name ({', '.join(columns) or 'any'}), got {type(message).__name__}")
        message = {next(iter(columns)): message}
    out: dict[str, Array] = {}
    for name, array in message.items():
        if not isinstance(name, str):
            raise TypeError(f"an array's name must be text, got {name!r}")
        declared = columns.get(name, columns.get("*"))
        if declared == "u32" and columns.get(name) and np.ndim(array) == 0:
            array = np.reshape(array, 1)
        if kind == "scalar":
            array = np.reshape(array, 1)
        out[name] = declared_array(name, array, declared) if declared else array_of(name, array)
    return out


def _sent(tensors: Arrays, sender: int = 0, weight: float = 1.0, counts: Any = None, loss: float | None = None) -> tuple[Any, ...]:
    """A message as the program takes it."""
    return (sender, float(weight), counts, loss, tensors)


def _child(key: bytes, label: str, index: int = 0) -> bytes:
    """The key of the program's own stream below this one."""
    word = label.encode()
    return hashlib.sha256(key + len(word).to_bytes(8, "little") + word + index.to_bytes(8, "little")).digest()


def _fresh(x: Array) -> tuple[dict[str, Any], dict[str, Array]]:
    """Samples that are in no set of the program."""
    return {}, {"values": np.ascontiguousarray(x, dtype=np.float32)}


def _finite(value: float) -> float | None:
    """A number that JSON has."""
    value = float(value)
    return value if np.isfinite(value) else None


def _form_back(form: Callable[[Mail], Any], kind: str) -> Callable[..., Any]:
    def back(_operation: str, _text: str, messages: list[Any]) -> Any:
        mail = Mail(*messages[0])
        with generators.Section(mail.sender):
            made = form(mail)
        made, weight = made if isinstance(made, tuple) else (made, mail.weight)
        about = {"from": mail.sender, "weight": float(weight), "class_counts": mail.class_counts, "training_loss": mail.training_loss}
        return json.dumps(about), packed(kind, made), None

    return back


def has_run(given: Any, what: str) -> None:
    """Refuses what a call gives that has done nothing yet: a coroutine, or a generator."""
    kind = next((word for word, found in _UNDONE.items() if found(given)), None)
    if kind is not None:
        if inspect.iscoroutine(given):
            given.close()  # nobody awaits it, and Python would warn of that
        raise TypeError(f"{what} gives a {kind}, of which nothing has run: write it with `def`, without `async` and `yield`")


_UNDONE = {"coroutine": inspect.isawaitable, "generator": inspect.isgenerator, "generator that awaits": inspect.isasyncgen}


def who(part: Part) -> str:
    return f"protocol `{part._fl['name']}` from {origin(type(part).__module__)}"


def told(part: Part, error: BaseException, method: str) -> dict[str, Any]:
    """An exception as the program's error: with the part and the method that it came from, and what
    the program itself said of it."""
    named = f"{who(part)}: {method}(): "
    if isinstance(error, Refused):
        text = str(error)
        explain(error)
        return {"text": text if who(part) in text else named + text, "problem": error.problem}
    problems = {"Lacks": "Lacks", "Shape": "Shape", "Unpriced": "Unpriced"}
    problem = next((word for kind in type(error).__mro__ if (word := problems.get(kind.__name__)) and kind.__module__.startswith("fl.")), None)
    text = explain(error)[1]
    return {"text": named + text, "problem": None if problem is None else {problem: text}}


def _held(part: Part) -> dict[str, Any]:
    held: dict[str, Any] = {}
    for name, value in vars(part).items():
        if name in ("task", "_fl_made", "_fl_held"):
            continue
        try:
            held[name] = _state.save({"": value})
        except _state.Unsavable:
            held[name] = id(value)
    return held


def unchanged(part: Part) -> None:
    """A part keeps nothing on itself: other calls, of clients and of runs that resume, have parts
    of their own."""
    before, now = part._fl_held, _held(part)
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            raise TypeError(
                f"it keeps `{name}` on self, which is not there for another client, in another process, or after a stop: keep what the server "
                "remembers in `server.state`, and what a client remembers with `client.stash`"
            )
