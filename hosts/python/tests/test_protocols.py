"""Protocols in Python: the same digests as linked ones in every way of running, and what becomes of
mistakes."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import fl
import fl.testing
import my_protocols
import numpy as np
import pytest
from conftest import PORTS, QUICK

HERE = str(Path(__file__).parent)


def as_python(spec, **settings):
    """A spec of the linked FedAvg with the protocol in Python."""
    spec = fl.check(spec)
    own = {name: spec["protocol"][name] for name in ("rounds", "local", "sampling")}
    return spec | {"protocol": {"use": "py-fedavg", **own, **settings}, "plugins": [{"module": "my_protocols", "path": HERE}]}


@pytest.mark.parametrize("name", ["fedavg", "fedavg-private", "dp-sgd"])
def test_exact_fedavg_in_python_has_the_digest_of_the_linked_one_in_every_way_of_running(name):
    linked, spec = fl.run(QUICK / f"{name}.yaml", quiet=True), as_python(QUICK / f"{name}.yaml")
    assert set(fl.testing.ways(spec).values()) == {linked.digest}
    results = [fl.run(spec, threads=threads, quiet=True) for threads in (1, 4)]
    assert {one.digest for one in results} == {linked.digest}
    assert results[0].epsilon == linked.epsilon


def test_exact_gradients_that_a_trainer_clips_together_give_the_digest_of_the_linked_protocol():
    network = {"parts.model": {"use": "dfdx", "net": [{"linear": 8}, "relu", "outputs"], "optimiser": {"sgd": {"lr": 0.5}}}}
    linked, spec = fl.run(QUICK / "dp-sgd.yaml", network, quiet=True), as_python(fl.check(QUICK / "dp-sgd.yaml", network))
    assert set(fl.testing.ways(spec).values()) == {linked.digest}


class Carried:
    """An engine: a courier to one node of this process. Flower is another one."""

    def __init__(self, node):
        self.node, self.replies = node, []

    def send(self, client, head, body):
        self.replies.append((client, self.node.answer(head, body), ""))

    def receive(self):
        return self.replies.pop(0)

    def end(self, keep):
        pass


@pytest.mark.parametrize("name", ["fedavg", "fedavg-private"])
def test_exact_an_engine_gives_the_same_digest(name):
    from fl import remote

    spec = as_python(QUICK / f"{name}.yaml")
    there = remote.lead(spec, Carried(remote.Node(spec, home="home")), window=4, quiet=True)
    assert there.digest == fl.run(QUICK / f"{name}.yaml", quiet=True).digest


@pytest.mark.parametrize("set", [{"parts.cohort": {"use": "uniform", "share": 0.5}}, {"parts.aggregator": {"use": "trimmed-mean", "trim": 0.2}}], ids=str)
def test_exact_cohorts_and_aggregators_are_the_programs(set):
    assert fl.run(as_python(QUICK / "fedavg.yaml"), set, quiet=True).digest == fl.run(QUICK / "fedavg.yaml", set, quiet=True).digest


def test_exact_fedprox_is_a_setting_of_fedavg_in_python():
    linked = fl.run(QUICK / "fedavg.yaml", {"protocol.use": "fedprox", "protocol.mu": 0.5}, quiet=True)
    assert fl.run(as_python(QUICK / "fedavg.yaml", mu=0.5), quiet=True).digest == linked.digest


def test_exact_a_killed_run_goes_on_with_the_same_digest(tmp_path):
    """The process ends in the middle of a client's answer, as nothing could clean up after it."""
    spec = as_python(QUICK / "fedavg.yaml") | {"checkpoint": {"every": {"rounds": 1}}}
    Path("killed.py").write_text(
        "import os, sys, fl\nfrom my_protocols import PyFedAvg\n"
        "def fit(self, *args, count=[0], then=fl.Client.fit, **how):\n    count[0] += 1\n    os._exit(9) if count[0] == 12 else None\n    return then(self, *args, **how)\n"
        "fl.Client.fit = fit\nfl.run('spec.yaml', out='here', quiet=True, threads=1)\n"
    )
    Path("spec.yaml").write_text(json.dumps(spec))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([HERE, *sys.path])}
    assert subprocess.run([sys.executable, "killed.py"], env=environment).returncode == 9
    assert fl.run(resume="here", quiet=True).digest == fl.run(QUICK / "fedavg.yaml", quiet=True).digest


SAMPLED = {
    "protocol": {"use": "class-distill", "rounds": 2, "warm-up": {"epochs": 1, "batch": 8}, "local": {"steps": 3, "batch": 8}, "weight": 0},
    "parts.sampling": {"use": "sample-examples", "k": 20, "min-examples": 30},
    "parts.accountant": {"use": "nfdp"},
    "data.split": "iid",
    "data.clients": 4,
}


@pytest.mark.parametrize("resample", [False, True])
def test_exact_private_samples_and_their_price_are_those_of_the_linked_protocol(resample):
    """Without the term of the means, a client's model depends on its private samples alone."""
    linked = fl.run(QUICK / "fkd.yaml", SAMPLED | {"protocol.resample": resample}, quiet=True)
    own = {name: value for name, value in SAMPLED["protocol"].items() if name != "weight"} | {"use": "py-class-means", "resample": resample}
    spec = fl.check(QUICK / "fkd.yaml", SAMPLED) | {"protocol": own, "plugins": [{"module": "my_protocols", "path": HERE}]}
    python = fl.run(spec, quiet=True)
    found = python.outcome["privacy"]
    # what a loaded protocol declares is its own claim; with `resample` nothing is guaranteed
    claims = [holds.pop("claimed_by", None) for holds in found.values()]
    assert claims == [None if resample else ["module my_protocols"]] * 3, found
    assert python.epsilon == linked.epsilon and found == linked.outcome["privacy"]
    assert resample or linked.epsilon > 0
    assert python.models == linked.models and len(linked.models) == 4
    for name in linked.models:
        assert model_bytes(python, name) == model_bytes(linked, name), name
    assert len(set(fl.testing.ways(spec).values())) == 1


