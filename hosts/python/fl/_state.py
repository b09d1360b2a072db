"""What a part remembers, as bytes: plain values and arrays, and no code."""

from __future__ import annotations

import io
import json
import struct

import numpy as np


def _packed(name: str, value, arrays: list):
    match value:
        case None | bool() | int() | float() | str():
            if type(value) in (type(None), bool, int, float, str):
                return value
        case list() | tuple() | set() | frozenset() if not hasattr(value, "_fields"):
            kind = {list: "list", tuple: "tuple", set: "set", frozenset: "set"}.get(type(value))
            if kind:
                inner = sorted(value, key=repr) if kind == "set" else value
                return [kind, *(_packed(name, one, arrays) for one in inner)]
        case dict():
            if type(value) is dict:
                return ["dict", *([_packed(name, k, arrays), _packed(name, v, arrays)] for k, v in value.items())]
        case bytes():
            return ["bytes", value.hex()]
        case np.ndarray() | np.generic():
            if value.dtype != object:
                arrays.append(value)
                return ["scalar" if isinstance(value, np.generic) else "array", len(arrays) - 1]
    raise TypeError(
        f"what it remembers as `{name}` ({type(value).__name__}) cannot be saved: keep numbers, texts, lists, mappings and arrays "
        "on self, call it `_" + name.lstrip("_") + "` if it may be forgotten when a run stops, or write save() and load(state)"
    )


def save(remembered: dict) -> bytes:
    """Values by name."""
    arrays: list = []
    head = json.dumps({name: _packed(name, value, arrays) for name, value in remembered.items()}).encode()
    out = io.BytesIO()
    out.write(struct.pack("<Q", len(head)) + head)
    for array in arrays:
        np.save(out, array, allow_pickle=False)
    return out.getvalue()


def load(state: bytes) -> dict:
    """What `save` was given."""
    (length,) = struct.unpack_from("<Q", state)
    head = json.loads(state[8 : 8 + length])
    rest, arrays = io.BytesIO(state[8 + length :]), []
    while rest.tell() < len(state) - 8 - length:
        arrays.append(np.load(rest, allow_pickle=False))

    def unpacked(value):
        if not isinstance(value, list):
            return value
        kind, *inner = value
        match kind:
            case "list":
                return [unpacked(one) for one in inner]
            case "tuple":
                return tuple(unpacked(one) for one in inner)
            case "set":
                return {unpacked(one) for one in inner}
            case "dict":
                return {unpacked(k): unpacked(v) for k, v in inner}
            case "bytes":
                return bytes.fromhex(inner[0])
            case "scalar":
                return arrays[inner[0]][()]
        return arrays[inner[0]]

    return {name: unpacked(value) for name, value in head.items()}
