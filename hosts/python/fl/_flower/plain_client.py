"""A plain client of Flower in rounds of parameters: what it is asked and says, in fl's wire form.

Such a client knows nothing of fl. It gets parameters and trains them as it likes, and gives
parameters and how many examples it has. This module reads a request as `hosts/remote/src/wire.rs`
writes it, and writes the reply; a test compares both with a node.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import SpecError

#: `wire::VERSION`.
VERSION = 9
#: `RequestKind` and `AnswerKind`, by their positions.
HELLO, ANSWER, OVER = 0, 1, 4
HERE, ANSWERED, FORGOTTEN = 0, 1, 4
#: The exchange that such a client answers.
TRAIN = "parameters after local training"
NOTE = (
    "plain client of Flower, without fl's guarantees: its own app decides how it trains and what leaves it, so the same spec and seed "
    "need not come to the same result"
)


class Wrong(Exception):
    """A request or a reply that a plain client's side cannot make anything of."""


class _Reader:
    def __init__(self, bytes: bytes):
        self.bytes, self.at = bytes, 0

    def take(self, count: int) -> bytes:
        if count > len(self.bytes) - self.at:
            raise Wrong("a request that was cut short")
        self.at += count
        return self.bytes[self.at - count : self.at]

    def number(self) -> int:
        """A varint of postcard."""
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise Wrong("a request with a number of more than 64 bits")

    def text(self) -> str:
        return self.take(self.number()).decode()


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _text(text: str) -> bytes:
    return _number(len(text.encode())) + text.encode()


@dataclass
class Request:
    """What the head of a request says, as far as a plain client has to do with it."""

    run: bytes
    client: int
    number: int
    want: int
    label: str = ""
    round: int = 0
    needs_samples: bool = False
    needs_loss: bool = False


def read(head: bytes, body: bytes) -> Request:
    """The request with this head and this message."""
    if (version := int.from_bytes(head[:4], "little")) != VERSION:
        raise Wrong(f"a request in wire format {version}, and plain clients are known in {VERSION}")
    if zlib.crc32(body, zlib.crc32(head[8:])) != int.from_bytes(head[4:8], "little"):
        raise Wrong("a request that was damaged on its way: its checksum does not match")
    reader = _Reader(head[8:])
    id, life, spec = reader.take(16), reader.number(), reader.take(32)
    client, number = reader.number(), reader.number()
    [reader.number() for _ in ("had", "from", "kept")]
    reader.take(1)  # whether the client has a lasting state: never
    request = Request(id + _number(life) + spec, client, number, reader.number())
    if request.want == ANSWER:
        request.label = reader.text()
        request.round = reader.number()
        samples, classes, loss, _ = reader.take(4)
        request.needs_samples, request.needs_loss = bool(samples), bool(loss)
        if classes:
            raise Wrong("the aggregator wants examples by class, which a plain client does not say")
    return request


def _reply(request: Request, head: bytes, said: bytes, body: bytes = b"") -> bytes:
    node = hashlib.sha256(b"plain client %d" % request.client).digest()[:16]
    about = hashlib.sha256(head).digest()
    reply = request.run + _number(request.client) + _number(request.number) + about + node + said
    return struct.pack("<II", VERSION, zlib.crc32(body, zlib.crc32(reply))) + reply


def here(request: Request, head: bytes) -> bytes:
    """That it is there, and does not say how many examples it has."""
    return _reply(request, head, bytes([HERE, 0]))


def forgotten(request: Request, head: bytes) -> bytes:
    return _reply(request, head, bytes([FORGOTTEN]))


def numbers(record: Mapping[str, Any], what: str) -> tuple[dict[str, float], list[str]]:
    """What a client measured, by names for results, and what to say of the rest."""
    found = {name: value for name, value in record.items() if isinstance(value, (int, float))}
    lists = [name for name in record if name not in found]
    notes = [f"lists among the metrics of its `{what}` are left out: {', '.join(lists)}"] if lists else []
    return {f"plain.{what}.{name}": float(value) for name, value in found.items()}, notes


