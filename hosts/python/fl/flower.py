"""A spec on Flower, of version 1.40 or later: `server_app(spec)` and `client_app(spec)` make the
two sides of a Flower app.

Flower brings transport, TLS, authentication of nodes and processes; the run is the same as that of
`fl.run`, to the digest. `fl new flower NAME` writes an app that `flwr run` takes.

A project that keeps its own ServerApp and ClientApp uses one part: `Strategy` for an aggregator,
`mod` for a mechanism.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import flwr
import numpy as np

if tuple(map(int, flwr.__version__.split(".")[:2])) < (1, 40):
    raise ImportError(f"fl.flower needs Flower 1.40 or later, and {flwr.__version__} is installed: pip install -U 'flwr[simulation]>=1.40,<2'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp

from ._errors import RunError, SpecError
from ._flower import plain_client
from ._flower.strategy import Strategy, mod, spent
from ._tools import check
from .remote import Node, Refused, lead

__all__ = ["Strategy", "client_app", "mod", "server_app", "spent"]

#: Seconds between two looks for replies: the first, twice as many each time nothing has come, and
#: the most. A simulation answers within milliseconds; nodes of Flower look for work every three
#: seconds.
SOON, POLL = 0.01, 0.2
#: Of so many replies that are due, one is worth a look by itself.
MANY = 8
#: A request without a reply is made again after so many seconds, then twice as many: a node that
#: was ended and begun anew has lost it.
AGAIN = 60.0
#: So many processes of a node may end over one request.
ATTEMPTS = 3
#: Requests that are on their way at once.
WINDOW = 64
#: Errors of Flower that say that the node or the message was lost, and nothing about the request.
LOST = {
    ErrorCode.NODE_UNAVAILABLE,
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.CLIENT_APP_CRASHED,
}


#: What plain clients are sent beside parameters, in every round or in each.
Config = Mapping[str, Any] | Callable[[int], Mapping[str, Any] | None]


def _in_round(config: Config | None, round: int) -> Mapping[str, Any] | None:
    return config(round) if callable(config) else config


def _pack(head: bytes, array: Array) -> RecordDict:
    # the body is an object of its own, so that the SuperLink holds one to all clients once
    return RecordDict({"head": ConfigRecord({"head": head}), "body": ArrayRecord({"body": array})})


def _array(body: bytes) -> Array:
    return Array(dtype="uint8", shape=(len(body),), stype="bytes", data=body)


def _unpack(content: RecordDict) -> tuple[bytes, bytes]:
    return content["head"]["head"], content["body"]["body"].data


class _Job:
    """A request to a client, and its state."""

    def __init__(self, client: int, kind: str, content: RecordDict, size: int, read):
        self.client, self.kind, self.content, self.size, self.read = client, kind, content, size, read
        self.began, self.ended = time.monotonic(), 0
        self.ids: list[str] = []
        self.again, self.pause = 0.0, AGAIN


class _Courier:
    """Carries a run's packets over a grid."""

    def __init__(
        self, grid: Grid, wait: float, deadline: float | None, plain: Sequence[int] = (), config: Config | None = None, evaluate: Config | None = None
    ):
        self.grid, self.wait, self.deadline = grid, wait, deadline
        self.plain, self.config, self.evaluate = plain, config, evaluate
        self.nodes: dict[int, int] = {}  # of clients
        self.asked: set[int] = set()  # nodes that have said who they are
        self.settled: set[int] = set()  # nodes with an app that knows nothing of fl
        self.new: list[_Job] = []
        self.out: dict[str, _Job] = {}  # by the message's id
        self.done: list[tuple[int, tuple[bytes, bytes] | None, str]] = []
        self.last: tuple[bytes, Array] | None = None
        self.looked: float | None = None
        #: What plain clients are sent: arrays of these parameters, and the configurations of the
        #: round.
        self.lent: tuple[bytes, ArrayRecord, ConfigRecord, ConfigRecord | None] | None = None

    def send(self, client: int, head: bytes, body: bytes) -> None:
        if client in self.plain:
            try:
                self.send_plain(client, head, body)
            except plain_client.Wrong as why:
                self.done.append((client, None, str(why)))
            return
        if self.last is None or self.last[0] is not body:
            self.last = body, _array(body)
        self.new.append(_Job(client, "query.fl", _pack(head, self.last[1]), len(head) + len(body), _unpack))

    def send_plain(self, client: int, head: bytes, body: bytes) -> None:
        """A request as Flower's FedAvg would make it. Only a training is one, before which the
        client may evaluate what it is to train; the rest is answered here."""
        request = plain_client.read(head, body)
        match request.want:
            case plain_client.HELLO:
                self.done.append((client, (plain_client.here(request, head), b""), ""))
            case plain_client.OVER:
                self.done.append((client, (plain_client.forgotten(request, head), b""), ""))
            case plain_client.ANSWER if request.label == plain_client.TRAIN:
                if self.lent is None or self.lent[0] is not body:
                    self.lent = body, *self.of_round(body, request.round)
                _, arrays, config, evaluate = self.lent
                train = lambda found={}, notes=(): _Job(  # noqa: E731
                    client, "train", RecordDict({"arrays": arrays, "config": config}), len(body), lambda reply: _trained(request, head, {*arrays}, reply, found, notes)
                )
                if evaluate is None:
                    self.new.append(train())
                    return
                content = RecordDict({"arrays": arrays, "config": evaluate})
                self.new.append(_Job(client, "evaluate", content, len(body), lambda reply: train(*_evaluated(reply))))
            case _:
                raise plain_client.Wrong(f"a plain client of Flower trains parameters, and is asked for something else{f' ({request.label})' if request.label else ''}")

    def of_round(self, body: bytes, round: int) -> tuple[ArrayRecord, ConfigRecord, ConfigRecord | None]:
        arrays = ArrayRecord({name: Array(np.array(value)) for name, value in plain_client.parameters(body).items()})
        made = lambda config: ConfigRecord({"server-round": round, **config})  # noqa: E731
        evaluate = _in_round(self.evaluate, round)
        return arrays, made(_in_round(self.config, round) or {}), None if evaluate is None else made(evaluate)

    def receive(self):
        pause = SOON
        while not self.done:
            if self.new:
                jobs, self.new = self.new, []
                self.push(self.find(jobs))
            # a look costs Flower as much as it holds messages, so fewer looks are taken while many
            # replies are due
            if (due := len(self.out)) > MANY and self.looked is not None:
                time.sleep(max(0.0, self.looked + SOON * due / MANY - time.monotonic()))
            self.pull()
            self.looked = time.monotonic()
            if not self.done:
                time.sleep(pause)
                pause = min(2 * pause, POLL)
        return self.done.pop(0)

    def end(self, keep: bool) -> None:
        """Flower ends what is on its way when the run ends."""

    def find(self, jobs: list[_Job]) -> list[_Job]:
        """Those whose client has a node; the others have been waited for."""
        end = time.monotonic() + self.wait
        while missing := {job.client for job in jobs} - self.nodes.keys():
            self.enrol()
            if missing <= self.nodes.keys():
                break
            if time.monotonic() > end:
                for job in jobs:
                    if job.client in missing - self.nodes.keys():
                        self.fail(job, f"no node has announced this client within {self.wait:g} s")
                break
            time.sleep(POLL)
        return [job for job in jobs if job.client in self.nodes]

    def enrol(self) -> None:
        """Asks nodes that have come who lives there. Flower's names of nodes are random."""
        here = set(self.grid.get_node_ids())
        self.asked &= here
        about = RecordDict({"who": ConfigRecord({"plain": list(self.plain)})}) if self.plain else RecordDict()
        messages = [Message(about, dst_node_id=node, message_type="query.who", ttl=AGAIN) for node in sorted(here - self.asked)]
        if not messages:
            return
        strange: list[tuple[int, str]] = []
        for reply in self.grid.send_and_receive(messages, timeout=min(self.wait, AGAIN)):
            node = reply.metadata.src_node_id
            if reply.has_error():
                if reply.error.code in LOST:
                    continue
                if reply.error.code != ErrorCode.CLIENT_APP_RAISED_EXCEPTION:
                    raise RuntimeError(f"node {node} cannot take part: {reply.error.reason} (code {reply.error.code})")
                strange.append((node, reply.error.reason))
                continue
            who = reply.content["who"]
            if "wrong" in who:
                raise RuntimeError(f"node {node} cannot take part: {who['wrong']}")
            self.asked.add(node)
            for client in map(int, f"{who['clients']} {who.get('plain', '')}".split()):
                other = self.nodes.get(client)
                if other in here and other != node and other not in self.settled:
                    raise RuntimeError(f"nodes {other} and {node} both say that client {client} lives there; end one of them")
                if other != node:
                    self.asked.discard(other)  # if it was settled, it looks for another client
                self.nodes[client] = node
        for node, reason in sorted(strange):
            self.settle(node, reason)

    def settle(self, node: int, reason: str) -> None:
        """Lets the next plain client without a node live at this one, whose app knows nothing of
        fl."""
        free = [client for client in self.plain if client not in self.nodes]
        if not free:
            hint = "if its app is not fl's, name as many plain clients as there are such nodes: server_app(spec, plain=[..])"
            raise RuntimeError(f"node {node} cannot take part: {reason}; {hint}")
        self.asked.add(node)
        self.settled.add(node)
        self.nodes[free[0]] = node

    def push(self, jobs: list[_Job]) -> None:
        message = lambda job: Message(job.content, dst_node_id=self.nodes[job.client], message_type=job.kind, ttl=self.deadline)  # noqa: E731
        if not jobs:
            return
        ids = list(self.grid.push_messages([message(job) for job in jobs]))
        if len(ids) != len(jobs):
            # too much at once, and which were taken is not said: whoever is asked twice answers
            # once
            ids = [next(iter(self.grid.push_messages([message(job)])), None) for job in jobs]
        for job, id in zip(jobs, ids):
            if id is not None:
                job.again = time.monotonic() + job.pause
                job.ids.append(id)
                self.out[id] = job
            elif self.nodes[job.client] in self.grid.get_node_ids():
                self.fail(job, f"Flower did not take its request of {job.size} bytes; is it too large?")
            else:
                self.lost(job, "its node is gone")

    def pull(self) -> None:
        now = time.monotonic()
        for job in list({id(job): job for job in self.out.values()}.values()):
            if self.deadline is not None and now > job.began + self.deadline:
                self.fail(job, f"it did not reply within {self.deadline:g} s (deadline)")
            elif now > job.again:
                job.pause *= 2
                self.push([job])
        for reply in self.grid.pull_messages(list(self.out)) if self.out else ():
            job = self.out.get(reply.metadata.reply_to_message_id)
            if job is None:
                continue  # it has been answered
            if not reply.has_error():
                try:
                    said = job.read(reply.content)
                except plain_client.Wrong as why:
                    self.fail(job, str(why))
                    continue
                self.close(job)
                if isinstance(said, _Job):
                    self.new.append(said)
                else:
                    self.done.append((job.client, said, ""))
                continue
            why = f"Flower: {reply.error.reason} (code {reply.error.code})"
            if reply.error.code not in LOST:
                self.fail(job, why)
                continue
            job.ended += reply.error.code == ErrorCode.CLIENT_APP_CRASHED
            if job.ended >= ATTEMPTS:
                self.fail(job, f"{ATTEMPTS} processes ended while they answered it; {why}")
            else:
                self.lost(job, why)

    def lost(self, job: _Job, why: str) -> None:
        """Its node was lost, or the message was: it is asked again, wherever it is by then."""
        self.close(job)
        print(f"fl: client {job.client} is asked again: {why}", flush=True)
        node = self.nodes.pop(job.client, None)
        self.asked.discard(node)
        self.new.append(job)

    def fail(self, job: _Job, why: str) -> None:
        self.close(job)
        self.done.append((job.client, None, why))

    def close(self, job: _Job) -> None:
        for id in job.ids:
            self.out.pop(id, None)
        job.ids.clear()


