"""What the methods of a protocol change on its class, in globals or in closures, where no state
holds it."""

from __future__ import annotations

import types
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

from .._parts import state as _state
from .declarations import Exchange, Part, Slot

#: How many calls of each class are looked at.
_CALLS = 20


class _Seen:
    def __init__(self, before: dict[str, Any]):
        self.before, self.left = before, _CALLS


_SEEN: weakref.WeakKeyDictionary[type, _Seen] = weakref.WeakKeyDictionary()


def begin(part: Part) -> None:
    """Remembers what the methods of its class can reach, before the first call."""
    cls = type(part)
    if cls not in _SEEN:
        _SEEN[cls] = _Seen(_read(cls))


def warn_of_changes(part: Part, who: str) -> None:
    """Says what has changed, once for each class."""
    cls = type(part)
    seen = _SEEN.get(cls)
    if seen is None or seen.left <= 0:
        return
    seen.left -= 1
    now = _read(cls)
    changed = sorted(name for name in {**seen.before, **now} if seen.before.get(name) != now.get(name))
    if changed:
        seen.left = 0
        warnings.warn(
            f"{who}: {', '.join(changed)} changes while it runs, and another run, another process and a run after a stop have other values: "
            "keep what the server remembers in `server.state`, and what a client remembers with `client.stash`",
            stacklevel=2,
        )


def _read(cls: type) -> dict[str, Any]:
    """Values on the class, and those that its functions name, as far as they can be written."""
    found: dict[str, Any] = {}
    for name, value in _values(cls):
        try:
            found[name] = _state.save({"": value})
        except Exception:  # no state, or another thread changes it
            found[name] = id(value)
    return found


def _values(cls: type) -> Iterator[tuple[str, Any]]:
    left: list[types.FunctionType] = []
    for base in cls.__mro__:
        if base is object or base.__module__.partition(".")[0] == "fl":
            continue
        for name, value in vars(base).items():
            function = value.answer if isinstance(value, Exchange) else getattr(value, "__func__", value)
            if isinstance(function, types.FunctionType):
                left.append(function)
            elif not name.startswith(("__", "_fl")) and not isinstance(value, Slot):
                yield f"`{base.__name__}.{name}`", value
    seen: set[int] = set()
    while left:
        function = left.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        for name, value in _named(function):
            if isinstance(value, types.FunctionType) and value.__module__ == cls.__module__:
                left.append(value)
            elif not isinstance(value, (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, Exchange, Slot)):
                yield f"`{name}` of {function.__module__}", value


def _named(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The globals that it names, also inside of functions in it, and what its closure holds."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is empty
            continue
