"""What a part keeps on itself is the same in every way of running, or an error that names it."""

import copy
import subprocess
import sys
import threading
from pathlib import Path

import fl
import fl.testing
import numpy as np
import pytest
import state_parts
from conftest import QUICK, with_part
from fl._parts import state as _state
from fl._protocol.server_and_client import State

HERE = Path(__file__).parent
ROLES = {
    "trainer, fresh": ("model", "state-trainer", {"protocol.fresh": True}),
    "trainer, lasting": ("model", "state-trainer", {"protocol.fresh": False}),
    "aggregator": ("aggregator", "state-aggregator", {}),
    "selector": ("cohort", "state-selector", {}),
    "privacy": ("privacy", "state-privacy", {}),
    "attack": ("attack", "state-attack", {}),
}


def named(spec, slot, use, more=None, **settings):
    """The spec with this part, whose module it names."""
    spec = fl.check(spec, {**with_part(slot, use, **settings), **(more or {})})
    spec["plugins"] = [{"module": "state_parts", "path": str(HERE)}]
    return spec


@pytest.mark.parametrize("role", ROLES)
def test_exact_a_part_with_state_has_one_digest_in_five_ways(fedavg, role):
    slot, use, more = ROLES[role]
    found = fl.testing.ways(named(fedavg, slot, use, more))
    print(f"| Python | {role} | {' | '.join(d[:8] for d in found.values())} |")
    assert len(found) == 5 and len(set(found.values())) == 1, found
    # and the state matters
    forgetful = fl.run(named(fedavg, slot, use, more, forgets=True), quiet=True).digest
    assert forgetful != found["plain"]


def test_the_kit_runs_a_trainer_that_keeps_something():
    fl.testing.conformance(state_parts.Trainer)


def trainer(name, setup=None, **more):
    """A trainer as `state_parts.Trainer`, whose `setup` does something more."""

    def sets_up(self, stream):
        state_parts.Trainer.setup(self, stream)
        if setup:
            setup(self)

    return fl.trainer(name)(type(name.title(), (state_parts.Trainer,), {"setup": sets_up, "__doc__": "A trainer.", **more}))


WAYS = [{}, {"wire": True}, {"memory": 1}]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("fresh", [True, False])
def test_an_attribute_that_cannot_be_kept_is_an_error_with_its_name(fedavg, fresh, way):
    class Holds(state_parts.Stateless):
        """Holds a lock."""

        def fit(self, x, target, how, stream):
            self._held = threading.Lock()
            return super().fit(x, target, how, stream)

    fl.trainer("state-lock")(Holds)
    with pytest.raises(fl.RunError, match="what it keeps as `_held` \\(lock\\) cannot be saved.*make what never changes in setup"):
        fl.run(fedavg, {**with_part("model", "state-lock"), "protocol.fresh": fresh}, quiet=True, **way)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_exact_what_setup_makes_is_made_again(fedavg, way):
    trainer("state-made", setup=lambda self: setattr(self, "_lock", threading.Lock()))
    plain = fl.run(fedavg, with_part("model", "state-trainer"), quiet=True).digest
    assert fl.run(fedavg, with_part("model", "state-made"), quiet=True, **way).digest == plain


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_an_attribute_that_a_fresh_model_would_lose_is_an_error_with_its_name(fedavg, way):
    trainer("state-undeclared", remembers=("seen", "_turns"))
    text = "it keeps `previous`, which is neither in its model nor in its optimiser.*remembers = \\('previous',\\).*fresh: false"
    with pytest.raises(fl.RunError, match=text):
        fl.run(fedavg, with_part("model", "state-undeclared"), quiet=True, **way)
    # a model that lasts keeps it
    set = {**with_part("model", "state-undeclared"), "protocol.fresh": False}
    plain = fl.run(fedavg, {**set, **with_part("model", "state-trainer")}, quiet=True).digest
    assert fl.run(fedavg, set, quiet=True, **way).digest == plain


def test_exact_the_order_of_a_mapping_is_no_part_of_a_memory(fedavg):
    """As in JAX, whose functions give mappings in the order of their names."""

    def setup(self, stream):
        state_parts.Stateless.setup(self, stream)
        self.w = {"w": self.w, "inner": {"b": np.zeros(self.task.outputs, np.float32), "a": np.zeros(1, np.float32)}}

    def fit(self, x, target, how, stream):
        rows, wanted = self._rows(x), np.eye(self.task.outputs, dtype=np.float32)[target]
        for at in how.batches(len(x), stream):
            slope = rows[at].T @ (rows[at] @ self.w["w"] - wanted[at]) / np.float32(len(at))
            self.w = {"inner": {name: self.w["inner"][name] for name in sorted(self.w["inner"])}, "w": self.w["w"] - np.float32(0.05) * slope}
        return 1, 0.0

    def load(self, state):
        whole = np.frombuffer(state, np.float32)
        self.w = {"w": whole.reshape(-1, self.task.outputs).copy(), "inner": {"b": np.zeros(self.task.outputs, np.float32), "a": np.zeros(1, np.float32)}}

    more = {
        "setup": setup,
        "fit": fit,
        "load": load,
        "save": lambda self: self.w["w"].tobytes(),
        "predict": lambda self, x: np.einsum("ij,jk->ik", self._rows(x), self.w["w"]),
        "_rows": lambda self, x: np.array(x).reshape(len(x), -1),
        "params": lambda self: {"w": self.w["w"]},
        "set_params": lambda self, params: self.w.update(w=params["w"].copy()),
        "remembers": (),
    }
    fl.trainer("state-mapping")(type("Mapped", (state_parts.Stateless,), {"__doc__": "Its weights are a mapping.", **more}))
    set = with_part("model", "state-mapping")
    digests = {fl.run(fedavg, set, quiet=True, **way).digest for way in WAYS}
    assert len(digests) == 1


