"""The server and the clients that the methods of a protocol in Python are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from .._parts import generators, names, state as _state
from .._parts.arguments import Mail, Round, Stream
from .borrowed import Examples, Generator, Model, Public, Samples
from .declarations import Array, Arrays, Exchange, Slot, TargetKind, _listed, members
from .requests import _child, _finite, _form_back, _Program, _sent, has_run, packed, told, unchanged


class Cohort(Sequence[int]):
    """Clients that take part, ascending, and how they were drawn, which prices depend on."""

    def __init__(self, ask: dict[str, Any]):
        self._ask = ask

    def only(self, keep: Callable[[int], bool]) -> Cohort:
        """Those for which `keep` holds. Their draw is then unknown."""
        ids = [id for id in self._ask["ids"] if keep(id)]
        draw = self._ask["draw"] if len(ids) == self._ask["of"] else "unknown"
        return Cohort({**self._ask, "ids": ids, "draw": draw})

    def __getitem__(self, at: Any) -> Any:
        return self._ask["ids"][at]

    def __len__(self) -> int:
        return len(self._ask["ids"])

    def __repr__(self) -> str:
        return f"<Cohort: {len(self)} of {self._ask['of']} clients>"


class Answers(Sequence[Mail]):
    """The answers to an exchange, in client order. Each is a mapping of arrays, with `sender`,
    `weight`, `class_counts` and `training_loss`."""

    def __init__(self, mail: list[Mail]):
        self._mail = mail

    @property
    def weights(self) -> Array:
        """One for each."""
        return np.array([mail.weight for mail in self._mail])

    def __getitem__(self, at: Any) -> Any:
        return self._mail[at]

    def __iter__(self) -> Iterator[Mail]:
        return iter(self._mail)

    def __len__(self) -> int:
        return len(self._mail)


class State(SimpleNamespace):
    """What the server keeps from step to step: its attributes. Each is a number, a text, a list, a
    mapping, an array, or several of these; a run that is stopped resumes with them."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"server.state has no `{name}`; set it before the first step")

    def _save(self) -> bytes:
        for name, value in vars(self).items():
            try:
                _state.check(value)
            except _state.Unsavable as error:
                raise TypeError(
                    f"what it keeps as `server.state.{name}` ({error.kind}) cannot be saved, so a run that stops would lose it: keep numbers, "
                    "texts, lists, mappings and arrays"
                ) from None
        _state.refuse_views(vars(self))
        return _state.save(vars(self))

    def _load(self, state: bytes) -> None:
        vars(self).clear()
        vars(self).update(_state.load(state))


class _Side:
    """What the server and a client have in common."""

    def __init__(self, program: _Program):
        self._program = program
        self._public: Public | None = None

    @property
    def task(self) -> Any:
        """What models learn: `input`, the shape of a sample; `outputs`, how many scores it gets;
        `multi_label`."""
        return self._program.part.task

    def has(self, slot: Slot) -> bool:
        """Is this slot filled (for this client)?"""
        return self._program.name(slot) in self._program.filled

    @property
    def public(self) -> Public:
        """The public data. Raises `fl.Refused` if the spec has none."""
        if self._public is None:
            self._public = Public(self._program)
        return self._public

    def model(self, slot: Slot) -> Model:
        """The model in this slot, made at its first use."""
        name = self._program.name(slot, "trainer")
        return Model(self._program, self._program.number("model", name), name)

    def generator(self, slot: Slot) -> Generator:
        """The generator in this slot, made at its first use."""
        return Generator(self._program, self._program.number("generator", self._program.name(slot, "generator")))

    def _clipped(self, slot: Slot, message: Any, agreed: float | None = None) -> dict[str, Array]:
        of = self._program.slot(slot, "privacy")
        sent = _sent(packed(of.takes, message))
        return self._program.ask("clip", sent, slot=of.name, kind=of.takes, agreed=agreed)[1]

    def _aggregate(self, slot: Slot, round: dict[str, Any], messages: Iterable[Any], weights: Any, shown: Any, role: str) -> dict[str, Array]:
        of = self._program.slot(slot, role)
        letters = []
        for at, one in enumerate(messages):
            mail = one if isinstance(one, Mail) else Mail(at, 1.0, None, {})
            weight = mail.weight if weights is None else float(weights[at])
            letters.append(_sent(packed(of.takes, one), mail.sender, weight, mail.class_counts, mail.training_loss))
        if shown is not None:
            letters.append(_sent(packed(of.takes, shown)))
        return self._program.ask("aggregate", *letters, slot=of.name, round=round, kind=of.takes, shown=None if shown is None else of.takes)[1]


