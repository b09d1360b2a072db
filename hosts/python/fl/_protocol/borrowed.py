"""Samples, public data, models and generators of the program, as a protocol in Python has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from .._parts import generators
from .._parts.arguments import Lacks, Message, Stream
from .._parts.arrays import not_masked, target_array
from .declarations import named_loss, Array, Arrays, LossName, RoundTraining, TargetKind, Training
from .requests import _fresh, _Program, _sent, packed


def _read_only(array: Array) -> Array:
    """A view that refuses to be written into."""
    seen = array.view()
    seen.flags.writeable = False
    return seen


class Samples(Sequence[Any]):
    """Samples of the program. A model takes them as they are; `x` has their numbers."""

    def __init__(self, program: _Program, ask: dict[str, Any], tensors: Arrays, ids: Array | None = None):
        self._program, self._ask, self._tensors = program, ask, dict(tensors)
        self._x: Array | None = None
        self._ids = ids

    @property
    def ids(self) -> Array:
        """Their numbers in their set, `uint32`: those of public samples mean the same
        everywhere."""
        return _read_only(self._rows if self._ids is None else self._ids)

    @property
    def _rows(self) -> Array:
        """The program's numbers of them, during this call."""
        return self._tensors["ids"] if "ids" in self._tensors else np.arange(len(self), dtype=np.uint32)

    @property
    def x(self) -> Array:
        """Their numbers, `samples x ..`, fetched at the first use. They are read-only, as `y` and
        `ids`: a model takes the samples as the program has them."""
        if self._x is None:
            self._x = _read_only(self._program.ask("values", _sent(self._tensors), **self._ask)[1]["values"])
        return self._x

    def _pick(self, positions: Any) -> tuple[dict[str, Any], dict[str, Array], Array]:
        ids = np.ascontiguousarray(self.ids[positions], dtype=np.uint32)
        if "set" not in self._ask:  # they cross with their numbers
            return *_fresh(self.x[positions]), ids
        rows = np.ascontiguousarray(self._rows[positions], dtype=np.uint32)
        return {"set": self._ask["set"]}, {**self._tensors, "ids": rows}, ids

    def pick(self, positions: Any) -> Samples:
        """Those at these positions, or where this mask is true."""
        return Samples(self._program, *self._pick(positions))

    def __getitem__(self, at: Any) -> Any:
        return self.x[at]

    def __len__(self) -> int:
        if "first" in self._ask:
            return int(self._ask["first"])
        return len(self._tensors["ids"] if "ids" in self._tensors else self._tensors["values"])


class Examples(Samples):
    """Samples and what is known of them."""

    def __init__(self, program: _Program, ask: dict[str, Any], tensors: Arrays, ids: Array | None = None):
        super().__init__(program, ask["samples"], tensors, ids)
        self._labels = ask["labels"]
        self._known: tuple[str, Array] | None = None

    def _target(self) -> tuple[str, Array]:
        if self._known is None:
            kind, tensors = self._program.ask("targets", _sent(self._tensors), samples=self._ask, labels=self._labels)
            self._known = (kind, _read_only(tensors["target"]))
        return self._known

    @property
    def y(self) -> Array:
        """What is known of each: its class, or one number for each label (1, 0, -1 for unknown)."""
        return self._target()[1]

    def pick(self, positions: Any) -> Examples:
        """Those at these positions, or where this mask is true."""
        if "set" not in self._ask:
            raise TypeError("these examples are in no set of the program, so none can be picked")
        ask, tensors, ids = self._pick(positions)
        return Examples(self._program, {"samples": ask, "labels": self._labels}, tensors, ids)


