"""Protocols in Python: what a class declares. What its methods are given is in `server_and_client`.

    @fl.protocol("my-fedavg")
    class MyFedAvg:
        rounds: Annotated[int, "Rounds.", fl.between(ge=1)] = 10

        model = fl.slot("trainer", "What all train.", shared_parameters=True, at_server=True)
        mean = fl.slot("aggregator", "Combines the parameters.", "params")

        @fl.exchange("parameters after local training", into=mean, times="rounds", trains=True)
        def train(self, client, params):
            model = client.model(self.model)
            model.set_params(params)
            client.fit(self.model, epochs=1)
            return model.params()

        def lead(self, server):
            server.state.params = server.model(self.model).params()
            server.rounds(self.round)

        def round(self, server, round):
            server.state.params = server.run(self.train, server.state.params)
            server.model(self.model).set_params(server.state.params)
            server.evaluate(self.model)

The program executes what is declared, as for a protocol in Rust: it draws the cohort, sends, lets
clients answer, checks, releases, charges and journals. So a run has the same digest in every way of
running.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast, get_args

import numpy as np
import numpy.typing as npt

from .._parts.range import between
from .._spec import flow

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = Mapping[str, Array]
"""A message: arrays by name."""

T = TypeVar("T")
Part = Any
Role = Literal["trainer", "generator", "aggregator", "selector", "privacy", "attack"]
Ability = Literal[
    "parameters", "example-gradients", "features", "input-gradient", "equal-steps", "auxiliary-loss",
    "feature-loss", "scaled-rate", "gradient-terms", "task-loss", "soft-targets", "no-buffers",
    "by-gradient", "no-decay", "by-epoch", "by-step", "goes-on",
]  # fmt: skip
LossName = Literal["cross-entropy", "mae", "mse", "huber", "norm", "kl"]
TargetKind = Literal["classes", "multi-label", "pixels", "soft", "scores"]

_OF_SETTINGS = ("times", "rows", "public", "partly", "trains", "held_out", "draws", "releases_steps")
_OPTIONAL = {"selector", "privacy", "attack"}
_ABILITIES = {name: name.title().replace("-", "") for name in get_args(Ability)}
_LOSSES = {"cross-entropy": "CrossEntropy", "mae": "Mae", "mse": "Mse", "norm": "Norm"}


def named_loss(loss: LossName | None, tau: float, task) -> Any:
    """A loss as the program reads it; that of the task if none is given."""
    name = loss or task.loss
    if name == "kl":
        return {"Kl": {"tau": tau}}
    if name == "huber":
        return {"Huber": {"delta": getattr(task, "delta", 1.0)}}
    if name not in _LOSSES:
        raise ValueError(f"no loss is called `{name}`; known: {', '.join(get_args(LossName))}")
    return _LOSSES[name]


# ---- what a class declares


class Slot:
    """A slot of a protocol, see `fl.slot`. A spec fills it under `parts:`, by its `name`."""

    def __init__(self, role: Role, doc: str, on: str, options: dict[str, Any]):
        self.role, self.doc, self.options, self.name = role, doc, options, ""
        self.signature = f"{on} -> {on}" if role == "aggregator" and "->" not in on else on

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name.replace("_", "-")

    @property
    def takes(self) -> str:
        """The kind of messages that its part takes."""
        return self.signature.partition(" -> ")[0]

    def declared(self, part: Part) -> dict[str, Any]:
        of = {name: _value(part, value) for name, value in self.options.items()}
        needs = [_ABILITIES[one] for one in of["needs"]] + ["Parameters"] * bool(of["shared_parameters"])
        optional, lasting = of["optional"], of["lasting"]
        return {
            "name": self.name,
            "role": self.role,
            "signature": self.signature,
            "optional": self.role in _OPTIONAL if optional is None else optional,
            "doc": self.doc,
            "lasts": self.role != "trainer" if lasting is None else lasting,
            "needs": needs,
            "alike": of["shared_parameters"],
            "server": of["at_server"],
            "for_some": self.role == "attack",
            "only_clips": of["only_clips"],
            "shown": of["published"],
            "through": [one.name for one in of["through"]],
        }


def slot(
    role: Role,
    doc: str,
    on: str = "",
    *,
    optional: bool | None = None,
    shared_parameters: bool = False,
    at_server: bool = False,
    lasting: bool | Callable[[Any], bool] | None = None,
    published: bool | Callable[[Any], bool] = False,
    needs: Sequence[Ability] | Callable[[Any], Sequence[Ability]] = (),
    through: Sequence[Slot] = (),
    only_clips: bool = False,
) -> Slot:
    """Declares a slot of a protocol, as an attribute of its class; its name is the attribute's.

    `on` is the kind of messages of an aggregator (`"params"`, or `"models -> votes"`), a privacy
    mechanism or an attack, and what a selector picks from (`clients`, `samples` or `soft-labels`).
    Of a trainer: `shared_parameters`, all clients have the same parameters by name and shape;
    `at_server`, the server has one too; `lasting`, a client keeps its model between two requests;
    `published`, results show the clients' models; `needs`, abilities that it must have, such as
    `task-loss` (it learns by the loss of the labels) and `soft-targets` (class probabilities);
    `through`, mechanisms that release all that it learns. Selectors, mechanisms and attacks are
    `optional`, unless you say otherwise. What depends on settings is a function of the protocol:
    `lasting=lambda self: not self.fresh`.
    """
    more: dict[str, Any] = {"optional": optional, "shared_parameters": shared_parameters, "at_server": at_server, "lasting": lasting}
    more |= {"published": published, "needs": needs, "through": through, "only_clips": only_clips}
    return Slot(role, doc, on, more)


class Release:
    """How an answer, or a part of it, goes through a mechanism: see `fl.difference` and
    `fl.part`."""

    def __init__(self, slot: Slot, take: Callable[[Arrays, Arrays], Arrays], put: Callable[[Arrays, Arrays, Arrays], Arrays]):
        self.slot, self.take, self.put = slot, take, put


def difference(slot: Slot) -> Release:
    """Releases the difference between the answer and what was sent, for `fl.exchange(releases=..)`:
    both are parameters."""
    return Release(
        slot,
        lambda sent, answer: {name: np.asarray(array) - sent[name] for name, array in answer.items()},
        lambda sent, _, update: {name: sent[name] + array for name, array in update.items()},
    )


def part(slot: Slot, take: Callable[[Arrays, Arrays], Arrays], put: Callable[[Arrays, Arrays, Arrays], Arrays]) -> Release:
    """Releases a part of the answer, for `fl.exchange(releases=..)`: `take(sent, answer)` gives it
    as a message of the mechanism, and `put(sent, answer, released)` gives the answer with what was
    released in its place."""
    return Release(slot, take, put)


class Steps:
    """Training steps that a mechanism releases: see `fl.steps`."""

    def __init__(self, slot: Slot, steps: int | str | Callable[[Any], int], rate: float | str | Callable[[Any], float], fixed: bool | Callable[[Any], bool]):
        self.slot, self.steps, self.rate, self.fixed = slot, steps, rate, fixed

    def declared(self, part: Part) -> list[Any]:
        lots = {"steps": _value(part, self.steps), "rate": float(_value(part, self.rate)), "fixed": bool(_value(part, self.fixed))}
        return [self.slot.name, lots]


def steps(slot: Slot, *, steps: int | str | Callable[[Any], int], rate: float | str | Callable[[Any], float], fixed: bool | Callable[[Any], bool] = False) -> Steps:
    """Releases what each of so many training steps sees of a client's examples (DP-SGD), for
    `fl.exchange(releases_steps=..)`. A step draws each example with probability `rate`, or, if
    `fixed`, this share of them. Each is a value, the name of a setting, or a function of the
    protocol. The method calls `client.fit_private` or `client.release_steps`."""
    return Steps(slot, steps, rate, fixed)


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training pass: a number of epochs or of steps."""

    epochs: Annotated[int | None, "Number of epochs. Give this or `steps`.", between(ge=1, le=100_000)] = None
    steps: Annotated[int | None, "Number of mini-batches. Give this or `epochs`.", between(ge=1, le=100_000_000)] = None
    batch: Annotated[int, "Examples per mini-batch.", between(ge=1, le=1_000_000)] = 32
    clip: Annotated[float | None, "Clips the gradient of a mini-batch to this Euclidean norm.", between(gt=0)] = None

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("must give `epochs` or `steps`" if self.epochs is None else "give `epochs` or `steps`, not both")

    @property
    def needs(self) -> list[Ability]:
        """What the slot of a model that trains in this way `needs`."""
        return [] if self.clip is None else ["gradient-terms"]