def model_bytes(results, name):
    return Path(results.folder, "models", name).read_bytes()


def test_a_private_sample_that_was_not_drawn_is_refused():
    drawn = fl.slot("privacy", "Draws.", "ids")
    protocol("never-drew", train=lambda self, client, params: client.private(drawn) and params, exchange={"through": drawn}, drawn=drawn)
    fails("never-drew", "it has drawn no private sample through parts.drawn", **{"parts.drawn": {"use": "sample-examples", "k": 5}})


def test_steps_that_are_not_declared_or_not_released_are_refused():
    private = {f"parts.{slot}": fl.check(QUICK / "dp-sgd.yaml")["parts"][slot] for slot in ("example-privacy", "accountant", "aggregator")}
    steps = fl.steps(my_protocols.PyFedAvg.example_privacy, steps=2, rate=0.5)
    protocol("skips-steps", exchange={"releases_steps": steps, "trains": False})
    fails("skips-steps", "`answers` declares a release through parts.example-privacy, and the answer was made without one", **private)

    def train(self, client, params):
        client.model(self.model).set_params(params)
        client.fit_private(self.model, self.example_privacy, batch=8)
        return client.model(self.model).params()

    hint = fl.exchange("a hint", times="rounds")(train)

    def round(self, server, round):
        server.collect(hint, server.state.params)

    protocol("undeclared-steps", train=train, exchange={"releases_steps": steps, "trains": False}, hint=hint, round=round)
    fails("undeclared-steps", "this exchange declares no release through parts.example-privacy", **private)
    protocol("steps", train=train, exchange={"releases_steps": steps, "trains": False})
    steps = run("steps", **private)
    assert steps.epsilon, steps.outcome["privacy"]


def test_groups_of_settings_are_checked_as_those_of_linked_parts():
    spec = fl.check(as_python(QUICK / "fedavg.yaml"), {"protocol.local": {"steps": 3}})
    assert spec["protocol"]["local"] == {"epochs": None, "steps": 3, "batch": 32, "clip": None, "rate": None}
    assert my_protocols.PyFedAvg(local={"epochs": 3}).local == fl.RoundTraining(epochs=3) == my_protocols.PyFedAvg(local=fl.RoundTraining(epochs=3)).local
    for local, text in {
        "{epochs: 0}": "protocol.local.epochs: must be in 1..=100000, got 0",
        "{epoch: 1}": "no such setting; did you mean `epochs`",
        "{epochs: 1, batch: many}": "protocol.local.batch: must be a whole number",
        "{batch: 8}": "local: must give `epochs` or `steps`",
        "{epochs: 1, steps: 1}": "local: give `epochs` or `steps`, not both",
    }.items():
        with pytest.raises(fl.SpecError) as told:
            fl.check(as_python(QUICK / "fedavg.yaml"), f"protocol.local={local}")
        assert text in str(told.value), str(told.value)
    local = next(one for one in fl.inspect("py-fedavg")["parts"][0]["settings"] if one["name"] == "local")
    assert local["kind"] == "mapping" and local["default"]["epochs"] == 2


RATES = [
    {"factor": 0.83},
    {"steps": [{"from": 2, "factor": 0.3}, {"from": 4, "factor": 0.7}]},
    {"cosine": {"over": 7, "to": 0.1}, "warm-up": 3},
]


@pytest.mark.parametrize("rates", RATES)
def test_exact_rates_follow_the_round_as_in_the_linked_protocol(rates):
    change = {"protocol.local.rate": {"by-round": rates}}
    linked = fl.run(QUICK / "fedavg.yaml", change, quiet=True)
    python = as_python(fl.check(QUICK / "fedavg.yaml", change))
    assert fl.run(python, quiet=True).digest == linked.digest != fl.run(QUICK / "fedavg.yaml", quiet=True).digest
    by_round = fl.RateByRound(
        factor=rates.get("factor", 1.0),
        steps=[fl.RateStep(from_=one["from"], factor=one["factor"]) for one in rates.get("steps", [])],
        cosine=fl.RateCosine(**rates["cosine"]) if "cosine" in rates else None,
        warm_up=rates.get("warm-up", 0),
    )
    local = fl.RoundTraining(epochs=2, batch=16, rate=fl.Rate(by_round=by_round))
    assert fl.run(python, {"protocol.local": local}, quiet=True).digest == linked.digest


def test_rates_that_cannot_be_are_refused_as_those_of_the_linked_protocol():
    python = as_python(QUICK / "fedavg.yaml")
    for rates, text in {
        "{}": "protocol.local.rate.by-round: `local.rate.by-round` changes the rate in none of 5 rounds",
        "{cosine: {over: 2}}": "gives round 3 the rate 0",
        "{steps: [{from: 9, factor: 0.1}]}": "has a step from round 9, and the last is 5",
        "{steps: [{from: 3, factor: 1}, {from: 3, factor: 2}]}": "must be in the order of their rounds",
        "{steps: [{from: 3}]}": "protocol.local.rate.by-round.steps[0].factor: is missing",
        "{steps: [{since: 3, factor: 1}]}": "protocol.local.rate.by-round.steps[0].since: no such setting",
        "{factor: 0}": "protocol.local.rate.by-round.factor: must be",
    }.items():
        for spec in (python, fl.check(QUICK / "fedavg.yaml")):
            with pytest.raises(fl.SpecError) as told:
                fl.check(spec, f"protocol.local.rate={{by-round: {rates}}}")
            assert text in str(told.value), str(told.value)
    with pytest.raises(fl.SpecError, match="learning rate"):  # a tree has none
        fl.check(python, {"protocol.local.rate": {"by-round": {"factor": 0.5}}, "parts.model": {"use": "forest"}})
    with pytest.raises(ValueError, match="this step is none"):
        fl.RoundTraining(epochs=1, rate=fl.Rate(by_round=fl.RateByRound(factor=0.5))).factor(0)


