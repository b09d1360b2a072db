"""A protocol in Python, as the program calls it."""

from __future__ import annotations

import json
from typing import Any

from .._parts.arguments import Message
from . import outside
from .declarations import Array, Arrays, Exchange, Part, Slot, _listed, _value, members
from .requests import _held, _Program, has_run, packed, told, unchanged, who
from .server_and_client import Client, Server


def begin(part: Part) -> None:
    """Remembers what a new part holds."""
    object.__setattr__(part, "_fl_held", _held(part))
    outside.begin(part)


def declare(part: Part) -> str:
    slots = [one.declared(part) for one in members(type(part), Slot)]
    exchanges = [one for one in members(type(part), Exchange) if one.options["when"] is None or one.options["when"](part)]
    clipping = {slot.name for one in exchanges for slot in _listed(one.options["bounds"])}
    for one in slots:
        one["only_clips"] = one["only_clips"] or one["name"] in clipping
    of = {"slots": slots, "exchanges": [one.declared(part) for one in exchanges]}
    grows = getattr(part, "grows_by", None)
    return json.dumps(of | {"grows": grows and grows.replace("_", "-"), "begins_with": getattr(part, "begins_with", None), "loads": getattr(part, "loads", None), "pooled": bool(getattr(part, "pools_data", False))})


def lead(part: Part, text: str, host: Any) -> None:
    facts = json.loads(text)
    try:
        has_run(part.lead(Server(_Program(part, host, facts), facts)), "it")
        unchanged(part)
        outside.warn_of_changes(part, who(part))
    except Exception as error:
        error._fl_told = told(part, error, "lead")  # type: ignore[attr-defined]
        raise


def answer(part: Part, text: str, messages: list[Any], host: Any) -> dict[str, Array]:
    facts = json.loads(text) | {"client": messages[0][0], "key": host.key()}
    found = next((one for one in members(type(part), Exchange) if one.label == facts["label"]), None)
    if found is None:
        raise LookupError(f"the protocol declares no exchange `{facts['label']}`")
    client, sent = Client(_Program(part, host, facts), facts), Message(messages[0][3])
    try:
        if drawn := _value(part, found.options["draws"]):
            client._program.ask("draw_private", slot=drawn.name)
        made: Any = found.answer(part, client, sent)
        made = _staged(found, client, sent, made)
        unchanged(part)
        outside.warn_of_changes(part, who(part))
        return packed(found.answers, made)
    except Exception as error:
        error._fl_told = told(part, error, found.name)  # type: ignore[attr-defined]
        raise


def _staged(exchange: Exchange, client: Client, sent: Arrays, made: Any) -> Any:
    """The answer, released and forged as declared."""
    if (release := exchange.releases(client._program.part)) and client.has(release.slot):
        made = packed(exchange.answers, made)
        made = release.put(sent, made, client.release(release.slot, release.take(sent, made)))
    for slot in _listed(exchange.options["bounds"]):
        if client.has(slot):
            made = client.clip(slot, made)
    attack = exchange.options["forged_by"]
    if attack and client.has(attack):
        made = client._aggregate(attack, client._at(attack), [made], None, sent, "attack")
    return made


def conflicts(part: Part, text: str) -> str:
    filled = frozenset(json.loads(text)["filled"])
    found = part.conflicts(lambda slot: (slot if isinstance(slot, str) else slot.name) in filled) if hasattr(part, "conflicts") else []
    return json.dumps([{"setting": one[0].replace("_", "-"), "text": one[1]} if isinstance(one, tuple) else {"setting": None, "text": one} for one in found])


def suits(part: Part, text: str) -> str:
    facts = json.loads(text)
    kind = next(iter(facts["kind"])).lower() if isinstance(facts["kind"], dict) else str(facts["kind"]).lower()
    return json.dumps(part.suits(kind) if hasattr(part, "suits") else None)
