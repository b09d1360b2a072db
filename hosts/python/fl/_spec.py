"""Specs in whatever form they come: a file, a text, or a mapping."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ._errors import Mistake, SpecError

_DEEP = 100  # as deep as a spec may be


def _wrong(path: str, text: str) -> SpecError:
    mistake = Mistake(text, path)
    return SpecError(str(mistake), (mistake,))


def _sayable(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def flow(value, path: str = "") -> str:
    """A value as YAML in one line."""
    if path.count(".") + path.count("[") > _DEEP:
        raise _wrong(path[:60] + "...", f"is more than {_DEEP} levels deep")
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 and hasattr(value, "dtype"):
        value = value.item()  # numpy's numbers
    match value:
        case None | bool() | int():
            return json.dumps(value)
        case float():
            if math.isnan(value):
                return ".nan"
            return json.dumps(value) if math.isfinite(value) else (".inf" if value > 0 else "-.inf")
        case str():
            if not _sayable(value):
                raise _wrong(path, f"is no text that can be written: {value!r}"[:200])
            return json.dumps(value, ensure_ascii=False)
        case os.PathLike():
            return flow(os.fsdecode(value), path)
        case Mapping():
            items = []
            for key, inner in value.items():
                if not isinstance(key, str) or not _sayable(key):
                    raise _wrong(path, f"a name must be text, got {key!r} ({type(key).__name__})")
                below = f"{path}.{key}" if path else key
                items.append(f"{json.dumps(key, ensure_ascii=False)}: {flow(inner, below)}")
            return "{" + ", ".join(items) + "}"
        case Sequence() if not isinstance(value, (bytes, bytearray, memoryview)):
            return "[" + ", ".join(flow(inner, f"{path}[{at}]") for at, inner in enumerate(value)) + "]"
    if hasattr(value, "tolist"):
        return flow(value.tolist(), path)
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "_fl"):
        return flow(plain(value), path)
    if hasattr(value, "_fl"):
        return flow({"use": value._fl["name"], **settings_of(value)}, path)
    kind = type(value).__name__
    raise _wrong(path, f"must be a mapping, a list, text, a number, true, false or None; got {value!r} ({kind})"[:300])


def setting(field: str) -> str:
    """The name of the setting of a field: `warm_up` is `warm-up`, and `from_`, since `from` is a
    word of Python, is `from`."""
    return field.rstrip("_").replace("_", "-")


def plain(value):
    """A group of settings as a mapping."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    return {setting(one.name): plain(getattr(value, one.name)) for one in dataclasses.fields(value)}


def settings_of(part) -> dict:
    """The settings of a part that was made by its class; none of the class itself."""
    if isinstance(part, (str, type)):
        return {}
    return {setting(name): getattr(part, name) for name in part._fl["fields"]}


def source(spec) -> tuple[str, str, bool]:
    """Name, text, and whether it is a mapping."""
    if isinstance(spec, Mapping):
        return "spec", flow(spec), True
    if isinstance(spec, str) and ("\n" in spec or spec.lstrip().startswith("{")):
        if not _sayable(spec):
            raise _wrong("", "the spec's text has halves of characters in it, which cannot be written")
        return "spec", spec, False
    if not isinstance(spec, (str, os.PathLike)):
        text = f"a spec is a path, a text in YAML or a mapping, got {type(spec).__name__}"
        raise SpecError(text, (Mistake(text, ""),))
    path = Path(spec)
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no regular file")
        with path.open("rb") as file:
            text = file.read((8 << 20) + 1)  # more than a spec may have
        return str(path), text.decode(), False
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"{path}: {why}", (Mistake(why, "", file=str(path)),)) from None


def overrides(set) -> list[str]:
    """`{"protocol.rounds": 5}` as `--set` has it."""
    if set is None:
        return []
    if isinstance(set, Mapping):
        for path in set:
            if not isinstance(path, str):
                raise _wrong("", f"a setting must be named by its path, such as `protocol.rounds`, got {path!r}")
        return [f"{path}={flow(value, path)}" for path, value in set.items()]
    if isinstance(set, str):
        return [set]
    return [str(one) for one in set]
