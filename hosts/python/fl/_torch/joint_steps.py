"""Clients with equal networks that train at the same time take their steps together, for
`fl.torch`."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch

from .._parts.arguments import Pass, Shape

#: A `fl.torch.Trainer`, which stands on this file.
Trainer: TypeAlias = Any


def _arguments(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a network, by position and by name, in what `collate` gives."""
    if isinstance(given, Mapping):
        return (), dict(given)
    return (given if isinstance(given, tuple) else (given,)), {}


def _called(model: torch.nn.Module, given: Any) -> Any:
    """What a network gives for what `collate` gives."""
    positional, named = _arguments(given)
    return model(*positional, **named)


def _scores(output, task) -> torch.Tensor:
    """The scores in what a network gives, a row for each sample. Where pixels have classes, they
    may be `samples x classes x height x width`, or `samples x classes x positions`."""
    if not isinstance(output, torch.Tensor):
        if hasattr(output, "logits"):
            output = output.logits
        elif isinstance(output, dict) and "logits" in output:
            output = output["logits"]
        elif isinstance(output, (tuple, list)) and output:
            output = output[0]
    if not isinstance(output, torch.Tensor):
        raise TypeError(f"net() gives {type(output).__name__}; it must give scores as a tensor, first in a tuple, or as `.logits`")
    if task.pixels and output.dim() > 2:
        known = task.outputs // task.pixels
        if output.shape[1] != known:
            raise Shape(f"net() gives scores of shape {list(output.shape)}, and the {known} classes must be its second dimension, before the pixels or positions")
        output = output.flatten(1)
    return output


class _Seat:
    """A client that trains, and what comes of it."""

    def __init__(self, trainer: Trainer, learning: Any, how: Pass):
        self.trainer, self.learning, self.how = trainer, learning, how
        self.batch: tuple[Any, ...] | None = None
        self.done: tuple[int, float] | None = None
        self.error: BaseException | None = None
        self.send(None)

    def send(self, value: float | None) -> None:
        """The loss of its last mini-batch, whose gradients are there; it takes its step and the
        next one."""
        try:
            self.batch = self.learning.send(value)
        except StopIteration as end:
            self.batch, self.done = None, end.value
        except BaseException as error:  # its own call raises it
            self.batch, self.error = None, error


class _Together:
    """Clients with equal networks, whose trainings are called at the same time, take their steps
    together. Whoever calls last trains all of them; the others wait."""

    #: Whoever waits for others begins after so many seconds in which none came.
    PAUSE = 0.05

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.tables: dict[Any, list[_Seat]] = {}
        self.alone: set[type] = set()

    def fit(self, trainer: Trainer, learning: Any, how: Pass) -> tuple[int, float]:
        seat = _Seat(trainer, learning, how)
        key = (trainer._fl_made.arguments[:3], how.target, how.loss, how.tau)
        mine: list[_Seat] = []
        if seat.error is not None:
            raise seat.error
        if seat.done is not None:
            return seat.done
        with self.changed:
            table = self.tables.setdefault(key, [])
            table.append(seat)
            self.changed.notify_all()
            while seat in table:
                seats = len(table)
                if seats >= trainer.together or (not self.changed.wait(self.PAUSE) and seats == len(table)):
                    mine = self.tables.pop(key)[:]
                    table.clear()
            if not mine:
                self.changed.wait_for(lambda: seat.batch is None)
        if mine:
            try:
                self.train(mine)
            finally:
                with self.changed:
                    for one in mine:
                        if one.batch is not None:
                            one.batch, one.error = None, RuntimeError("the training beside it was stopped")
                    self.changed.notify_all()
        if seat.error is not None:
            raise seat.error
        assert seat.done is not None
        return seat.done

    def train(self, seats: list[_Seat]) -> None:
        while busy := [seat for seat in seats if seat.batch is not None]:
            sizes: dict[int, list[_Seat]] = {}
            for seat in busy:
                sizes.setdefault(len(seat.batch[1]), []).append(seat)  # type: ignore[index]
            for group in sizes.values():
                values = self.slopes(group) if len(group) > 1 and type(group[0].trainer) not in self.alone else None
                for at, seat in enumerate(group):
                    try:
                        value = values[at] if values else seat.trainer._slopes(*seat.batch, seat.how)  # type: ignore[misc]
                    except BaseException as error:
                        seat.batch, seat.error = None, error
                        continue
                    seat.send(value)

    def slopes(self, group: list[_Seat]) -> list[float] | None:
        """Losses of a mini-batch of each, and their gradients in the networks; `None`: it is
        a network that cannot do this, and nothing has changed."""
        nets = [seat.trainer._model for seat in group]
        first, how = group[0].trainer, group[0].how

        def loss(parameters, buffers, batch, wanted):
            given, named = _arguments(first.collate(batch))
            return first.loss(_scores(torch.func.functional_call(first._model, (parameters, buffers), given, named), first.task), wanted, how)

        try:
            parameters, buffers = torch.func.stack_module_state(nets)
            batches, targets = (torch.stack([seat.batch[at] for seat in group]) for at in (0, 1))  # type: ignore[index]
            before = [buffer._version for buffer in buffers.values()]
            losses = torch.func.vmap(loss)(parameters, buffers, batches, targets)
            if before != [buffer._version for buffer in buffers.values()]:  # of copies
                return self.leave(type(first), "its forward() wrote into a buffer after its first step")
            trained = {name: p for name, p in parameters.items() if p.requires_grad}
            slopes = torch.autograd.grad(losses.sum(), list(trained.values()), allow_unused=True)
        except (RuntimeError, ValueError, NotImplementedError) as error:
            return self.leave(type(first), f"`torch.func.vmap` says: {error}")
        for at, net in enumerate(nets):
            own = dict(net.named_parameters())
            for name, slope in zip(trained, slopes):
                own[name].grad = None if slope is None else slope[at]
        return losses.tolist()

    def leave(self, of: type, why: str) -> None:
        """Networks of this class train one by one from now on."""
        self.alone.add(of)
        warnings.warn(f"{of.__name__} trains one client at a time, for {why}", stacklevel=3)


_TOGETHER = _Together()