def answer(
    request: Request, head: bytes, body: bytes, samples: int | None, loss: float | None, measures: Mapping[str, float] = {}, notes: Sequence[str] = ()
) -> bytes:
    """The head of the answer to a training, which this message follows, with what the client
    measured and what a user should know."""
    if request.needs_samples and samples is None:
        raise Wrong("its reply has no `num-examples` in a MetricRecord, and the aggregator weighs clients by it")
    if request.needs_loss and loss is None:
        raise Wrong("its reply has no `train_loss` in a MetricRecord, and the aggregator wants the training loss")
    said = bytes([ANSWERED])
    said += b"\1" + _number(samples or 0) if request.needs_samples else b"\0"
    said += b"\0"  # examples by class
    said += b"\1" + struct.pack("<f", loss) if request.needs_loss else b"\0"
    notes = [*([NOTE] if request.number == 1 else []), *notes]
    said += b"\0" + _number(len(notes)) + b"".join(map(_text, notes))  # it spent nothing
    said += _number(len(measures)) + b"".join(_text(name) + struct.pack("<d", value) for name, value in measures.items())
    said += b"\0"  # it has no lasting state
    return _reply(request, head, said, body)


def parameters(body: bytes) -> dict[str, np.ndarray]:
    """The arrays of a message of parameters."""
    size = int.from_bytes(body[:4], "little")
    reader, at = _Reader(body[4 : 4 + size]), 4 + size
    if (kind := reader.text()) != "params":
        raise Wrong(f"a plain client gets parameters, and this is a message of kind `{kind}`")
    arrays = {}
    for _ in range(reader.number()):
        name, dtype = reader.text(), reader.take(1)[0]
        shape = tuple(reader.number() for _ in range(reader.number()))
        if dtype != 0:
            raise Wrong(f"parameter `{name}` is not of floats")
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(body, "<f4", count, at).reshape(shape)
        at += 4 * count
    return arrays


def message(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays by name as a message of parameters."""
    named = sorted(arrays.items(), key=lambda one: one[0].encode())
    head = _text("params") + _number(len(named))
    for name, array in named:
        head += _text(name) + b"\0" + _number(array.ndim) + b"".join(map(_number, array.shape))
    numbers = (np.ascontiguousarray(array, "<f4").tobytes() for _, array in named)
    return b"".join([struct.pack("<I", len(head)), head, *numbers])


def check(spec: Mapping[str, Any], clients: Iterable[int]) -> Sequence[int]:
    """Plain clients of a resolved spec, if it promises nothing that they would not keep.

    Raises `SpecError` if it does.
    """
    clients = sorted(set(clients))
    wrong = []
    protocol = spec["protocol"]
    if protocol["use"] != "fedavg":
        wrong.append(f"protocol: plain clients take part in `fedavg`, and this is `{protocol['use']}`")
    # the server's own, and what the client's app decides in its place; anything else is off
    free = {"use", "rounds", "local", "fresh", "initial", "initial-is-public", "attacker-trainings"}
    on = [name for name, value in protocol.items() if name not in free and value not in (None, "none", 0, False, [])]
    wrong += [f"protocol.{name}: a plain client does not do that; leave it out" for name in on]
    if (protocol.get("local") or {}).get("clip") is not None:
        wrong.append("protocol.local.clip: a plain client does not clip; leave it out")
    if (protocol.get("local") or {}).get("rate") is not None:
        wrong.append("protocol.local.rate: a plain client has a rate of its own; leave it out")
    # the server's own; any other part would be a promise about clients
    server = {"model", "aggregator", "cohort"}
    for slot in sorted(spec["parts"].keys() - server):
        why = "no client that is not fl's keeps it" if "privacy" in slot or slot == "accountant" else "a plain client has no such part"
        wrong.append(f"parts.{slot}: {why}; leave it out, or leave plain clients out")
    if spec.get("noise") == "system":
        wrong.append("noise: `system` says that a guarantee is meant, and plain clients give none")
    known = range(spec["data"]["clients"])
    wrong += [f"plain: there is no client {client}; the spec has {len(known)}, from 0" for client in clients if client not in known]
    if wrong:
        raise SpecError("\n".join(f"plain clients of Flower: {one}" for one in wrong))
    return clients
