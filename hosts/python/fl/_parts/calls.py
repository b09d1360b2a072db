"""Parts written in Python, as the program calls them."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import sys
import zlib
from collections.abc import Mapping
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from .._protocol import federation
from . import attributes as _keep, copies as _twin, generators, state as _state
from .arguments import ABILITIES, LOSSES, Inbox, Mail, Message, Noise, Pass, Pool, Round, Shape, Stream, numbered, read_loss
from .arrays import array_of, declared_array, not_masked
from .classes import CLASSES, size_of, typed  # noqa: F401  the program calls `size_of`
from .explained import explain  # noqa: F401  the program calls it

_NAMES = {name: word for word, name in LOSSES.items()} | {"kl": {"Kl": {"tau": 1.0}}, "huber": {"Huber": {"delta": 1.0}}}


def _learnt(kind: str, size) -> dict:
    """How many scores a sample gets, and what they stand for."""
    # a trainer that refuses `multi_label` learns one class for each sample, and nothing else
    about = {"multi_label": kind != "Classes", "numbers": kind == "Numbers", "pixels": 0}
    if kind == "Pixels":
        about["pixels"] = size["height"] * size["width"]
    if kind == "Numbers":
        return {**about, "outputs": size["outputs"], **read_loss(size["loss"])}
    outputs = math.prod(size.values()) if isinstance(size, dict) else size
    return {**about, "outputs": outputs, "loss": "mae" if kind == "Image" else "cross-entropy"}


def create(index: int, settings: str, task: str, key: bytes):
    """Makes a part: its settings are there before `__init__`, which takes nothing."""
    with generators.Section(Stream(bytes(key)).child("draws").seed):
        return _created(index, settings, task, key)


def _created(index: int, settings: str, task: str, key: bytes):
    cls = CLASSES[index]
    values = typed(cls, json.loads(settings))
    made = cls.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, copy.deepcopy(value))
    facts = json.loads(task)
    ((kind, size),) = facts["kind"].items()
    about = {"input": tuple(facts["input"]), **_learnt(kind, size)}
    object.__setattr__(made, "task", SimpleNamespace(**about))
    made.__init__(**(values if dataclasses.is_dataclass(cls) else {}))
    if hasattr(made, "setup"):
        made.setup(Stream(bytes(key)))
    if cls._fl["role"] == "protocol":
        federation.begin(made)
    else:
        _keep.begin(made, values, (index, settings, task, bytes(key)))
    return made


def _again(part):
    """Another part, as this one was when it was made."""
    return create(*part._fl_made.arguments)


def _arrays(part, tensors, like=None) -> dict:
    """In the types that cross, in row order. A double becomes a float, but in counts."""
    if not isinstance(tensors, Mapping):
        if like is None or len(like) != 1:
            raise TypeError(f"it must give arrays by name, such as {{'w': array}}, got {type(tensors).__name__}")
        tensors = {next(iter(like)): tensors}
    wide = part._fl["signature"].endswith("counts")
    out = {}
    for name, array in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"an array's name must be text, got {name!r}")
        types = part._fl["types"]
        declared = types.get(name, types.get("*"))
        out[name] = declared_array(name, array, declared) if declared else array_of(name, array, wide)
    return out


def _floats(part, tensors, what: str) -> dict:
    """Arrays of parameters, which are floats: otherwise none of them would arrive."""
    arrays = _arrays(part, tensors)
    for name, array in arrays.items():
        if array.dtype != np.float32:
            raise TypeError(f"{what}: `{name}` must be an array of floats, got {np.asarray(tensors[name]).dtype}; give `.astype('float32')`, or leave out what no training changes")
    return arrays


def _params(part) -> dict:
    arrays = _floats(part, part.params(), "params()")
    if not arrays:
        raise ValueError("params() gives no array; give all parameters of the model by name, such as {'w': array}")
    return arrays


def _json(what: str, given) -> str:
    try:
        return json.dumps(given, default=lambda number: number.item(), allow_nan=False)
    except ValueError as error:
        raise ValueError(f"{what} gives {given!r}: {error}; each number must be single and finite") from None


def _state_of(data: bytes) -> dict:
    return {"state": np.frombuffer(data, np.uint8)}


_SENT: set[tuple] = set()


def _describe(part, *_):
    role = part._fl["role"]
    if role in ("aggregator", "attack"):
        about = {"needs": list(getattr(part, "needs", ())), "claims": list(getattr(part, "claims", ())), "folds": hasattr(part, "fold")}
        if (robustness := getattr(part, "robustness", None)) is not None:
            about["robustness"] = robustness
    elif role == "selector":
        draw = getattr(part, "draw", "unknown")
        about = {"draw": draw() if callable(draw) else draw}
    elif role == "trainer":
        params = hasattr(part, "params") and hasattr(part, "set_params")
        if params and _twin.key(part) not in _SENT:
            # what cannot be sent is refused before anything runs
            _floats(part, part.params(), "params()")
            _SENT.add(_twin.key(part))
        about = {
            "parametric": params,
            "differentiable": hasattr(part, "vjp") and bool(getattr(part, "differentiable", True)),
            **{fact: bool(getattr(part, attribute, False)) for fact, attribute in ABILITIES.items()},
        }
        if (words := getattr(part, "vocabulary", None)) is not None:
            about["vocabulary"] = int(words)
        if momentum := getattr(part, "step_momentum", None):
            about["step_momentum"] = float(momentum)
        if beside := getattr(part, "beside_gradient", None):
            about["beside_gradient"] = list(map(str, beside))
        if names := getattr(part, "buffers", None):
            about["buffers"] = sorted(map(str, names))
        if (learns := getattr(part, "learns", None)) is not None:
            about["learns"] = [_NAMES[one] for one in learns]
    else:
        return None
    return _json("what it says of itself", about), {}, None


def _save(part, *_):
    if _keep.own(part, "save"):
        return None, _state_of(part.save()), None
    kept = _keep.pack(part)
    _state.refuse_views(kept)
    return None, _state_of(_state.save(kept)) if kept else {}, None


def _load(part, _, messages, __):
    state = bytes(messages[0][3]["state"])
    if _keep.own(part, "save"):
        part.load(state)
    else:
        _keep.unpack(part, _keep.read(part, state) if state else {})
    return None, {}, None


def _save_model(part, *_):
    return None, _state_of(part.save()), None


def _load_model(part, _, messages, __):
    part.load(bytes(messages[0][3]["state"]))
    return None, {}, None


def _round(part, text, host) -> Round:
    return Round(text, host, part.__dict__.get("_sent"))


def _aggregate(part, text, messages, host):
    inbox, around = Inbox(messages, host), _round(part, text, host)
    given = part.aggregate(around, inbox)
    return around.said(), _arrays(part, given, messages[0][3]), None


def _sent(part, _, messages, __):
    # asked for before the call that looks at it, so it must be a copy
    object.__setattr__(part, "_sent", {name: np.array(lent) for name, lent in messages[0][3].items()})
    return None, {}, None


class _Fold:
    __slots__ = ("_fl", "fold", "names")

    def __init__(self, part, fold):
        self._fl, self.fold, self.names = part._fl, fold, None


def _fold(part, text, _, host):
    return (None, {}, _Fold(part, part.fold(_round(part, text, host)))) if hasattr(part, "fold") else None


def _fold_add(fold, _, messages, __):
    fold.names = fold.names or tuple(messages[0][3])
    fold.fold.add(Mail(*messages[0]))
    return None, {}, None


def _fold_finish(fold, *_):
    return None, _arrays(fold, fold.fold.finish(), fold.names), None


def _update(part, text, messages, host):
    if not hasattr(part, "update"):
        return None
    around, folded = _round(part, text, host), Message(messages[0][3])
    return around.said(), _arrays(part, part.update(around, folded), folded), None


def _fit(part, text, messages, host):
    if hasattr(part, "fit"):
        own = Pool(messages[0][3])
        part.fit(own, json.loads(text)["classes"], Stream(host.key()))
        return None, {}, None
    return None


def _select(part, text, messages, host):
    around = _round(part, text, host)
    pool = Pool(messages[0][3])
    given, of = part.select(around, pool), len(pool["clients" if "clients" in pool else "values"])
    picked = np.asarray(not_masked(given, "what select() gives"))
    if picked.ndim != 1:
        raise TypeError(f"select() must give a list of positions below {of}, or {of} truth values, got {type(given).__name__}{f' of shape {[*picked.shape]}' if picked.ndim else ''}")
    if picked.dtype == bool:
        if len(picked) != of:
            raise Shape(f"select() gives {len(picked)} truth values, and there are {of} to choose from: give one for each")
        picked = np.flatnonzero(picked)
    return around.said(), {"positions": array_of("positions", np.sort(picked) if picked.size else np.empty(0, np.uint32))}, None


def _poll(part, text, messages, host):
    if not hasattr(part, "poll"):
        return None
    pool = Pool(messages[0][3])
    wanted = part.poll(_round(part, text, host), pool)
    if isinstance(wanted, str):
        known = pool["sizes" if wanted == "samples" else "losses"]
        wanted = (wanted, np.flatnonzero(np.isnan(known)))
    if wanted is None or len(wanted[1]) == 0:
        return "null", {}, None
    return json.dumps({"wanted": wanted[0], "of": sorted(int(at) for at in wanted[1])}), {}, None


def _cohort(text: str) -> SimpleNamespace:
    facts = json.loads(text)
    return SimpleNamespace(clients=facts["clients"], of=facts["of"], draw=facts["draw"])


def _message(method):
    """Operations that take a message and give one."""

    def run(part, text, messages, host):
        message = Message(messages[0][3])
        if method == "clip":
            given = part.clip(message)
        elif method == "perturb":
            given = part.perturb(message, _cohort(text), Noise(host))
        elif hasattr(part, method):
            given = part.truncate(message, json.loads(text)["queries"])
        else:
            return None
        return None, _arrays(part, given, message), None

    return run


def _about(method):
    """Operations that take a message and give a text."""

    def run(part, text, messages, _):
        if not hasattr(part, method):
            return None
        more = [_cohort(text)] if method == "price" else []
        given = getattr(part, method)(Message(messages[0][3]), *more)
        return _json(f"{method}()", _event(method, given) if method == "price" else given), {}, None

    return run


def _agree(part, text, *_):
    if not hasattr(part, "agree"):
        return None
    part.agree(json.loads(text))
    return None, {}, None


def _event(method, given):
    if given is None:
        raise TypeError(f"{method}() gives None; it must give an event, such as `{{'Gaussian': {{'sensitivity': 1.0, 'sigma': 1.2}}}}`")
    return given


def _actual_cost(part, text, *_):
    if not hasattr(part, "actual_cost"):
        return None
    return _json("actual_cost()", _event("actual_cost", part.actual_cost(json.loads(text)))), {}, None


def _samples(messages) -> Message:
    """Samples, and as many of whatever goes with them."""
    first = Message(messages[0][3])
    for name, array in first.items():
        if len(array) != len(first["values"]):
            raise Shape(f"{len(first['values'])} samples, and {len(array)} rows of `{name}`")
    return first


def _train(part, text, messages, host):
    facts, first = json.loads(text), _samples(messages)
    anchors = [Message(m[3]) for m in messages[1:]]
    how = Pass.read(facts, anchors, host)
    stream = Stream(host.key())
    known = _twin.try_training(part, _again, sys.modules[__name__], first["values"], first["target"], how, stream)
    if draws := known.draws or known.failed or getattr(part, "draws", None) is True:
        guard = generators.Section(stream.child("draws").seed)
    else:
        guard = generators.watched("fit()")
    try:
        with numbered(first["values"], facts.get("samples")), guard:
            steps, loss = _done(part.fit(first["values"], first["target"], how, stream))
    except Exception:
        _twin.forget(part)
        raise
    known.draws |= bool(draws and guard.moved)
    part._fl_made.fitted = True
    return json.dumps({"steps": steps, "loss": loss}), {}, None


def _done(given) -> tuple[int, float]:
    """The steps and the loss that a training gives."""
    try:
        steps, loss = given
        steps, loss = int(steps), float(loss)
    except (TypeError, ValueError):
        raise TypeError(f"fit() must give its number of steps and its mean loss, such as `return 12, 0.5`, got {given!r}") from None
    if steps < 0:
        raise ValueError(f"fit() gives {steps} steps; it must be 0 or more")
    if not math.isfinite(loss):
        raise FloatingPointError(f"the loss is {loss}; a smaller learning rate, or clipping, may help")
    return steps, loss


def _gradient(part, text, messages, _):
    if not hasattr(part, "gradient"):
        return None
    facts, first = json.loads(text), _samples(messages)
    how = Pass(facts["target"], **read_loss(facts["loss"]))
    return None, _floats(part, part.gradient(first["values"], first["target"], how), "gradient()"), None


def _clipped_gradients(part, text, messages, _):
    if not hasattr(part, "clipped_gradients"):
        return None
    facts, first = json.loads(text), _samples(messages)
    how = Pass(facts["target"], **read_loss(facts["loss"]))
    given = part.clipped_gradients(first["values"], first["target"], how, facts["clip"])
    return None, {} if given is None else _floats(part, given, "clipped_gradients()"), None


def _descend(part, text, messages, _):
    facts, gradient = json.loads(text), Message(messages[0][3])
    rate = facts.get("rate", 1.0)
    if hasattr(part, "descend"):
        part.descend(gradient, facts["at"], facts["of"], **({} if rate == 1 else {"rate": rate}))
    elif size := hasattr(part, "step_size") and part.step_size():
        size *= rate
        part.set_params({name: np.asarray(value) - np.float32(size) * gradient[name] for name, value in part.params().items()})
    else:
        return None
    part._fl_made.fitted = True
    return None, {}, None


def _gives(method, name):
    """Operations that take samples and give one array."""

    def run(part, text, messages, __):
        if not hasattr(part, method):
            return None
        first = _samples(messages)
        with numbered(first["values"], json.loads(text)["samples"] if text else None):
            given = getattr(part, method)(*(first[name] for name in ("values", "slope") if name in first))
        return None, {} if given is None else {name: _rows_of(f"{method}()", array_of(name, given))}, None

    return run


def _rows_of(what: str, array) -> np.ndarray:
    """A row of floats for each sample."""
    if array.ndim != 2:
        raise Shape(f"{what} must give a row of numbers for each sample, got an array of shape {list(array.shape)}{'; one number for each is `[:, None]`' if array.ndim == 1 else ''}")
    if array.dtype != np.float32:
        raise TypeError(f"{what} must give floats, such as the score of each class, got whole numbers; `.astype('float32')` makes floats of them")
    return array


def _save_state(part, *_):
    """Model and optimiser as the class writes them, and the attributes that the part keeps on
    itself."""
    _twin.check_kept(part)
    own = part.save_state() if hasattr(part, "save_state") else part.save()
    both = {"own": np.frombuffer(own, np.uint8), "kept": _keep.pack(part)}
    return None, _state_of(_state.save(both)), None


def _load_state(part, _, messages, __):
    both = _keep.read(part, bytes(messages[0][3]["state"]))
    if set(both) != {"own", "kept"}:
        raise ValueError(f"this is no state of `{part._fl['name']}`")
    own = both["own"].tobytes()
    part.load_state(own) if hasattr(part, "load_state") else part.load(own)
    _keep.unpack(part, both["kept"])
    part._fl_made.fitted = True
    _twin.check_kept(part)
    return None, {}, None


def _save_memory(part, *_):
    kept = _keep.memory(part, _again)
    return None, _state_of(_state.save(kept)) if kept else {}, None


def _load_memory(part, _, messages, __):
    _keep.unpack(part, _keep.read(part, bytes(messages[0][3]["state"])), partly=True)
    return None, {}, None


def _set_params(part, _, messages, __):
    part.set_params(Message(messages[0][3]))
    return None, {}, None


def _step_size(part, *_):
    return (_json("step_size()", part.step_size()), {}, None) if hasattr(part, "step_size") else None


_OPERATIONS = {
    2: ("describe", _describe),
    3: ("save", lambda part, *rest: (_save_model if part._fl["role"] == "trainer" else _save)(part, *rest)),
    4: ("load", lambda part, *rest: (_load_model if part._fl["role"] == "trainer" else _load)(part, *rest)),
    10: ("aggregate", _aggregate),
    11: ("fold", _fold),
    12: ("add", _fold_add),
    13: ("finish", _fold_finish),
    14: ("sent", _sent),
    15: ("update", _update),
    20: ("fit", _fit),
    21: ("select", _select),
    22: ("poll", _poll),
    30: ("clip", _message("clip")),
    31: ("range", _about("range")),
    32: ("agree", _agree),
    33: ("price", _about("price")),
    34: ("perturb", _message("perturb")),
    35: ("queries", _about("queries")),
    36: ("truncate", _message("truncate")),
    37: ("actual_cost", _actual_cost),
    60: ("fit", _train),
    61: ("predict", _gives("predict", "scores")),
    62: ("features", _gives("features", "features")),
    63: ("save_state", _save_state),
    64: ("load_state", _load_state),
    65: ("params", lambda part, *_: (None, _params(part), None)),
    66: ("set_params", _set_params),
    67: ("vjp", _gives("vjp", "slopes")),
    68: ("gradient", _gradient),
    69: ("step_size", _step_size),
    70: ("save_memory", _save_memory),
    71: ("load_memory", _load_memory),
    72: ("descend", _descend),
    74: ("clipped_gradients", _clipped_gradients),
    80: ("declare", lambda part, *_: (federation.declare(part), {}, None)),
    81: ("lead", lambda part, text, _, host: (federation.lead(part, text, host), {}, None)),
    82: ("answer", lambda part, *rest: (None, federation.answer(part, *rest), None)),
    83: ("conflicts", lambda part, text, *_: (federation.conflicts(part, text), {}, None)),
    84: ("suits", lambda part, text, *_: (federation.suits(part, text), {}, None)),
}


def operation_name(operation: int) -> str:
    """As the part's method is called."""
    return _OPERATIONS[operation][0]