@dataclass(frozen=True, kw_only=True)
class RateStep:
    """A step of a learning rate."""

    from_: Annotated[int, "The first round that it counts in.", between(ge=2, le=1_000_000)]
    factor: Annotated[float, "The rate in this round and all later ones is this times what it would be.", between(gt=0, le=1e3)]


@dataclass(frozen=True, kw_only=True)
class RateCosine:
    """Half a cosine over the rounds (`CosineAnnealingLR` of PyTorch, with a step a round)."""

    over: Annotated[int, "The round after which the rate is at its end.", between(ge=1, le=1_000_000)]
    to: Annotated[float, "The share of the rate at the end.", between(ge=0, le=1)] = 0.0


@dataclass(frozen=True, kw_only=True)
class RateByRound:
    """The factor of a learning rate in each round, the same for all clients. What is given here is
    multiplied: round `r` has `factor ^ (r - 1)`, times the factors of all `steps` so far, times
    `to + (1 - to) (1 + cos(pi (r - 1) / over)) / 2`, times `r / warm-up` up to that round."""

    factor: Annotated[float, "Each round has this share of the rate of the round before.", between(gt=0, le=10)] = 1.0
    steps: Annotated[list[RateStep], "Steps, in the order of their rounds."] = field(default_factory=list)
    cosine: Annotated[RateCosine | None, "Half a cosine. Default: none."] = None
    warm_up: Annotated[int, "The rate rises to its full value over this many rounds, by the same amount in each.", between(ge=0, le=1_000_000)] = 0

    def __post_init__(self) -> None:
        rounds = [step.from_ for step in self.steps]
        if any(late >= later for late, later in pairwise(rounds)):
            raise ValueError("`steps` must be in the order of their rounds, with one step a round")


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How the trainer's learning rate changes."""

    by_round: Annotated[RateByRound, "From round to round."]


