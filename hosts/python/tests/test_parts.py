"""Parts in Python: what they are handed, what they may give, and what becomes of mistakes."""

import functools
import gc
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import fl
import fl.testing
import my_parts
import numpy as np
import pytest
from conftest import QUICK, with_part


def digest(spec, set=None, **how):
    return fl.run(spec, set, quiet=True, **how).digest


@pytest.mark.parametrize("part", [("py-mean", {}), ("py-mean", {"how": "kernel"}), ("py-folds", {})], ids=str)
def test_exact_a_mean_in_python_has_the_bits_of_the_linked_one(fedavg, part):
    name, settings = part
    assert digest(fedavg, with_part("aggregator", name, **settings)) == digest(fedavg)


def test_exact_a_mean_by_losses_in_python_has_the_bits_of_the_linked_one(fedavg):
    linked = digest(fedavg, with_part("aggregator", "loss-weighted-mean"))
    assert digest(fedavg, with_part("aggregator", "py-loss-mean")) == linked != digest(fedavg)


@pytest.mark.parametrize("part", [my_parts.PyMean, my_parts.LossMean, my_parts.Folds, my_parts.Remembers, my_parts.Share, my_parts.Gaussian])
def test_parts_are_held_to_what_their_role_asks(part):
    fl.testing.conformance(part)


def test_a_part_may_have_a_message_of_its_own():
    fl.testing.conformance(my_parts.FirstSpreads)
    with pytest.raises(AssertionError, match=r"`spread` is \[\d+, 1\] where `rows x 2` was due"):
        fl.testing.conformance(my_parts.FirstSpreads, {"how": "narrow"})
    with pytest.raises(AssertionError, match="`moves` must be an array of i64, got float64"):
        fl.testing.conformance(my_parts.FirstSpreads, {"how": "broken"})
    fl.message("py-spreads", "Otherwise.", {"spread": ("f32", "any")})
    with pytest.raises(ValueError, match="(?s)`py-spreads` is declared twice: module my_parts says .*module my_parts says"):
        fl.aggregator("py-other-spreads", takes="py-spreads")(my_parts.FirstSpreads)


def test_an_operation_has_the_number_and_the_name_of_the_interface():
    from fl._parts import calls

    header = (Path(__file__).parents[3] / "fl-core/include/fl_plugin.h").read_text()
    numbers = {name.lower(): int(number) for name, number in re.findall(r"#define FL_(\w+) (\d+)u", header)}
    # methods that are called otherwise: those of a fold, which is a part by itself, and a trainer's
    otherwise = {"add": "fold_add", "finish": "fold_finish"}
    for number, (method, _) in calls._OPERATIONS.items():
        name = "train" if number == numbers["train"] else otherwise.get(method, method)
        assert numbers.get(name) == number, f"{method}: {number}"
    assert set(calls._OPERATIONS) >= calls._CHANGES


def test_the_kit_catches_a_planted_mistake():
    with pytest.raises(AssertionError, match="claims order_free"):
        fl.testing.conformance(my_parts.TakesTheFirst)
    with pytest.raises(AssertionError, match="scale: must be above 0"):
        fl.testing.conformance(my_parts.PyMean, {"scale": 0})


def test_exact_a_part_that_remembers_goes_on_where_it_was(fedavg):
    set = with_part("aggregator", "py-remembers")
    whole = digest(fedavg, set)
    assert whole != digest(fedavg)
    assert fl.run(fedavg, set, out="here", stop_after=3, quiet=True).stopped == "round 3"
    assert digest(None, resume="here") == whole


def test_selectors_and_mechanisms_take_part(fedavg):
    set = with_part("cohort", "py-share", share=0.4)
    assert len({digest(fedavg, set, threads=n) for n in (1, 2)}) == 1
    private = {"parts.privacy": {"use": "py-gaussian"}}
    results = fl.run(QUICK / "fedavg-private.yaml", private, quiet=True)
    assert results.epsilon > 0, results.guarantees


PICKS = {
    "short-mask": (lambda of: np.array([True] * (of - 1)), r"select\(\) gives 4 truth values, and there are 5 to choose from: give one for each"),
    "long-mask": (lambda of: [True, False] * of, r"select\(\) gives 10 truth values, and there are 5"),
    "set": (lambda of: {0, 1}, r"select\(\) must give a list of positions below 5, or 5 truth values, got set"),
    "generator": (lambda of: (at for at in range(of)), "got generator"),
    "nothing": (lambda of: None, "got NoneType"),
    "number": (lambda of: 3, "got int"),
    "table": (lambda of: np.zeros((of, 1), int), r"got ndarray of shape \[5, 1\]"),
}