class Public:
    """The public data: all `samples`; `labelled`, those whose labels everybody may use, if there
    are any."""

    def __init__(self, program: _Program):
        text, tensors = program.ask("public")
        parts: list[dict[str, Array]] = [{}, {}, {}]
        for name, array in tensors.items():
            at, _, inner = name.partition("/")
            parts[int(at)][inner] = array
        self.samples = Samples(program, text["samples"], parts[0])
        # the program numbers rows anew for each side; these numbers are the same at all
        ids = np.arange(len(self.samples), dtype=np.uint32)
        self.samples._ids = ids
        self.labelled = Examples(program, text["labelled"], parts[1], ids) if text["labelled"] else None
        self._program = program

    def pick(self, ids: Any) -> Samples:
        """Those with these ids."""
        return self.samples.pick(np.asarray(ids, np.int64))


def _losses_back(auxiliary: Any, feature_loss: Any) -> Callable[..., Any]:
    """Answers what the program asks about added losses."""

    def back(operation: str, text: str, messages: list[Any]) -> Any:
        facts, seen = json.loads(text), Message(messages[0][3])
        stream = Stream(bytes(facts["key"]))
        with generators.Section(stream.child("draws").seed):
            if operation == "feature_loss":
                loss, slope = feature_loss(seen["features"], seen["target"], seen["rows"], stream)
            else:
                term = auxiliary(seen, stream)
        if operation == "feature_loss":
            return None, {"loss": np.reshape(np.asarray(loss, np.float64), 1), "by-features": np.ascontiguousarray(slope, np.float32)}, None
        out = {"loss": np.reshape(np.asarray(term["loss"], np.float64), 1), "by-scores": np.ascontiguousarray(term["by-scores"], np.float32)}
        for name in ("weight", "bias"):
            slope = term.get(name)
            out[name] = np.zeros(seen[name].shape) if slope is None else np.ascontiguousarray(slope, np.float64)
        return None, out, None

    return back


