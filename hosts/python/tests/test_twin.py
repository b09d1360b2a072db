"""Parts draw by the seed, and what training changes is kept, or an error names it."""

import itertools
import random
from pathlib import Path

import fl
import fl.testing
import numpy as np
import pytest
from conftest import QUICK, with_part

HERE = str(Path(__file__).parent)


def digests(spec, set=None):
    """On one thread and on several, and after a stop."""
    whole = fl.run(spec, set, quiet=True, threads=1).digest
    several = fl.run(spec, set, quiet=True, threads=4, memory=1).digest
    stopped = fl.run(spec, set, quiet=True, stop_after=3)
    return {whole, several, fl.run(resume=stopped.folder, quiet=True).digest}


# ---- parts without PyTorch


@fl.aggregator("draws-mean")
class Mean:
    """The mean and a little."""

    def aggregate(self, round, inbox):
        return {name: array + np.float32(0.01 * random.random() + 0.01 * np.random.rand()) for name, array in inbox.mean().items()}


@fl.selector("draws-two")
class Two:
    """Two clients."""

    draw = "fixed-size"

    def select(self, round, pool):
        return random.sample(range(len(pool.clients)), 2)


@fl.privacy("draws-more")
class More:
    """Adds more noise than its price says."""

    def clip(self, message):
        norm = np.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in message.values()))
        return {name: array * np.float32(1.0 if norm <= 1 else (1 - 1e-6) / norm) for name, array in message.items()}

    def price(self, message, cohort):
        return {"Gaussian": {"sensitivity": 2.0, "sigma": 0.1, "unit": "party"}}

    def perturb(self, message, cohort, noise):
        return {name: noise.gaussian(array, 0.1) + np.float32(np.random.normal(0, 0.1)) for name, array in message.items()}


@fl.protocol("draws-rounds")
class Rounds:
    """Server and clients add noise."""

    rounds: int = 5
    model = fl.slot("trainer", "What all clients train.", shared_parameters=True, at_server=True)
    mean = fl.slot("aggregator", "Combines the clients' parameters.", "params")

    @fl.exchange("parameters after training", into=mean, times="rounds", trains=True)
    def train(self, client, params):
        client.model(self.model).set_params(params)
        client.fit(self.model, epochs=1, batch=16)
        return {name: array + np.float32(0.01 * np.random.normal()) for name, array in client.model(self.model).params().items()}

    def lead(self, server):
        server.state.params = server.model(self.model).params()
        server.rounds(self.round)

    def round(self, server, round):
        server.state.params = server.run(self.train, server.state.params)
        server.state.params = {name: array + np.float32(0.01 * random.random()) for name, array in server.state.params.items()}
        server.model(self.model).set_params(server.state.params)
        server.evaluate(self.model)


@pytest.mark.parametrize("slot, use", [("aggregator", "draws-mean"), ("cohort", "draws-two"), ("privacy", "draws-more")])
def test_exact_a_part_of_any_role_draws_by_the_seed(slot, use):
    found = digests(QUICK / "fedavg.yaml", with_part(slot, use))
    assert len(found) == 1
    assert found != {fl.run(QUICK / "fedavg.yaml", {**with_part(slot, use), "seed": 2}, quiet=True).digest}


def test_exact_a_protocol_draws_by_the_seed():
    parts = {"model": {"use": "linear"}, "mean": {"use": "mean"}}
    assert len(digests({"name": "draws", "data": {"set": "blobs", "clients": 4}, "protocol": {"use": "draws-rounds"}, "parts": parts})) == 1


def test_exact_a_measure_draws_the_same_in_each_run_and_generators_stay_as_they_were(fedavg, monkeypatch):
    monkeypatch.setattr(fl._parts.metric, "_METRICS", {})
    fl.metric("draws-measure")(lambda scores, labels: random.random() + np.random.rand())
    random.seed(5)
    np.random.seed(5)
    found = {fl.run(fedavg, with_part("aggregator", "draws-mean"), quiet=True).metrics["draws-measure"] for _ in range(2)}
    assert len(found) == 1
    drawn = random.random(), np.random.rand()
    random.seed(5)
    np.random.seed(5)
    assert drawn == (random.random(), np.random.rand())


def test_a_part_that_draws_what_no_seed_reaches_is_an_error(fedavg):
    @fl.aggregator("draws-fresh")
    class Fresh:
        """Draws from the system."""

        def aggregate(self, round, inbox):
            self.times = getattr(self, "times", 0) + 1
            return {name: array + np.float32(0.01 * np.random.default_rng().random()) for name, array in inbox.mean().items()}

    for _ in range(2):
        with pytest.raises(fl.RunError, match=r"its aggregate\(\) gives other numbers: it draws from something that no seed reaches"):
            fl.run(fedavg, with_part("aggregator", "draws-fresh"), quiet=True)


COUNTS = {"global": 0}


@pytest.mark.parametrize("where", ["global", "class", "selector"])
def test_a_part_that_keeps_something_elsewhere_is_an_error(fedavg, where):
    class Elsewhere:
        """Counts where no state of it is."""

        times = 0

        def count(self):
            holder = type(self)
            COUNTS["global"], holder.times = COUNTS["global"] + 1, holder.times + 1
            return holder.times if where == "class" else COUNTS["global"]

        def aggregate(self, round, inbox):
            return {name: array / np.float32(self.count()) for name, array in inbox.mean().items()}

        def select(self, round, pool):
            return [self.count() % len(pool.clients)]

    slot, role = ("cohort", fl.selector) if where == "selector" else ("aggregator", fl.aggregator)
    role(f"counts-in-{where}")(Elsewhere)
    for _ in range(2):
        with pytest.raises(fl.RunError, match=r"gives other numbers: it keeps something that is no attribute of the part, such as in a global"):
            fl.run(fedavg, with_part(slot, f"counts-in-{where}"), quiet=True)