@pytest.mark.parametrize("what", PICKS)
def test_what_a_selector_must_not_give_is_an_error(fedavg, what):
    f, text = PICKS[what]
    fl.selector(f"picks-{what}")(type("Picks", (), {"__doc__": "One function.", "select": lambda self, round, pool: f(len(pool.clients))}))
    with pytest.raises(fl.RunError, match=text):
        fl.run(fedavg, {"data.clients": 5} | with_part("cohort", f"picks-{what}"), quiet=True)


def aggregator(name, f, **more):
    """An aggregator of one function."""
    return fl.aggregator(name)(type(name.title(), (), {"__doc__": "One function.", "aggregate": lambda self, round, inbox: f(inbox), **more}))


LIKE = {
    "of-another-shape": (lambda inbox: {n: np.zeros(3, np.float32) for n in inbox[0]}, r"\[3\].*where .* was sent"),
    "of-another-name": (lambda inbox: {"w": np.zeros(3, np.float32)}, "where .* was sent"),
    "nan": (lambda inbox: {n: inbox[0][n] * np.nan for n in inbox[0]}, "NaN at position 0; every number must be finite"),
    "infinite-doubles": (lambda inbox: {n: np.full_like(inbox[0][n], 1e300, np.float64) for n in inbox[0]}, "inf at position 0"),
    "nothing": (lambda inbox: None, "must give arrays by name.*got NoneType"),
    "text": (lambda inbox: {n: np.array("text") for n in inbox[0]}, "must be an array of floats or whole numbers, got <U4"),
    "objects": (lambda inbox: {n: np.array([object()]) for n in inbox[0]}, "must be an array of floats or whole numbers, got object"),
    "whole-numbers": (lambda inbox: {n: inbox[0][n].astype(np.int64) for n in inbox[0]}, "(?s)u32|float|numbers"),
    "complex": (lambda inbox: {n: inbox[0][n] * 1j for n in inbox[0]}, "got complex"),
    "masked": (lambda inbox: {n: np.ma.masked_greater(inbox[0][n], 0) for n in inbox[0]}, "has masked numbers, and fl would read what is below"),
    "numbers-for-names": (lambda inbox: {1: inbox[0][n] for n in inbox[0]}, "an array's name must be text, got 1"),
}


@pytest.mark.parametrize("what", LIKE)
def test_what_a_part_must_not_give_is_an_error(fedavg, what):
    f, text = LIKE[what]
    aggregator(f"gives-{what}", f)
    with pytest.raises(fl.RunError, match=text) as told:
        fl.run(fedavg, with_part("aggregator", f"gives-{what}"), quiet=True)
    assert f"aggregator `gives-{what}` from module test_parts" in str(told.value)


SAME = {
    "doubles": lambda a: a.astype(np.float64),
    "big-endian": lambda a: a.astype(">f4"),
    "columns": lambda a: np.asfortranarray(a),
    "every-second": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "backwards": lambda a: a[::-1].copy()[::-1] if a.ndim else a,
    "lists": lambda a: a.tolist(),
    "subclass": lambda a: a.view(np.ma.MaskedArray),
    "lent": lambda a: a,
}


@pytest.mark.parametrize("what", SAME)
def test_exact_however_numbers_lie_they_are_the_same(fedavg, what):
    aggregator(f"lies-{what}", lambda inbox: {n: SAME[what](inbox[0][n]) for n in inbox[0]})
    aggregator("lies-plainly", lambda inbox: {n: inbox[0][n].copy() for n in inbox[0]})
    assert digest(fedavg, with_part("aggregator", f"lies-{what}")) == digest(fedavg, with_part("aggregator", "lies-plainly"))


KEPT = []


@pytest.mark.parametrize("how", ["array", "view", "memoryview", "cycle-that-stays", "after-an-exception"])
def test_what_is_lent_cannot_be_kept(fedavg, how):
    KEPT.clear()

    def keeps(inbox):
        array = next(iter(inbox[0].values()))
        kept = {"array": array, "view": array[:1], "memoryview": memoryview(array), "after-an-exception": array}.get(how)
        if kept is None:
            kept = [array]
            kept.append(kept)
        KEPT.append((kept, np.array(array)))
        if how == "after-an-exception":
            raise ZeroDivisionError("mine")
        return {n: inbox[0][n].copy() for n in inbox[0]}

    aggregator(f"keeps-{how}", keeps)
    text = "ZeroDivisionError" if how == "after-an-exception" else "after `aggregate` it still uses 1 of the arrays that were lent"
    with pytest.raises(fl.RunError, match=text):
        fl.run(fedavg, with_part("aggregator", f"keeps-{how}"), quiet=True)
    # what was kept reads the same numbers, whatever has become of the run's memory since
    [fl.run(fedavg, quiet=True) for _ in range(3)]
    gc.collect()
    kept, copy = KEPT.pop()
    kept = np.asarray(kept[0] if isinstance(kept, list) else kept)
    assert np.array_equal(kept.ravel(), copy[:1].ravel() if how == "view" else copy.ravel())


