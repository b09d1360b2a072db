"""One part of fl in a Flower project that keeps its ServerApp, its ClientApp and its evaluation."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from .._errors import RunError
from .._make import make

_LOG = logging.getLogger("fl")
#: What `FedAvg` of Flower takes; all else is a setting of the part.
_FLOWERS = set(inspect.signature(FedAvg.__init__).parameters) - {"self"}
#: Where a client keeps what its releases cost.
SPENT = "fl.spent"

Arrays = dict[str, np.ndarray]


def _floats(arrays: ArrayRecord) -> Arrays:
    found = {name: array.numpy() for name, array in arrays.items()}
    return {name: array for name, array in found.items() if array.dtype.kind == "f"}


def _wide(array: np.ndarray) -> np.ndarray:
    """With 32 bits at least, in which a part of fl computes and answers."""
    return array.astype(np.float32) if array.dtype.itemsize < 4 else array


def _only(records: Any, what: str, whose: str) -> Any:
    found = list(records.values())
    if len(found) != 1:
        raise RunError(f"{whose} has {len(found)} {what}, and one is due")
    return found[0]


def _of_reply(reply: Message) -> tuple[ArrayRecord, MetricRecord]:
    whose = f"the reply of node {reply.metadata.src_node_id}"
    return _only(reply.content.array_records, "ArrayRecords", whose), _only(reply.content.metric_records, "MetricRecords", whose)


class Strategy(FedAvg):
    """Flower's `FedAvg`, with a part of fl in the place of its mean:

        strategy = fl.flower.Strategy("trimmed-mean", trim=0.2, fraction_train=0.5)
        result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)

    What `FedAvg` of Flower takes (`fraction_train`, `min_available_nodes`, `weighted_by_key` ..)
    goes to it, and everything else is a setting of the part, as in `fl.make`. The part knows each
    node by one number in all rounds (`mail.sender`), from 0, in the order in which they first
    reply; those of one round in the order of their own numbers. It gets the weights under
    `weighted_by_key`, what was sent, and if it needs them the training losses under `loss_key` and
    the examples per class under `class_counts_key`, of each reply's metrics. What it measures joins
    the metrics of the round, as `trimmed-mean.NAME`.

    fl computes with 32 bits, and floats keep the type that was sent. Other arrays, such as counters
    of batches, stay as they were sent, which a line of the log says once. `save` and `load` carry
    the part's state and the nodes' numbers to another process.
    """

    def __init__(self, name: str, *, role: str | None = None, seed: int | None = None, loss_key: str = "train_loss", class_counts_key: str = "class-counts", **settings: Any):
        super().__init__(**{key: settings.pop(key) for key in _FLOWERS & settings.keys()})
        self.part = make(name, role=role, seed=seed, **settings)
        if self.part.role not in ("aggregator", "attack"):
            raise RunError(f"`{name}` is a part of role {self.part.role}, and a strategy takes an aggregator; `fl.flower.mod` takes a mechanism")
        self.settings, self.loss_key, self.class_counts_key = settings, loss_key, class_counts_key
        self._sent: ArrayRecord | None = None
        self._told = False
        self._nodes: dict[int, int] = {}

    def summary(self) -> None:
        given = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        _LOG.info("aggregation by %s `%s` of fl (%s)", self.part.role, self.part.name, given)
        super().summary()

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        self._sent = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        if not valid or self._sent is None:
            return None, None
        valid.sort(key=lambda reply: reply.metadata.src_node_id)
        found, told = zip(*map(_of_reply, valid), strict=True)

        def column(key: str, of: Callable[[Any], Any]) -> list[Any] | None:
            return [of(metrics[key]) for metrics in told] if all(key in metrics for metrics in told) else None

        nodes = [reply.metadata.src_node_id for reply in valid]
        ids = [self._nodes.setdefault(node, len(self._nodes)) for node in nodes]
        named = {f"client {number}": f"node {node}" for node, number in self._nodes.items()}
        named |= {f"message {at}": f"the reply of node {node}" for at, node in enumerate(nodes)}
        given = dict(
            weights=[float(metrics[self.weighted_by_key]) for metrics in told],
            sent=_floats(self._sent),
            losses=column(self.loss_key, float),
            class_counts=column(self.class_counts_key, list),
            ids=ids,
        )
        try:
            model = self.part([{name: _wide(array) for name, array in _floats(arrays).items()} for arrays in found], **given)
        except RunError as error:
            raise RunError(re.sub(r"\b(?:client|message) \d+\b", lambda one: named.get(one[0], one[0]), str(error))) from None
        metrics = self.train_metrics_aggr_fn([reply.content for reply in valid], self.weighted_by_key)
        for name, value in self.part.numbers.items():
            metrics[f"{self.part.name}.{name}"] = float(value)
        return self._with_the_rest(model), metrics

    def _with_the_rest(self, model: Arrays) -> ArrayRecord:
        """The model in the types and the order that were sent, with what is no float as it was."""
        assert self._sent is not None
        kept = [name for name in self._sent if name not in model]
        if kept and not self._told:
            _LOG.warning("no floats, so they stay as they were sent: %s", ", ".join(kept))
            self._told = True
        return ArrayRecord({name: Array(np.asarray(model[name], array.dtype, order="C")) if name in model else array for name, array in self._sent.items()})

    def save(self) -> bytes:
        """What the part keeps between rounds, and the nodes' numbers."""
        nodes = json.dumps([*self._nodes]).encode()
        return len(nodes).to_bytes(8, "little") + nodes + self.part.save()

    def load(self, state: bytes) -> None:
        """Goes on where `save` was. The model itself goes into `initial_arrays`."""
        end = 8 + int.from_bytes(state[:8], "little")
        try:
            nodes = json.loads(state[8:end])
        except ValueError:
            nodes = None
        if not isinstance(nodes, list):
            raise ValueError("Strategy.load: not what `save` of a strategy gave; give those bytes, unchanged")
        self.part.load(state[end:])
        self._nodes = {node: number for number, node in enumerate(nodes)}