def _whole(name: str, value: Any, least: int) -> int:
    """A setting of a training that is a whole number."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= value.__index__() < 2**53:
        raise ValueError(f"`{name}` must be a whole number, at least {least}, got {value!r}")
    return int(value.__index__())


def _number(name: str, value: Any, above: bool = False) -> float:
    """A setting of a training that is a number, at least 0 or `above` it."""
    if not np.isfinite(number := float(value)) or number < 0 or above and number == 0:
        raise ValueError(f"`{name}` must be a finite number, {'above' if above else 'at least'} 0, got {value!r}")
    return number


class Model:
    """A model of the server or of a client: the part of a trainer's slot."""

    def __init__(self, program: _Program, number: int, slot: str, held: bool = False):
        self._program, self._number, self._slot, self._held = program, number, slot, held

    def _do(self, operation: str, /, *messages: tuple[Any, ...], key: bytes = bytes(32), back: Any = None, **facts: Any) -> tuple[Any, dict[str, Array]]:
        return self._program.do(self._number, operation, *messages, key=key, back=back, **facts)

    def _samples(self, x: Samples | Array) -> tuple[dict[str, Any], dict[str, Array]]:
        if isinstance(x, Samples):
            return x._ask, x._tensors
        return _fresh(np.asarray(x, np.float32))

    def _known(self, x: Samples | Array, target: Any, kind: TargetKind | None) -> tuple[TargetKind, Array]:
        """The target of samples in the type that crosses, and its kind: that of examples if none is
        given, and by itself the kind that the task has."""
        if target is None:
            if not isinstance(x, Examples):
                raise ValueError("these samples bring no target: give one")
            kind, target = cast("TargetKind", x._target()[0]), x.y
        task, target = self._program.part.task, np.asarray(not_masked(target, "the target"))
        if kind is None and task.loss != "cross-entropy":
            kind = "scores"
        elif kind is None and task.multi_label and not task.pixels:
            kind = "multi-label"
        elif kind is None:
            kind = ("pixels" if target.dtype.kind in "iu" else "soft") if task.pixels else "classes" if target.ndim == 1 else "soft"
        if kind == "soft" and target.ndim == 2 and not task.multi_label:
            # medians and trimmed means of probabilities need not add up to 1
            off = np.flatnonzero(~(((target >= 0) & (target < np.inf)).all(axis=1) & (target > 0).any(axis=1)))
            if len(off):
                raise ValueError(f"the target of sample {off[0]} is no probabilities, at least 0 and not all 0: {target[off[0]].tolist()}")
        return kind, target_array(kind, target)

    def fit(
        self,
        x: Samples | Array,
        target: Array | None = None,
        *,
        stream: Stream,
        kind: TargetKind | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        batch: int | None = None,
        training: Training | None = None,
        loss: LossName | None = None,
        tau: float = 1.0,
        fresh: bool = False,
        rate: float = 1.0,
        proximal: tuple[float, Arrays] | None = None,
        gradient_offset: Arrays | None = None,
        clip: float | None = None,
        auxiliary: Callable[[Arrays, Stream], Mapping[str, Any]] | None = None,
        feature_loss: Callable[[Array, Array, Array, Stream], tuple[float, Array]] | None = None,
    ) -> SimpleNamespace:
        """Trains on samples, or on an array `samples x ..`; gives `steps` and the mean `loss`.

        `target` is one entry for each sample, of this `kind`: by itself what the task learns, and
        `soft` where that is classes and a sample has a row of probabilities; examples bring their
        own. Give `epochs` or `steps`, and `batch` (by itself 32), or a setting of type
        `fl.Training` as `training`, which has these and `clip`. `rate` is a factor of
        the trainer's learning rate, for a slot that `needs` `scaled-rate`; a `fl.RoundTraining`
        also has that of the round, and both are multiplied. `proximal` is FedProx's weight and
        anchor, `gradient_offset` SCAFFOLD's addend, `clip` the largest norm of a gradient.
        `auxiliary` is a loss that is added to each mini-batch's, for trainers that show their last
        layer: it gets `weight`, `bias`, `scores` and `target`, and gives `loss`, and the slopes
        `by-scores`, `weight` and `bias`. `feature_loss` is a loss on features: it gets the features
        (`samples x features`) and the target of a mini-batch, the positions of its samples among
        `x`, and a stream. It gives the loss and its slope by each feature. A slot says which of the
        two it `needs`.
        """
        if training is not None:
            if any(one is not None for one in (epochs, steps, batch, clip)):
                raise ValueError("give `training`, or `epochs` or `steps`, `batch` and `clip`")
            epochs, steps, batch, clip = training.epochs, training.steps, training.batch, training.clip
            if isinstance(training, RoundTraining):
                rate *= training.factor(self._program.round_number)
        if (epochs is None) == (steps is None):
            raise ValueError("give `epochs` or `steps`, one of them")
        if proximal is not None and not (isinstance(proximal, (tuple, list)) and len(proximal) == 2):
            raise TypeError(f"`proximal` must be a pair, FedProx's weight and the parameters to stay near, such as (0.1, sent); got {type(proximal).__name__}")
        kind, target = self._known(x, target, kind)
        ask, tensors = self._samples(x)
        letters = [_sent({**tensors, "target": target})]
        letters += [_sent(packed("params", of)) for of in (proximal and proximal[1], gradient_offset) if of is not None]
        how = {
            "length": {"Epochs": _whole("epochs", epochs, 0)} if epochs is not None else {"Steps": _whole("steps", steps, 0)},
            "batch": _whole("batch", 32 if batch is None else batch, 1),
            "loss": named_loss(loss, _number("tau", tau, above=True), self._program.part.task),
            "fresh": bool(fresh),
            "rate": _number("rate", rate),
            "proximal": _number("proximal", proximal[0]) if proximal else None,
            "gradient_offset": gradient_offset is not None,
            "clip": None if clip is None else _number("clip", clip, above=True),
            "auxiliary": auxiliary is not None,
            "feature_loss": feature_loss is not None,
        }
        back = _losses_back(auxiliary, feature_loss) if auxiliary or feature_loss else None
        report, _ = self._do("train", *letters, back=back, key=bytes(stream.key), target=kind, **how, **ask)
        return SimpleNamespace(steps=report["steps"], loss=float("nan" if report["loss"] is None else report["loss"]))

    def predict(self, x: Samples | Array) -> Array:
        """Scores (logits), `samples x outputs`."""
        ask, tensors = self._samples(x)
        return self._do("predict", _sent(tensors), **ask)[1]["scores"]

    def features(self, x: Samples | Array) -> Array:
        """The inputs of the last layer, `samples x features`. Raises `fl.Lacks` if the trainer
        shows none."""
        ask, tensors = self._samples(x)
        found = self._do("features", _sent(tensors), **ask)[1]
        if "features" not in found:
            raise Lacks(f"parts.{self._slot}: this trainer has no features; use a neural trainer")
        return found["features"]

    def params(self) -> dict[str, Array]:
        """Its parameters by name: copies that are yours. Raises `fl.Refused` if it has none."""
        return self._do("params")[1]

    @property
    def buffers(self) -> frozenset[str]:
        """The names of those parameters that are buffers, such as running variances: average them,
        and take no step with them."""
        return frozenset(self._do("describe")[0].get("buffers", ()))

    def set_params(self, params: Arrays) -> None:
        """Replaces them; names and shapes stay."""
        self._do("set_params", _sent(packed("params", params)))

    def gradient(self, x: Samples | Array, target: Array | None = None, *, kind: TargetKind | None = None, loss: LossName | None = None) -> dict[str, Array]:
        """The gradient of the mean loss by every parameter."""
        kind, target = self._known(x, target, kind)
        return self._gradient("gradient", x, target, kind, loss)

    def _clipped_gradients(self, x: Samples, target: Array, kind: TargetKind, clip: float) -> dict[str, Array]:
        """The sum of the gradients of single examples, each shortened to the norm `clip`; nothing
        if its trainer computes them one by one only."""
        return self._gradient("clipped_gradients", x, target, kind, None, clip=clip)

    def _gradient(self, what: str, x: Samples | Array, target: Array, kind: TargetKind, loss: LossName | None, **more: Any) -> dict[str, Array]:
        ask, tensors = self._samples(x)
        tensors = {**tensors, "target": target_array(kind, target)}
        return self._do(what, _sent(tensors), target=kind, loss=named_loss(loss, 1.0, self._program.part.task), **more, **ask)[1]

    def descend(self, gradient: Arrays, at: int, of: int, rate: float = 1.0) -> None:
        """Takes one step of the optimiser along a gradient, as after batch `at` (from 0) of `of`,
        at `rate` times its learning rate."""
        self._do("descend", _sent(packed("params", gradient)), at=at, of=of, rate=rate)

    def vjp(self, x: Samples | Array, slope: Array) -> Array:
        """A loss's slope by each number of the inputs, `samples x width`, from its slope by each
        score."""
        ask, tensors = self._samples(x)
        sent = _sent({**tensors, "slope": np.ascontiguousarray(slope, np.float32)})
        return self._do("vjp", sent, **ask)[1]["slopes"]

    def step_size(self) -> float | None:
        """The learning rate, if each step is that times the gradient and nothing else."""
        return cast("float | None", self._do("step_size")[0])

    def save(self) -> bytes:
        """The model in its trainer's own format, without training state."""
        saved = self._do("save")[1]
        return saved["state"].tobytes() if "state" in saved else b""

    def load(self, model: bytes) -> None:
        """Takes back what `save` gave."""
        self._do("load", _sent({"state": np.frombuffer(model, np.uint8)}))


class Generator:
    """A generator of inputs: the part of a generator's slot."""

    def __init__(self, program: _Program, number: int):
        self._program, self._number = program, number

    def sample(self, n: int, stream: Stream) -> Samples:
        """Makes `n` inputs from a stream."""
        _, tensors = self._program.do(self._number, "sample", key=bytes(stream.key), samples=n)
        return Samples(self._program, {}, tensors)

    def learn(self, made: Samples, slope: Array) -> None:
        """Takes a step along a loss's slope by each number of the inputs made last."""
        sent = _sent({**made._tensors, "slope": np.ascontiguousarray(slope, np.float32)})
        self._program.do(self._number, "learn", sent, **made._ask)