def test_a_message_that_is_kept_has_nothing_in_it_any_more(fedavg):
    kept = []
    aggregator("keeps-the-inbox", lambda inbox: (kept.append(inbox[0]), inbox.mean())[1])
    fl.run(fedavg, with_part("aggregator", "keeps-the-inbox"), quiet=True)
    with pytest.raises(BufferError, match="a call that has ended"):
        next(iter(kept[0].values()))
    with pytest.raises(TypeError, match="lent for one call"):
        __import__("pickle").dumps(kept[0])


def test_a_cycle_that_nobody_holds_is_no_mistake(fedavg):
    def cycle(inbox):
        ring = [next(iter(inbox[0].values()))]
        ring.append(ring)
        return inbox.mean()

    aggregator("has-a-cycle", cycle, needs=["samples"])
    assert digest(fedavg, with_part("aggregator", "has-a-cycle")) == digest(fedavg)


def test_what_is_lent_cannot_be_written(fedavg):
    def writes(inbox):
        array = next(iter(inbox[0].values()))
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
        array[...] = 0

    aggregator("writes", writes)
    with pytest.raises(fl.RunError, match="read-only"):
        fl.run(fedavg, with_part("aggregator", "writes"), quiet=True)


class Plain:
    """A linear trainer that never learns."""

    def setup(self, stream):
        self.w = np.zeros((int(np.prod(self.task.input)), self.task.outputs), np.float32)

    def fit(self, x, target, how, stream):
        return 1, 0.0

    def predict(self, x):
        return x.reshape(len(x), -1) @ self.w

    def params(self):
        return {"w": self.w}

    def set_params(self, params):
        self.w = params["w"].copy()

    def save(self):
        return self.w.tobytes()

    def load(self, state):
        self.w = np.frombuffer(state, np.float32).reshape(self.w.shape).copy()


@fl.trainer("writes-what-it-is-sent")
class Writes(Plain):
    """A linear trainer whose `set_params` writes into what it is sent."""

    how: str = ""

    def set_params(self, params):
        w = __import__("torch").from_numpy(params["w"])
        w = w.clone() if self.how == "copy" else w
        self.w = w.add_(1).numpy().copy()


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_what_others_are_lent_too_cannot_be_written_past_numpy(fedavg):
    torch = pytest.importorskip("torch")

    def writes(inbox):
        torch.from_numpy(inbox[1]["weight"]).add_(1)
        return inbox.mean()

    aggregator("writes-past-numpy", writes)
    for part, what in ((with_part("aggregator", "writes-past-numpy"), r"its aggregate\(\) has written into the array `weight`"), (with_part("model", "writes-what-it-is-sent"), r"its set_params\(\) has written into the array `w`")):
        for _ in range(2):  # it is said each time
            with pytest.raises(fl.RunError, match=f"TypeError: {what}, which is lent.*torch.from_numpy") as error:
                fl.run(fedavg, part, quiet=True)
            assert "contextlib" not in str(error.value)
    assert fl.run(fedavg, with_part("model", "writes-what-it-is-sent", how="copy"), quiet=True).done

    @fl.protocol("writes-a-request")
    class Asks:
        """One round in which a client writes into what all are sent."""

        model = fl.slot("trainer", "What clients train.", shared_parameters=True, at_server=True)
        mean = fl.slot("aggregator", "Combines.", "params")

        @fl.exchange("parameters", into=mean)
        def ask(self, client, params):
            torch.from_numpy(params["weight"]).add_(1)
            return {name: np.array(value) for name, value in params.items()}

        def lead(self, server):
            server.once("ask", lambda server, round: server.run(self.ask, server.model(self.model).params()))

    spec = {"name": "p", "data": fedavg["data"], "protocol": {"use": "writes-a-request"}, "parts": {"model": {"use": "linear"}, "mean": {"use": "mean"}}}
    with pytest.raises(fl.RunError, match="the exchange `parameters` has written into the array `weight`"):
        fl.run(spec, quiet=True)


