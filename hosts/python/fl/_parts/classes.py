"""Classes become parts: their annotated fields are settings, which a spec sets and the program
checks."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import importlib.machinery
import inspect
import json
import operator
import os
import sys
import threading
import traceback
import types
import typing
from pathlib import Path

from .. import _fl
from .._protocol import declarations
from .._spec import flow, plain, setting
from . import metric as _metric, packages, source as _source

CLASSES: list[type] = []  # a part's number is its position, so nothing is ever taken out
# whose module has another name
_PACKAGES = {"sklearn": "scikit-learn", "PIL": "pillow", "cv2": "opencv-python", "yaml": "pyyaml"}
MESSAGES: dict[str, dict] = {}  # by kind: what was declared of it
SIZES: dict[str, typing.Any] = {}  # by kind: its `size`
LOADED: set[str] = set()  # modules that specs have named
_LOCK = threading.RLock()
_SEEN: dict[str, str] = {}  # by module: the hash of its source when its parts were declared
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_RANGES = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_WORDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
_MUST = {
    "aggregator": ("aggregate",),
    "attack": ("aggregate",),
    "selector": ("select",),
    "privacy": ("clip", "price", "perturb"),
    "trainer": ("fit", "predict", "save", "load"),
    "protocol": ("lead",),
}
# by method: what the program calls it with
_SAVES = {"save": "", "load": "state"}
_COMBINES = {"aggregate": "round, inbox", "fold": "round", "update": "round, message"} | _SAVES
_TAKES: dict[str, dict[str, str]] = {
    "aggregator": _COMBINES,
    "attack": _COMBINES,
    "selector": {
        "fit": "own, classes, stream",
        "select": "round, pool",
        "poll": "round, pool",
    }
    | _SAVES,
    "privacy": {
        "clip": "message",
        "price": "message, cohort",
        "perturb": "message, cohort, noise",
        "range": "message",
        "agree": "ranges",
        "queries": "message",
        "truncate": "message, queries",
        "actual_cost": "rows",
    }
    | _SAVES,
    "trainer": {
        "fit": "x, target, how, stream",
        "predict": "x",
        "features": "x",
        "vjp": "x, slope",
        "gradient": "x, target, how",
        "clipped_gradients": "x, target, how, clip",
        "descend": "gradient, at, of",
        "params": "",
        "set_params": "params",
        "step_size": "",
        "save_state": "",
        "load_state": "state",
    }
    | _SAVES,
    "protocol": {"lead": "server"},
}
# by method: the one without which the program does not call it
_ONLY_WITH = {"update": "fold", "params": "set_params", "set_params": "params"}


def _schema(name: str, hint) -> tuple[dict, str, bool]:
    """The JSON Schema of a type, its doc, and whether it may be left out."""
    doc, ranges, optional = "", {}, False
    if typing.get_origin(hint) is typing.Annotated:
        hint, *more = typing.get_args(hint)
        for one in more:
            if isinstance(one, str):
                doc = one
            for key, word in _RANGES.items():
                if (limit := getattr(one, key, None)) is not None:
                    ranges[word] = limit
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [one for one in typing.get_args(hint) if one is not type(None)]
        optional = len(inner) < len(typing.get_args(hint))
        hint = inner[0] if len(inner) == 1 else None
        if typing.get_origin(hint) is typing.Annotated:
            schema, doc, _ = _schema(name, hint)
            return schema | ranges, doc, optional
    if typing.get_origin(hint) is typing.Literal:
        words = typing.get_args(hint)
        if all(isinstance(word, str) for word in words):
            return {"enum": list(words)}, doc, optional
    if typing.get_origin(hint) is list and len(typing.get_args(hint)) == 1:
        items, _, nullable = _schema(name, typing.get_args(hint)[0])
        if not nullable:
            return {"type": "array", "items": items | ranges}, doc, optional
    if typing.get_origin(hint) is dict:
        key, value = typing.get_args(hint)
        values, _, nullable = _schema(name, value)
        if key is str and not nullable and values.get("type") in _TYPES.values():
            return {"type": "object", "additionalProperties": values | ranges}, doc, optional
    if hint in _TYPES:
        return {"type": _TYPES[hint]} | ranges, doc, optional
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        about = " ".join((hint.__doc__ or "").split())
        return {"type": "object", "settings": list(_settings(hint).values()), "description": about}, doc, optional
    raise TypeError(f"setting `{name}`: its type must be bool, int, float, str, a Literal of texts, a dataclass of these, a list of these, a dict from str to bool, int, float or str, or one of them or None")


def _group(hint) -> type | None:
    """The dataclass of a setting that is a group of settings, or a list of such groups."""
    if typing.get_origin(hint) in (typing.Annotated, typing.Union, types.UnionType, list):
        return next((found for one in typing.get_args(hint) if (found := _group(one))), None)
    return hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None


def _check_mapping(key: str, schema: dict, mapping: dict) -> dict:
    """The values of a setting that is a mapping, each of its type and in its range."""
    word = schema["type"]
    wanted = next(kind for kind, name in _TYPES.items() if name == word)
    limits = {"minimum": operator.ge, "exclusiveMinimum": operator.gt, "maximum": operator.le, "exclusiveMaximum": operator.lt}
    out = {}
    for name, value in mapping.items():
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted:
            raise ValueError(f"{key}.{name}: must be {'an' if word == 'integer' else 'a'} {word}, got {value!r}")
        for limit, within in limits.items():
            if limit in schema and not within(value, schema[limit]):
                raise ValueError(f"{key}.{name}: must be {_WORDS[limit]} {schema[limit]}, got {value!r}")
        out[name] = value
    return out


def typed(cls: type, settings: typing.Mapping[str, typing.Any]) -> dict[str, typing.Any]:
    """The program's settings of a part or of a group, by the names of the fields; those of a group
    as its class."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {setting(name): name for name in hints}
    out = {}
    for key, value in settings.items():
        name = fields.get(key, key.replace("-", "_"))
        hint = hints.get(name)
        if isinstance(value, dict) and hint and (of := _schema(key, hint)[0].get("additionalProperties")):
            value = _check_mapping(key, of, value)
        elif group := _group(hint):
            try:
                if isinstance(value, dict):
                    value = group(**typed(group, value))
                elif isinstance(value, list):
                    value = [group(**typed(group, one)) if isinstance(one, dict) else one for one in value]
            except (TypeError, ValueError) as error:
                raise ValueError(f"{key}: {error}") from None
        out[name] = value
    return out