def _metrics(content: RecordDict) -> dict[str, Any]:
    return {name: value for record in content.metric_records.values() for name, value in record.items()}


def _evaluated(content: RecordDict) -> tuple[dict[str, float], list[str]]:
    """What a plain client measured of the parameters that it is to train."""
    if not content.metric_records:
        raise plain_client.Wrong("its reply to `evaluate` has no MetricRecord")
    return plain_client.numbers(_metrics(content), "evaluate")


def _trained(
    request: plain_client.Request, head: bytes, names: set[str], content: RecordDict, found: Mapping[str, float], notes: Sequence[str]
) -> tuple[bytes, bytes]:
    """The reply of a plain client, which was sent parameters of these names and has measured this,
    as that of a client of fl."""
    records = list(content.array_records.values())
    if len(records) != 1:
        raise plain_client.Wrong(f"its reply has {len(records)} ArrayRecords, and one with the parameters is due")
    arrays = {name: array.numpy() for name, array in records[0].items()}
    # counters of a network (`num_batches_tracked`) are no parameters, and were not sent
    sent = {name: array for name, array in arrays.items() if name in names or array.dtype.kind == "f"}
    said = _metrics(content)
    samples, loss = said.pop("num-examples", None), said.pop("train_loss", said.pop("train-loss", None))
    for what, value in (("num-examples", samples), ("train_loss", loss)):
        if isinstance(value, list):
            raise plain_client.Wrong(f"`{what}` must be one number, got a list")
    if samples is not None and not (float(samples).is_integer() and 0 <= samples < 2**63):
        raise plain_client.Wrong(f"`num-examples` must be a whole number of examples, got {samples!r}")
    try:
        body = plain_client.message(sent)
    except (ValueError, TypeError) as error:
        raise plain_client.Wrong(f"its parameters are not arrays of numbers: {error}") from None
    own, more = plain_client.numbers(said, "train")
    measures = {**found, **own} | ({} if loss is None else {"training-loss": float(loss)})
    return plain_client.answer(request, head, body, None if samples is None else int(samples), loss, measures, [*notes, *more]), body