def gives(name, **methods):
    """A linear trainer with these methods; gives the part of a spec."""
    fl.trainer(name)(type("Gives", (Plain,), {"__doc__": "Gives what is wrong.", **methods}))
    return with_part("model", name)


FITS = [
    (lambda *_: None, "fit() must give its number of steps and its mean loss, such as `return 12, 0.5`, got None"),
    (lambda *_: (-5, 0.5), "fit() gives -5 steps; it must be 0 or more"),
    (lambda *_: (1, np.nan), "FloatingPointError: the loss is nan; a smaller learning rate, or clipping, may help"),
    (lambda *_: (1, -np.inf), "FloatingPointError: the loss is -inf"),
]


@pytest.mark.parametrize(("fit", "text"), FITS, ids=[text[:30] for _, text in FITS])
def test_what_a_training_gives_is_told_in_words(fedavg, fit, text):
    with pytest.raises(fl.RunError, match=re.escape(text)):
        fl.run(fedavg, gives("gives-fit", fit=fit), quiet=True)


def test_a_loss_that_is_no_number_leaves_its_client_out(fedavg):
    one = gives("gives-nan", fit=lambda self, x, target, how, stream: (1, np.nan if x[0].sum() > x[-1].sum() else 0.5))
    ran = fl.run(fedavg, {**one, "faults.on-nan": "drop", "protocol.rounds": 1}, quiet=True)
    assert any("left out" in note and "the loss is nan" in note for note in ran.notes)


PREDICTS = [
    (lambda self, x: np.zeros(len(x), np.float32), "predict() must give a row of numbers for each sample, got an array of shape ["),
    (lambda self, x: np.zeros((len(x), self.task.outputs), int), "predict() must give floats, such as the score of each class, got whole numbers"),
]


@pytest.mark.parametrize(("predict", "text"), PREDICTS, ids=["one dimension", "whole numbers"])
def test_what_a_trainer_predicts_is_told_in_words(fedavg, predict, text):
    with pytest.raises(fl.RunError, match=re.escape(text)):
        fl.run(fedavg, gives("gives-scores", predict=predict), quiet=True)


def test_parameters_that_are_no_floats_are_named_before_anything_runs(fedavg):
    part = gives("gives-whole", params=lambda self: {"w": self.w, "seen": np.array([3])})
    with pytest.raises(fl.SpecError, match=r"params\(\): `seen` must be an array of floats, got int64"):
        fl.run(fedavg, part, quiet=True)


def test_parameters_that_are_none_are_told_before_anything_runs(fedavg):
    part = gives("gives-nothing", params=lambda self: {})
    why = r"(?s)it gives no parameters .*params\(\) gives no array"
    with pytest.raises(fl.SpecError, match=why):
        fl.run(fedavg, part, quiet=True)


def test_parameters_may_come_with_the_first_fit_where_a_method_needs_none():
    def fit(self, x, target, how, stream):
        self.w = np.ones_like(self.w)
        return 1, 0.0

    part = gives("gives-later", fit=fit, params=lambda self: {"w": self.w} if self.w.any() else {})
    assert fl.run(QUICK / "solo.yaml", part, quiet=True).done


PRICES = [
    ({"sigma": np.nan}, "price() gives {'Gaussian': "),
    ({"sigma": 1.0, "delta": 0.1}, "unknown field `delta`, expected one of `sensitivity`, `sigma`, `unit`"),
    (None, "price() gives None; it must give an event"),
]


@pytest.mark.parametrize(("facts", "text"), PRICES, ids=["nan", "unknown", "none"])
def test_a_price_that_is_none_is_told_in_words(facts, text):
    @fl.privacy("prices-nothing")
    class PricesNothing:
        """Has no price."""

        def clip(self, message):
            return dict(message)

        def price(self, message, cohort):
            return facts and {"Gaussian": {"sensitivity": 1.0, "unit": "party", **facts}}

        def perturb(self, message, cohort, noise):
            return dict(message)

    with pytest.raises(fl.Error, match=re.escape(text)):
        fl.run(QUICK / "fedavg-private.yaml", {"parts.privacy": {"use": "prices-nothing"}}, quiet=True)


@pytest.mark.parametrize(("weight", "text"), [(1e308, "beyond 64-bit floats"), (0.0, "every weight is 0")])
def test_weights_of_a_mean_have_a_sum(fedavg, weight, text):
    aggregator("weights-without-a-sum", lambda inbox: inbox.mean([weight] * len(inbox)))
    with pytest.raises(fl.RunError, match=text):
        fl.run(fedavg, with_part("aggregator", "weights-without-a-sum"), quiet=True)


