"""What a network must be so that it can be sent, kept and made anew alike; otherwise it is
refused before anything runs."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn

from .._parts import generators, reachable, source
from .joint_steps import _called

#: A `fl.torch.Trainer`, which stands on this file.
Trainer: TypeAlias = Any

_TYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
_WARNED: weakref.WeakSet[type] = weakref.WeakSet()
_COMPILED: weakref.WeakSet[type] = weakref.WeakSet()


class _Known(NamedTuple):
    """What networks of one class, with its settings, its task and its layers, have shown."""

    first: dict[reachable.Path, Any]
    """What one of a fixed seed holds beside its parameters."""
    others: set[reachable.Path]
    """What may differ there: it follows from the parameters, or from no seed."""
    training: Training


class Training(NamedTuple):
    """What a first step of training shows of a network."""

    draws: bool
    """It draws at random, so it needs the generator for itself."""
    writes: bool
    """It writes into what it holds beside its parameters, such as running means."""


_KNOWN: weakref.WeakKeyDictionary[type, dict[tuple[str, ...], _Known]] = weakref.WeakKeyDictionary()


def held_by(trainer: Trainer, roots: dict[str, Any], known: Iterable[Any] | None = None) -> reachable.Graph:
    """The values that can be reached from these, but what the network's own state has. With other
    `known` ones, empty mappings of modules are left out."""
    net, empty = roots["net"], known is not None
    if known is None:
        known = net.state_dict(keep_vars=True).values()

    def skip(value: Any) -> Iterable[str]:
        if value is roots.get("schedule"):
            return {*value.state_dict(), "optimizer"} - {"lr_lambdas"}
        if value is roots.get("optimiser"):
            return "state", "param_groups", "defaults"
        if isinstance(value, torch.utils.hooks.RemovableHandle):
            return vars(value)
        if not isinstance(value, nn.Module):
            return ()
        held = vars(value).items() if empty else ()  # nearly all that a module has for hooks
        return "training", *(name for name, one in held if isinstance(one, (dict, set)) and not one)

    return reachable.Graph(roots, [trainer, *net.parameters(), *known], skip)


def check_drawn(trainer: Trainer, bare: Trainer, seed: int, samples: torch.Tensor) -> Training:
    """Refuses what net() draws and no message carries, such as random features that are no buffer,
    or an order of the columns: each party would have another. Gives what the network does while it
    trains. `bare` is the trainer before its net() of this seed; what is tried here are networks of
    copies of it, which are thrown away."""
    model, own = trainer._model, _beside(trainer)
    for path, place in own.values.items():
        if isinstance(place.value, nn.Parameter) and place.value.requires_grad:
            raise ValueError(
                f"net() of {type(trainer).__name__} has the parameter `{_name(path)}` where no optimiser finds it, such as in a list; "
                "take nn.ModuleList or nn.ParameterList, or freeze it"
            )
    of_class = _KNOWN.setdefault(type(trainer), {})
    key = source.hash_of(type(trainer)), repr(vars(bare)), repr(model)
    if (known := of_class.get(key)) is None:
        other = _made(bare, 0)
        known = of_class[key] = _Known(_beside(other).read(), set(), _first_training(other, samples))
    if unlike := _unlike(own, known.first) - known.others:
        if drawn := _drawn(trainer, own, bare, seed):
            raise ValueError(
                f"net() of {type(trainer).__name__} draws `{_name(min(drawn, key=str))}`, which no message carries, so each client would have another; "
                "draw it with a generator of its own of a fixed seed (`torch.Generator().manual_seed(1)`), or, if it is a tensor of floats, "
                "keep it with `register_buffer`, which travels"
            )
        known.others.update(unlike)
    return known.training


def _drawn(trainer: Trainer, own: reachable.Graph, bare: Trainer, seed: int) -> set[reachable.Path]:
    """What follows from the seed of a network, and neither equals a tensor of its state nor follows
    from its parameters in forward()."""
    state = {name: value for name, value in trainer._model.state_dict().items() if _is_float(value)}
    one, other = (_made(bare, each) for each in (seed, 0))
    again = _beside(one).read()
    of_parameters = {path for path, value in again.items() if any(reachable.same(value, each) for each in state.values())}
    of_no_seed = _unlike(own, again)
    for each in (one, other):
        try:
            each._model.load_state_dict(state, strict=False)
        except RuntimeError:  # its layers have other sizes
            continue
        each._first_scores(each._model)
    return _unlike(_beside(one), _beside(other).read()) - of_no_seed - of_parameters


def _made(bare: Trainer, seed: int) -> Trainer:
    other = copy.copy(bare)
    other._make(seed)
    return other


def _beside(trainer: Trainer) -> reachable.Graph:
    """What a network holds beside what travels: whole numbers stay at home."""
    floats = (value for value in trainer._model.state_dict(keep_vars=True).values() if _is_float(value))
    return held_by(trainer, {"net": trainer._model}, floats)


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _unlike(one: reachable.Graph, other: dict[reachable.Path, Any]) -> set[reachable.Path]:
    """Where the two differ."""
    return {path for path in one.changed(other) if one.is_value(path)} | (other.keys() - one.values.keys())


def _name(path: reachable.Path) -> str:
    return reachable.shown(path).removeprefix("net.")


def _first_training(trainer: Trainer, samples: torch.Tensor) -> Training:
    net = trainer._model
    first = held_by(trainer, {"net": net}, ())
    before, tensors = first.read(), _tensors(first)
    with generators.Section(0) as section, torch.no_grad():
        _called(net.train(), trainer.collate(samples))
    then = held_by(trainer, {"net": net}, ())
    return Training(bool(section.moved), bool(then.changed(before)) or _tensors(then) != tensors)


def _tensors(held: reachable.Graph) -> dict[reachable.Path, tuple[int, int]]:
    """Which tensors these are, and how often each was written: a mean of zeros stays equal."""
    found = {path: place.value for path, place in held.values.items()}
    return {path: (id(value), value._version) for path, value in found.items() if isinstance(value, torch.Tensor)}


def check_state(trainer: Trainer) -> None:
    """Refuses what cannot be sent and kept, before anything runs."""
    of = f"net() of {type(trainer).__name__}"
    held = {id(value) for value in trainer._model.state_dict(keep_vars=True).values()}
    for name, p in trainer._model.named_parameters():
        if id(p) not in held:
            raise ValueError(f"{of} has `{name}`, which its state_dict() leaves out, so it would be neither sent nor kept; let travels() say what stays at home")
    for name, value in trainer._state().items():
        if not isinstance(value, torch.Tensor) or value.dtype in _TYPES:
            continue
        kind = str(value.dtype).removeprefix("torch.")
        known = ", ".join(str(one).removeprefix("torch.") for one in _TYPES)
        more = f" Keep its real and its imaginary part (`torch.view_as_real({name})`), and let forward() use `torch.view_as_complex`." if value.is_complex() else ""
        raise ValueError(f"{of} has `{name}` of {kind}, which can be neither sent nor kept; it may have {known}.{more}")
    if trainer._partly():
        for name, first in trainer._names().items():
            if trainer.travels(name) != trainer.travels(first):
                raise ValueError(f"`{name}` and `{first}` are one tensor of the network, and travels() of {type(trainer).__name__} lets one of them travel")


def warn_of_frozen(trainer: Trainer) -> None:
    """Says that parameters travel which no client changes."""
    travelling = trainer._travelling()
    frozen = [name for name, p in trainer._model.named_parameters() if not p.requires_grad and name in travelling]
    if frozen and type(trainer) not in _WARNED:
        _WARNED.add(type(trainer))
        numbers, all = (sum(travelling[name].numel() for name in names) for names in (frozen, travelling))
        warnings.warn(
            f"{numbers} of the {all} numbers of {type(trainer).__name__} that travel in each round are frozen (`{frozen[0]}`"
            f"{', ..' if len(frozen) > 1 else ''}), so they cost bytes, and mechanisms add noise to them; let travels() keep them at home",
            stacklevel=2,
        )


def warn_of_compiled(trainer: Trainer) -> None:
    if trainer.device == "cpu" and not trainer._exact and type(trainer) not in _COMPILED:
        _COMPILED.add(type(trainer))
        warnings.warn(
            f"net() of {type(trainer).__name__} is compiled, and the code that `torch.compile` chooses depends on what the process "
            "compiled before: last bits, and with them the digest, differ from run to run; leave it out for one digest",
            stacklevel=2,
        )