def _overrides(config) -> list[str]:
    """What the run's configuration sets: `set = "seed=3 protocol.rounds=20"`."""
    return shlex.split(str(config.get("set", "")))


def server_app(
    spec, *, data_dir=None, plain: Sequence[int] | None = None, train_config: Config | None = None, evaluate_config: Config | None = None
) -> ServerApp:
    """The server's side of a spec as a Flower ServerApp.

    `plain` names clients of the spec that are plain ones of Flower: any ClientApp that has
    `@app.train()`, alone or given to `client_app`. Such a client gets the parameters of `fedavg` as
    an ArrayRecord, with `train_config` and `server-round` in a ConfigRecord, and gives an
    ArrayRecord with the same names and a MetricRecord with `num-examples`. None of fl's guarantees
    is about it, so a spec with a privacy mechanism, an accountant or anything else that clients
    would have to do is refused.

    `train_config` is a mapping, or a function from the number of the round (from 1) to one. With
    `evaluate_config`, which is the same, each plain client evaluates the parameters that it gets
    before it trains them, by its `@app.evaluate()`; a function that gives `None` for a round asks
    for none in it. Numbers in the MetricRecords are measurements of the client: `train_loss` is
    `training-loss`, and others are `plain.train.NAME` and `plain.evaluate.NAME`.

    The run's configuration (`flwr run --run-config`) may say: `set`, values to change, such as
    `"seed=3 protocol.rounds=20"`, quoted as in a shell where there are spaces in one; `out`, the
    run folder; `resume`, the folder of a run that was stopped; `stop-after`, so many steps;
    `deadline`, the seconds after which a client has not answered; `wait`, the seconds that a
    client's node is waited for (300).
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = context.run_config
        set, resume = _overrides(config), config.get("resume") or None
        resolved = check(Path(resume) / "spec.yaml" if resume else spec, set)
        own = resolved["data"].get("split") == "own"
        strangers = plain_client.check(resolved, plain) if plain else ()
        courier = _Courier(grid, float(config.get("wait") or 300), float(config.get("deadline") or 0) or None, strangers, train_config, evaluate_config)
        step = lambda s: print(f"fl: {s['step']}" + (f" of {s['of']}" if s["of"] else ""), flush=True)  # noqa: E731
        results = lead(
            None if resume else spec,
            courier,
            clients=range(resolved["data"]["clients"]) if own else (),
            window=WINDOW,
            set=set,
            resume=resume,
            out=config.get("out") or None,
            stop_after=config.get("stop-after") or None,
            data_dir=data_dir,
            quiet=True,
            on_step=step,
        )
        outcome = results.outcome | ({"plain-clients": list(strangers)} if strangers else {})
        print("fl: outcome", json.dumps(outcome), flush=True)
        context.state["fl"] = MetricRecord({name: float(value) for name, value in results.metrics.items()})

    return app


class _Both(ClientApp):
    """fl's answers, and those of another app to whatever Flower asks itself."""

    def __init__(self, other: ClientApp):
        super().__init__()
        self._other = other

    def __call__(self, message: Message, context: Context) -> Message:
        ours = message.metadata.message_type.startswith("query.")
        return super().__call__(message, context) if ours else self._other(message, context)