def test_what_tests_of_parts_take_is_there_after_one_import():
    subprocess.run([sys.executable, "-c", "import fl; fl.testing.conformance; fl.testing.ways"], check=True)
    with pytest.raises(AttributeError, match="module 'fl' has no attribute 'nothing'"):
        fl.nothing  # noqa: B018


def test_weights_of_a_mean_are_one_for_each_message(fedavg):
    def keyed(inbox):
        return inbox.mean({mail.sender: mail.weight for mail in inbox})

    aggregator("keyed-weights", keyed)
    with pytest.raises(fl.RunError, match="weights must be one for each message in order, got a dict"):
        fl.run(fedavg, with_part("aggregator", "keyed-weights"), quiet=True)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_weights_of_a_mean_are_numbers_of_at_least_0(fedavg, weight):
    aggregator("odd-weights", lambda inbox: inbox.mean([weight, 2, 1, 1, 1]))
    with pytest.raises(fl.RunError, match=f"weights must be finite numbers, at least 0, got {weight}"):
        fl.run(fedavg, with_part("aggregator", "odd-weights"), quiet=True)


def test_a_part_records_under_a_name_and_what_is_no_number_is_nan(fedavg):
    def records(self, round, inbox):
        round.record(self.what, np.nan)
        return inbox.mean()

    fl.aggregator("records")(type("Records", (), {"__doc__": "Records.", "__annotations__": {"what": str}, "what": "mine", "aggregate": records}))
    with pytest.raises(fl.RunError, match="a measure's name has small letters"):
        fl.run(fedavg, with_part("aggregator", "records", what="A b"), quiet=True)
    with pytest.raises(fl.RunError, match="such as `my-mine-std`"):
        fl.run(fedavg, with_part("aggregator", "records", what="mine.std"), quiet=True)
    for what in ("mine", "accuracy", "own.mae"):
        assert np.isnan(fl.run(fedavg, with_part("aggregator", "records", what=what), quiet=True).metrics[f"aggregator.{what}"])


def test_an_exception_tells_the_part_and_the_lines_it_came_through(fedavg):
    def helper(inbox):
        return {"w": 1 / 0}

    aggregator("fails", lambda inbox: helper(inbox))
    with pytest.raises(fl.RunError) as told:
        fl.run(fedavg, with_part("aggregator", "fails"), quiet=True)
    text = str(told.value)
    assert "round 1: aggregator `fails` from module test_parts: ZeroDivisionError: division by zero" in text
    assert 'in helper: return {"w": 1 / 0}' in text and "test_parts.py:" in text


def test_what_cannot_be_saved_is_an_error_with_its_name(fedavg):
    def remembers(self, round, inbox):
        self.file = sys.stdout
        return inbox.mean()

    fl.aggregator("holds-a-file")(type("Holds", (), {"__doc__": "Holds a file.", "aggregate": remembers}))
    with pytest.raises(fl.RunError, match="`file` .* cannot be saved"):
        fl.run(fedavg, {**with_part("aggregator", "holds-a-file"), "checkpoint.every": {"rounds": 1}}, quiet=True)


def test_a_class_that_cannot_be_a_part_is_refused_at_once():
    with pytest.raises(TypeError, match=r"is called as `aggregate\(round, inbox\)`, .*too many positional"):

        @fl.aggregator("takes-too-little")
        class TakesTooLittle:
            def aggregate(self, inbox):
                return inbox.mean()

    with pytest.raises(TypeError, match=r"missing: aggregate"):
        fl.aggregator("empty")(type("Empty", (), {}))
    with pytest.raises(TypeError, match="setting `x`: its type must be"):
        fl.selector("odd")(type("Odd", (), {"__annotations__": {"x": dict}, "select": print}))
    with pytest.raises(ValueError, match="there is an aggregator `mean` already, from fl-plugin-averaging; try my-mean"):
        aggregator("mean", None)
    with pytest.raises(ValueError, match="a name is 1 to 64 of a-z"):
        aggregator("My Mean", None)
    with pytest.raises(ValueError, match="default of setting `x` must be at least 0, got -1"):
        fl.aggregator("low")(type("Low", (), {"__annotations__": {"x": __import__("typing").Annotated[int, fl.between(ge=0)]}, "x": -1, "aggregate": print}))
    with pytest.raises(ValueError, match="params, bytes|looks like"):
        fl.aggregator("unknown", takes="bytes")(type("Unknown", (), {"aggregate": print}))
    with pytest.raises(TypeError, match=r"@fl.aggregator takes the part's name, such as @fl.aggregator\('mine'\), got <class"):
        fl.aggregator(type("Nameless", (), {"aggregate": print}))
    for lists in ("needs", "claims"):
        with pytest.raises(TypeError, match=rf"Text: `{lists}` must be a list, such as \['samples'\]"):
            fl.aggregator("text")(type("Text", (), {lists: "samples", "aggregate": print}))


