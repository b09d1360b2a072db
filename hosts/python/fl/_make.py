"""One part on arrays, in a loop of one's own: `fl.make`."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _fl
from ._errors import RunError, SpecError

_ROLES = ("aggregator", "attack", "privacy", "selector", "accountant")


def make(name: str, *, role: str | None = None, seed: int | None = None, threads: int | None = None, **settings) -> MadePart:
    """A part, linked, loaded or declared in Python, to be called in a loop of one's own:

        trimmed = fl.make("trimmed-mean", trim=0.2)
        model = trimmed([arrays, ..], weights=[30, 50, ..])

    `settings` are those that a spec has, `_` for `-`. Parts on parameters stand alone: aggregators,
    attacks and mechanisms; and selectors of clients and accountants. `role` is needed where several
    parts have this name. `seed` gives the draws of a part; without one a mechanism's noise comes
    from the operating system, as a guarantee needs it. Results do not depend on `threads`.
    """
    roles = [one for one in _fl.MadePart.roles(name) if one in _ROLES and role in (None, one)]
    if not roles:
        what = role or "aggregator, attack, mechanism, selector or accountant"
        raise SpecError(f"no {what} is called `{name}`; `fl.parts()` lists all")
    if len(roles) > 1:
        raise SpecError(f"`{name}` is {' and '.join(roles)}; say which: role=..")
    [role] = roles
    given = json.dumps({key.replace("_", "-"): value for key, value in settings.items()})
    system = seed is None and role == "privacy"
    try:
        native = _fl.MadePart.make(f"{role} {name}", given, seed or 0, system, threads or os.cpu_count() or 1)
    except ValueError as error:
        raise SpecError(str(error)) from None
    return MadePart(native, role, name)


class MadePart:
    """A part that `fl.make` made. It keeps its state between calls; `save` and `load` carry it
    elsewhere.

    An aggregator or attack is called with the clients' parameters: `part(messages, weights=..,
    sent=..)`. Each message is a mapping from names to arrays, or a list of arrays; they are NumPy
    arrays, tensors of PyTorch, or what NumPy reads, of floats of any width. fl computes with 32
    bits. The answer has the form, and the types, of the first message. `weights` are the clients'
    numbers of examples (default: all the same), `sent` what was sent to them, `class_counts` their
    examples per class and `losses` their training losses, for parts that need these. `numbers` has
    what the part measured in the last call, and what it notes is a warning.

    A mechanism is called with one message, `part(message, clients=10)`, and gives it clipped and
    with the noise of one of so many clients. `spent` has the event of the last call, for an
    accountant.

    A selector is called with the clients, `part([{"id": 0, "samples": 30, "loss": 0.5}, ..])`, and
    gives positions. An accountant is called with events, `part([mechanism.spent])`, and gives what
    all of them so far cost.
    """

    def __init__(self, native: _fl.MadePart, role: str, name: str):
        self._native, self.role, self.name = native, role, name
        self.numbers: dict[str, float] = {}
        self.spent: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<{self.role} {self.name}>"

    def __call__(self, given, *, weights=None, sent=None, class_counts=None, losses=None, ids=None, clients: int = 1):
        try:
            return self._answer(given, weights, sent, class_counts, losses, ids, clients)
        except ValueError as error:
            raise RunError(f"{self.role} `{self.name}`: {error}") from None

    def _answer(self, given, weights, sent, class_counts, losses, ids, clients):
        match self.role:
            case "selector":
                return self._native.select([(one.get("id", at), one.get("samples"), one.get("loss")) for at, one in enumerate(given)])
            case "accountant":
                return json.loads(self._native.charge(json.dumps(list(given))))
            case "privacy":
                form = _Form(given)
                answer, event = self._native.release(form.arrays(given, "the message"), clients)
                self.spent = json.loads(event)
                return self._back(form, answer)
        messages = list(given)
        if not messages:
            raise ValueError("there are no messages")
        form = _Form(messages[0])
        columns = {"weights": weights, "class_counts": class_counts, "losses": losses, "ids": ids}
        for what, column in columns.items():
            if column is not None and len(column) != len(messages):
                raise ValueError(f"{len(column)} {what} for {len(messages)} messages")
        mail = [
            (
                int(ids[at]) if ids is not None else at,
                float(weights[at]) if weights is not None else 1.0,
                [int(n) for n in class_counts[at]] if class_counts is not None else None,
                float(losses[at]) if losses is not None else None,
                form.arrays(message, f"message {at}"),
            )
            for at, message in enumerate(messages)
        ]
        before = None if sent is None else form.arrays(sent, "what was sent")
        return self._back(form, self._native.aggregate(mail, before))

    def _back(self, form: _Form, answer):
        arrays, notes, numbers = answer
        self.numbers = dict(numbers)
        for note in notes:
            warnings.warn(f"{self.role} `{self.name}`: {note}", stacklevel=4)
        return form.back(arrays)

    def save(self) -> bytes:
        """What the part keeps between calls, and how many there were."""
        rounds, state = self._native.save()
        return rounds.to_bytes(8, "little") + state

    def load(self, state: bytes) -> None:
        """Goes on where `save` was."""
        if len(state) < 8:
            raise ValueError("not what `save` gave")
        self._native.load(int.from_bytes(state[:8], "little"), state[8:])


class _Form:
    """How a user gives parameters, and gets them back."""

    def __init__(self, first):
        self.named = isinstance(first, Mapping)
        if not self.named and not (isinstance(first, Sequence) and not isinstance(first, (str, bytes))):
            raise ValueError(f"a message is a mapping from names to arrays, or a list of arrays, not {type(first).__name__}")
        self.names = list(first) if self.named else [f"{at:06}" for at in range(len(first))]
        self.like = dict(zip(self.names, first.values() if self.named else first, strict=True))

    def arrays(self, message, what: str) -> list[tuple[str, np.ndarray]]:
        if isinstance(message, Mapping) != self.named:
            raise ValueError(f"{what} has another form than the first message")
        if self.named:
            named = list(message.items())
            if {name for name, _ in named} != set(self.names):
                raise ValueError(f"{what} has other names than the first message: {', '.join(map(str, message))}")
        else:
            if len(message) != len(self.names):
                raise ValueError(f"{what} has {len(message)} arrays, and the first message {len(self.names)}")
            named = list(zip(self.names, message, strict=True))
        return [(str(name), _single(str(name), array)) for name, array in named]

    def back(self, arrays):
        found = {name: _like(self.like[name], np.asarray(buffer)) for name, buffer in arrays}
        return {name: found[name] for name in self.names} if self.named else [found[name] for name in self.names]


def _is_tensor(array) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _single(name: str, array) -> np.ndarray:
    """An array of 32-bit floats in row order."""
    if _is_tensor(array):
        if not array.is_floating_point():
            raise ValueError(f"`{name}` is of {array.dtype}; leave it out, parameters are floats")
        array = array.detach().float().cpu().numpy()
    array = np.asarray(array)
    if array.dtype.kind != "f":
        raise ValueError(f"`{name}` is of {array.dtype}; leave it out, parameters are floats")
    with np.errstate(over="ignore"):  # fl says which number is not finite
        # a single number gets a dimension, which it loses on its way back
        return np.ascontiguousarray(array, dtype=np.float32)


def _like(first, array: np.ndarray):
    """As the first message had it: a tensor of its type and device, or an array of its type."""
    if _is_tensor(first):
        import torch

        return torch.from_numpy(array.copy()).to(first.device, first.dtype).reshape(first.shape)
    first = np.asarray(first)
    return array.reshape(first.shape).astype(first.dtype, copy=False)