def mod(name: str, *, seed: int | None = None, **settings: Any) -> Callable[[Message, Context, Any], Message]:
    """A mod of a Flower ClientApp that lets a mechanism of fl release what training has changed:

        noise = fl.flower.mod("gaussian-update", clip=1.0, noise_multiplier=1.2)
        app = ClientApp(client_fn, mods=[noise])

    The mechanism clips the change from what was sent, and adds its noise; the reply has what was
    sent plus that. Each client adds noise for itself alone, so the guarantee holds against the
    server too. It is about the arrays: the reply's metrics, such as the loss and the number of
    examples, go as they are, and nothing prices them. The price of each release is kept in the
    client's context: `fl.flower.spent(context)` gives them to an accountant.

    The noise comes from the operating system. With a `seed`, for tests, it follows from the seed,
    the run, the node and the number of its releases before, and an accountant says that this is no
    guarantee.
    """
    made_with = functools.partial(make, name, role="privacy", **settings)
    made_with(seed=seed)  # what cannot be is refused here

    def release(message: Message, context: Context, call_next: Any) -> Message:
        reply = call_next(message, context)
        if not reply.has_content() or not reply.content.array_records or not message.content.array_records:
            return reply
        sent = _only(message.content.array_records, "ArrayRecords", "the message")
        (key, trained), *more = reply.content.array_records.items()
        if more:
            raise RunError(f"the reply has {1 + len(more)} ArrayRecords, and a mechanism releases one")
        before, after = _floats(sent), _floats(trained)
        if before.keys() != after.keys():
            raise RunError("the reply has other arrays than the message, so nothing says what training has changed")
        rest = [name for name in trained if name not in after]
        if rest:
            raise RunError(f"the reply has arrays that are no floats, and no mechanism gives them a price: leave out {', '.join(rest)}")
        for name, array in after.items():
            if array.shape != before[name].shape:
                raise RunError(f"the reply's `{name}` has shape {list(array.shape)}, and the message's {list(before[name].shape)}, so nothing says what training has changed")
        kept = context.state.config_records.get(SPENT, ConfigRecord({"events": []}))
        # Flower may start a process for each answer, so no part counts the releases
        part = made_with(seed=None if seed is None else _seed_of(seed, context, len(kept["events"])))
        change = part({name: after[name].astype(np.float32) - before[name].astype(np.float32) for name in before})
        made = {name: (before[name].astype(np.float32) + change[name]).astype(after[name].dtype) for name in before}
        reply.content[key] = ArrayRecord({name: Array(np.ascontiguousarray(made[name])) for name in trained})
        kept["events"] = [*kept["events"], json.dumps(part.spent)]
        context.state[SPENT] = kept
        return reply

    return release


def _seed_of(seed: int, context: Context, releases: int) -> int:
    """Another seed for each release of each client in each run."""
    address = f"{seed} {context.run_id} {context.node_id} {releases}"
    return int.from_bytes(hashlib.sha256(address.encode()).digest()[:8], "little")


def spent(context: Context) -> Sequence[dict[str, Any]]:
    """What the releases of this client cost so far, for an accountant:
    `fl.make("rdp", delta=1e-5)(fl.flower.spent(context))`."""
    kept = context.state.config_records.get(SPENT)
    return [json.loads(event) for event in kept["events"]] if kept else []