def test_a_message_tells_its_size():
    fl.message("py-sketch", "A sketch of the parameters.", {"sketch": ("f32", "cells")}, size=lambda of: 4 * (of.params + of.inputs))

    @fl.protocol("sketches")
    class Sketches(my_protocols.PyFedAvg):
        """Clients answer with a sketch."""

        @fl.exchange("a sketch", "nothing", "py-sketch", times="rounds", public=True)
        def sketch(self, client, _):
            return {"sketch": np.zeros(3)}

    from fl._tools import command

    Path("plan.yaml").write_text(json.dumps(as_python(QUICK / "fedavg.yaml") | {"protocol": {"use": "sketches"}}))
    line = next(line for line in command("plan", "plan.yaml").splitlines() if "a sketch" in line)
    assert "?" not in line, line


def test_nobody_sees_what_the_mechanism_hides_and_a_leak_is_found():
    private = {f"parts.{slot}": fl.check(QUICK / "fedavg-private.yaml")["parts"][slot] for slot in ("privacy", "aggregator")}
    assert fl.testing.interference(as_python(QUICK / "fedavg.yaml"), private)
    assert len(fl.testing.interference(as_python(QUICK / "dp-sgd.yaml"))) == 3

    @fl.protocol("leaks")
    class Leaks(my_protocols.PyFedAvg):
        """Says of an answer that it uses no private data, and sends how many examples there are."""

        @fl.exchange("a hint", "nothing", "scalar", times="rounds", public=True)
        def hint(self, client, _):
            return len(client.own)

        def round(self, server, round):
            server.collect(self.hint, None)
            super().round(server, round)

    with pytest.raises(AssertionError, match="answer of client"):
        fl.testing.interference(as_python(QUICK / "fedavg.yaml") | {"protocol": {"use": "leaks"}}, private)


def test_a_guarantee_of_a_loaded_protocol_is_its_claim():
    spec = fl.check(QUICK / "fedavg-private.yaml", {"noise": "system"})
    claims = lambda spec: {of: told.get("claimed_by", []) for of, told in fl.run(spec, quiet=True).guarantees.items()}  # noqa: E731
    assert set(map(tuple, claims(spec).values())) == {()}
    (claimed,) = set(map(tuple, claims(as_python(QUICK / "fedavg-private.yaml") | {"noise": "system"}).values()))
    assert len(claimed) == 1 and "my_protocols" in claimed[0]


def test_a_guarantee_of_a_result_that_a_loaded_aggregator_made_is_its_claim():
    @fl.aggregator("the-first", "logits")
    class TheFirst:
        """The answer of one client."""

        def aggregate(self, round, inbox):
            return {name: inbox[0][name] for name in inbox[0]}

    spec = fl.check(QUICK / "fedkd-priced.yaml", {"parts.ensemble": {"use": "the-first"}})
    told = fl.run(spec, quiet=True).guarantees["readers"]
    assert told["epsilon"] == 640 and len(told["claimed_by"]) == 1 and "test_protocols" in told["claimed_by"][0], told


def test_exact_fedproto_of_the_book(monkeypatch):
    import fedproto  # noqa: F401

    source = Path(PORTS, "fedproto.py").read_text()
    assert len(source.splitlines()) <= 60
    spec = Path(PORTS, "fedproto.yaml")
    ways = fl.testing.ways(spec)
    assert len(set(ways.values())) == 1, ways
    learnt = fl.run(spec, {"protocol.rounds": 10}, quiet=True).metrics["clients.accuracy"]
    assert learnt > 0.6
    assert fl.run(spec, {"protocol.pull": 0}, quiet=True).digest not in ways.values()
    for model in ["linear", "forest"]:
        with pytest.raises(fl.SpecError, match=rf"parts.model .trainer `{model}`.*a loss on features could train.*use `dfdx`"):
            fl.check(spec, {"parts.model": {"use": model}})


# ---- mistakes


def protocol(name, train=None, round=None, lead=None, exchange=None, **more):
    """FedAvg with other methods."""

    def plain(self, client, params):
        client.model(self.model).set_params(params)
        client.fit(self.model, epochs=1)
        return client.model(self.model).params()

    declared = {"into": my_protocols.PyFedAvg.aggregator, "trains": True, "times": "rounds", **(exchange or {})}
    members = {"__doc__": "Tried.", "train": fl.exchange("answers", **declared)(train or plain), **more}
    if round:
        members["round"] = round
    if lead:
        members["lead"] = lead
    return fl.protocol(name)(type(name.title(), (my_protocols.PyFedAvg,), members))


def run(name, **more):
    spec = fl.check(QUICK / "fedavg.yaml") | {"protocol": {"use": name, "rounds": 3}}
    return fl.run(spec, more or None, quiet=True)


def fails(name, *texts, **more):
    with pytest.raises(fl.RunError) as told:
        run(name, **more)
    for text in texts:
        assert text in str(told.value), str(told.value)
    assert str(told.value).count("Traceback") == 0
    return str(told.value)


