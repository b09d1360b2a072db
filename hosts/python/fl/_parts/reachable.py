"""What can be reached from some objects: values in attributes, lists, mappings and closures.

`fl.torch` keeps what changes there besides parameters and moments: a counter of a module, a buffer
with `persistent=False`, a schedule that only a hook of the optimiser knows.
"""

from __future__ import annotations

import collections
import copy
import functools
import random
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from . import state as _state

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_FILLED = (list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict, collections.Counter, collections.defaultdict)
_MOST = 100_000  # objects that are looked at
Path = tuple[Any, ...]
"""Names of attributes, positions and keys."""


class Unkept(TypeError):
    """A value that changes and cannot be written down, or has no place in a new part."""


class _Place(NamedTuple):
    """Where a value is."""

    owner: Any
    value: Any
    put: Callable[[Any], object] | None
    """Puts another value there; `None`: the value can only be changed itself."""


def shown(path: Path) -> str:
    """As in a program: `_model.body[0].step`."""
    text = ""
    for step in path:
        if step in ("_modules", "_parameters", "_buffers", "__self__", "__func__", "__dict__"):
            continue
        text += f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]"
    return text.removeprefix(".")


def _generator(value: Any) -> tuple[Callable[[], Any], Callable[[Any], object]] | None:
    """How the state of a generator of random numbers is read and set."""
    if isinstance(value, np.random.Generator):
        value = value.bit_generator
    if isinstance(value, np.random.BitGenerator):
        return lambda: value.state, lambda state: setattr(value, "state", state)
    if isinstance(value, np.random.RandomState):
        return lambda: value.get_state(legacy=False), value.set_state
    if isinstance(value, random.Random):
        return value.getstate, value.setstate
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Generator):
        return value.get_state, value.set_state
    return None


def _tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _plain(value: Any, deep: int = 20) -> bool:
    if isinstance(value, _PLAIN) or isinstance(value, np.generic):
        return True
    if deep and type(value) in _FILLED:
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        return all(_plain(one, deep - 1) for one in inner)
    return False


class Graph:
    """The values that can be reached from these objects, by their paths."""

    def __init__(self, roots: dict[str, Any], known: Iterable[Any] = (), skip: Callable[[Any], Iterable[str]] = lambda _: ()):
        self.values: dict[Path, _Place] = {}
        self.owners: dict[Path, Any] = {}
        self._seen = {id(one) for one in known}
        self._skip = skip
        left = [((name,), roots[name], _Place(None, roots[name], None)) for name in reversed(roots)]
        while left and len(self._seen) < _MOST:
            path, value, place = left.pop()
            left += reversed([*self._look(path, value, place)])

    def _look(self, path: Path, value: Any, place: _Place) -> Iterable[tuple[Path, Any, _Place]]:
        if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType)) or id(value) in self._seen:
            return
        if _plain(value):
            self.values[path] = place
            return
        self._seen.add(id(value))
        self.owners[path] = value
        if isinstance(value, np.ndarray) or _tensor(value) or _state.is_jax(value) or _generator(value) or hasattr(type(value), "__next__"):
            self.values[path] = place
        elif isinstance(value, dict):
            for at, (key, one) in enumerate(value.items()):
                # other keys, such as the numbers of hooks, are others in another part
                yield (*path, key if isinstance(key, str) else at), one, _Place(value, one, functools.partial(value.__setitem__, key))
        elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
            for at, one in enumerate(value):
                put = functools.partial(value.__setitem__, at) if isinstance(value, (list, collections.deque)) else None
                yield (*path, at), one, _Place(value, one, put)
        elif isinstance(value, types.FunctionType):
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
                try:
                    one = cell.cell_contents
                except ValueError:  # it is empty
                    continue
                yield (*path, name), one, _Place(value, one, functools.partial(setattr, cell, "cell_contents"))
            for at, one in enumerate(value.__defaults__ or ()):
                if not _plain(one) or isinstance(one, (list, dict, set, collections.deque)):
                    yield (*path, "__defaults__", at), one, _Place(value, one, None)
            for name, one in (value.__kwdefaults__ or {}).items():
                if not _plain(one) or isinstance(one, (list, dict, set, collections.deque)):
                    yield (*path, name), one, _Place(value, one, None)
            if vars(value):
                yield (*path, "__dict__"), vars(value), _Place(value, vars(value), None)
        elif isinstance(value, types.MethodType):
            yield (*path, "__self__"), value.__self__, _Place(value, value.__self__, None)
            yield (*path, "__func__"), value.__func__, _Place(value, value.__func__, None)
        elif isinstance(value, functools.partial):
            for name in ("func", "args", "keywords"):
                yield (*path, name), getattr(value, name), _Place(value, getattr(value, name), None)
        elif hasattr(value, "__dict__"):
            not_here = {*self._skip(value)}
            for name, one in vars(value).items():
                if name not in not_here:
                    yield (*path, name), one, _Place(value, one, functools.partial(_set, value, name))

    # ---- values as they can be written down

    def read(self) -> dict[Path, Any]:
        """Copies of all values."""
        return {path: _copied(_visible(place.value)) for path, place in self.values.items()}

    def changed(self, before: dict[Path, Any]) -> dict[Path, Any]:
        """Copies of the values that are not as they were."""
        now = ((path, _visible(place.value)) for path, place in self.values.items())
        return {path: _copied(value) for path, value in now if path not in before or not same(before[path], value)}

    def is_value(self, path: Path) -> bool:
        """Is this a value, and no iterator or generator of random numbers?"""
        value = self.values[path].value
        return _generator(value) is None and not hasattr(type(value), "__next__")

    def write(self, values: dict[Path, Any]) -> None:
        """Puts values to their places."""
        for path, value in values.items():
            if (place := self.values.get(path)) is not None:
                _put(path, place, value)
            elif path[:-1] in self.owners:
                _add(path, self.owners[path[:-1]], value)
            else:
                raise Unkept(f"`{shown(path)}` is new, and a part that is made anew has no place for it")