def test_a_part_that_loses_something_when_it_is_saved_is_an_error_with_its_name(fedavg):
    @fl.aggregator("loses-count")
    class Loses:
        """Counts by an iterator, which setup() makes anew."""

        def setup(self, stream):
            self._turns = itertools.count(1)

        def aggregate(self, round, inbox):
            turn = np.float32(next(self._turns))
            return {name: array / turn for name, array in inbox.mean().items()}

    with pytest.raises(fl.RunError, match=r"saved and loaded, its aggregate\(\) gives other numbers.*no state that it saves holds `_turns`"):
        fl.run(fedavg, with_part("aggregator", "loses-count"), quiet=True)


def test_a_trainer_that_loses_something_when_it_is_saved_is_an_error_with_its_name(fedavg):
    from state_parts import Stateless

    def setup(self, stream):
        Stateless.setup(self, stream)
        self._rates = iter([0.1 / k for k in range(1, 1000)])

    def fit(self, x, target, how, stream):
        self.lr = next(self._rates)
        return Stateless.fit(self, x, target, how, stream)

    fl.trainer("loses-rates")(type("Loses", (Stateless,), {"setup": setup, "fit": fit, "__doc__": "Its rates are an iterator."}))
    for way in [{}, {"wire": True}, {"memory": 1}]:
        with pytest.raises(fl.RunError, match="saved and loaded, it goes on with other .*no state that it saves holds `_rates`"):
            fl.run(fedavg, {**with_part("model", "loses-rates"), "protocol.fresh": False}, quiet=True, **way)


# ---- networks of PyTorch

torch = pytest.importorskip("torch")

import twin_parts  # noqa: E402


def net(use, fresh=False, **settings):
    local = {"steps": 4, "batch": 16}
    spec = fl.check(QUICK / "fedavg.yaml", {**with_part("model", use, **settings), "protocol.fresh": fresh, "protocol.rounds": 6, "protocol.local": local})
    spec["plugins"] = [{"module": "twin_parts", "path": HERE}]
    return spec


@pytest.mark.filterwarnings("ignore:schedule")
@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("where", ["augment", "seldom", "net", "optimiser", "schedule"])
def test_exact_a_network_draws_by_the_seed(where, fresh):
    assert len(digests(net(f"draws-{where}", fresh))) == 1


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("use, text", [("draws-entropy", r"trained twice .* fit\(\) draws"), ("draws-entropy-net", r"made twice .* setup\(\) draws")])
def test_a_network_that_draws_what_no_seed_reaches_is_an_error(use, text, fresh):
    for way in [{}, {"wire": True}]:
        with pytest.raises(fl.RunError, match=f"{text} from something that no seed reaches"):
            fl.run(net(use, fresh), quiet=True, **way)


@pytest.mark.parametrize("how", ["attribute", "buffer", "list"])
def test_exact_what_a_module_counts_is_kept(how):
    assert len(digests(net("keeps-in-module", how=how))) == 1


@pytest.mark.parametrize("how", ["schedule", "closure", "group", "object", "average", "random", "step"])
def test_exact_what_a_hook_of_the_optimiser_keeps_is_kept(how):
    found = digests(net("keeps-in-hook", how=how))
    assert len(found) == 1
    assert found != digests(net("keeps-in-hook", how="nothing"))


@pytest.mark.parametrize("use", ["keeps-slow-weights", "keeps-around", "keeps-extra-state"])
def test_exact_what_an_optimiser_or_a_module_keeps_in_its_own_way_is_kept(use):
    assert len(digests(net(use))) == 1


@pytest.mark.parametrize("spec", [net("keeps-in-hook"), net("draws-seldom")], ids=["hook", "draws"])
def test_exact_a_network_is_the_same_in_five_ways(spec):
    found = fl.testing.ways(spec)
    assert len(found) == 5 and len(set(found.values())) == 1, found


@pytest.mark.parametrize("how, way", [("iterator", {}), ("generator", {}), ("iterator", {"wire": True}), ("iterator", {"memory": 1}), ("iterator", {"processes": 2})], ids=str)
def test_what_cannot_be_kept_is_an_error_with_its_name_in_every_way(how, way):
    with pytest.raises(fl.RunError, match=r"training changes `optimiser\._optimizer_step_post_hooks\[0\]\.rates` \((count|generator)\), which cannot be written down"):
        fl.run(net("keeps-in-hook", how=how), quiet=True, **way)
    if not way:  # where each request has a model of its own nothing is lost
        assert fl.run(net("keeps-in-hook", fresh=True, how=how), quiet=True).done


def test_a_schedule_that_only_a_hook_knows_is_an_error_where_no_base_class_keeps_it(fedavg):
    where = {**with_part("model", "keeps-alone"), "protocol.fresh": False}
    for way in [{}, {"memory": 1}]:
        with pytest.raises(fl.RunError, match=r"it goes on with other hooks of its optimiser.*no state that it saves holds `_steps\._optimizer_step_post_hooks\[0\]\.s\.last_epoch`"):
            fl.run(fedavg, where, quiet=True, **way)
    where |= with_part("model", "keeps-alone", hook=False)
    assert len({fl.run(fedavg, where, quiet=True, **way).digest for way in [{}, {"memory": 1}]}) == 1


def test_draws_that_begin_late_are_an_error():
    with pytest.raises(fl.RunError, match=r"fit\(\) drew from PyTorch's generator, though at first it drew nothing"):
        # of several clients at once another could be blamed
        fl.run(net("draws-late"), quiet=True, threads=1)
    assert len(digests(net("draws-late-said"))) == 1