def test_an_exception_tells_protocol_method_client_step_and_lines():
    def helper():
        return 1 / 0

    protocol("fails-there", train=lambda self, client, params: helper() if client.id == 2 else params)
    text = fails("fails-there", "round 1: ", "client 2: protocol `fails-there` from module test_protocols: <lambda>(): ZeroDivisionError: division by zero")
    assert "in helper: return 1 / 0" in text and "test_protocols.py:" in text
    protocol("fails-in-round", round=lambda self, server, round: helper())
    text = fails("fails-in-round", "round 1: protocol `fails-in-round` from module test_protocols: <lambda>(): ZeroDivisionError", "in helper: return 1 / 0")
    protocol("fails-in-lead", lead=lambda self, server: helper())
    text = fails("fails-in-lead", "protocol `fails-in-lead` from module test_protocols: lead(): ZeroDivisionError", "in helper: return 1 / 0")


HOW = [
    ({"batch": 0}, "`batch` must be a whole number, at least 1, got 0"),
    ({"batch": 1.5}, "`batch` must be a whole number, at least 1, got 1.5"),
    ({"epochs": -1}, "`epochs` must be a whole number, at least 0, got -1"),
    ({"clip": -1.0}, "`clip` must be a finite number, above 0, got -1.0"),
    ({"clip": 0.0}, "`clip` must be a finite number, above 0, got 0.0"),
    ({"rate": -1.0}, "`rate` must be a finite number, at least 0, got -1.0"),
    ({"rate": float("nan")}, "`rate` must be a finite number, at least 0, got nan"),
    ({"proximal": (-1.0, {})}, "`proximal` must be a finite number, at least 0, got -1.0"),
    ({"tau": 0.0, "loss": "kl"}, "`tau` must be a finite number, above 0, got 0.0"),
    ({"loss": "ce"}, "no loss is called `ce`; known: cross-entropy, mae, "),
    ({"training": fl.Training(epochs=1), "epochs": None, "batch": 8}, "give `training`, or `epochs` or `steps`, `batch` and `clip`"),
]


@pytest.mark.parametrize(("how", "told"), HOW, ids=[str(how) for how, _ in HOW])
def test_settings_of_a_training_are_checked(how, told):
    def train(self, client, params):
        client.fit(self.model, **({"epochs": 1} | how))
        return params

    protocol("trains-so", train=train)
    fails("trains-so", told)


def test_a_setting_of_a_training_may_be_of_numpy():
    def train(self, client, params, of=int):
        client.model(self.model).set_params(params)
        client.fit(self.model, epochs=of(1), batch=of(16))
        return client.model(self.model).params()

    protocol("trains-by-int", train=train)
    protocol("trains-by-numpy", train=lambda *given: train(*given, of=np.int64))
    assert run("trains-by-int").digest == run("trains-by-numpy").digest


TARGETS = [
    (lambda y: np.full((len(y), 2), -0.5), "the target of sample 0 is no probabilities, at least 0 and not all 0: [-0.5, -0.5]"),
    (lambda y: np.zeros((len(y), 2)), "the target of sample 0 is no probabilities"),
    (lambda y: np.full((len(y), 2), np.inf), "the target of sample 0 is no probabilities"),
    (lambda y: y.astype(int) - 9, "a target of classes has whole numbers, 0 or more"),
    (lambda y: y + 0.5, "a target of classes has whole numbers, 0 or more"),
]


@pytest.mark.parametrize(("target", "told"), TARGETS)
def test_a_target_that_is_none_is_refused(target, told):
    def train(self, client, params):
        client.fit(self.model, client.own.x, target(client.own.y), epochs=1)
        return params

    protocol("learns-wrong", train=train)
    fails("learns-wrong", told)


def test_soft_labels_need_not_add_up_to_1():
    def train(self, client, params):
        client.fit(self.model, client.own.x, np.full((len(client.own.y), 4), 0.4), epochs=1)
        return params

    protocol("learns-medians", train=train)
    run("learns-medians")


LEARNT = {
    "classes": ({}, lambda x: (x[:, 0] > 0).astype(int)),
    "several": ({"findings": ["a", "b"]}, lambda x: np.sign(x[:, :2].round()).astype(int)),
    "numbers": ({"label": {"kind": "number"}}, lambda x: 3 * x[:, 0]),
}


@pytest.mark.parametrize("what", LEARNT)
def test_exact_a_target_is_of_the_kind_that_the_task_has(what):
    x = np.random.default_rng(0).normal(size=(60, 3)).astype("float32")
    how, label = LEARNT[what]
    data = {"train": [(x[at : at + 20], label(x[at : at + 20])) for at in (0, 20)], "test": (x[40:], np.maximum(label(x[40:]), 0)), **how}

    def train(self, client, params, whose=lambda own: (own,)):
        model, own = client.model(self.model), client.own
        model.set_params(params)
        client.fit(self.model, *whose(own), epochs=2, batch=8)
        client.measure("slope", float(sum(np.abs(of).sum() for of in model.gradient(*whose(own)).values())))
        return model.params()

    protocol("learns-own", train=train)
    protocol("learns-given", train=lambda *given: train(*given, whose=lambda own: (own.x, own.y)))
    spec = {"name": "t", "protocol": {"use": "learns-own", "rounds": 2}, "parts": {"model": {"use": "linear"}, "aggregator": {"use": "mean"}}}
    own, given = (fl.run(spec, {"protocol.use": use}, data=data, quiet=True) for use in ("learns-own", "learns-given"))
    assert own.metrics == given.metrics