class Opaque:
    """Stands for an iterator, which cannot be written down."""

    def __init__(self, value: Any):
        self.kind, self.stands = type(value).__name__, _stands(value)


def _stands(value: Any) -> str:
    """Where an iterator is, if that can be seen."""
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        held = {} if frame is None else frame.f_locals
        inner = [f"{name}={_stands(one) if hasattr(type(one), '__next__') else repr(one) if _plain(one) else ''}" for name, one in held.items()]
        return f"{frame and frame.f_lasti} {inner}"
    try:
        return repr(value.__reduce__())
    except (TypeError, AttributeError, NotImplementedError):
        return ""


def _visible(value: Any) -> Any:
    """What is to be written down of a value."""
    if (generator := _generator(value)) is not None:
        return generator[0]()
    return Opaque(value) if hasattr(type(value), "__next__") else value


def _copied(value: Any) -> Any:
    return value.detach().cpu().clone() if _tensor(value) else copy.deepcopy(value)


def same(one: Any, other: Any) -> bool:
    """Are two copies equal, bit by bit? The order of a mapping does not count."""
    if type(one) is not type(other) and not (_tensor(one) and _tensor(other)):
        return False
    if isinstance(one, Opaque):
        return (one.kind, one.stands) == (other.kind, other.stands)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple, collections.deque)):
        return len(one) == len(other) and all(map(same, one, other))
    if _tensor(one):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        one, other = (each.detach().cpu().contiguous().flatten() for each in (one, other))
        try:
            return _bits(one) == _bits(other)
        except (TypeError, RuntimeError):  # a type that numpy lacks
            return bool((one == other).all())
    if _state.is_jax(one):
        one, other = np.asarray(one), np.asarray(other)
    if isinstance(one, (np.ndarray, np.generic)):
        return one.dtype == other.dtype and one.shape == other.shape and (one.tobytes() == other.tobytes() if one.dtype != object else bool((one == other).all()))
    return one == other or (one != one and other != other)


def _bits(tensor: Any) -> bytes:
    torch = sys.modules["torch"]
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy().tobytes()


def _set(owner: Any, name: str, value: Any) -> None:
    # a class may have rules of its own for attributes
    try:
        setattr(owner, name, value)
    except (AttributeError, TypeError):
        vars(owner)[name] = value


def _put(path: Path, place: _Place, value: Any) -> None:
    held = place.value
    if (generator := _generator(held)) is not None:
        generator[1](value)
    elif _tensor(held) and _tensor(value) and held.shape == value.shape and held.dtype == value.dtype:
        with sys.modules["torch"].no_grad():
            held.copy_(value)
    elif isinstance(held, np.ndarray) and isinstance(value, np.ndarray) and held.shape == value.shape and held.dtype == value.dtype and held.flags.writeable:
        held[...] = value
    elif type(held) is type(value) and isinstance(held, (list, collections.deque)):
        held.clear()
        held.extend(value)
    elif type(held) is type(value) and isinstance(held, (dict, set)):
        held.clear()
        held.update(value)
    elif place.put is not None:
        place.put(value)
    else:
        raise Unkept(f"`{shown(path)}` cannot be set")


def _add(path: Path, owner: Any, value: Any) -> None:
    name = path[-1]
    if isinstance(owner, list) and name == len(owner):
        owner.append(value)
    elif isinstance(owner, dict) and isinstance(name, str):
        owner[name] = value
    elif hasattr(owner, "__dict__") and isinstance(name, str) and not isinstance(owner, types.FunctionType):
        _set(owner, name, value)
    else:
        raise Unkept(f"`{shown(path)}` is new, and a part that is made anew has no place for it")


def written(values: dict[Path, Any]) -> dict[Path, Any]:
    """The same values, if all of them can be written down."""
    for path, value in values.items():
        if isinstance(value, Opaque):
            raise Unkept(f"training changes `{shown(path)}` ({value.kind}), which cannot be written down")
        try:
            _state.check(value)
        except _state.Unsavable as error:
            raise Unkept(f"training changes `{shown(path)}` ({error.kind}), which cannot be written down") from None
    return values