#: The node that was asked last: a process of Flower's simulation answers many times.
_KEPT: dict[tuple, Node] = {}


def _node(spec, context: Context, home, own, data_dir) -> Node:
    config = context.node_config
    home = config.get("fl-home") or home or os.environ.get("FL_NODE_HOME") or Path.home() / ".local/state/fl/node"
    own, data_dir = config.get("fl-node") or own, config.get("fl-data") or data_dir
    set = _overrides(context.run_config)
    key = (os.getpid(), repr(spec), *set, str(home), str(own), str(data_dir))
    if key not in _KEPT:
        _KEPT.clear()
        _KEPT[key] = Node(spec, set, home=home, own=own, data_dir=data_dir)
    return _KEPT[key]


def _clients(node: Node, context: Context, own) -> list[int]:
    """Who lives at a node, by its configuration."""
    config, all = context.node_config, node.clients
    if config.get("fl-node") or own:
        return all
    try:
        if "clients" in config:
            here = [int(one) for one in str(config["clients"]).replace(",", " ").split()]
        else:
            at, of = int(config["partition-id"]), int(config["num-partitions"])
            here = [client for client in all if client % of == at]
    except (KeyError, ValueError, ZeroDivisionError):
        text = "its configuration must say which clients live there: `clients`, such as \"0 2\", or `partition-id` and `num-partitions`"
        raise SpecError(f"{text}; it is {dict(config)}") from None
    # without an accountant, one without examples takes no part
    return [client for client in all if client in here]


