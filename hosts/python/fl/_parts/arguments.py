"""The objects that a part in Python receives, and the errors that it may raise."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, overload

import numpy as np

from . import generators, names
from .arrays import array_of, target_array


class Lacks(Exception):
    """The part does not have an ability that was asked for."""


class Shape(Exception):
    """Shapes, names or lengths do not fit together."""


class Unpriced(Exception):
    """There is no price for an event."""


class Refused(Exception):
    """The program refuses, or fails at, what a protocol asks of it. `problem` is what kind of
    problem it is, as the program names it: `{"Budget": ..}`, `{"Lacks": ..}`, or `None`."""

    def __init__(self, text: str, problem: object = None):
        super().__init__(text)
        self.problem = problem

    @classmethod
    def read(cls, why: str) -> Refused:
        """As the program says it."""
        try:
            told = json.loads(why)
            return cls(told["text"], told["problem"])
        except (ValueError, TypeError, KeyError):
            return cls(why)


class Stream:
    """The randomness of a call: the same key gives the same numbers. A part draws from nothing
    else."""

    __slots__ = ("key",)

    def __init__(self, key: bytes):
        self.key = key

    @property
    def seed(self) -> int:
        """For generators that want a number."""
        return int.from_bytes(self.key[:8], "little") >> 1

    def child(self, name: str, number: int = 0) -> Stream:
        """A stream of its own, for one purpose."""
        return Stream(hashlib.sha256(self.key + f"{name}/{number}".encode()).digest())

    def numpy(self) -> np.random.Generator:
        """A generator of numpy."""
        return np.random.Generator(np.random.Philox(key=int.from_bytes(self.key[:16], "little")))

    def torch(self):
        """A generator of PyTorch."""
        import torch

        return torch.Generator().manual_seed(self.seed)


_CALL = threading.local()


def _place(array: np.ndarray) -> tuple:
    return array.__array_interface__["data"][0], array.shape, array.strides


@contextmanager
def numbered(samples: np.ndarray, number: int | None):
    """In a call that lends these samples, which the program knows by this number."""
    _CALL.now = (_place(samples), number)
    try:
        yield
    finally:
        _CALL.now = None


def number_of(samples: np.ndarray) -> int | None:
    """The program's number of these samples, if they are those that it lends for this call: only
    the same samples have it again."""
    place, number = getattr(_CALL, "now", None) or (None, None)
    return number if isinstance(samples, np.ndarray) and _place(samples) == place else None


class Message(Mapping[str, np.ndarray]):
    """Arrays by name. They are lent for the call: read-only, without a copy, and gone after it.
    Keep `array.copy()`."""

    __slots__ = ("_arrays", "_buffers")

    def __init__(self, buffers: dict[str, Any]):
        self._buffers, self._arrays = buffers, {}

    def __getitem__(self, name: str) -> np.ndarray:
        array = self._arrays.get(name)
        if array is None:
            array = self._arrays[name] = np.asarray(memoryview(self._buffers[name]))
        return array

    def __iter__(self):
        return iter(self._buffers)

    def __len__(self) -> int:
        return len(self._buffers)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(f'{k} {list(v.shape)}' for k, v in self.items())}>"

    def __reduce__(self):
        raise TypeError("a message is lent for one call: copy its arrays")


class Mail(Message):
    """One client's message: its `sender` and `weight`, and `class_counts` and `training_loss` if
    the part needs them."""

    __slots__ = ("class_counts", "sender", "training_loss", "weight")

    def __init__(self, sender: int, weight: float, class_counts: list[int] | None, buffers: dict[str, Any], training_loss: float | None = None):
        self._buffers, self._arrays = buffers, {}
        self.sender, self.weight = sender, weight
        self.class_counts, self.training_loss = class_counts, training_loss


class Inbox(Sequence[Mail]):
    """The messages of a round, in client order, finite and of one shape."""

    __slots__ = ("_host", "_made", "_messages")

    def __init__(self, messages: list, host):
        self._messages, self._host, self._made = messages, host, None

    @property
    def _mails(self) -> list[Mail]:
        if self._made is None:
            self._made = [Mail(*m) for m in self._messages]
        return self._made

    @overload
    def __getitem__(self, at: int) -> Mail: ...
    @overload
    def __getitem__(self, at: slice) -> list[Mail]: ...

    def __getitem__(self, at: int | slice) -> Mail | list[Mail]:
        return self._mails[at]

    def __iter__(self):
        return iter(self._mails)

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def weights(self) -> np.ndarray:
        """One for each message."""
        return np.array([message[1] for message in self._messages])

    @property
    def training_losses(self) -> np.ndarray:
        """One for each message, if the part needs them."""
        return np.array([message[4] for message in self._messages], dtype=float)

    def mean(self, weights=None) -> dict[str, np.ndarray]:
        """The weighted mean by name, as the aggregator `mean` has it, bit by bit: by the messages'
        weights, or by these, one for each message in order."""
        if isinstance(weights, (Mapping, Set)):
            raise TypeError(f"weights must be one for each message in order, got a {type(weights).__name__}; of a mapping by sender give `[weights[mail.sender] for mail in inbox]`")
        weights = [message[1] for message in self._messages] if weights is None else [float(w) for w in weights]
        if bad := [w for w in weights if not 0 <= w < np.inf]:
            raise ValueError(f"weights must be finite numbers, at least 0, got {bad[0]}")
        if not 0 < sum(weights) < np.inf:
            raise ValueError("every weight is 0" if sum(weights) == 0 else "the weights together are beyond 64-bit floats; divide them by the largest")
        return {name: np.asarray(owner) for name, owner in self._host.mean(weights).items()}


class Pool(Message):
    """The pool of a selector: of clients `clients` (their numbers), `sizes` and `losses` (NaN where
    unknown), of samples their `values`, all as attributes too."""

    __slots__ = ()

    def __getattr__(self, name: str) -> np.ndarray:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a pool has {', '.join(self)}, and no {name}") from None


class Round:
    """The round: its number, its `stream`, and the message `sent` to clients if the part needs
    that."""

    __slots__ = ("_facts", "_key", "_notes", "_numbers", "sent")

    def __init__(self, text: str | dict[str, Any], host: Any, sent: Any = None):
        self._facts, self._key, self.sent = text, host.key(), sent
        self._notes, self._numbers = [], []

    def _fact(self, name: str, default: Any = None):
        if isinstance(self._facts, str):  # most parts do not ask
            self._facts = json.loads(self._facts)
        return self._facts.get(name, default)

    @property
    def number(self) -> int:
        """From 1; 0 for a step that is done once."""
        return self._fact("number")

    @property
    def last(self) -> bool:
        """Is it the last?"""
        return self._fact("last")

    @property
    def name(self) -> str:
        """Such as `round 3`."""
        return self._fact("name")

    @property
    def stream(self) -> Stream:
        """The round's randomness."""
        return Stream(self._key)

    @property
    def buffers(self) -> frozenset[str]:
        """For an aggregator of parameters: the names of those that are buffers, statistics of data
        such as a running variance. They are averaged, and no step is taken with them."""
        return frozenset(self._fact("buffers", ()))

    def note(self, text: str):
        """For the user, and the report."""
        self._notes.append(str(text))

    def record(self, name: str, value: float):
        """A number for the report, where it is shown as `SLOT.name`."""
        value = float(value)
        # JSON has no NaN
        self._numbers.append([names.check_of_part(name), value if np.isfinite(value) else None])

    def said(self) -> str | None:
        """For the program."""
        return json.dumps({"notes": self._notes, "numbers": self._numbers}) if self._notes or self._numbers else None