def test_exact_one_list_under_two_names_stays_one(fedavg):
    def two(self, round, inbox):
        if not hasattr(self, "all"):
            self.all = []
            self.same = {"list": self.all}
        self.all.append(round.number)
        scale = np.float32(len(self.same["list"]))
        return {name: array * scale % 8 for name, array in inbox.mean().items()}

    fl.aggregator("state-shared")(type("Shared", (), {"__doc__": "Shares a list.", "needs": ["samples"], "aggregate": two}))
    set = with_part("aggregator", "state-shared")
    whole = fl.run(fedavg, set, quiet=True).digest
    stopped = fl.run(fedavg, set, stop_after=2, quiet=True)
    assert fl.run(resume=stopped.folder, quiet=True).digest == whole


def test_two_arrays_that_share_memory_are_an_error_with_their_names(fedavg):
    def two(self, round, inbox):
        self.flat = np.zeros(4)
        self.views = {"a": self.flat[1:3]}
        return inbox.mean()

    fl.aggregator("state-views")(type("Views", (), {"__doc__": "Keeps views.", "needs": ["samples"], "aggregate": two}))
    with pytest.raises(fl.RunError, match="keeps as `flat` and as `views` shares memory"):
        fl.run(fedavg, with_part("aggregator", "state-views"), stop_after=2, quiet=True)
    flat = np.zeros(6)
    _state.refuse_views({"one": flat[:3], "two": flat[3:], "none": flat[:0], "again": [flat[:3].copy()]})
    with pytest.raises(TypeError, match="keeps as `one` and as `two` shares memory"):
        State(one=flat[:4], two=flat[3:])._save()


# ---- parts of a notebook


NOTEBOOK = """
import fl, sys
import numpy as np

FACTOR = {factor}

def scaled(mean):
    return {{name: np.float32(FACTOR) * array {more} for name, array in mean.items()}}

@fl.aggregator("of-a-notebook")
class OfANotebook:
    "Scales the mean."
    needs = ["samples"]

    def aggregate(self, round, inbox):
        {comment}
        return scaled(inbox.mean())

how, spec = sys.argv[1], {spec!r}
try:
    if how == "begin":
        fl.run(spec, stop_after=2, out="here", quiet=True)
    elif how == "resume":
        print(fl.run(resume="here", quiet=True).digest)
    else:
        print(fl.run(spec, processes=2, quiet=True).digest)
except fl.Error as error:
    print(error)
"""


def notebook(how, factor=0.5, more="", comment="pass"):
    spec = {"name": "n", "data": {"set": "blobs", "clients": 3}, "protocol": {"use": "fedavg", "rounds": 4}}
    spec["parts"] = {"model": {"use": "linear"}, "aggregator": {"use": "of-a-notebook"}}
    text = NOTEBOOK.format(factor=factor, more=more, comment=comment, spec=spec)
    done = subprocess.run([sys.executable, "-", how], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.strip()


def test_a_run_goes_on_only_with_the_same_part_of_a_notebook():
    assert notebook("begin") == ("", "")
    for edited in [{"factor": 0.25}, {"more": "+ 1"}, {"comment": "inbox[0]"}]:
        out, _ = notebook("resume", **edited)
        assert "was begun with other" in out and "aggregator `of-a-notebook` from this session" in out, out
        assert "of a notebook, run the cells that declare it, and what it uses, as they were" in out, out
    out, _ = notebook("resume", comment="pass  # only a comment")
    assert len(out) == 64, out


def test_exact_a_copy_of_a_part_leaves_its_hash():
    class Copied:
        __module__ = "__main__"
        factor = 2

    from fl._parts.source import hash_of

    before = hash_of(Copied)
    copy.copy(Copied())  # which writes `__slotnames__` into the class
    assert hash_of(Copied) == before and "__slotnames__" in vars(Copied)
    Copied.factor = 3
    assert hash_of(Copied) != before


def test_processes_want_a_part_in_a_module_and_say_so_once():
    out, err = notebook("processes")
    both = out + err
    assert both.count("aggregator `of-a-notebook` is from this session: put it in a module and name it under `plugins`") == 1, both
    assert "no aggregator is called" not in both, both


def test_processes_want_the_module_of_a_part_named(fedavg):
    with pytest.raises(fl.RunError, match="is from module state_parts: name it under `plugins`: `plugins: \\[{ module: state_parts }\\]`"):
        fl.run(fedavg, with_part("aggregator", "state-aggregator"), processes=2, quiet=True)
    assert not Path("runs").exists()