def test_a_method_that_is_wrapped_is_called_as_its_wrapper():
    def without_round(method):
        @functools.wraps(method)
        def wrapper(self, round, inbox):
            return method(self, inbox)

        return wrapper

    @fl.aggregator("wraps-its-method")
    class Wraps:
        """A mean without its round."""

        @without_round
        def aggregate(self, inbox):
            return inbox.mean()

    assert Wraps._fl["name"] == "wraps-its-method"


class Estimator:
    """As the base class of estimators in scikit-learn."""

    def get_params(self, deep=True):
        return {}

    def set_params(self, **params):
        return self


def test_set_params_of_an_estimator_may_take_anything_beside_no_params():
    def declare(name, **methods):
        base = {one: vars(Plain)[one] for one in ("setup", "fit", "predict", "save", "load")}
        members = {"__doc__": "An estimator.", **base, **methods}
        return fl.trainer(name)(type("Estimates", (Estimator,), members))

    assert declare("is-an-estimator")._fl["role"] == "trainer"
    with pytest.raises(TypeError, match=r"is called as `set_params\(params\)`"):
        declare("sends-an-estimator", params=vars(Plain)["params"])


def test_methods_that_the_program_calls_of_other_roles_may_take_anything():
    @fl.aggregator("exports-itself")
    class Exports:
        """A mean."""

        def aggregate(self, round, inbox):
            return inbox.mean()

        def save_state(self, path):
            return path

        def load_state(self):
            return self

    @fl.protocol("writes-files")
    class Files:
        """One round."""

        @fl.exchange("parameters")
        def ask(self, client, params):
            return params

        def lead(self, server):
            server.once("ask", lambda server, round: None)

        def save(self, path):
            return path

        def load(self):
            return self

        def save_state(self, path):
            return path

    assert [cls._fl["role"] for cls in (Exports, Files)] == ["aggregator", "protocol"]
    with pytest.raises(TypeError, match=r"is called as `load_state\(state\)`"):
        members = {"__doc__": "Loads.", "load_state": lambda self: None}
        fl.trainer("loads-nothing")(type("Loads", (Plain,), members))


def test_update_may_take_anything_in_a_class_without_fold():
    members = {
        "__doc__": "A mean.",
        "aggregate": lambda self, round, inbox: inbox.mean(),
        "update": lambda self, gradient: gradient,
    }
    assert fl.aggregator("updates-itself")(type("Updates", (), members))._fl["name"]
    members["fold"] = lambda self, round: None
    with pytest.raises(TypeError, match=r"is called as `update\(round, message\)`"):
        fl.aggregator("folds-and-updates")(type("Folds", (), members))


def test_a_class_declared_again_takes_the_place_of_the_first(fedavg):
    aggregator("again", lambda inbox: {n: inbox[0][n].copy() for n in inbox[0]})
    first = digest(fedavg, with_part("aggregator", "again"))
    aggregator("again", lambda inbox: inbox.mean(), needs=["samples"])
    assert first != digest(fedavg, with_part("aggregator", "again")) == digest(fedavg)


def test_a_dataclass_is_a_part_as_well(fedavg):
    from dataclasses import dataclass

    @fl.aggregator("is-a-dataclass")
    @dataclass
    class Twice:
        """A dataclass."""

        factor: float = 1.0
        needs = ("samples",)

        def aggregate(self, round, inbox):
            return {n: a * np.float32(self.factor) for n, a in inbox.mean().items()}

    assert digest(fedavg, with_part("aggregator", "is-a-dataclass")) == digest(fedavg)
    assert digest(fedavg, with_part("aggregator", "is-a-dataclass", factor=0.5)) != digest(fedavg)