class Noise:
    """The noise of a release. It gives new arrays; with noise of the system it is exact."""

    __slots__ = ("_host",)

    def __init__(self, host):
        self._host = host

    def _added(self, add, array, width):
        array = np.asarray(array)
        wide = np.array(array, np.float64, order="C", ndmin=1)
        add(wide, float(width))
        return wide.astype(array.dtype).reshape(array.shape)

    def laplace(self, array, scale: float) -> np.ndarray:
        """With Laplace noise of this scale."""
        return self._added(self._host.laplace, array, scale)

    def gaussian(self, array, sigma: float) -> np.ndarray:
        """With normal noise of this standard deviation."""
        return self._added(self._host.gaussian, array, sigma)

    def uniform(self, n: int) -> np.ndarray:
        """So many uniform numbers in [0, 1), for mechanisms that choose between labels."""
        out = np.empty(n)
        self._host.uniform(out)
        return out


LOSSES = {"CrossEntropy": "cross-entropy", "Mae": "mae", "Mse": "mse", "Huber": "huber", "Norm": "norm", "Kl": "kl"}
#: What a trainer must say of itself, by the attribute, before a pass may ask it.
ABILITIES = {
    "feature_loss": "takes_feature_loss", "scales_rate": "scales_rate", "gradient_terms": "takes_gradient_terms",
    "schedules_pass": "schedules_pass", "schedules_epoch": "schedules_epoch", "decays_weights": "decays_weights",
    "starts_again": "starts_again",
}  # fmt: skip