@dataclass(frozen=True, kw_only=True)
class RoundTraining(Training):
    """One training pass in each round: its length, and a learning rate that follows the round.

    `client.fit(slot, training=self.local)` takes the rate of the round that asks. A protocol that
    has one declares what it needs, and hands on what is wrong with the rates:

        model = fl.slot("trainer", "What all train.", needs=lambda self: self.local.needs)

        def conflicts(self, has):
            return self.local.conflicts("local", self.rounds)
    """

    rate: Annotated[Rate | None, "How the trainer's learning rate changes from round to round, for all clients alike. Default: it does not change."] = None

    @property
    def needs(self) -> list[Ability]:
        return [*super().needs, "scaled-rate"] if self.rate else super().needs

    def factor(self, round: int) -> float:
        """The factor of the learning rate in a round, counted from 1, with the bits of the linked
        protocols."""
        from .. import _fl

        if self.rate is None:
            return 1.0
        if round < 1:
            raise ValueError("`rate.by-round` is for a training in each round, and this step is none: give a `fl.Training`")
        return _fl.rate_in_round(flow(self.rate.by_round), round)

    def conflicts(self, setting: str, rounds: int) -> list[tuple[str, str]]:
        """What is wrong with the rates in so many rounds, such as none that changes; `setting` is
        the name of this group."""
        from .. import _fl

        path = f"{setting}.rate.by-round"
        found = _fl.rate_conflict(flow(self.rate.by_round), rounds) if self.rate else None
        return [(path, f"`{path}` {found}")] if found else []