def test_cases_hold_a_part_to_what_it_answered():
    Path("mine.cases.yaml").write_text(
        "cases:\n  - name: two\n    part: aggregator py-mean\n    input: { messages: [{ from: 0, weight: 1, tensors: { w: [1, 2] } },"
        " { from: 1, weight: 3, tensors: { w: [3, 0.4] } }] }\n  - name: range\n    part: aggregator py-mean\n    settings: { scale: 0 }\n"
        "    input: { messages: [{ from: 0, tensors: { w: [1] } }] }\n    refused: must be above 0\n"
    )
    with pytest.raises(AssertionError, match="two"):
        fl.testing.cases("mine.cases.yaml")
    fl.testing.cases("mine.cases.yaml", accept=True)
    assert "2 fine, 0 different" in fl.testing.cases(".")
    messages = [{"from": k, "weight": 1, "tensors": {"w": [k]}} for k in (1, 2)]
    assert fl.testing.answer(my_parts.PyMean, {"messages": messages})["tensors"] == {"w": [1.5]}


# ---- modules that a spec names


MINE = """
import fl

@fl.aggregator("of-a-module")
class OfAModule:
    "A mean of a module."
    needs = ["samples"]

    def aggregate(self, round, inbox):
        return inbox.mean()
"""


def named(fedavg, module="mine", **more):
    fedavg["plugins"] = [{"module": module, **more}]
    fedavg["parts"]["aggregator"] = {"use": "of-a-module"}
    return fedavg


def module(name, text=MINE):
    Path(f"{name}.py").write_text(text)
    return name


def test_exact_a_spec_names_a_module_and_the_run_keeps_its_hash(fedavg):
    whole = digest(fedavg)
    spec = named(fedavg, module("mine_a"))
    first = fl.run(spec, out="here", stop_after=2, quiet=True)
    kept = fl.check("here/spec.yaml")["plugins"]
    assert len(kept) == 1 and {k: v for k, v in kept[0].items() if v is not None} == {
        "module": "mine_a", "path": os.getcwd(), "sha256": __import__("hashlib").sha256(MINE.encode()).hexdigest()
    }
    assert first.stopped and digest(None, resume="here") == whole


def test_a_module_that_was_changed_is_another(fedavg):
    spec = named(fedavg, module("mine_b"))
    first = fl.run(spec, out="here", stop_after=2, quiet=True)
    module("mine_b", MINE.replace("return inbox.mean()", "return {n: inbox[0][n] * 0 for n in inbox[0]}"))
    with pytest.raises(fl.SpecError, match="its sha256 is .*, and the pinned one is"):
        fl.run(resume=first.folder, quiet=True)
    assert digest(spec) != digest({**fedavg, "plugins": [], "parts": {**fedavg["parts"], "aggregator": {"use": "mean"}}})


def test_modules_that_cannot_be_used_are_refused_with_a_reason(fedavg):
    for name, text, why in [
        ("nowhere", None, "no module of Python is called so, neither in"),
        ("raises", "1 / 0", r"it cannot be imported: ZeroDivisionError: division by zero \(.*raises.py:1\)"),
        ("wants", "import nothing_of_this_name", r"it cannot be imported: No module named 'nothing_of_this_name'"),
        ("syntax", "def", "it cannot be imported: SyntaxError"),
        ("exits", "raise SystemExit(3)", "it cannot be imported: SystemExit"),
        ("empty", "", "it declares no part"),
        ("with space", None, "must be a name as Python imports it"),
    ]:
        if text is not None:
            module(name, text)
        with pytest.raises(fl.SpecError, match=why):
            fl.run(named(fedavg, name))


def test_a_module_of_the_same_name_elsewhere_is_not_taken_for_it(fedavg):
    for folder in ("one", "two"):
        Path(folder).mkdir()
        Path(folder, "mine_c.py").write_text(MINE + f"# {folder}\n")
    fl.check(named(fedavg, "mine_c", path="one"))
    with pytest.raises(fl.SpecError, match="give one of them another name"):
        fl.check(named(fedavg, "mine_c", path="two"))


def test_a_package_is_a_module_too(fedavg):
    Path("mine_d").mkdir()
    Path("mine_d/__init__.py").write_text("from .parts import OfAModule\n")
    Path("mine_d/parts.py").write_text(MINE)
    assert digest(named(fedavg, "mine_d"), {"protocol.rounds": 1})


def test_the_program_of_the_wheel_takes_modules_and_another_says_what_to_do(fedavg):
    import json

    spec = named(fedavg, module("mine_e"))
    Path("spec.yaml").write_text(json.dumps(spec))
    run = [sys.executable, "-m", "fl", "run", "spec.yaml", "--quiet", "--json"]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["digest"] == digest(QUICK / "fedavg.yaml")
    failing = MINE.replace("inbox.mean()", "1 / 0").replace("of-a-module", "of-another")
    Path("spec.yaml").write_text(json.dumps({**named(fedavg, module("mine_f", failing)), "parts": {**spec["parts"], "aggregator": {"use": "of-another"}}}))
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 1 and "mine_f.py:10 in aggregate: return 1 / 0" in done.stderr, done.stderr
    if program := os.environ.get("FL_PROGRAM"):
        done = subprocess.run([program, "check", "spec.yaml"], capture_output=True, text=True)
        assert done.returncode == 3 and "this program has no Python: run the spec with" in done.stderr