class _Step(Round):
    """The step that is being done: it says and records what the server does."""

    __slots__ = ("_server",)

    def __init__(self, server: Server, text: dict[str, Any], host: _Key):
        super().__init__(text, host)
        self._server = server

    def note(self, text: str) -> None:
        self._server.warn(text)

    def record(self, name: str, value: float) -> None:
        self._server.record(name, value)


class Server(_Side):
    """The server's side of a run: it sends requests, combines answers, evaluates, and keeps
    `state`.

    All that is done for a run is done in steps, `once` and `rounds`; each ends in a checkpoint.
    """

    def __init__(self, program: _Program, facts: dict[str, Any]):
        super().__init__(program)
        self.state = State()
        self._everyone = Cohort(facts["everyone"])
        self._round: _Step | None = None

    # ---- steps

    def rounds(self, body: Callable[[Server, Round], object]) -> None:
        """Calls `body(server, round)` for each round of the protocol: as many as its setting or
        attribute `rounds` says. A resumed run skips those that it has done; `state` is then as they
        left it. A round that the privacy budget does not pay for is undone, and ends the rounds."""
        n = getattr(self._program.part, "rounds", None)
        if not isinstance(n, int):
            raise TypeError("the protocol has no number of rounds: give it a setting `rounds`, or an attribute such as `rounds = 10`")
        for number in range(1, n + 1):
            self._step(f"round {number}", number, n, body)

    def once(self, name: str, body: Callable[[Server, Round], object]) -> None:
        """Calls `body(server, round)` once, as the step of this name. A resumed run that has done
        it skips it."""
        self._step(name, 0, 0, body)

    def _step(self, name: str, number: int, of: int, body: Callable[[Server, Round], object]) -> None:
        if self._round is not None:
            raise RuntimeError(f"a step cannot begin in the middle of another one ({self._round.name})")
        unchanged(self._program.part)
        begun, kept = self._program.ask("begin_step", name=name, number=number, of=of)
        if begun == "skipped":
            return
        if begun == "restored":
            self.state._load(kept["state"].tobytes())
            return
        while True:
            attempt = begun["attempt"]
            before, failed = (self.state._save() if attempt["undoable"] else None), None
            self._round = _Step(self, attempt["round"], _Key(bytes(attempt["round"]["key"])))
            self._program.round_number = self._round.number
            try:
                with generators.Section(self._round.stream.child("draws").seed, whole=True):
                    has_run(body(self, self._round), "it")
                unchanged(self._program.part)
                after = self.state._save()
            except Exception as error:
                failed = told(self._program.part, error, getattr(body, "__name__", "lead"))
            finally:
                self._round = None
            begun, _ = self._program.ask("judge_step", failed=failed)
            if begun == "done":
                break
            if before is not None:
                self.state._load(before)
                after = before
            if begun == "undone":
                break
        self._program.ask("finish_step", _sent({"state": np.frombuffer(after, np.uint8)}))

    @property
    def round(self) -> Round:
        """The step that is being done: its `number`, `name`, `last` and `stream`."""
        if self._round is None:
            raise RuntimeError("the protocol is in no step: do this in what `server.rounds` or `server.once` calls")
        return self._round

    @property
    def _at(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.round._facts)

    # ---- clients

    @property
    def everyone(self) -> Cohort:
        """Every client that takes part."""
        return self._everyone

    def with_examples(self, at_least: int) -> Cohort:
        """Every client with so many examples; all of them, if the run has an accountant."""
        return Cohort(self._program.ask("with_examples", at_least=at_least)[0])

    def who(self, slot: Slot) -> list[str]:
        """The clients that have a part in this slot, such as `sign-flip for clients 0-1`."""
        return cast("list[str]", self._program.ask("who", slot=self._program.name(slot))[0])

    def cohort(self, exchange: Exchange, model: Arrays | None = None) -> Cohort:
        """The clients of an exchange in this round: those that its selector picks (`to`), once for
        all its exchanges, or everyone. With `model` the exchange is the one that a selector may
        request (`if_requested_by`), for the loss of `model` at the clients."""
        self._declared(exchange)
        letters = [] if model is None else [_sent(packed(exchange.sends, model))]
        return Cohort(self._program.ask("cohort", *letters, round=self._at, label=exchange.label)[0])

    def _down(self, exchange: Exchange, to: Iterable[int], message: Any) -> tuple[list[tuple[Any, ...]], list[int]]:
        """Different messages, and the position of each client's."""
        if not callable(message):
            return [_sent(packed(exchange.sends, message))], [0 for _ in to]
        letters: list[tuple[Any, ...]] = []
        which: list[int] = []
        known: dict[int, tuple[int, Any]] = {}
        for id in to:
            one = message(id)
            if builtin_id(one) not in known:
                # held, so that its address stays its own
                known[builtin_id(one)] = (len(letters), one)
                letters.append(_sent(packed(exchange.sends, one)))
            which.append(known[builtin_id(one)][0])
        return letters, which

    def run(
        self,
        exchange: Exchange,
        message: Any,
        *,
        form: Callable[[Mail], Any] | None = None,
        shown: Any = None,
    ) -> dict[str, Array]:
        """Runs an exchange as it is declared: sends `message` (or `message(client)`) to each of its
        clients (`cohort`), lets the declared aggregator combine the answers, and releases the
        result through the declared mechanism of the server.

        `form(mail)` makes what the aggregator combines of each answer: a message, or a message and
        its weight. `shown` is what the aggregator sees as sent.
        """
        cohort = self.cohort(exchange)
        letters, which = self._down(exchange, cohort, message)
        if shown is not None:
            letters.append(_sent(packed(exchange.sends, shown)))
        into = exchange.options["into"]
        back = form and _form_back(form, into.takes if into else exchange.answers)
        return self._program.ask(
            "run", *letters, back=back, round=self._at, label=exchange.label, cohort=cohort._ask, which=which,
            shown=None if shown is None else exchange.sends, forms=form is not None,
        )[1]  # fmt: skip

    def collect(self, exchange: Exchange, message: Any, *, to: Iterable[int] | None = None) -> Answers:
        """Sends `message` (or `message(client)`) to each client of the exchange (`cohort`), or to
        these clients, and gives their answers, by the spec's policy on faults."""
        self._declared(exchange)
        to = list(self.cohort(exchange) if to is None else to)
        letters, which = self._down(exchange, to, message)
        about, tensors = self._program.ask("collect", *letters, round=self._at, label=exchange.label, to=to, which=which)
        bodies: list[dict[str, Array]] = [{} for _ in about]
        for name, array in tensors.items():
            at, _, inner = name.partition("/")
            bodies[int(at)][inner] = array
        return Answers([Mail(one["from"], one["weight"], one["class_counts"], body, one["training_loss"]) for one, body in zip(about, bodies, strict=True)])

    def _declared(self, exchange: Exchange) -> None:
        if exchange not in members(type(self._program.part), Exchange):
            raise LookupError(f"the protocol declares no exchange `{getattr(exchange, 'label', exchange)}`: put `@fl.exchange` before the method of its class")

    def aggregate(self, slot: Slot | Exchange, messages: Iterable[Any], weights: Any = None) -> dict[str, Array]:
        """Lets the aggregator in this slot, or the one that this exchange declares, combine
        messages: answers, or arrays by name. `weights`, one for each, take the place of those that
        they came with."""
        if isinstance(slot, Exchange):
            self._declared(slot)
            if (into := slot.options["into"]) is None:
                raise LookupError(f"exchange `{slot.label}` declares no aggregator")
            slot = into
        return self._aggregate(slot, self._at, messages, weights, None, "aggregator")

    def select(self, slot: Slot, pool: Samples | Arrays) -> Array | None:
        """Positions of samples, or of soft labels (`rows` and `values`), that the selector in this
        slot picks; `None`, if it is empty."""
        of = self._program.slot(slot, "selector")
        if of.name not in self._program.filled:
            return None
        ask, tensors = (pool._ask, pool._tensors) if isinstance(pool, Samples) else ({}, packed(of.signature, pool))
        return self._program.ask("select", _sent(tensors), slot=of.name, round=self._at, pool=of.signature, samples=ask)[1]["positions"]

    # ---- releases

    def release(self, exchange: Exchange, message: Any, cohort: Cohort, *, clip: bool = True) -> dict[str, Array]:
        """Releases something made of the answers of `cohort` to an exchange, through the mechanism
        that it declares (`releases_at_server`): clip, price, afford, perturb, charge. Without
        `clip` it is a sum of what `clipped` has let through. It is as it was, if the slot is
        empty."""
        self._declared(exchange)
        kind = next((slot.takes for slot in _listed(exchange.options["releases_at_server"])), exchange.answers)
        sent = _sent(packed(kind, message))
        return self._program.ask("release", sent, label=exchange.label, round=self._at, kind=kind, cohort=cohort._ask, clip=clip)[1]

    def clipped(self, slot: Slot, message: Any) -> dict[str, Array]:
        """The message within the bound of the mechanism in this slot."""
        return self._clipped(slot, message)

    def affords(self, slot: Slot, message: Any, cohort: Cohort) -> None:
        """Raises `fl.Refused` if the budget does not pay for a release like this one."""
        of = self._program.slot(slot, "privacy")
        self._program.ask("affords", _sent(packed(of.takes, message)), slot=of.name, kind=of.takes, cohort=cohort._ask)

    # ---- its models, and what is measured and kept

    def fit(self, slot: Slot, x: Samples | Array, target: Array | None = None, **how: Any) -> SimpleNamespace:
        """Trains the server's model in this slot, see `Model.fit`."""
        return self.model(slot).fit(x, target, stream=Stream(_child(self.round._key, self._program.name(slot))), **how)

    def read_model(self, slot: Slot, client: int, model: bytes) -> Model:
        """A model that this client trained in this slot, saved and sent."""
        name = self._program.name(slot, "trainer")
        reader, _ = self._program.ask("reader", slot=name)
        held, _ = self._program.ask("read", _sent({"model": np.frombuffer(model, np.uint8)}), part=reader, client=client)
        return Model(self._program, held, name, held=True)

    def evaluate(self, slot: Slot) -> None:
        """Records how good the server's model in this slot is on the test examples, if this round
        is to be evaluated."""
        self._program.ask("evaluate", slot=self._program.name(slot, "trainer"), round=self._at)

    def evaluate_clients(self, slot: Slot) -> None:
        """Records how good the clients' own models in this slot are, if this round is to be
        evaluated."""
        self._program.ask("evaluate_clients", slot=self._program.name(slot, "trainer"), round=self._at)

    def evaluate_for_clients(self, slot: Slot, models: Sequence[Arrays], of: Callable[[int], int]) -> Array:
        """Records how good models of the server are for the clients: `of(client)` is the position
        of its model. Gives the scores in client order; none, if this round is not evaluated."""
        letters = [_sent(packed("params", model)) for model in models]
        whose = [of(id) for id in self.everyone]
        return self._program.ask("evaluate_for_clients", *letters, slot=self._program.name(slot, "trainer"), round=self._at, whose=whose)[1]["scores"]

    def record(self, name: str, value: float) -> None:
        """Records a number, if this round is to be evaluated."""
        self._program.ask("record", round=self._at, name=names.check(name, dots=True), value=_finite(value))

    def record_each(self, name: str, values: Iterable[float]) -> None:
        """Records a number of each client, in client order: its mean and deviation."""
        self._program.ask("record_each", round=self._at, name=names.check(name, dots=True), each=[_finite(value) for value in values])

    def keep_model(self, slot: Slot, name: str | None = None) -> None:
        """Keeps the server's model in this slot as a result of the run, under the slot's name or
        another one."""
        of = self._program.name(slot, "trainer")
        self._program.ask("keep_model", slot=of, name=name or of)

    def keep_clients(self, slot: Slot) -> None:
        """Keeps the clients' own models in this slot as results of the run."""
        self._program.ask("keep_clients", slot=self._program.name(slot, "trainer"))

    def warn(self, text: str) -> None:
        """Says something that the user should know."""
        self._program.ask("warn", text=str(text))