class Exchange:
    """An exchange of a protocol, see `fl.exchange`: its label, and the method that makes a client's
    answer."""

    def __init__(self, answer: Callable[..., Any], label: str, sends: str, answers: str, options: dict[str, Any]):
        self.answer, self.label, self.sends, self.answers, self.options = answer, label, sends, answers, options
        self.name, self.__doc__ = answer.__name__, answer.__doc__

    def releases(self, part: Part) -> Release | None:
        """How the answer is released with the settings of `part`."""
        found = _value(part, self.options["releases"])
        whole = Release(found, lambda _, answer: answer, lambda _, __, released: released) if isinstance(found, Slot) else found
        return cast("Release | None", whole)

    def declared(self, part: Part) -> dict[str, Any]:
        of = {name: _value(part, value) if name in _OF_SETTINGS else value for name, value in self.options.items()}

        for option in ("times", "rows"):
            found = of[option]
            if isinstance(found, bool) or not (isinstance(found, int) or (option == "rows" and found == "all")):
                raise TypeError(f"exchange `{self.label}`: `{option}` {_no_number(part, found)}")

        def name(slot: Slot | None) -> str | None:
            return None if slot is None else slot.name

        def names(slots: Slot | Sequence[Slot]) -> list[str]:
            return [slot.name for slot in _listed(slots)]

        release, steps = self.releases(part), cast("Steps | None", of["releases_steps"])
        released = [one.slot.name for one in (release, steps) if one]
        within = names(of["releases_within"])
        flow = {
            "public": self.answers == "nothing" if of["public"] is None else of["public"],
            "through": names(of["draws"] or ()) + names(of["through"]),
            "learnt_through": names(of["learnt_through"]),
            "releases": released + within + names(of["bounds"]),
            "within": within,
            "steps": steps and steps.declared(part),
            "beside": names(of["beside"]),
            "partly": of["partly"],
            "at_server": names(of["releases_at_server"]),
            "sent_back_unreleased": of["sent_back_unreleased"],
        }
        return {
            "label": self.label,
            "down": self.sends,
            "up": self.answers,
            "times": of["times"],
            "rows": None if of["rows"] == "all" else of["rows"],
            "made": of["made"],
            "voices": of["voices"],
            "copies": of["copies"],
            "model": name(of["model"]) or "model",
            "flow": flow,
            "cohort": name(of["to"]),
            "aggregator": name(of["into"]),
            "sums_into": name(of["sums_into"]),
            "class_counts": of["class_counts"],
            "trains": of["trains"],
            "held_out": of["held_out"],
            "change": of["change"],
            "needs": name(of["if_filled"]),
            "unless": name(of["unless_filled"]),
            "requested_by": name(of["if_requested_by"]),
            "votes": of["votes"],
        }


def exchange(
    label: str,
    sends: str = "params",
    answers: str = "params",
    *,
    to: Slot | None = None,
    into: Slot | None = None,
    sums_into: Slot | None = None,
    times: int | str | Callable[[Any], int] = 1,
    rows: int | str | Callable[[Any], int] = 0,
    made: bool = False,
    trains: bool | Callable[[Any], bool] = False,
    held_out: bool | Callable[[Any], bool] = False,
    change: bool = False,
    draws: Slot | Callable[[Any], Slot | None] | None = None,
    releases: Slot | Release | Callable[[Any], Slot | Release | None] | None = None,
    releases_steps: Steps | Callable[[Any], Steps | None] | None = None,
    releases_within: Slot | Sequence[Slot] = (),
    releases_at_server: Slot | Sequence[Slot] = (),
    bounds: Slot | Sequence[Slot] = (),
    public: bool | Callable[[Any], bool] | None = None,
    through: Slot | Sequence[Slot] = (),
    learnt_through: Slot | Sequence[Slot] = (),
    beside: Slot | Sequence[Slot] = (),
    partly: bool | Callable[[Any], bool] = False,
    sent_back_unreleased: bool = False,
    forged_by: Slot | None = None,
    class_counts: bool = False,
    if_filled: Slot | None = None,
    unless_filled: Slot | None = None,
    if_requested_by: Slot | None = None,
    model: Slot | None = None,
    voices: int = 1,
    copies: int = 1,
    votes: Mapping[str, int] | None = None,
    when: Callable[[Any], bool] | None = None,
) -> Callable[[Callable[[Any, Any, Any], Any]], Exchange]:
    """Declares an exchange, before the method that makes a client's answer:
    `answer(self, client, sent) -> message`.

    `sends` and `answers` are kinds of messages: the core's (fl-core/MESSAGES.md) or those of
    `fl.message`. Further:

    * `to`: the selector of the clients; `into`: the aggregator of the answers; `sums_into`: the
      aggregator that gets the sum of the answers as one message, which must be one of the mean
      (a claim of `of_mean`); `trains`: the client trains for its answer, so an aggregator may
      request the loss of that training (nothing else depends on it); `held_out`: the client uses
      `client.held_out`, the rows that it does not learn from; `change`: the answer is a change,
      which the server adds to the parameters that it sent (attacks and audits then know the
      client's model); `times` and `rows`: how often, and for how many samples (`"all"`: all public
      ones; with `made`, those that the run generates): a number, the name of a setting, or a
      function of the protocol;
    * how the answer depends on the client's data. Without any of these it carries no guarantee.
      `releases`: the whole answer goes through this mechanism, or `fl.difference(slot)` or
      `fl.part(slot, take, put)` of it; `releases_steps`: `fl.steps(slot, ..)`, each step of a
      training goes through a mechanism; `draws`: before it answers, the client draws a private
      sample through this mechanism, which `client.private(slot)` gives, here and later; these and
      `trains` may be functions of the protocol; `releases_within`: the method itself calls
      `client.release`;
      `releases_at_server`: the server releases its result; `bounds`: a mechanism clips without
      noise; `public`: it uses no private data; `through`: it depends on the data only through
      earlier results of this mechanism; `learnt_through`: it is post-processing of a model that was
      trained through this mechanism; `beside`: if this slot is filled, part of the answer bypasses
      the mechanism; `partly`: part of it does in any case; `sent_back_unreleased`: the server sends
      values derived from the answer back to clients before it releases them;
    * `forged_by`: the attack that makes what attackers answer;
    * `class_counts`: the server needs each sender's examples per class; `if_filled`,
      `unless_filled`, `if_requested_by`, `when`: the condition of the exchange; `model`, `voices`,
      `copies`, `votes`: for the plan of bytes and prices.
    """
    given = dict(locals())
    options = {name: value for name, value in given.items() if name not in ("label", "sends", "answers")}
    return lambda answer: Exchange(answer, label, sends, answers, options)


