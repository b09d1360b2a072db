"""State of a part as bytes: plain values, arrays and tensors, and no code."""

from __future__ import annotations

import io
import json
import struct
import sys
from collections import Counter, OrderedDict

import numpy as np

_LISTS = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
_MAPPINGS = {dict: "dict", OrderedDict: "ordered", Counter: "counter"}
_NEW = {"list": list, "set": set, "dict": dict, "ordered": OrderedDict, "counter": Counter}
# NumPy below 2 has it at its top
_bounds = getattr(np.lib, "array_utils", np).byte_bounds


class Unsavable(TypeError):
    """A value that cannot be written down. `kind` is its type."""

    def __init__(self, value):
        self.kind = type(value).__name__
        super().__init__(f"a value of type {self.kind} cannot be saved: keep numbers, texts, lists, mappings, arrays and tensors")


def _torch():
    """PyTorch, if this process has imported it."""
    return sys.modules.get("torch")


def _tensor_kind(value) -> str | None:
    torch = _torch()
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    return {torch.Tensor: "tensor", torch.nn.Parameter: "parameter"}.get(type(value))


def is_jax(value) -> bool:
    """An array of JAX, whose numbers are known here."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)


class _Packer:
    """Values as JSON and a list of arrays. A second reference to the same list, mapping or array
    stays one."""

    def __init__(self):
        self.arrays: list[np.ndarray] = []
        self.seen: dict[int, int] = {}
        self.kept: list = []  # so that no two values have had the same address

    def pack(self, value):
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is bytes:
            return ["bytes", value.hex()]
        if isinstance(value, np.generic) and value.dtype != object:
            return ["scalar", self._array(np.asarray(value))]
        if kind is tuple or kind is frozenset:
            inner = sorted(value, key=repr) if kind is frozenset else value
            return [_LISTS[kind], *map(self.pack, inner)]
        if (known := self.seen.get(id(value))) is not None:
            return ["same", known]
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        if kind in _LISTS:
            inner = sorted(value, key=repr) if kind is set else value
            return [_LISTS[kind], *map(self.pack, inner)]
        if kind in _MAPPINGS:
            return [_MAPPINGS[kind], *([self.pack(k), self.pack(v)] for k, v in value.items())]
        if kind is np.ndarray and value.dtype != object:
            return ["array", self._array(value)]
        if (tensor := _tensor_kind(value)) is not None:
            head = [str(value.device), bool(value.requires_grad and value.is_leaf)]
            held = value.detach().cpu()
            if held.dtype == _torch().bfloat16:  # numpy lacks it
                return [tensor, self._array(held.contiguous().view(_torch().int16).numpy()), *head, "bfloat16"]
            try:
                return [tensor, self._array(held.numpy()), *head]
            except (TypeError, RuntimeError):  # another type that numpy lacks
                raise Unsavable(value) from None
        if is_jax(value) and not sys.modules["jax"].dtypes.issubdtype(value.dtype, sys.modules["jax"].dtypes.extended):
            held = np.asarray(value)
            # numpy writes no type of others, such as bfloat16
            return ["jax", self._array(held.view(f"u{held.itemsize}") if held.dtype.kind == "V" else held), str(value.dtype)]
        raise Unsavable(value)

    def _array(self, array: np.ndarray) -> int:
        self.arrays.append(array)
        return len(self.arrays) - 1


def check(value) -> None:
    """Raises `Unsavable` if the value cannot be written down. Copies no array."""
    _Packer().pack(value)


def refuse_views(kept: dict) -> None:
    """Raises a `TypeError` if two of the arrays share memory, which they would not once loaded."""
    found = []
    for name, value in kept.items():
        packer = _Packer()
        packer.pack(value)
        arrays = {id(one): one for one in packer.kept if type(one) is np.ndarray and one.size}
        found += [(*_bounds(one), name, one) for one in arrays.values()]
    found.sort(key=lambda one: one[:2])
    for at, (_, end, name, one) in enumerate(found):
        for low, _, other, two in found[at + 1 :]:
            if low >= end:
                break
            if two is not one and (one.flags.writeable or two.flags.writeable) and np.shares_memory(one, two):
                raise TypeError(f"what it keeps as `{name}` and as `{other}` shares memory, and would not after a stop: keep a copy (`.copy()`) or one of them")


def save(remembered: dict) -> bytes:
    """Values by name. Raises `Unsavable` for a value that cannot be written down."""
    packer = _Packer()
    head = json.dumps({name: packer.pack(value) for name, value in remembered.items()}).encode()
    out = io.BytesIO()
    out.write(struct.pack("<Q", len(head)) + head)
    for array in packer.arrays:
        np.save(out, array, allow_pickle=False)
    return out.getvalue()


def load(state: bytes) -> dict:
    """What `save` was given."""
    (length,) = struct.unpack_from("<Q", state)
    head = json.loads(state[8 : 8 + length])
    rest, arrays = io.BytesIO(state[8 + length :]), []
    while rest.tell() < len(state) - 8 - length:
        arrays.append(np.load(rest, allow_pickle=False))
    known: list = []

    def unpacked(value):
        if not isinstance(value, list):
            return value
        kind, *inner = value
        match kind:
            case "bytes":
                return bytes.fromhex(inner[0])
            case "scalar":
                return arrays[inner[0]][()]
            case "tuple":
                return tuple(unpacked(one) for one in inner)
            case "frozenset":
                return frozenset(unpacked(one) for one in inner)
            case "same":
                return known[inner[0]]
            case "array":
                known.append(arrays[inner[0]])
                return known[-1]
            case "jax":
                import jax.numpy

                dtype = jax.numpy.dtype(inner[1])
                known.append(jax.numpy.asarray(arrays[inner[0]].view(dtype) if dtype.kind == "V" else arrays[inner[0]]))
                return known[-1]
            case "tensor" | "parameter":
                known.append(_tensor(kind, arrays[inner[0]], *inner[1:]))
                return known[-1]
        made = _NEW[kind]()
        known.append(made)  # before what is in it, which may refer to it
        for one in inner:
            match kind:
                case "list":
                    made.append(unpacked(one))
                case "set":
                    made.add(unpacked(one))
                case _:
                    key = unpacked(one[0])
                    made[key] = unpacked(one[1])
        return made

    return {name: unpacked(value) for name, value in head.items()}


def _tensor(kind: str, array: np.ndarray, device: str, grad: bool, dtype: str | None = None):
    import torch

    tensor = torch.from_numpy(array.copy())
    tensor = (tensor if dtype is None else tensor.view(getattr(torch, dtype))).to(device)
    return torch.nn.Parameter(tensor, grad) if kind == "parameter" else tensor.requires_grad_(grad)