class Client(_Side):
    """One client: its data, its models and its parts. Nothing of it leaves but as an answer. `id`
    is its number, and `round_number` that of the round that asks, from 1."""

    def __init__(self, program: _Program, facts: dict[str, Any]):
        super().__init__(program)
        self.id: int = facts["client"]
        self.round_number: int = facts["round"]
        program.round_number = self.round_number
        self._key: bytes = facts["key"]
        self._own: Examples | None = None
        self._held_out: Examples | None = None
        self._measured: set[str] = set()

    @property
    def own(self) -> Examples:
        """Its own examples."""
        if self._own is None:
            self._own = Examples(self._program, *self._program.ask("own"))
        return self._own

    @property
    def held_out(self) -> Examples:
        """The rows that it has held back to test on (`data: {test: {own: 0.25}}`); no model learns
        from them. The exchange declares `held_out=True`. With an accountant, which cannot price
        what follows from them, this raises `fl.Refused`."""
        if self._held_out is None:
            self._held_out = Examples(self._program, *self._program.ask("held_out"))
        return self._held_out

    def private(self, slot: Slot) -> Examples:
        """The private sample that the mechanism in this slot has drawn, for this request or an
        earlier one (`fl.exchange(draws=slot)`); all its own examples, if the slot is empty. Raises
        `fl.Refused` if no sample was drawn."""
        return Examples(self._program, *self._program.ask("private", slot=self._program.name(slot, "privacy")))

    def stream(self, purpose: str) -> Stream:
        """Its randomness for one purpose within this request."""
        return Stream(_child(self._key, purpose))

    # ---- learning

    def fit(self, slot: Slot, examples: Samples | Array | None = None, target: Array | None = None, **how: Any) -> SimpleNamespace:
        """Trains its model in this slot on its own examples, or on these, see `Model.fit`. The mean
        loss is the training loss that an aggregator may ask for."""
        model, x, name = self.model(slot), self.own if examples is None else examples, self._program.name(slot)
        report = model.fit(x, target, stream=self.stream(name), **how)
        if not report.steps and len(x):
            least = model._do("describe")[0].get("least_batch", 1)
            why = f": no mini-batch has the {least} examples that its batch normalisation needs" if least > 1 else ""
            self.note(f"parts.{name} took no training step{why}")
        self._program.ask("fitted", value=_finite(report.loss) if report.steps else None)
        return report

    def fit_public(self, slot: Slot, ids: Any, target: Array, **how: Any) -> SimpleNamespace:
        """Trains its model in this slot on scores or labels of these public samples."""
        stream = Stream(_child(self.stream(self._program.name(slot)).key, "public"))
        return self.model(slot).fit(self.public.pick(ids), target, stream=stream, **how)

    def new_model(self, slot: Slot, index: int = 0) -> Model:
        """A new model for this slot, the `index`-th of its kind, which need not last, such as a
        teacher."""
        name = self._program.name(slot, "trainer")
        return Model(self._program, self._program.ask("new_model", slot=name, index=index)[0], name, held=True)

    def set_model(self, slot: Slot, model: Model) -> None:
        """Lets a model that `new_model` gave be the one of this slot."""
        if not model._held:
            raise TypeError("set_model takes a model that new_model gave")
        self._program.ask("set_model", slot=self._program.name(slot, "trainer"), part=model._number)

    def aggregate(self, slot: Slot, messages: Iterable[Any], weights: Any = None) -> dict[str, Array]:
        """Lets the aggregator in this slot combine messages of this client, such as those of its
        teachers."""
        return self._aggregate(slot, self._at(slot), messages, weights, None, "aggregator")

    def _at(self, slot: Slot) -> dict[str, Any]:
        name = self._program.name(slot)
        return {"name": name, "number": 0, "last": False, "key": list(self.stream(name).key)}

    # ---- releases

    def release(self, slot: Slot, message: Any) -> dict[str, Array]:
        """Releases a message through the mechanism in this slot: clip, price, afford, perturb. It
        is as it was, if the slot is empty. Raises `fl.Refused` if the exchange does not declare it,
        or the budget does not pay for it."""
        of = self._program.slot(slot, "privacy")
        tensors = packed(of.takes, message)
        if of.name not in self._program.filled:
            return tensors
        return self._program.ask("release", _sent(tensors), slot=of.name, kind=of.takes)[1]

    def release_steps(
        self,
        slot: Slot,
        like: Any,
        step: Callable[[Array, Callable[[Any], dict[str, Array]]], Any],
        then: Callable[[int, dict[str, Array], int], object],
    ) -> None:
        """Releases what the steps of a training see of the client's own examples through the
        mechanism in this slot, as the exchange declares (`releases_steps`). All of them are priced
        and afforded before the first.

        Each step draws positions of the client's examples. `step(positions, clip)` gives what it
        sees of them, as a message like `like`, where `clip(message)` bounds one example's part.
        `then(at, released, of)` gets that with noise: step `at`, from 0, of `of`. Raises
        `fl.Refused` if the exchange does not declare it, or the budget does not pay for it.
        """
        self._release_steps(slot, like, lambda positions, clip, _: step(positions, clip), then)

    def _release_steps(
        self,
        slot: Slot,
        like: Any,
        step: Callable[[Array, Callable[[Any], dict[str, Array]], float | None], Any],
        then: Callable[[int, dict[str, Array], int], None],
    ) -> None:
        """As `release_steps`; `step` also gets the norm to which the mechanism clips, if it does
        nothing else."""
        of = self._program.slot(slot, "privacy")
        ask, kind = self._program.ask, of.takes
        (held, steps), _ = ask("begin_steps", _sent(packed(kind, like)), slot=of.name, kind=kind)

        def clip(message: Any) -> dict[str, Array]:
            return self._program.do(held, "clip", _sent(packed(kind, message)))[1]

        try:
            bound = self._program.do(held, "norm_bound")[0]
            for at in range(steps):
                positions = np.array(ask("draw_lot", at=at)[0], dtype=np.int64)
                seen = packed(kind, step(positions, clip, bound))
                then(at, ask("release_step", _sent(seen), at=at, part=held, kind=kind)[1], steps)
        finally:
            ask("end_steps", slot=of.name, part=held)

    def fit_private(self, slot: Slot, privacy: Slot, *, batch: int) -> None:
        """Trains its model in `slot` on its own examples by DP-SGD (Abadi et al. 2016): the
        mechanism in `privacy` clips the gradient of each example, and adds noise to their sum in
        each step, which is divided by `batch`. The exchange declares the steps
        (`releases_steps`)."""
        model, own = self.model(slot), self.own
        kind, known = own._target()
        shapes = {name: array.shape for name, array in model.params().items()}

        def step(positions: Array, clip: Callable[[Any], dict[str, Array]], bound: float | None) -> dict[str, Array]:
            if bound is not None and len(positions):
                together = model._clipped_gradients(own.pick(positions), known[positions], cast("TargetKind", kind), bound)
                if together:
                    return together
            sums = {name: np.zeros(shape) for name, shape in shapes.items()}
            for at in positions:
                of_one = model.gradient(own.pick([at]), known[[at]], kind=cast("TargetKind", kind))
                for name, slope in clip(of_one).items():
                    sums[name] += slope
            return {name: of.astype(np.float32) for name, of in sums.items()}

        def then(at: int, released: dict[str, Array], of: int) -> None:
            model.descend({name: (1 / batch * array.astype(float)).astype(np.float32) for name, array in released.items()}, at, of)

        self._release_steps(privacy, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, step, then)

    def clip(self, slot: Slot, message: Any, agreed: float | None = None) -> dict[str, Array]:
        """The message within the bound of the mechanism in this slot, without noise; `agreed` is
        what all clients agreed on."""
        return self._clipped(slot, message, agreed)

    def select(self, slot: Slot, pool: Samples | Arrays, *, learn: Examples | None = None) -> Array | None:
        """Positions of samples, or of soft labels (`rows` and `values`), that this client's
        selector in this slot picks; `None`, if it is empty. With `learn` it first learns what its
        own examples look like."""
        of = self._program.slot(slot, "selector")
        if of.name not in self._program.filled:
            return None
        (held, _), _ = self._program.ask("take_selector", slot=of.name)
        try:
            if learn is not None:
                if learn._labels is None:
                    raise TypeError("a selector learns from examples of the program, such as `client.own`")
                key = _child(self.stream(of.name).key, "fit")
                self._program.do(held, "fit", _sent(learn._tensors), key=key, classes=self.task.outputs, labels=learn._labels, **learn._ask)
            ask, tensors = (pool._ask, pool._tensors) if isinstance(pool, Samples) else ({}, packed(of.signature, pool))
            round = self._at(slot)
            key = bytes(round.pop("key"))
            return self._program.do(held, "select", _sent(tensors), key=key, **round, **ask)[1]["positions"]
        finally:
            self._program.ask("put_selector", slot=of.name, part=held)

    # ---- what it keeps

    def stash(self, name: str, value: Any) -> None:
        """Keeps a value between requests: numbers, texts, lists, mappings and arrays."""
        try:
            kept = _state.save({"": value})
        except _state.Unsavable as error:
            raise TypeError(f"what it stashes as `{name}` ({error.kind}) cannot be saved: keep numbers, texts, lists, mappings and arrays") from None
        self._program.ask("stash", _sent({"kept": np.frombuffer(kept, np.uint8)}), name=f"python {name}")

    def stashed(self, name: str, default: Any = None) -> Any:
        """What `stash` kept under this name."""
        return self._kept("stashed", name, default)

    def unstash(self, name: str, default: Any = None) -> Any:
        """As `stashed`, and keeps it no more."""
        return self._kept("unstash", name, default)

    def _kept(self, do: str, name: str, default: Any) -> Any:
        found = self._program.ask(do, name=f"python {name}")[1]
        return _state.load(found["kept"].tobytes())[""] if "kept" in found else default

    # ---- what is said

    def note(self, text: str) -> None:
        """For the user. With an accountant it stays with the client."""
        self._program.ask("note", text=str(text))

    def measure(self, name: str, value: float) -> None:
        """A number for the report: its mean and deviation over clients. With an accountant it stays
        with the client. A request has one of each name."""
        if names.check(name, dots=True) in self._measured:
            raise ValueError(f"`{name}` was measured in this request already")
        self._measured.add(name)
        self._program.ask("measure", name=name, value=_finite(value))


class _Key:
    """What `Round` asks of a host."""

    def __init__(self, key: bytes):
        self._key = key

    def key(self) -> bytes:
        return self._key


builtin_id = id
