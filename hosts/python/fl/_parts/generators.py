"""The generators that a process has once: Python's `random`, numpy's and PyTorch's.

A call of a part has them to itself, with a seed of the run, and leaves them as they were. So what a
part draws past its stream is the same in every run too.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from .._errors import HERE

_LOCK = threading.RLock()
_ACTIVE = threading.local()
_BUSY: set[int] = set()  # the thread whose section or copies have the generators


def _unlocked() -> None:
    """In a forked process no other thread holds the lock."""
    global _LOCK
    _LOCK = threading.RLock()
    _ACTIVE.sections, _ACTIVE.taken = [], 0
    _BUSY.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlocked)


class _Generator(NamedTuple):
    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    seed: Callable[[int], object]
    mark: Callable[[], Any]
    """Something that is another after a draw; faster than `read`."""


def _seed_numpy(seed: int) -> None:
    try:
        np.random.seed(seed % 2**32)
    except TypeError:  # a bit generator of the user's own, which takes no such seed
        np.random.set_bit_generator(np.random.MT19937(seed))


def _numpy_mark() -> Any:
    bits = np.random.get_bit_generator()
    if isinstance(bits, np.random.MT19937):
        return ctypes.string_at(bits.ctypes.state_address, 625 * 4)  # its numbers, and where it is
    return np.random.get_state(legacy=False)


_PYTHON = _Generator("Python's `random`", random.getstate, random.setstate, random.seed, random.getstate)
_NUMPY = _Generator("numpy's", lambda: np.random.get_state(legacy=False), np.random.set_state, _seed_numpy, _numpy_mark)


def _generators() -> list[_Generator]:
    found = [_PYTHON, _NUMPY]
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "default_generator"):  # it is being imported
        return found
    all = [("PyTorch's", torch.default_generator)]
    if torch.cuda.is_initialized():
        all += [(f"PyTorch's for cuda:{at}", one) for at, one in enumerate(torch.cuda.default_generators)]
    if torch.backends.mps.is_available():
        all.append(("PyTorch's for mps", torch.mps._get_default_mps_generator()))
    return found + [_Generator(name, one.get_state, one.set_state, one.manual_seed, one.get_state) for name, one in all]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    same = one == other
    return bool(same.all() if hasattr(same, "all") else same)


class Section:
    """Code that has the generators to itself, with this seed; all other code waits. Inside another
    section only PyTorch's get the seed, for those of Python and numpy are slow to set, unless it is
    a `whole` one."""

    def __init__(self, seed: int, whole: bool = False):
        self.seed, self.whole = seed, whole
        self.moved: list[str] = []
        """The generators that it has drawn from, when it is over."""

    def __enter__(self) -> Section:
        _take()
        self.all = _generators()
        self.own = self.all[2:] if _sections() and not self.whole else self.all
        self.outer = [one.read() for one in self.own]
        for one in self.own:
            one.seed(self.seed)
        self.first = [one.mark() for one in self.all]
        _sections().append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _sections().remove(self)
        self.moved = [one.name for one, first in zip(self.all, self.first) if not _same(first, one.mark())]
        self._restore(self.outer)
        _give()

    def suspend(self) -> None:
        self.paused = [one.read() for one in self.own]
        self._restore(self.outer)
        _give()

    def resume(self) -> None:
        _take()
        self.outer = [one.read() for one in self.own]
        self._restore(self.paused)

    def _restore(self, states: list[Any]) -> None:
        for one, state in zip(self.own, states):
            one.write(state)


def _take() -> None:
    _LOCK.acquire()
    _ACTIVE.taken = getattr(_ACTIVE, "taken", 0) + 1
    _BUSY.add(threading.get_ident())


def _give() -> None:
    _ACTIVE.taken -= 1
    if not _ACTIVE.taken:
        _BUSY.discard(threading.get_ident())
    _LOCK.release()


def _sections() -> list[Section]:
    if not hasattr(_ACTIVE, "sections"):
        _ACTIVE.sections = []
    return _ACTIVE.sections


@contextmanager
def paused() -> Iterator[None]:
    """While a part waits for the program, other parts may have the generators."""
    mine, _ACTIVE.sections = _sections(), []
    for one in reversed(mine):
        one.suspend()
    try:
        yield
    finally:
        for one in mine:
            one.resume()
        _ACTIVE.sections = mine


@contextmanager
def alone() -> Iterator[None]:
    """No other code has the generators meanwhile."""
    _take()
    try:
        yield
    finally:
        _give()


def _states() -> dict[str, Any] | None:
    """What the generators stand at; `None`: other code has them now."""
    if _BUSY - {threading.get_ident()}:
        return None
    with _LOCK:
        return {one.name: one.mark() for one in _generators()}


def _others_draw() -> bool:
    """Does code beside fl run in another thread, which may have drawn?"""
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is None or thread.ident == threading.get_ident() or isinstance(thread, threading._DummyThread):
            continue
        if not frame.f_code.co_filename.startswith((HERE, threading.__file__)):
            return True
    return False


@contextmanager
def watched(who: str) -> Iterator[None]:
    """Code that is known to draw nothing, and runs beside other such code."""
    before = _states()
    yield
    if before is None or (after := _states()) is None:
        return
    moved = [name for name, state in before.items() if name in after and not _same(state, after[name])]
    if not moved:
        return
    text = (
        f"{who} drew from {' and '.join(moved)} generator{'s' * (len(moved) > 1)}, though at first it drew nothing, so another run "
        "would have other results: draw from `stream`, or write `draws = True` in the class"
    )
    if not _others_draw():
        raise RuntimeError(text)
    warnings.warn(f"{text} (unless another thread of this process drew)", stacklevel=2)
