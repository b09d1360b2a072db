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
from ._parts.arrays import not_masked
from ._spec import flow

_SEEDED = "an estimate, and no guarantee: who knows the seed can remove the noise"
_ROLES = ("aggregator", "attack", "privacy", "selector", "accountant")


def make(name: str, *, plugins=(), role: str | None = None, seed: int | None = None, threads: int | None = None, **settings) -> MadePart:
    """A part, linked, loaded or declared in Python, to be called in a loop of one's own:

        trimmed = fl.make("trimmed-mean", trim=0.2)
        model = trimmed([arrays, ..], weights=[30, 50, ..])

    `settings` are those that a spec has, `_` for `-`. Aggregators, attacks, mechanisms, selectors
    of clients and accountants stand alone. `plugins` names libraries, packages and modules as a
    spec does; a path alone is a library: `plugins=["target/release/libmine.so"]`. `role` is needed
    where several parts have this name. `seed` gives the draws of a part; without one a mechanism's
    noise comes from the operating system, as a guarantee needs it. Results do not depend on
    `threads`.
    """
    if isinstance(plugins, (str, os.PathLike, Mapping)):
        plugins = [plugins]
    named = flow([one if isinstance(one, Mapping) else {"path": one} for one in plugins])
    try:
        roles = [one for one in _fl.MadePart.roles(name, named) if one in _ROLES and role in (None, one)]
    except ValueError as error:
        raise SpecError(str(error)) from None
    if not roles:
        what = role or "aggregator, attack, mechanism, selector or accountant"
        raise SpecError(f"no {what} is called `{name}`; `fl.parts()` lists all, and `plugins=[..]` brings those of a library")
    if len(roles) > 1:
        raise SpecError(f"`{name}` is {' and '.join(roles)}; say which: role=..")
    [role] = roles
    given = json.dumps({key.replace("_", "-"): value for key, value in settings.items()})
    system = seed is None and role == "privacy"
    try:
        native = _fl.MadePart.make(f"{role} {name}", given, named, seed or 0, system, threads or os.cpu_count() or 1)
    except ValueError as error:
        raise SpecError(str(error)) from None
    return MadePart(native, role, name, seeded=role == "privacy" and not system)


