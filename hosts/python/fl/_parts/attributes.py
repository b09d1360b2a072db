"""What a part keeps on itself: its attributes, in every way of running.

An attribute is kept if its value can be written down (`state`), or if it is an object of PyTorch's
kind, with `state_dict()` and `load_state_dict()`, that `setup()` makes. What `setup()` makes under
a name with `_` is made again for each copy of a part. Any other value is an error that names its
attribute, so that no way of running forgets it silently.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass

from . import reachable, state as _state

_OURS = {"task", "_sent", "_fl_made"}


@dataclass
class Made:
    """A part as it was when it was made."""

    settings: dict
    others: dict
    """Attributes that cannot be written down."""
    arguments: tuple
    fitted: bool = False
    """It has learnt, or was loaded."""
    alone: bool = False
    """It is a copy, which trains beside no other."""


def begin(part, settings: dict, arguments: tuple):
    """The part has been made, by `create` with these arguments."""
    others = {name: value for name, value in _attributes(part).items() if not _writable(value)}
    object.__setattr__(part, "_fl_made", Made(copy.deepcopy(settings), others, arguments))


def _writable(value) -> bool:
    try:
        _state.check(value)
    except _state.Unsavable:
        return False
    return True


def own(part, method: str) -> bool:
    """Has the author of the part written this method? Those of `fl.torch` and `fl.sklearn` do not
    count."""
    holder = next((cls for cls in type(part).__mro__ if method in vars(cls)), object)
    return holder is not object and not holder.__module__.startswith("fl.")


def _attributes(part) -> dict:
    # a network of PyTorch keeps its parameters in attributes of its own
    torch = sys.modules.get("torch")
    network = vars(torch.nn.Module()) if torch and isinstance(part, torch.nn.Module) else ()
    skip = {*_OURS, *part._fl["fields"], *getattr(part, "_holds", ()), *network}
    return {name: value for name, value in vars(part).items() if name not in skip}


def _with_state(value) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _packed(part, name: str, value):
    """What is written down of an attribute: `None` or its value, or the `state_dict` of it."""
    try:
        _state.check(value)
        return ["value", value]
    except _state.Unsavable as error:
        kind = error.kind
    then = part._fl_made.others.get(name)
    if type(then) is type(value) and _with_state(value):
        try:
            _state.check(held := value.state_dict())
            return ["state", held]
        except _state.Unsavable as error:
            kind = f"{kind}, whose state has a {error.kind}"
    trainer = part._fl["role"] == "trainer"
    if then is value and (name.startswith("_") or (trainer and own(part, "save"))):
        return None
    if trainer and own(part, "save_state"):
        return None
    writes = "save_state() and load_state(state)" if trainer else "save() and load(state)"
    raise TypeError(
        f"what it keeps as `{name}` ({kind}) cannot be saved, so a run that stops or has its clients in other processes would lose "
        "it: keep numbers, texts, lists, mappings, arrays and tensors on self (of a network its state_dict()); make what never "
        f"changes in setup() under a name that begins with `_`; or write {writes}"
    ) from None


def pack(part) -> dict:
    """What is written down of all attributes, and of settings that the part has changed."""
    kept = {name: packed for name, value in _attributes(part).items() if (packed := _packed(part, name, value)) is not None}
    for name, then in part._fl_made.settings.items():
        if (now := vars(part).get(name, then)) is not then and repr(now) != repr(then):
            kept[name] = _packed(part, name, now)
    return kept


def read(part, state: bytes) -> dict:
    """What was written down."""
    try:
        held = _state.load(state)
        if isinstance(held, dict):
            return held
        why = "it has no names"
    except Exception as error:  # whatever damaged bytes lead to
        why = error
    raise ValueError(f"this is no state of `{part._fl['name']}` ({why})")


def unpack(part, kept: dict, partly: bool = False):
    """Sets what was written down; unless it is a part of it, any other attribute goes, and any
    other setting is as it was."""
    if not partly:
        for name, value in _attributes(part).items():
            if name not in kept and _packed(part, name, value) is not None:
                delattr(part, name)
        for name, then in part._fl_made.settings.items():
            object.__setattr__(part, name, copy.deepcopy(then))
    for name, (kind, value) in kept.items():
        if kind == "value":
            object.__setattr__(part, name, value)
        else:
            vars(part)[name].load_state_dict(value)


def memory(part, again) -> dict:
    """What a trainer keeps when its model is made anew: all that its author sets on it where
    `fl.torch` or `fl.sklearn` holds the model; otherwise what `remembers` names. Another attribute
    that changes, and that neither the model nor the optimiser brings back, is an error."""
    remembers, kept = getattr(part, "remembers", ()), pack(part)
    if remembers is True:
        return kept
    if isinstance(remembers, str):
        raise TypeError(f"remembers must be a list of names, such as ({remembers!r},), got {remembers!r}")
    if not kept.keys() - set(remembers):
        return kept
    twin = again(part)
    if hasattr(part, "save_state"):
        twin.load_state(part.save_state())
    else:
        twin.load(part.save())
    brought = pack(twin)
    for name in kept:
        if name not in remembers and (name not in brought or not reachable.same(kept[name], brought[name])):
            raise TypeError(
                f"it keeps `{name}`, which is neither in its model nor in its optimiser, and here a client's model is made anew for "
                f"each question: write `remembers = ({name!r},)` in the class so that the client keeps it, let save_state() hold it "
                "if it is the optimiser's, or make models last (`fresh: false` in rounds)"
            )
    return {name: packed for name, packed in kept.items() if name in remembers}