def _value(part: Part, value: Any) -> Any:
    """A value, the setting of this name, or what a function of the protocol gives."""
    if callable(value):
        return value(part)
    if isinstance(value, str) and value in part._fl["fields"]:
        return getattr(part, value)
    return value


def _no_number(part: Part, found: Any) -> str:
    """What is wrong with a value that is no whole number."""
    if not isinstance(found, str):
        return f"must be a whole number, the name of a setting, or a function of the protocol, got {found!r}"
    near = difflib.get_close_matches(found, part._fl["fields"], 1)
    return f"names the setting `{found}`, which the protocol does not have{f'; did you mean `{near[0]}`?' if near else ''}"


def members(cls: type, kind: type[T]) -> list[T]:
    """The slots or exchanges of a class, in the order in which it has them."""
    found = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items() if not name.startswith("__")}
    return [value for value in found.values() if isinstance(value, kind)]


def check(cls: type, messages: Mapping[str, Any]) -> None:
    """Raises `TypeError` if the class does not hang together. `messages` are those of
    `fl.message`."""
    from .. import _fl

    slots, exchanges = members(cls, Slot), members(cls, Exchange)
    if not exchanges:
        raise TypeError(f"{cls.__name__}: a protocol has at least one exchange: put `@fl.exchange(\"label\")` before the method of a client's answer")
    for one in exchanges:
        for kind in (one.sends, one.answers):
            near = None if kind in messages else _fl.near_kind(kind)
            if near is not None:
                raise TypeError(f"{cls.__name__}.{one.name}: no message is called `{kind}`; did you mean `{near}`? `fl.message` declares one of your own")
        for option, value in one.options.items():
            held = value.slot if isinstance(value, (Release, Steps)) else value
            for used in held if isinstance(held, (list, tuple)) else [held]:
                if isinstance(used, Slot) and used not in slots:
                    raise TypeError(f"{cls.__name__}.{one.name}: `{option}` names a slot that is no attribute of the class")
        if [other.label for other in exchanges].count(one.label) > 1:
            raise TypeError(f"{cls.__name__}: two exchanges are called `{one.label}`")


def kinds(cls: type) -> list[str]:
    """The kinds of messages that a protocol names."""
    of = [kind for one in members(cls, Exchange) for kind in (one.sends, one.answers)]
    of += [kind for one in members(cls, Slot) for kind in one.signature.split(" -> ")]
    return list(dict.fromkeys(of))


def _listed(slots: Any) -> list[Slot]:
    return [slots] if isinstance(slots, Slot) else list(slots)
