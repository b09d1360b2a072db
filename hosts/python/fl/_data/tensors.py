"""Arrays by name in the format of safetensors (<https://huggingface.co/docs/safetensors>)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._parts import state as _state

_BESIDE = "fl.beside"
_NUMPY = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8,
    "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip
_NAMES = {np.dtype(kind): name for name, kind in _NUMPY.items()}


def pack(values: Mapping[str, Any], beside: Mapping[Any, Any] | None = None) -> bytes:
    """Arrays, and tensors of PyTorch, by name; `beside` are values for `unpack_beside`."""
    head: dict[str, Any] = {"__metadata__": {_BESIDE: _state.save({"": dict(beside)}).hex()}} if beside else {}
    body, at = [], 0
    for name in sorted(values):
        kind, shape, data = _raw(name, values[name])
        head[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        body.append(data)
        at += len(data)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(body)


def _raw(name: str, value: Any) -> tuple[str, list[int], bytes]:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            import torch

            return "BF16", [*value.shape], value.contiguous().view(torch.int16).numpy().tobytes()
        value = value.numpy()
    value = np.asarray(value)
    if (kind := _NAMES.get(value.dtype)) is None:
        raise TypeError(f"`{name}`: arrays of {value.dtype} cannot be written as safetensors")
    return kind, [*value.shape], value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()


def unpack_beside(data: bytes) -> dict[Any, Any]:
    """The values that `pack` was given beside the arrays."""
    try:
        (length,) = struct.unpack_from("<Q", data)
        text = json.loads(bytes(data[8 : 8 + length])).get("__metadata__", {}).get(_BESIDE)
        return {} if text is None else _state.load(bytes.fromhex(text))[""]
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no model ({error})") from None


def unpack(data: bytes) -> dict[str, np.ndarray] | None:
    """Arrays by name; of bfloat16, floats. `None`: it is no such file."""
    if (found := _views(data)) is None:
        return None
    arrays = {}
    for name, (kind, shape, raw) in found.items():
        array: Any
        if kind == "BF16":
            array = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            array = np.frombuffer(raw, _NUMPY[kind]).copy()
        arrays[name] = array.reshape(shape)
    return arrays


def unpack_tensors(data: bytes) -> dict[str, Any] | None:
    """As `unpack`, tensors of PyTorch in their own types."""
    import torch

    if (found := _views(data)) is None:
        return None
    tensors = {}
    for name, (kind, shape, raw) in found.items():
        array = np.frombuffer(raw, np.int16 if kind == "BF16" else _NUMPY[kind]).copy()
        tensor = torch.from_numpy(array).view(torch.bfloat16) if kind == "BF16" else torch.from_numpy(array)
        tensors[name] = tensor.reshape(shape)
    return tensors


def _views(data: bytes) -> dict[str, tuple[str, list[int], memoryview]] | None:
    try:
        (length,) = struct.unpack_from("<Q", data)
        head = json.loads(bytes(data[8 : 8 + length]))
        body, found = memoryview(data)[8 + length :], {}
        for name, about in head.items():
            if name == "__metadata__":
                continue
            start, end = about["data_offsets"]
            if about["dtype"] not in _NUMPY and about["dtype"] != "BF16" or end > len(body):
                return None
            found[name] = about["dtype"], [*about["shape"]], body[start:end]
        return found
    except (struct.error, ValueError, KeyError, TypeError, AttributeError):
        return None