@pytest.mark.parametrize("what", ["x", "y", "ids"])
def test_what_samples_show_is_read_only(what):
    def train(self, client, params):
        getattr(client.own, what)[:] = 0
        return params

    protocol("writes-own", train=train)
    fails("writes-own", "read-only")


NAMES = [
    ("accuracy", "the program records `accuracy` itself: call the measure another name, such as `my-accuracy`"),
    ("training-loss", "the program records `training-loss` itself"),
    ("bytes.up", "the program records `bytes.up` itself"),
    ("clients.accuracy", "`my-clients-accuracy`"),
    ("mine.std", "`my-mine-std`"),
    ("A b\n", "a measure's name has small letters, digits, ., - and _, got 'A b"),
]


@pytest.mark.parametrize(("name", "told"), NAMES)
@pytest.mark.parametrize("how", ["measure", "record", "record_each"])
def test_a_protocol_measures_under_names_of_its_own(name, told, how):
    def train(self, client, params):
        if how == "measure":
            client.measure(name, 7.0)
        return params

    def round(self, server, round):
        server.run(self.train, server.state.params)
        getattr(server, how)(name, 7.0 if how == "record" else [7.0] * 5)

    protocol("measures-so", train=train, round=round)
    fails("measures-so", told)


def test_what_a_round_records_and_notes_is_what_the_server_does():
    def round(self, server, round):
        server.run(self.train, server.state.params)
        round.record("mine", 7.0)
        round.note("something")

    protocol("round-records", round=round)
    results = run("round-records")
    assert results.metrics["mine"] == 7 and any("something" in note for note in results.notes)


def test_a_client_measures_once_in_a_request():
    def train(self, client, params):
        client.measure("mine", 1.0)
        client.measure("mine", 2.0)
        return params

    protocol("measures-twice", train=train)
    fails("measures-twice", "train(): ValueError: `mine` was measured in this request already")


def test_what_lead_keeps_on_self_is_told_of_lead():
    def lead(self, server):
        self.mine = 1
        server.rounds(self.round)

    protocol("keeps-in-lead", lead=lead)
    fails("keeps-in-lead", "lead(): TypeError: it keeps `mine` on self")