def _settings(cls: type) -> dict[str, dict]:
    """By the name that the field has in the class."""
    out = {}
    hints = typing.get_type_hints(cls, include_extras=True)
    made = {one.name: one.default_factory for one in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
    for name, hint in hints.items():
        if name.startswith("_") or typing.get_origin(hint) is typing.ClassVar:
            continue
        schema, doc, optional = _schema(name, hint)
        if hasattr(cls, name) or callable(made.get(name)):
            default = getattr(cls, name) if hasattr(cls, name) else made[name]()
            if schema.get("type") == "number" and isinstance(default, int):
                default = float(default)
            if default is None and not optional:
                raise TypeError(f"setting `{name}`: it is None by default, so its type must say so, such as `float | None`")
            schema["default"] = plain(default)
        elif optional:
            raise TypeError(f"setting `{name}`: what may be None must be None by default")
        doc = doc or name.replace("_", " ").capitalize() + "."
        out[name] = {"name": setting(name), "doc": doc, "schema": schema}
    return out


T = typing.TypeVar("T")


def _check_arguments(cls: type, takes: typing.Mapping[str, str]):
    """Refuses a method that cannot be called as the program calls it."""
    for name, given in ({"setup": "stream"} | takes).items():
        if (other := _ONLY_WITH.get(name)) and not hasattr(cls, other):
            continue
        method = inspect.getattr_static(cls, name, None)
        if isinstance(method, types.FunctionType):
            try:
                taken = inspect.signature(method, follow_wrapped=False)
                taken.bind(cls, *filter(None, given.split(", ")))
            except TypeError as error:
                raise TypeError(f"{cls.__name__}.{name}() is called as `{name}({given})`, and its declaration differs: {error}") from None


def _declared(role: str, name: str, signature: str) -> typing.Any:
    if not isinstance(name, str):
        raise TypeError(f"@fl.{role} takes the part's name, such as @fl.{role}('mine'), got {name!r}")

    def declare(cls):
        if not isinstance(cls, type):
            raise TypeError(f"@fl.{role} stands before a class, not before {cls!r}")
        missing = [method for method in _MUST[role] if not callable(getattr(cls, method, None))]
        if missing:
            raise TypeError(f"{cls.__name__}: {role} parts have {', '.join(f'{m}()' for m in _MUST[role])}; missing: {', '.join(missing)}")
        _check_arguments(cls, _TAKES[role])
        for lists in ("needs", "claims"):
            if isinstance(getattr(cls, lists, None), str):
                raise TypeError(f"{cls.__name__}: `{lists}` must be a list, such as [{getattr(cls, lists)!r}]")
        settings = _settings(cls)
        doc = " ".join((cls.__doc__ or f"{cls.__name__}, a part in Python.").split())
        about = {"role": role, "name": name, "signature": signature, "doc": doc, "settings": list(settings.values())}
        module = cls.__module__
        if role == "protocol":
            declarations.check(cls, MESSAGES)
        kinds = declarations.kinds(cls) if role == "protocol" else signature.split(" -> ")
        with _LOCK:
            messages = [MESSAGES[kind] for kind in dict.fromkeys(kinds) if kind in MESSAGES]
            text = json.dumps({"messages": messages, "parts": [about | {"index": len(CLASSES)}]})
            _fl.declare(text, origin(module), len(CLASSES))
            gives = MESSAGES.get(kinds[-1], {"tensors": []})["tensors"]
            types = {one["name"]: one["type"] for one in gives}
            cls._fl = {"role": role, "name": name, "signature": signature, "fields": tuple(settings), "types": types}
            CLASSES.append(cls)
            _take_settings(cls, settings)
            if (files := _files(module)) is not None:
                _SEEN[module.partition(".")[0]] = _hash(files)
        return cls

    return declare


def _take_settings(cls: type, settings: dict[str, dict]):
    """Settings by keyword: `MyMean(beta=0.5)`, checked as those of a spec. The program sets them
    before it calls `__init__`."""
    if dataclasses.is_dataclass(cls):
        return  # it takes them already
    own = cls.__init__
    required = [name for name, one in settings.items() if "default" not in one["schema"]]

    @functools.wraps(own)
    def __init__(self, *args, **given):
        chosen = {settings[name]["name"]: given.pop(name) for name in [*given] if name in settings}
        if chosen:
            part = f"{cls._fl['role']} {cls._fl['name']}"
            try:
                read = json.loads(_fl.settings(part, flow(chosen)))
            except ValueError as error:
                raise ValueError(f"{cls.__name__}: {error}") from None
            for name, value in typed(cls, {name: read[name] for name in chosen}).items():
                object.__setattr__(self, name, value)
        if missing := [name for name in required if not hasattr(self, name)]:
            raise TypeError(f"{cls.__name__}: settings are missing: {', '.join(missing)}")
        if args and own is object.__init__:
            raise TypeError(f"{cls.__name__} takes settings by name" + (f", such as {cls.__name__}({[*settings][0]}={args[0]!r})" if settings else ", and has none"))
        if given and own is object.__init__:
            known = ", ".join(settings) or "there are none"
            raise TypeError(f"{cls.__name__} has no setting `{[*given][0]}`; known: {known}")
        own(self, *args, **given)

    cls.__init__ = __init__


def message(
    kind: str,
    doc: str,
    tensors: typing.Mapping[str, tuple[str, ...]],
    reach: str = "any",
    *,
    size: typing.Callable[[types.SimpleNamespace], int] | None = None,
) -> str:
    """Declares a kind of message, for parts that are declared after it; gives `kind` back.

    `tensors` says of each tensor its type (`f32`, `f64`, `i64`, `u32`, `u8`), its shape and, if you
    like, what it holds: `{"rows": ("u32", "rows"), "spread": ("f64", "rows x 2", "lowest and
    highest score")}`. A shape is `any`, or sizes, each a number or a name that stands for one size
    throughout a message; a tensor `*` stands for any number of others. `rows` holds the ids of
    samples. `reach` says what one unit of data changes: `any` message becomes any other, a `sum`
    gains or loses its own, or it is `stated` in the message.

    `fl plan` knows the bytes of shapes of `rows`, `classes` and numbers. For other shapes
    `size(of)` gives the most bytes of one message: `of.params` of the model, `of.rows` of the
    exchange, `of.inputs` of a sample, `of.outputs`, `of.classes`, and `of.model`, the bytes of a
    saved model, or `None`.
    """
    columns = [dict(zip(("name", "type", "shape", "doc"), (name, *about), strict=False)) for name, about in tensors.items()]
    with _LOCK:
        SIZES[kind] = size
        MESSAGES[kind] = {"kind": kind, "doc": doc, "tensors": columns, "reach": reach}
    return kind


def size_of(text: str) -> str | None:
    """For the program: the most bytes of one message of a kind, if its declaration tells."""
    about = json.loads(text)
    size = SIZES.get(about.pop("kind"))
    return None if size is None else json.dumps(int(size(types.SimpleNamespace(**about))))


@typing.dataclass_transform(kw_only_default=True)
def settings_by_keyword(cls: type[T]) -> type[T]:
    """Tells type checkers that fields of this base class are settings of parts, which take them by
    keyword."""
    return cls


@typing.dataclass_transform(kw_only_default=True)
def aggregator(name: str, takes: str = "params", gives: str | None = None) -> typing.Callable[[type[T]], type[T]]:
    """Declares an aggregator, many answers in and one result out: a class with

    `aggregate(self, round, inbox) -> {name: array}`, and optionally `fold(self, round)`, which
    gives an object with `add(mail)` and `finish() -> {name: array}`, and `update(self, round,
    folded)`. `takes` and `gives` are kinds of messages (`fl inspect mean` shows one); a class may
    have `needs = ["samples", "class_counts", "training_loss", "sent"]` and `claims = ["order_free",
    "weight_scale_free", "weight_free", "within_hull", "of_mean"]`, to which the conformance kit
    holds it. A robust aggregator may have `robustness = {"share": 0.1, "per_bad": 2, "besides":
    1}`: of `n` answers `f = int(share * n)` may be bad, and it takes `f >= 1` and `n >= per_bad * f
    + besides`; checks and runs tell the user where there are fewer.
    """
    return _declared("aggregator", name, f"{takes} -> {gives or takes}")


@typing.dataclass_transform(kw_only_default=True)
def attack(name: str, on: str = "params") -> typing.Callable[[type[T]], type[T]]:
    """Declares an attack, which forges the answers of the clients that a spec names: a class with

    `aggregate(self, round, inbox) -> {name: array}`. The inbox has the honest results of one
    client, and `round.sent` what the client was sent, if the class has `needs = ["sent"]`. `on` is
    the kind of message that it forges: `params`, or `votes` for labels.
    """
    return _declared("attack", name, on)


@typing.dataclass_transform(kw_only_default=True)
def selector(name: str, pool: str = "clients") -> typing.Callable[[type[T]], type[T]]:
    """Declares a selector, which picks some of many: a class with

    `select(self, round, pool) -> positions`, and optionally `poll(self, round, pool)`, `fit(self,
    own, stream)`, and `draw`, which says how it draws clients. `pool` is `clients`, `samples` or
    `soft-labels`.
    """
    return _declared("selector", name, pool)


@typing.dataclass_transform(kw_only_default=True)
def privacy(name: str, on: str = "params") -> typing.Callable[[type[T]], type[T]]:
    """Declares a privacy mechanism on a kind of message: a class with

    `clip(self, message) -> {name: array}`, `price(self, message, cohort) -> event` and
    `perturb(self, message, cohort, noise) -> {name: array}`, and optionally `range`, `agree`,
    `queries`, `truncate`, `actual_cost`.
    """
    return _declared("privacy", name, on)


@typing.dataclass_transform(kw_only_default=True)
def trainer(name: str) -> typing.Callable[[type[T]], type[T]]:
    """Declares a trainer, a model that learns: see `fl.torch.Trainer` and `fl.sklearn.Trainer`, or
    write a class with `fit`, `predict`, `save` and `load`."""
    return _declared("trainer", name, "")


@typing.dataclass_transform(kw_only_default=True)
def protocol(name: str) -> typing.Callable[[type[T]], type[T]]:
    """Declares a protocol: a class whose attributes are slots (`fl.slot`) and exchanges
    (`fl.exchange`, before the method of a client's answer), with

    `lead(self, server)`, the server's side, and optionally `conflicts(self, has)`, which gives
    texts, or settings with texts, of what does not go together (`has(slot)`: a spec fills it),
    `suits(self, kind)`, which gives what stands in the way of this kind of task or `None`, and
    `grows_by`, the setting that is the number of rounds and nothing else. A protocol keeps nothing
    on `self`: what the server remembers is in `server.state`, and what a client remembers is what
    it stashes.
    """
    return _declared("protocol", name, "")


# ---- modules that a spec names


def origin(module: str) -> str:
    """Where a part is from, as users see it."""
    return "this session" if module == "__main__" else f"module {module}"


def _files(module: str) -> tuple[Path, list[Path]] | None:
    """The folder that a module's package is in, and its sources."""
    top = sys.modules.get(module.partition(".")[0])
    file = getattr(top, "__file__", None)
    if file is None or module == "__main__" or not os.path.exists(file):
        return None
    file = Path(file).resolve()
    if hasattr(top, "__path__"):
        inside = list(file.parent.rglob("*"))
        links = (path for path in inside if path.is_symlink() and path.is_dir())
        if link := next((path for path in links if any(path.rglob("*.py"))), None):
            raise ImportError(f"module {module}: its folder {link} is a link; hashes follow none")
        return file.parent.parent, sorted(path for path in inside if path.suffix == ".py")
    return file.parent, [file]


def _hash(files: tuple[Path, list[Path]]) -> str:
    folder, sources = files
    if len(sources) == 1:
        return hashlib.sha256(sources[0].read_bytes()).hexdigest()  # what sha256sum says
    lines = [f"{hashlib.sha256(s.read_bytes()).hexdigest()}  {s.relative_to(folder).as_posix()}\n" for s in sources]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def fingerprint(index: int) -> tuple[str, str]:
    """For the program: the hash of the source of a part that no plugin of a spec brings, and which
    Python it is. Of a module it is that of its files when the part was declared; of a notebook,
    that of the class and all of the notebook that it uses."""
    cls = CLASSES[index]
    version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    if _files(cls.__module__) is not None and (known := _SEEN.get(cls.__module__.partition(".")[0])):
        return known, version
    return _source.hash_of(cls), version


def _imported(name: str, folder: str):
    """Looked for in `folder` first."""
    sys.path.insert(0, folder)
    try:
        importlib.invalidate_caches()
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def _forget(top: str):
    for name in [name for name in sys.modules if name == top or name.startswith(top + ".")]:
        del sys.modules[name]


def _where(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__ and "importlib" not in f.filename]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def load(name: str, folder, hashed: typing.Sequence[tuple[str, str]] | None) -> tuple[str | None, str, str, list[str], bool]:
    """For the program: imports a module that a spec names; of a package `hashed` has its files and
    their hashes. Gives what is wrong, or else the folder that it is in, its hash, the origins of
    its parts, and whether it has measures."""
    folder = os.path.abspath(folder or ".")
    top = name.partition(".")[0]
    with _LOCK:
        there = _files(top)
        here = importlib.machinery.PathFinder.find_spec(top, [folder])
        if there is not None and here is not None and here.origin is not None:
            here = Path(here.origin).resolve()
            if here not in there[1]:
                return (f"the module `{top}` of this process is {there[1][0]}, and the spec means {here}: give one of them another name, or run the spec in a process of its own", "", "", [], False)
        if hashed is not None:
            for other in packages.use(folder, dict(hashed)):
                _forget(other)
        else:
            packages.release(name)
            if there is not None and _SEEN.get(top) not in (None, _hash(there)):
                _forget(top)  # it was changed since
        try:
            module = _imported(name, folder)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
                lacks = (error.name or "").partition(".")[0]
                install = f"; `pip install {_PACKAGES.get(lacks, lacks)}`" if lacks else ""
                return (f"it cannot be imported: {error}{_where(error)}{install}", "", "", [], False)
            return (f"no module of Python is called so, neither in {folder} nor where Python looks", "", "", [], False)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too
            return (f"it cannot be imported: {type(error).__name__}: {error}{_where(error)}", "", "", [], False)
        files = _files(name)
        if files is None:
            return ("it has no source in a file", "", "", [], False)
        if str(files[0]) == folder and folder not in sys.path:
            sys.path.append(folder)  # what it imports later
        LOADED.add(top)
        shown = [one for one in vars(module).values() if isinstance(one, type) and "_fl" in vars(one)]
        origins = {origin(one.__module__) for one in [*shown, *CLASSES] if one in shown or f"{one.__module__}.".startswith(f"{name}.")}
        return None, str(files[0]), _hash(files), sorted(origins), _metric.are_in(module)