def _log(error: Exception) -> str:
    """Writes an error to the log of the node, and gives what the server is told: the text may quote
    files of the node."""
    print(f"fl: this node cannot take part: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    return "its spec, its data or its configuration are wrong; its log says why"


def client_app(spec, *, home=None, own=None, data_dir=None, plain: ClientApp | None = None) -> ClientApp:
    """The clients' side of a spec as a Flower ClientApp.

    `plain` is the ClientApp of an app that exists. It trains where a client lives that the server
    calls plain.

    A node's configuration (`flower-supernode --node-config`) says which clients live there:
    `clients`, such as `"0 2"`; or Flower's `partition-id` and `num-partitions`, as its simulation
    has them. `fl-home` is the folder where what lasts is kept (otherwise `home`, FL_NODE_HOME,
    `~/.local/state/fl/node`), `fl-node` the file of a node with data of its own, `fl-data` the data
    directory.
    """
    app = ClientApp() if plain is None else _Both(plain)

    @app.query("who")
    def who(message: Message, context: Context) -> Message:
        try:
            clients = _clients(_node(spec, context, home, own, data_dir), context, own)
            strangers = set(message.content["who"]["plain"]) if "who" in message.content else set()
            here = [client for client in clients if client in strangers]
            if here and plain is None:
                raise Refused(f"client {here[0]} is a plain one for the server, and this node has no app for it: client_app(spec, plain=..)")
            if len(here) > 1:
                raise Refused(f"clients {', '.join(map(str, here))} are plain ones, and an app is one client: begin a node for each")
            said = {"clients": " ".join(str(client) for client in clients if client not in strangers)}
            if here:
                said["plain"] = str(here[0])
        except Refused as error:
            said = {"wrong": str(error)}
        except Exception as error:
            said = {"wrong": _log(error)}
        return Message(RecordDict({"who": ConfigRecord(said)}), reply_to=message)

    @app.query("fl")
    def fl(message: Message, context: Context) -> Message:
        try:
            head, body = _node(spec, context, home, own, data_dir).answer(*_unpack(message.content))
        except Exception as error:
            # Flower sends the text of an exception to the server
            raise RunError(_log(error)) from None
        return Message(_pack(head, _array(body)), reply_to=message)

    return app