ANSWERS = {
    "nothing": (lambda self, client, params: None, "got NoneType"),
    "text": (lambda self, client, params: {"weight": "text"}, "must be an array of f32"),
    "nan": (lambda self, client, params: {n: a * np.nan for n, a in params.items()}, "every number must be finite"),
    "another-shape": (lambda self, client, params: {n: np.zeros(3) for n in params}, "[3] here"),
    "numbers-for-names": (lambda self, client, params: {1: np.zeros(3)}, "an array's name must be text, got 1"),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_answers_of_a_wrong_kind_are_refused(what):
    method, text = ANSWERS[what]
    protocol(f"answers-{what}", train=method)
    fails(f"answers-{what}", "client 0", text)


def test_a_body_of_which_nothing_has_run_is_refused():
    async def waits(self, server, *_):
        server.evaluate(self.model)

    def yields(self, server, *_):
        yield server.evaluate(self.model)

    protocol("lead-waits", lead=waits)
    fails("lead-waits", "lead(): TypeError: it gives a coroutine, of which nothing has run: write it with `def`")
    protocol("lead-yields", lead=yields)
    fails("lead-yields", "lead(): TypeError: it gives a generator, of which nothing has run")
    protocol("round-waits", round=waits)
    fails("round-waits", "round 1: ", "waits(): TypeError: it gives a coroutine")
    protocol("round-yields", round=lambda self, server, round: yields(self, server))
    fails("round-yields", "round 1: ", "it gives a generator")


def test_what_is_not_declared_is_refused():
    other = fl.exchange("another")(lambda self, client, params: params)
    protocol("undeclared", round=lambda self, server, round: server.collect(other, server.state.params))
    fails("undeclared", "the protocol declares no exchange `another`: put `@fl.exchange` before")
    slot = fl.slot("trainer", "Of another class.")
    slot.name = "teacher"
    protocol("no-slot", round=lambda self, server, round: server.evaluate(slot))
    fails("no-slot", "the protocol has no slot `teacher`; it has example-privacy, model, aggregator, cohort, privacy")
    protocol("wrong-slot", round=lambda self, server, round: server.evaluate(self.aggregator))
    fails("wrong-slot", "parts.aggregator is for aggregator parts, and this needs trainer")
    combine = lambda self, server, round: server.aggregate(self.train, server.collect(self.train, server.state.params))  # noqa: E731
    protocol("no-aggregator", exchange={"into": None}, round=combine)
    fails("no-aggregator", "exchange `answers` declares no aggregator")
    protocol("too-early", lead=lambda self, server: server.evaluate(self.model))
    fails("too-early", "the protocol is in no step: do this in what `server.rounds` or `server.once` calls")


def test_a_protocol_without_a_number_of_rounds_says_so():
    @fl.protocol("without-rounds")
    class _WithoutRounds:
        """Tried."""

        model = fl.slot("trainer", "Trains.", at_server=True)
        train = fl.exchange("answers", public=True)(lambda self, client, params: params)

        def lead(self, server):
            server.rounds(lambda server, round: server.evaluate(self.model))

    spec = fl.check(QUICK / "fedavg.yaml") | {"protocol": {"use": "without-rounds"}, "parts": {"model": {"use": "linear"}}}
    with pytest.raises(fl.RunError, match="the protocol has no number of rounds: give it a setting `rounds`, or an attribute such as `rounds = 10`"):
        fl.run(spec, quiet=True)


def test_a_release_that_is_left_out_or_not_declared_is_refused():
    private = {f"parts.{slot}": fl.check(QUICK / "fedavg-private.yaml")["parts"][slot] for slot in ("privacy", "accountant")}
    protocol("skips", exchange={"releases_within": my_protocols.PyFedAvg.privacy})
    fails("skips", "`answers` declares a release through parts.privacy, and the answer was made without one", **private)
    hint = fl.exchange("a hint", times="rounds")(lambda self, client, params: client.release(self.privacy, params))
    protocol(
        "undeclared-release",
        exchange={"releases": my_protocols.PyFedAvg.privacy},
        hint=hint,
        round=lambda self, server, round: server.collect(hint, server.state.params),
    )
    fails("undeclared-release", "this exchange declares no release through parts.privacy", **private)
    silent = fl.exchange("a hint", "nothing", "scalar", times="rounds")(lambda self, client, _: len(client.own))

    def round(self, server, round):
        server.collect(silent, None)
        my_protocols.PyFedAvg.round(self, server, round)

    protocol("says-nothing", exchange={"releases": my_protocols.PyFedAvg.privacy}, hint=silent, round=round)
    assert run("says-nothing", **private).epsilon is None, "an exchange without a declaration promises nothing"


def test_what_is_kept_on_self_is_refused_with_its_name():
    def keeps(self, client, params):
        self.before = params
        return params

    protocol("keeps-at-client", train=keeps)
    fails("keeps-at-client", "it keeps `before` on self, which is not there for another client", "client.stash")

    def counts(self, server, round):
        self._seen.append(round.number)

    protocol("keeps-at-server", round=counts, setup=lambda self, stream: setattr(self, "_seen", []))
    fails("keeps-at-server", "it keeps `_seen` on self", "server.state")


LAST: dict[int, int] = {}


def test_what_is_kept_in_a_global_a_closure_or_on_the_class_is_told():
    def helps(at):
        LAST[at] = LAST.get(at, 0) + 1

    def in_global(self, client, params):
        helps(0)
        return params

    mine = []

    def in_closure(self, client, params):
        mine.append(1)
        return params

    def on_class(self, server, round):
        type(self).rounds_so_far = round.number
        my_protocols.PyFedAvg.round(self, server, round)

    def reads(self, client, params):
        assert len(LAST) < 9 and not QUICK.is_file()
        return params

    def said(name, **methods):
        protocol(name, **methods)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(name)
        return [str(one.message) for one in caught if "changes while it runs" in str(one.message)]

    for name, methods, place in (
        ("keeps-in-global", {"train": in_global}, "`LAST` of test_protocols"),
        ("keeps-in-closure", {"train": in_closure}, "`mine` of test_protocols"),
        ("keeps-on-class", {"round": on_class}, ".rounds_so_far`"),
    ):
        [text] = said(name, **methods)
        assert place in text and "client.stash" in text and f"protocol `{name}`" in text
    assert said("keeps-nothing", train=reads) == []


def test_state_that_cannot_be_saved_is_refused_with_its_name():
    def keeps(self, server, round):
        server.state.file = sys.stdout

    protocol("state-of-a-file", round=keeps)
    fails("state-of-a-file", "what it keeps as `server.state.file`", "cannot be saved")
    protocol("stash-of-a-file", train=lambda self, client, params: client.stash("log", sys.stdout))
    fails("stash-of-a-file", "what it stashes as `log`", "cannot be saved")
    protocol("no-state", round=lambda self, server, round: server.state.momentum)
    fails("no-state", "server.state has no `momentum`; set it before the first step")


def test_what_was_sent_is_lent():
    kept = []
    protocol("keeps-what-was-sent", train=lambda self, client, params: kept.append(params["weight"]) or params)
    fails("keeps-what-was-sent", "it still uses 1 of the arrays that were lent")

    def writes(self, client, params):
        params["weight"][...] = 0

    protocol("writes-what-was-sent", train=writes)
    fails("writes-what-was-sent", "read-only")


def test_a_protocol_speaks_to_the_program_on_its_thread_and_during_its_call():
    import threading

    escaped = []

    def elsewhere(self, server, round):
        failed = []

        def there():
            try:
                server.evaluate(self.model)
            except RuntimeError as error:
                failed.append(str(error))

        thread = threading.Thread(target=there)
        thread.start()
        thread.join()
        escaped.append(server)
        raise ValueError(failed[0])

    protocol("on-a-thread", round=elsewhere)
    fails("on-a-thread", "only on the thread of its call")
    with pytest.raises(RuntimeError, match="only on the thread of its call"):
        escaped[0].who(my_protocols.PyFedAvg.cohort)


def test_classes_that_cannot_be_protocols_are_refused_at_once():
    with pytest.raises(TypeError, match=r"protocol parts have lead\(\); missing: lead"):
        fl.protocol("no-lead")(type("NoLead", (), {}))
    with pytest.raises(TypeError, match="a protocol has at least one exchange"):
        fl.protocol("no-exchange")(type("NoExchange", (), {"lead": print}))
    with pytest.raises(TypeError, match="`into` names a slot that is no attribute of the class"):
        stray = fl.slot("aggregator", "Stray.", "params")
        fl.protocol("stray")(type("Stray", (), {"lead": print, "train": fl.exchange("x", into=stray)(print)}))
    with pytest.raises(TypeError, match="two exchanges are called `x`"):
        fl.protocol("twice")(type("Twice", (), {"lead": print, "one": fl.exchange("x")(print), "two": fl.exchange("x")(print)}))
    protocol("no-such-message", exchange={"answers": "odd"})
    with pytest.raises(fl.SpecError, match="no message is called `odd`"):
        run("no-such-message")
    with pytest.raises(TypeError, match="no message is called `parms`; did you mean `params`"):
        protocol("misspelt-message", exchange={"answers": "parms"})
    protocol("misspelt-times", exchange={"times": "round"})
    with pytest.raises(fl.SpecError, match="`times` names the setting `round`, which the protocol does not have; did you mean `rounds`"):
        run("misspelt-times")
    protocol("times-of-text", exchange={"times": 1.5})
    with pytest.raises(fl.SpecError, match="`times` must be a whole number, .* got 1.5"):
        run("times-of-text")
    with pytest.raises(TypeError, match="a protocol is tried in a run of its own"):
        fl.testing.conformance(my_protocols.PyFedAvg)
    with pytest.raises(fl.SpecError, match="rounds: must be at least 1, got 0"):
        fl.check(as_python(QUICK / "fedavg.yaml", rounds=0))


def test_exact_a_protocol_of_a_session_resumes_with_the_same_source_only():
    protocol("of-a-session")
    spec = fl.check(QUICK / "fedavg.yaml") | {"protocol": {"use": "of-a-session", "rounds": 3}}
    whole = fl.run(spec, quiet=True).digest
    fl.run(spec, out="here", stop_after=1, quiet=True)
    assert fl.run(resume="here", quiet=True).digest == whole
    with pytest.raises(fl.RunError, match="protocol `of-a-session` is from module test_protocols: name it under `plugins`"):
        fl.run(spec, processes=1, quiet=True)


def test_a_changed_answer_is_another_source():
    from fl._parts import source as _source

    def hashed(answer):
        return _source.hash_of(type("Notebook", (my_protocols.PyFedAvg,), {"__module__": "__main__", "train": fl.exchange("x")(answer)}))

    one, two = {}, {}
    exec("def train(self, client, params):\n    return params", one)
    exec("def train(self, client, params):\n    return {}", two)
    assert hashed(one["train"]) != hashed(two["train"])


# ---- the rest of what the server and the clients can do


def test_exact_a_server_may_do_more_and_clients_remember():
    seen = []

    def train(self, client, params):
        before = client.stashed("rounds", 0)
        client.stash("rounds", before + 1)
        client.measure("answered", before + 1)
        model = client.new_model(self.model)
        model.set_params(params)
        own = client.own
        model.fit(own.pick(own.y == own.y[0]), stream=client.stream("some"), steps=2, batch=4)
        assert model.predict(own).shape == (len(own), client.task.outputs) == (len(own.x), client.task.outputs)
        assert model.predict(own.x[:2]).shape[0] == 2 and model.step_size() == 0.1
        assert set(model.gradient(own)) == set(params)
        client.set_model(self.model, model)
        return client.model(self.model).params()

    def round(self, server, round):
        answers = server.collect(self.train, lambda id: server.state.params)
        weights = [1.0 + answer.sender for answer in answers]
        weighted = server.aggregate(self.train, answers, weights)
        in_slot = server.aggregate(self.aggregator, answers, weights)
        assert all(np.array_equal(weighted[name], in_slot[name]) for name in weighted)
        half = server.run(self.train, server.state.params, form=lambda mail: ({n: a * 2 for n, a in mail.items()}, 1.0))
        seen.append((round.number, len(answers), sorted(half) == sorted(weighted)))
        server.state.params = {name: (weighted[name] + half[name]) / 3 for name in weighted}
        server.state.history = [*vars(server.state).get("history", []), {"round": round.number, "norm": float(np.square(half["weight"]).sum())}]
        server.record("norm", server.state.history[-1]["norm"])
        server.record_each("mine", [float(id) for id in server.everyone])
        server.model(self.model).set_params(server.state.params)
        server.evaluate(self.model)
        scores = server.evaluate_for_clients(self.model, [server.state.params], lambda id: 0)
        assert len(scores) in (0, len(server.everyone))

    protocol("does-more", train=train, round=round)
    spec = fl.check(QUICK / "fedavg.yaml") | {"protocol": {"use": "does-more", "rounds": 3}}
    plain = fl.run(spec, quiet=True)
    assert seen == [(1, 5, True), (2, 5, True), (3, 5, True)] and plain.metrics["answered"] == 6
    ways = fl.testing.ways(spec)
    assert set(ways.values()) == {plain.digest}
    assert "norm" in plain.metrics and "mine" in plain.metrics


def test_exact_public_data_selectors_and_a_student_of_the_server():
    spec = {
        "name": "distil",
        "plugins": [{"module": "my_protocols", "path": HERE}],
        "data": {"set": {"blobs": {"features": 7, "classes": 3}}, "clients": 4, "public": {"from": {"share": 0.3}}},
        "protocol": {"use": "py-distil"},
        "parts": {
            "teacher": {"use": "linear", "lr": 0.1},
            "student": {"use": "linear", "lr": 0.1},
            "ensemble": {"use": "mean-logits"},
            "known": {"use": "density-ratio", "width": 2.0, "uniform": 8, "share": 0.5},
            "clear": {"use": "unambiguous", "max-distance": 0.9},
        },
    }
    results = fl.run(spec, quiet=True)
    assert results.metrics["accuracy"] > 0.5 and 0 < results.metrics["known"] < 20 and 0 < results.metrics["clear"] <= 20
    assert set(fl.testing.ways(spec).values()) == {results.digest}
    spec["parts"] = {slot: spec["parts"][slot] for slot in ("teacher", "student", "ensemble")}
    assert fl.run(spec, quiet=True).metrics["clear"] == fl.run(spec, quiet=True).metrics["known"] == 20

    @fl.trainer("hard-labels-only")
    class HardLabelsOnly:
        """Learns classes."""

        learns = ("cross-entropy",)

        def fit(self, x, target, how, stream):
            if how.target != "classes":
                raise fl.Lacks("it learns classes")
            return 1, 0.0

        def predict(self, x):
            return np.zeros((len(x), self.task.outputs), np.float32)

        def save(self):
            return b""

        def load(self, state):
            pass

    with pytest.raises(fl.SpecError, match="parts.student: it learns no class probabilities .trainer `hard-labels-only` .*it learns classes"):
        fl.check(spec, {"parts.student": {"use": "hard-labels-only"}})


def test_exact_ids_of_labelled_public_samples_mean_the_same_everywhere():
    seen = []

    def train(self, client, params):
        public = client.public
        few = public.labelled.pick([7, 2])
        seen.append((public.labelled.ids.tolist(), few.ids.tolist(), few.x.copy(), few.y.copy()))
        assert np.array_equal(public.pick(few.ids).x, few.x)
        return params

    protocol("labelled-ids", train=train)
    # the public share and the clients' rows are of one set
    data = {"set": "blobs", "clients": 3, "public": {"from": {"share": 0.3}, "labelled": True}}
    run("labelled-ids", data=data)
    first = seen[0]
    assert first[0] == list(range(len(first[0]))) and first[1] == [7, 2]
    for ids, few, x, y in seen:
        assert (ids, few) == first[:2] and np.array_equal(x, first[2]) and np.array_equal(y, first[3])


def test_exact_a_generator_learns_from_a_models_slope():
    norms = []

    def lead(self, server):
        server.rounds(self.round)

    def round(self, server, round):
        made = server.generator(self.source).sample(4, round.stream)
        assert made.x.shape == (4, *server.task.input) and len(made.pick([0, 2])) == 2
        model = server.model(self.model)
        slope = model.vjp(made, model.predict(made))  # towards scores of 0
        norms.append(float(np.square(model.predict(made)).sum()))
        server.generator(self.source).learn(made, slope)
        server.collect(self.train, model.params())

    source = fl.slot("generator", "Makes inputs.")
    protocol("generates", source=source, lead=lead, round=round)
    spec = fl.check(QUICK / "fedavg.yaml") | {"protocol": {"use": "generates", "rounds": 3}}
    spec["parts"] |= {"model": {"use": "dfdx", "net": "logistic"}, "source": {"use": "noise-to-input", "net": "affine", "noise": 2}}
    digest = fl.run(spec, quiet=True).digest
    assert len(set(norms)) == 3
    assert set(fl.testing.ways(spec).values()) == {digest}


def test_arrays_cross_as_they_lie():
    """What is sent to a client is a read-only view of the program's memory; what the program gives
    the server is the server's own."""
    seen = {}

    def train(self, client, params):
        model = client.model(self.model)
        model.set_params(params)
        own = model.params()
        if client.id == 0:
            seen["sent"] = (params["weight"].flags.owndata, params["weight"].flags.writeable)
            own["weight"] += 1  # a copy that is ours
            seen["own"] = (own["weight"].base is not None, own["weight"].flags.writeable)
            assert not np.array_equal(own["weight"], params["weight"])
        # in another order of rows, type and step than the program's
        return {"weight": np.asfortranarray(own["weight"].astype(np.float64)), "bias": np.repeat(own["bias"], 2)[::2]}

    def round(self, server, round):
        mean = server.run(self.train, {name: np.asfortranarray(array) for name, array in server.state.params.items()})
        mean["bias"][...] += 0
        server.state.params = mean

    protocol("shows-arrays", train=train, round=round)
    run("shows-arrays")
    assert seen == {"sent": (False, False), "own": (True, True)}


def test_exact_a_round_with_too_few_answers_is_done_again_from_its_state():
    def round(self, server, round):
        server.state.tries = vars(server.state).get("tries", 0) + 1
        server.state.params = server.run(self.train, server.state.params)
        server.record("tries", server.state.tries)

    protocol("again", round=round)
    faults = {
        "faults": {
            "on-error": "drop", "min-answers": 5, "if-too-few": {"repeat": 20},
            "inject": [{"what": "crash", "share": 0.2}],
        }
    }  # fmt: skip
    spec = fl.check(QUICK / "fedavg.yaml") | {"protocol": {"use": "again", "rounds": 3}} | faults
    results = fl.run(spec, quiet=True)
    assert results.metrics["tries"] == 3, "a try that failed left nothing in the state"
    assert set(fl.testing.ways(spec).values()) == {results.digest}


def test_clients_measure_on_rows_that_they_have_held_back():
    @fl.protocol("judged")
    class Judged:
        """Clients train alone, and measure their models on the rows that they have held back."""

        model = fl.slot("trainer", "Trains.", lasting=True)

        @fl.exchange("a judgement", "nothing", "scalar", held_out=True)
        def judge(self, client, _):
            client.fit(self.model, epochs=3, batch=16)
            held = client.held_out
            right = client.model(self.model).predict(held).argmax(axis=1) == held.y
            client.measure("judged", right.mean())
            return right.mean()

        def lead(self, server):
            def body(server, round):
                server.collect(self.judge, None)
                server.evaluate_clients(self.model)

            server.once("judgement", body)

    spec = {
        "name": "judged",
        "data": {"set": "blobs", "clients": 4, "test": {"own": 0.25}},
        "protocol": {"use": "judged"},
        "parts": {"model": {"use": "linear"}},
    }
    metrics = fl.run(spec, quiet=True).metrics
    assert metrics["judged"] == metrics["clients.accuracy"]
    with pytest.raises(fl.SpecError, match="data.test.own: is missing: protocol `judged` asks clients"):
        fl.check(spec, {"data.test": None})