class MadePart:
    """A part that `fl.make` made. It keeps its state between calls; `save` and `load` carry it
    elsewhere.

    An aggregator or attack is called with the clients' messages: `part(messages, weights=..,
    sent=..)`. Each message is a mapping from names to arrays; they are NumPy arrays, tensors of
    PyTorch, or what NumPy reads. Parameters may be a list of arrays too, and are floats of any
    width; fl computes with 32 bits. Messages of another `kind` have the tensors that MESSAGES.md
    lists, such as `rows` and `values`; without `rows` all clients speak of the same rows, in order.
    The answer has the form, and the types, of the first message; what that lacks is NumPy's. fl
    copies the numbers of a message once, and those of parameters in the answer never. `weights` are
    the clients' numbers of examples (default: all the same), `sent` what was sent to them,
    `class_counts` their examples per class and `losses` their training losses, for parts that need
    these. `numbers` has what the part measured in the last call, and what it notes is a warning.

    A mechanism is called with one message, `part(message, clients=10)`, and gives it clipped and
    with the noise of one of so many clients. `spent` has the event of the last call, for an
    accountant; where a `seed` was given it says `"noise": "seeded"`.

    A selector is called with the clients, `part([{"id": 0, "samples": 30, "loss": 0.5}, ..])`, and
    gives positions. An accountant is called with events, `part([mechanism.spent])`, and gives what
    all of them so far cost. If noise of one of them was seeded, the cost says so, and a warning.
    """

    def __init__(self, native: _fl.MadePart, role: str, name: str, seeded: bool = False):
        self._native, self.role, self.name = native, role, name
        #: Is its noise that of a seed? Of an accountant: was such noise charged?
        self._seeded = seeded
        #: The kind of messages that it takes, such as `params` or `soft-labels`.
        self.kind: str | None = native.kind()
        self.numbers: dict[str, float] = {}
        self.spent: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<{self.role} {self.name}>"

    def __reduce__(self):
        raise TypeError(f"{self.role} `{self.name}` cannot be copied: make another one, and let it `load` what `save` gives")

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
                return self._charged(list(given))
            case "privacy":
                form = _Form(given, self.kind)
                answer, event = self._native.release(form.arrays(given, "the message"), clients)
                self.spent = json.loads(event) | ({"noise": "seeded"} if self._seeded else {})
                return self._back(form, answer)
        messages = list(given)
        if not messages:
            raise ValueError("there are no messages")
        form = _Form(messages[0], self.kind)
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

    def _charged(self, events: list[Any]) -> dict[str, Any]:
        seeded = [isinstance(event, Mapping) and event.get("noise") == "seeded" for event in events]
        plain = [{name: value for name, value in event.items() if name != "noise"} if of else event for event, of in zip(events, seeded, strict=True)]
        cost = json.loads(self._native.charge(json.dumps(plain)))
        self._seeded |= any(seeded)
        cost.pop("noise", None)  # which an event says
        if self._seeded:
            cost["noise"] = "seeded"
            warnings.warn(f"{self.role} `{self.name}`: {_SEEDED}", stacklevel=4)
        return cost

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
    """How a user gives messages of a kind, and gets them back."""

    def __init__(self, first, kind: str):
        #: Types of tensors by their names; `*` stands for any name.
        self.kind, self.types = kind, dict(_fl.columns(kind))
        self.open = "*" in self.types or not self.types
        self.named = isinstance(first, Mapping)
        listed = isinstance(first, Sequence) and not isinstance(first, (str, bytes))
        if not self.named and not (self.open and listed):
            what = "a mapping from names to arrays, or a list of arrays" if self.open else f"of {kind}: a mapping with arrays {', '.join(self.types)}"
            raise ValueError(f"a message is {what}, not {type(first).__name__}")
        self.names = list(first) if self.named else [f"{at:06}" for at in range(len(first))]
        if len(set(map(str, self.names))) < len(self.names):
            raise ValueError(f"two of the names are the same as text: {', '.join(map(repr, self.names))}")
        self.like = dict(zip(self.names, first.values() if self.named else first, strict=True))

    def arrays(self, message, what: str) -> list[tuple[str, np.ndarray]]:
        if isinstance(message, Mapping) != self.named:
            raise ValueError(f"{what} has another form than the first message")
        if not self.named:
            if len(message) != len(self.names):
                raise ValueError(f"{what} has {len(message)} arrays, and the first message {len(self.names)}")
            message = dict(zip(self.names, message, strict=True))
        elif self.open and set(message) != set(self.names):
            raise ValueError(f"{what} has other names than the first message: {', '.join(map(str, message))}")
        elif unknown := set(message) - set(self.types) if not self.open else set():
            raise ValueError(f"{what} has {', '.join(sorted(map(str, unknown)))}, and {self.kind} have {', '.join(self.types)}")
        elif not self.open and "rows" in self.types and "rows" not in message and message:
            message = {"rows": np.arange(len(next(iter(message.values()))))} | dict(message)
        return [(str(name), self.array(str(name), array)) for name, array in message.items()]

    def array(self, name: str, array) -> np.ndarray:
        """An array of the type that the kind of message has."""
        if _is_tensor(array):
            array = array.detach()
            array = (array.float() if array.is_floating_point() and array.itemsize < 4 else array).cpu().numpy()
        array = np.asarray(not_masked(array, f"`{name}`"))
        due = _TYPES.get(self.types.get(name, self.types.get("*")))
        if due in (np.float32, np.float64):
            if array.dtype.kind != "f" and self.open:
                raise ValueError(f"`{name}` is of {array.dtype}; leave it out, parameters are floats")
            # doubles become floats while they are copied; fl says which number is not finite
            return array if array.dtype in (due, np.float64) and array.dtype.isnative else array.astype(due)
        if due is None or array.dtype == due:
            return array
        whole = array.astype(due) if array.dtype.kind in "iub" else None
        if whole is None or (whole != array).any():
            raise ValueError(f"`{name}` must be whole numbers of {np.dtype(due)}, and has {array.dtype}")
        return whole

    def back(self, arrays):
        found = {name: _like(self.like.get(name), np.asarray(buffer)) for name, buffer in arrays}
        if set(found) != set(self.names):
            return found
        return {name: found[name] for name in self.names} if self.named else [found[name] for name in self.names]


_TYPES = {"f32": np.float32, "f64": np.float64, "u32": np.uint32, "i64": np.int64, "u8": np.uint8}


def _is_tensor(array) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _like(first, array: np.ndarray):
    """As the first message had it: a tensor of its type and device, or an array of its type."""
    if _is_tensor(first):
        import torch

        return torch.from_numpy(array).to(first.device, first.dtype)
    return array if first is None else array.astype(np.asarray(first).dtype, copy=False)