def test_ctrl_c_stops_the_program_of_the_wheel_as_it_stops_any_other(fedavg):
    import json

    interrupts = MINE.replace("of-a-module", "of-an-interrupt").replace(
        "return inbox.mean()", "import os, signal\n        if round.number == 3:\n            os.kill(os.getpid(), signal.SIGINT)\n        return inbox.mean()"
    )
    spec = named(fedavg, module("mine_g", interrupts))
    spec["parts"]["aggregator"], spec["protocol"]["rounds"] = {"use": "of-an-interrupt"}, 100_000
    Path("spec.yaml").write_text(json.dumps(spec))
    done = subprocess.run([sys.executable, "-m", "fl", "run", "spec.yaml", "--out", "here"], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert "resume with: fl run --resume here" in done.stderr
    assert "Traceback" not in done.stderr


def test_dp_sgd_takes_a_trainer_that_gives_gradients_and_refuses_others_before_anything_runs():
    import state_parts

    use = lambda name: {"parts.model": {"use": name, "lr": 0.5}}  # noqa: E731

    def declared(name, **more):
        return fl.trainer(name)(type(name.title().replace("-", ""), (state_parts.Stateless,), {"__doc__": "Linear.", **more}))

    def gradient(self, x, target, how):
        rows = self._rows(x)
        scores = rows @ self.w
        chances = np.exp(scores - scores.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        return {"w": rows.T @ (chances - np.eye(self.task.outputs, dtype=np.float32)[target]) / np.float32(len(x))}

    declared("no-gradient", step_size=lambda self: self.lr)
    declared("no-step", gradient=gradient)
    for name, text in [("no-gradient", "it gives no gradients"), ("no-step", "it takes no gradients")]:
        with pytest.raises(fl.SpecError, match=rf"it gives no gradient of a single example, which DP-SGD clips, or takes no step along one \(.*{text}"):
            fl.check(QUICK / "dp-sgd.yaml", use(name))
    declared("by-step-size", gradient=gradient, step_size=lambda self: self.lr)

    def descend(self, gradient, at, of):
        self.w = self.w - np.float32(self.lr) * gradient["w"]

    declared("by-descend", gradient=gradient, descend=descend)
    results = [fl.run(QUICK / "dp-sgd.yaml", use(name), quiet=True) for name in ("by-step-size", "by-descend")]
    assert results[0].digest == results[1].digest and results[0].epsilon == fl.run(QUICK / "dp-sgd.yaml", quiet=True).epsilon


@fl.aggregator("weighs-by-name")
class WeighsByName:
    """A weight for each parameter."""

    factors: Annotated[dict[str, float], "Factors by the beginning of a name.", fl.between(ge=0)] = {"w": 1}  # noqa: RUF012

    def aggregate(self, round, inbox):
        factor = lambda name: max((self.factors[one] for one in self.factors if name.startswith(one)), default=1.0)  # noqa: E731
        return {name: np.float32(factor(name)) * value for name, value in inbox.mean().items()}


def test_a_setting_may_be_a_mapping(fedavg):
    run = lambda **settings: digest(fedavg, with_part("aggregator", "weighs-by-name", **settings))  # noqa: E731
    plain = run()
    assert run(factors={}) == run(factors={"other": 3}) == plain != run(factors={"b": 0.5, "w": 1})
    assert digest(fedavg, {"parts.aggregator": WeighsByName(factors={"b": 0.5, "w": 1.0})}) == run(factors={"b": 0.5, "w": 1})
    assert fl.check(fedavg, with_part("aggregator", "weighs-by-name"))["parts"]["aggregator"]["factors"] == {"w": 1}
    for value, text in [({"b": "x"}, "factors.b: must be a number, got 'x'"), ({"b": -1}, "factors.b: must be at least 0, got -1"), ([1], "factors.*list")]:
        with pytest.raises(fl.SpecError, match=text):
            fl.check(fedavg, with_part("aggregator", "weighs-by-name", factors=value))
    with pytest.raises(TypeError, match="a dict from str to bool, int, float or str"):
        fl.aggregator("nested")(type("Nested", (WeighsByName,), {"__annotations__": {"inner": dict[str, dict[str, float]]}, "inner": {}}))
