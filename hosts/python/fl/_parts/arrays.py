"""Arrays in the types that cross to the program."""

from __future__ import annotations

import numpy as np

_TYPES = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "u32": np.uint32, "u8": np.uint8}
_WHOLE = {"classes": np.uint32, "pixels": np.uint32, "multi-label": np.int64}


def not_masked(array, what: str = "it"):
    """The same array. Nothing that fl does knows masks, so one that masks a number is refused."""
    some = array if isinstance(array, (list, tuple)) else (array,)
    if any(np.ma.is_masked(one) for one in some):
        raise ValueError(f"{what} has masked numbers, and fl would read what is below the mask; give `array.filled(..)`, or leave them out")
    return array


def target_array(kind: str, target) -> np.ndarray:
    """A target of this kind in the type that crosses."""
    if (dtype := _WHOLE.get(kind)) is None:
        return np.ascontiguousarray(target, np.float32)
    array = np.asarray(target)
    with np.errstate(invalid="ignore"):
        whole = np.ascontiguousarray(array, dtype)
    if len(off := np.argwhere(whole != array)):
        what = "1, 0, or -1 for unknown" if kind == "multi-label" else "whole numbers, 0 or more"
        raise ValueError(f"the target of sample {off[0][0]} is {array[tuple(off[0])]}; a target of {kind} has {what}")
    return whole


def declared_array(name: str, array, declared: str) -> np.ndarray:
    """In the type that the message declares for it."""
    if (dtype := _TYPES.get(declared)) is None:
        raise TypeError(f"`{name}`: arrays of {declared} cannot be given by Python")
    array = np.asarray(not_masked(array, f"`{name}`"))
    if array.dtype.kind not in "iu" and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(f"`{name}` must be an array of {declared}, got {array.dtype}")
    if array.dtype.kind in "iu" and np.issubdtype(dtype, np.integer) and array.size:
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        if array.min() < least or array.max() > most:
            raise ValueError(f"`{name}`: numbers of {declared} are in {least}..={most}, got {array.min()} to {array.max()}")
    with np.errstate(over="ignore"):  # the program says which number is not finite
        return np.ascontiguousarray(array, dtype=dtype).reshape(array.shape)


def array_of(name: str, array, wide: bool = False) -> np.ndarray:
    if type(array) is not np.ndarray:
        array = np.asarray(not_masked(array, f"`{name}`"))
    kind = array.dtype.kind
    if kind == "f":
        if array.dtype != (dtype := np.float64 if wide else np.float32):
            with np.errstate(over="ignore"):  # the program says which number is not finite
                array = array.astype(dtype, order="C")
    elif array.dtype == np.uint8 and array.ndim == 1:
        pass
    elif kind in "iu":
        if array.size and (array.min() < 0 or array.max() > 0xFFFF_FFFF):
            raise ValueError(f"`{name}`: whole numbers must be in 0..=4294967295, got {array.min()} to {array.max()}")
        array = array.astype(np.uint32, order="C", copy=False)
    else:
        raise TypeError(f"`{name}` must be an array of floats or whole numbers, got {array.dtype}")
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)
