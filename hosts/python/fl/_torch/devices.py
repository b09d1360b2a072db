"""Where PyTorch computes for `fl.torch`: on one thread, exactly, with generators of its own, and
with what stays on a card."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch

from .._parts import generators
from .._parts.arguments import number_of

#: A `fl.torch.Trainer`, which stands on this file.
Trainer: TypeAlias = Any


class _OneThread:
    """PyTorch adds in the same order only on one thread, and its default type is that of new
    parameters. Both are said once for a process, so the first call says one thread and 32-bit
    floats, and the last says what was before."""

    def __init__(self):
        self.lock, self.calls = threading.Lock(), 0

    def __enter__(self):
        with self.lock:
            if self.calls == 0:
                self.before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), _exact(), torch.get_default_dtype()
                torch.set_default_dtype(torch.float32)
                torch.use_deterministic_algorithms(True, warn_only=True)
            self.calls += 1
            if torch.get_num_threads() != 1:  # a thread asks for itself the first time
                torch.set_num_threads(1)

    def __exit__(self, *_):
        with self.lock:
            self.calls -= 1
            if self.calls == 0:
                torch.set_num_threads(self.before[0])
                torch.use_deterministic_algorithms(self.before[1])
                torch.set_default_dtype(self.before[3])
                for holder, name, value in self.before[2]:
                    setattr(holder, name, value)


def _exact() -> list[tuple[Any, str, Any]]:
    """Turns TF32 off, which rounds products to ten bits; gives what was set."""
    backends = torch.backends
    if hasattr(backends.cuda.matmul, "fp32_precision"):
        wanted = [(holder, "fp32_precision", "ieee") for holder in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)]
    else:
        wanted = [(backends.cuda.matmul, "allow_tf32", False), (backends.cudnn, "allow_tf32", False)]
    before = [(holder, name, getattr(holder, name)) for holder, name, _ in wanted]
    for holder, name, value in wanted:
        setattr(holder, name, value)
    return before


_ONE = _OneThread()


@contextmanager
def _drawing(seed: int, device: str = "cpu", whole: bool = False):
    """Code that draws from the generators of the process has them alone, that of this device
    too."""
    if device.startswith("cuda"):
        torch.cuda.init()
    with generators.Section(seed, whole):
        yield


def _repeatable(device: str) -> None:
    """cuBLAS adds in one order only with a workspace of its own, which must be said before its
    first product."""
    if os.environ.get("CUBLAS_WORKSPACE_CONFIG") in (":4096:8", ":16:8"):
        return
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        warnings.warn(
            "CUBLAS_WORKSPACE_CONFIG is not :4096:8, and PyTorch has used a card in this process already, so sums on it may differ from run to "
            "run; set it before Python starts, or import and run fl first",
            stacklevel=2,
        )
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"



def _size(tensors: Iterable[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))


class _Cards:
    """Which networks and which samples are on a card. When those on a card would take more than
    their share of it, first samples go, and then networks with their optimisers to the processor's
    memory, the least recently used ones first."""

    def __init__(self):
        self.lock = threading.RLock()
        self.held: dict[str, OrderedDict[int, weakref.ref[Trainer]]] = {}
        self.users: Counter[int] = Counter()
        self.samples: dict[str, OrderedDict[Any, torch.Tensor]] = {}
        self.alive: dict[str, weakref.WeakSet[Trainer]] = {}

    def keeps(self, trainer: Trainer, x: np.ndarray) -> bool:
        """Do these samples stay on the trainer's card, so that nothing may write into them?"""
        return number_of(x) is not None and self.limit(trainer.device, trainer.device_memory) is not None

    def inputs(self, trainer: Trainer, x: np.ndarray, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """These samples on the trainer's card: those of a call before, or what `make` gives, which
        stays if there is room."""
        if not self.keeps(trainer, x):
            return make()
        key = number_of(x), trainer._kind
        with self.lock:
            here = self.samples.setdefault(trainer.device, OrderedDict())
            if key in here:
                here.move_to_end(key)
                return here[key]
        made = make()
        with self.lock:
            nets = [one for ref in self.held.get(trainer.device, {}).values() if (one := ref()) is not None]
            limit = self.limit(trainer.device, trainer.device_memory) or 0
            room = limit - sum(one._bytes() for one in nets) - _size(here.values()) - _size([made])
            if self.drop(here, room) >= 0:
                here[key] = made
        return made

    def drop(self, samples: OrderedDict[Any, torch.Tensor], room: float) -> float:
        """Makes room, if there is less than none; says how much there is then."""
        while room < 0 and samples:
            room += _size([samples.popitem(last=False)[1]])
        return room

    def gone(self, device: str) -> None:
        """With the last trainer of a run its samples go."""
        with self.lock:
            if not [*self.alive.get(device, ())]:  # one that goes is still counted by `len`
                self.samples.pop(device, None)

    def limit(self, device: str, share: float) -> float | None:
        """Bytes that networks may take of this device; `None` if there is no limit."""
        return share * torch.cuda.mem_get_info(device)[1] if device.startswith("cuda") else None

    @contextmanager
    def use(self, trainer: Trainer):
        """The trainer's network is on its card and stays there."""
        limit = self.limit(trainer.device, trainer.device_memory)
        if limit is None:
            trainer._move(trainer.device)
            yield
            return
        with self.lock:
            held = self.held.setdefault(trainer.device, OrderedDict())
            held.pop(id(trainer), None)
            self.users[id(trainer)] += 1
            alive = self.alive.setdefault(trainer.device, weakref.WeakSet())
            if trainer not in alive:
                alive.add(trainer)
                weakref.finalize(trainer, self.gone, trainer.device).atexit = False
            here = {at: one for at, ref in held.items() if (one := ref()) is not None}
            samples = self.samples.setdefault(trainer.device, OrderedDict())
            room = limit - trainer._bytes() - sum(one._bytes() for one in here.values()) - _size(samples.values())
            room = self.drop(samples, room)
            for at in [*held]:
                if at not in here:  # it is no more
                    del held[at]
                elif room < 0 and not self.users[at]:
                    room += here[at]._bytes()
                    here[at]._move("cpu")
                    del held[at]
            held[id(trainer)] = weakref.ref(trainer)
            trainer._move(trainer.device)
        try:
            yield
        finally:
            with self.lock:
                self.users[id(trainer)] -= 1
                self.users += Counter()  # without zeros


_CARDS = _Cards()