def read_loss(loss) -> dict:
    if isinstance(loss, dict):
        ((name, numbers),) = loss.items()
        return {"loss": LOSSES[name], **numbers}
    return {"loss": LOSSES[loss]}


@dataclasses.dataclass(frozen=True)
class Pass:
    """The options of one training: length, mini-batches, loss, and additions to the gradient."""

    target: str
    """`classes` (numbers), `multi-label` (1, 0, and -1 for unknown), `soft` (probabilities) or
    `scores` (also numbers to predict)."""
    loss: str
    """`cross-entropy`, `mae`, `mse`, `huber`, `norm` or `kl`; means are over the batch."""
    tau: float = 1.0
    """The temperature of `kl`."""
    delta: float = 1.0
    """Where `huber` becomes linear."""
    batch: int = 0
    epochs: int | None = None
    steps: int | None = None
    fresh: bool = False
    """Forget the optimiser's moments and schedule first."""
    rate: float = 1.0
    """The factor of the learning rate in this pass, only for a trainer with
    `scales_rate = True`."""
    proximal: tuple[float, Mapping] | None = None
    """FedProx: adds `mu * (w - anchor)` to the gradient. As the next two, only for a trainer with
    `takes_gradient_terms = True`."""
    gradient_offset: Mapping | None = None
    """SCAFFOLD: adds this to the gradient."""
    clip: float | None = None
    """Clips the gradient of a batch to this Euclidean norm."""
    feature_loss: Callable[[np.ndarray, np.ndarray, np.ndarray, Stream], tuple[float, np.ndarray]] | None = None
    """A loss on features that the method adds, only for a trainer with `takes_feature_loss = True`.
    Call it for each mini-batch with its features (`samples x features`), its target, the positions
    of its samples among those of `fit`, and a stream of the batch. It gives the addend to the loss,
    and its slope by each feature: train with both, and report the loss without the addend."""

    @classmethod
    def read(cls, facts: dict, anchors: list[Message], host) -> Pass:
        """As the program says it, with the arrays that it sends."""
        return cls(
            target=facts["target"],
            **read_loss(facts["loss"]),
            batch=facts["batch"],
            epochs=facts["length"].get("Epochs"),
            steps=facts["length"].get("Steps"),
            fresh=facts["fresh"],
            rate=facts.get("rate", 1.0),
            proximal=(facts["proximal"], anchors.pop(0)) if facts["proximal"] is not None else None,
            gradient_offset=anchors.pop(0) if facts["gradient_offset"] else None,
            clip=facts["clip"],
            feature_loss=_feature_loss(facts["target"], host) if facts.get("feature_loss") else None,
        )

    def trial(self, most: int) -> Pass:
        """A pass of at most `most` steps, over the samples once, without what a method adds."""
        steps, epochs = None if self.steps is None else min(self.steps, most), None if self.epochs is None else 1
        return dataclasses.replace(self, steps=steps, epochs=epochs, fresh=False, proximal=None, gradient_offset=None, feature_loss=None)

    def batches(self, n: int, stream: Stream):
        """Positions of the mini-batches over `n` samples; every epoch has an order of its own."""
        left, epoch = self.steps, 0
        while n > 0 and (epoch < self.epochs if left is None else left > 0):
            order = stream.child("epoch", epoch).numpy().permutation(n)
            for at in range(0, n, self.batch):
                if left is not None:
                    if left == 0:
                        return
                    left -= 1
                yield order[at : at + self.batch]
            epoch += 1


def _feature_loss(kind: str, host):
    """The loss on features that the method adds, as `Pass.feature_loss`."""

    def loss(features, target, rows, stream: Stream) -> tuple[float, np.ndarray]:
        text = json.dumps({"target": kind, "key": list(stream.key)})
        rows = np.ascontiguousarray(rows, np.uint32)
        sent = {"features": array_of("features", features), "target": target_array(kind, target), "rows": rows}
        with generators.paused():
            error, _, found = host.ask(0, "feature_loss", bytes(32), text, [(0, 1.0, None, None, sent)], None)
        if error is not None:
            raise Refused.read(error)
        value, slope = (np.asarray(memoryview(found[name])) for name in ("loss", "by-features"))
        return float(value[0]), slope

    return loss