# what may change a part's state; afterwards each of its values must be one that can be kept
_CHANGES = {10, 11, 15, 20, 21, 22, 32, 34, 60, 72}


# by class, settings, task and operation: does it draw from a generator of the process?
_DRAWS: dict[tuple, bool] = {}


@contextmanager
def _guarded(part, operation: int, host):
    """The generators of the process are a call's own, except for those of a trainer that draw
    nothing: these run beside each other."""
    role = part._fl["role"]
    if role == "trainer" and operation == 60:
        yield  # `_train` does it
        return
    key = (*_twin.key(part), operation) if role == "trainer" else None
    if key is not None and _DRAWS.get(key) is False:
        with generators.watched(f"{operation_name(operation)}()"):
            yield
        return
    with generators.Section(Stream(host.key()).child("draws").seed) as section:
        yield
    if key is not None:
        _DRAWS[key] = _DRAWS.get(key, False) or bool(section.moved) or getattr(part, "draws", None) is True


# the kinds of calls that have left what they were lent as it was
_LEFT: set[tuple] = set()


class _Lent:
    """Raises an error if the first call of a kind writes into arrays that it is lent, for others
    get the same. PyTorch and others write into memory that is read-only for NumPy."""

    def __init__(self, part, operation: int, text: str, messages: list):
        of = part.fold if isinstance(part, _Fold) else part
        exchange = part._fl["role"] == "protocol" and operation == 82
        self.who = f"the exchange `{json.loads(text)['label']}`" if exchange else f"its {operation_name(operation)}()"
        self.key = (type(of), *(_twin.key(of) if "_fl_made" in getattr(of, "__dict__", ()) else ()), operation, self.who)
        self.lent = [] if self.key in _LEFT else [(name, array, zlib.crc32(array)) for message in messages for name, array in message[3].items()]

    def check(self) -> None:
        for name, array, before in self.lent:
            if zlib.crc32(array) != before:
                raise TypeError(
                    f"{self.who} has written into the array `{name}`, which is lent, so others would get other numbers: copy it first "
                    "(`array.copy()`, `torch.from_numpy(array).clone()`)"
                )
        _LEFT.add(self.key)


def call(part, operation: int, text: str, messages: list, host):
    """`None`: there is no such operation. Otherwise a text, arrays, and a new part."""
    if (found := _OPERATIONS.get(operation)) is None:
        return None
    trainer = part._fl["role"] == "trainer"
    with _guarded(part, operation, host):
        lent = _Lent(part, operation, text, messages)
        done = found[1](part, text, messages, host)
        lent.check()
        if operation in _CHANGES and (trainer or not _keep.own(part, "save")):
            _keep.pack(part)
    if operation in _CHANGES and not trainer and done is not None:
        _twin.try_answer(part, _again, sys.modules[__name__], operation, text, messages, host, done[1])
    return done
