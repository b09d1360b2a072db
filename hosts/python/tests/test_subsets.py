"""Networks of which a part stays at home, takes words, or has another precision."""

import importlib.util
from pathlib import Path
from typing import Annotated

import fl
import fl.testing
import numpy as np
import pytest
from conftest import QUICK
from test_data import SPEC, clients, rows

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import fl.torch  # noqa: E402


class Base(fl.torch.Trainer):
    """One hidden layer with normalisation."""

    lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.1

    def net(self):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(16), nn.BatchNorm1d(16), nn.Tanh(), nn.LazyLinear(self.task.outputs))


@fl.trainer("home-norm")
class HomeNorm(Base):
    """FedBN (Li et al. 2021): normalisation stays at home."""

    def travels(self, name):
        return not name.startswith("2.")


@fl.trainer("home-head")
class HomeHead(Base):
    """FedPer (Arivazhagan et al. 2019): the last layer stays at home."""

    def travels(self, name):
        return not name.startswith("4.")


@fl.trainer("frozen-body")
class FrozenBody(Base):
    """Only the last layer learns and travels."""

    def net(self):
        if self.task.outputs > 8:
            raise ValueError("so few features at random do not tell pixels apart")
        net = super().net()
        net(torch.zeros(2, *self.task.input))  # lazy layers find their sizes
        for layer in net[:4]:
            layer.requires_grad_(False)
        return net

    def travels(self, name):
        return name.startswith("4.")


@fl.trainer("words-net")
class Words(fl.torch.Trainer):
    """Begins with an embedding, and gives a tuple."""

    lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.5
    vocabulary_size: Annotated[int, "Words.", fl.between(ge=2)] = 20

    def net(self):
        class Net(nn.Module):
            def __init__(self, words, outputs):
                super().__init__()
                self.embedding, self.head = nn.Embedding(words, 8), nn.Linear(8, outputs)

            def forward(self, x):
                return self.head(self.embedding(x).mean(1)), "more"

        return Net(self.vocabulary_size, self.task.outputs)


@fl.trainer("logits-net")
class Logits(Base):
    """Gives an object with logits."""

    def net(self):
        inner = super().net()

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                return {"logits": self.inner(x), "loss": None}

        return Net()


@fl.trainer("double-net")
class Double(fl.torch.Trainer):
    """In doubles."""

    lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.1

    def net(self):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(self.task.outputs)).double()


@fl.trainer("half-net")
class Half(fl.torch.Trainer):
    """In bfloat16."""

    lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.1

    def net(self):
        width = int(np.prod(self.task.input))
        return nn.Sequential(nn.Flatten(), nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, self.task.outputs)).bfloat16()


@fl.trainer("unused-net")
class Unused(Base):
    """Has a layer that no loss reaches, whose gradient is None."""

    def net(self):
        net = super().net()
        net.register_module("unused", nn.Linear(3, 3))
        net.forward = lambda x: nn.Sequential(*[layer for name, layer in net.named_children() if name != "unused"])(x)
        return net


SUBSETS = ["home-norm", "home-head", "frozen-body"]


@pytest.mark.parametrize("name", [*SUBSETS, "logits-net", "words-net", "unused-net", "double-net"])
def test_the_kit_holds_it_to_what_trainers_promise(name):
    fl.testing.conformance(f"trainer {name}")


def two(name, spec="fedavg", **more):
    return fl.check(QUICK / f"{spec}.yaml", {"parts.model": {"use": name}, "protocol.rounds": 3, **more})


@pytest.mark.parametrize("name", [*SUBSETS, "words-net", "half-net", "double-net"])
@pytest.mark.parametrize("fresh", [True, False])
def test_exact_every_way_of_running_is_one(name, fresh, tmp_path):
    if name == "words-net":
        data = {"set": fl.testing._in_words(20, tmp_path), "clients": 3}
        spec = {**SPEC, "protocol": {**SPEC["protocol"], "fresh": fresh}, "parts": {"model": {"use": name}, "aggregator": {"use": "mean"}}, "data": data}
    else:
        spec = two(name, **{"protocol.fresh": fresh})
    found = fl.testing.ways(spec)
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize("name", SUBSETS)
def test_only_what_travels_is_sent_and_what_stays_is_the_clients_own(name):
    whole = fl.run(two("logits-net"), quiet=True)
    results = fl.run(two(name), quiet=True)
    assert results.bytes["up"] < whole.bytes["up"] and results.bytes["down"] < whole.bytes["down"]


def test_what_stays_at_home_is_remembered_from_round_to_round():
    seen = {}

    @fl.trainer("home-watch")
    class Watch(HomeHead):
        """Tells what its head is when a round begins and when it ends."""

        def fit(self, x, target, how, stream):
            if self._fl_made.alone:  # a copy, which tries what the client does
                return super().fit(x, target, how, stream)
            head = self._model[4].bias.detach().clone()
            seen.setdefault(len(x), []).append(head)
            done = super().fit(x, target, how, stream)
            seen[len(x)].append(self._model[4].bias.detach().clone())
            return done

    fl.run(two("home-watch"), threads=1, quiet=True)
    for heads in seen.values():
        for ended, begins in zip(heads[1::2], heads[2::2], strict=False):
            # clients with as many rows share a list
            assert torch.equal(ended, begins) or len(heads) > 6
    assert any(not torch.equal(heads[0], heads[-1]) for heads in seen.values())


def test_a_frozen_body_is_the_same_at_every_client_and_does_not_learn():
    bodies = []

    @fl.trainer("frozen-watch")
    class Watch(FrozenBody):
        """Tells its body."""

        def fit(self, x, target, how, stream):
            done = super().fit(x, target, how, stream)
            bodies.append(self._model[1].weight.detach().clone())
            return done

    results = fl.run(two("frozen-watch"), threads=1, quiet=True)
    assert len(bodies) > 3 and all(torch.equal(bodies[0], one) for one in bodies)
    assert torch.equal(results.model().module()[1].weight, bodies[0])
    assert results.metrics["accuracy"] > 0.5


@pytest.mark.parametrize("change", [
    {"protocol.use": "fedprox", "protocol.mu": 0.5},
    {"protocol.use": "scaffold", "protocol.control": "gradient"},
    {"protocol.local.clip": 0.5},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("name", SUBSETS)
def test_methods_that_change_gradients_take_subsets(name, change):
    rounds = {"protocol": {"use": "fedavg", "rounds": 3, "local": {"epochs": 1, "batch": 16}}}
    results = fl.run(fl.check(QUICK / "fedavg.yaml", {"parts.model": {"use": name}, **rounds, **change}), quiet=True)
    # a head that stays at home is not the server's, whose own never learns
    assert results.metrics["accuracy"] > (0 if name == "home-head" else 0.3) and fl.run(QUICK / "fedavg.yaml", {"parts.model": {"use": name}, **rounds}, quiet=True).digest != results.digest


@pytest.mark.parametrize("name", SUBSETS)
def test_mechanisms_bound_what_travels(name):
    results = fl.run(fl.check(QUICK / "dp-fedavg.yaml", {"parts.model": {"use": name}, "protocol.rounds": 2}), quiet=True)
    assert results.epsilon and results.epsilon < np.inf


def test_words_that_are_none_are_told_with_their_place():
    data = {"train": (np.array([[1, 2, 3], [4, 99, 6]] * 4), np.array([0, 1] * 4)), "holdout": 0.25}
    spec = {**SPEC, "parts": {"model": {"use": "words-net"}, "aggregator": {"use": "mean"}}, "data": {"clients": 1}}
    with pytest.raises(fl.RunError, match=r"is 99; the network takes a whole number from 0 to 19, for its embedding has 20 rows"):
        fl.run(spec, data=data, quiet=True)


def test_nothing_that_travels_and_nothing_that_learns_are_mistakes():
    @fl.trainer("all-home")
    class AllHome(Base):
        """Sends nothing."""

        def travels(self, name):
            return False

    @fl.trainer("all-frozen")
    class AllFrozen(Base):
        """Learns nothing."""

        def net(self):
            return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(self.task.input)), self.task.outputs)).requires_grad_(False)

    with pytest.raises(fl.SpecError, match=r"travels\(\) of AllHome lets no parameter travel; there are"):
        two("all-home")
    with pytest.raises(fl.SpecError, match=r"net\(\) of AllFrozen has no parameter that requires a gradient"):
        two("all-frozen")


def test_devices_are_checked_and_numbers_of_cards_are_accepted():
    with pytest.raises(fl.SpecError, match="device must be `cpu`, `cuda`, `cuda:1` or `mps`, got 'gpu'"):
        fl.check(QUICK / "fedavg.yaml", {"parts.model": {"use": "logits-net", "device": "gpu"}})
    if not torch.cuda.is_available():
        with pytest.raises(fl.SpecError) as told:
            fl.check(QUICK / "fedavg.yaml", {"parts.model": {"use": "logits-net", "device": "cuda:1"}})
        assert "device must be" not in str(told.value)


def test_tf32_is_off_while_a_trainer_computes_and_as_before_afterwards():
    seen = []
    before = torch.backends.cudnn.conv.fp32_precision if hasattr(torch.backends.cudnn, "conv") else torch.backends.cudnn.allow_tf32

    @fl.trainer("tf32-watch")
    class Watch(Base):
        """Tells what is set."""

        def loss(self, scores, target, how):
            seen.append(torch.backends.cudnn.conv.fp32_precision if hasattr(torch.backends.cudnn, "conv") else torch.backends.cudnn.allow_tf32)
            return super().loss(scores, target, how)

    fl.run(two("tf32-watch"), quiet=True)
    after = torch.backends.cudnn.conv.fp32_precision if hasattr(torch.backends.cudnn, "conv") else torch.backends.cudnn.allow_tf32
    assert set(seen) <= {"ieee", False} and after == before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no card of NVIDIA here")
def test_a_card_trains():
    for name in (*SUBSETS, "half-net", "double-net"):
        state = torch.cuda.get_rng_state()
        there, here = (
            fl.run(QUICK / "fedavg.yaml", {"parts.model": {"use": name, "device": device}, "protocol.rounds": 2}, quiet=True)
            for device in ("cuda:0", "cpu")
        )
        # a head that stays at home leaves the server's model untrained
        assert there.metrics["accuracy"] == pytest.approx(here.metrics["accuracy"], abs=0.05)
        assert torch.equal(state, torch.cuda.get_rng_state())


def test_batches_are_augmented_by_the_runs_own_draws():
    @fl.trainer("augmented")
    class Augmented(Base):
        """Adds noise to its inputs while it trains."""

        def augment(self, inputs, generator):
            return inputs + 0.1 * torch.randn(inputs.shape, generator=generator)

    one = fl.run(two("augmented"), threads=1, quiet=True)
    assert fl.run(two("augmented"), threads=4, quiet=True).digest == one.digest != fl.run(two("logits-net"), quiet=True).digest


def test_lora_sends_a_tenth_and_learns():
    pytest.importorskip("transformers")
    file = Path(__file__).parents[1] / "examples" / "lora.py"
    made = importlib.util.spec_from_file_location("lora_example", file)
    example = importlib.util.module_from_spec(made)
    import sys

    sys.modules["lora_example"] = example
    made.loader.exec_module(example)
    full, *adapters = (all[0] for all in example.main([1]).values())
    assert len(adapters) == 3 and all(lora.bytes["up"] * 10 < full.bytes["up"] for lora in adapters)
    assert all(results.metrics["accuracy"] > 0.7 for results in (full, *adapters))
    mean, product, ranks = adapters
    assert len({one.digest for one in adapters}) == 3 and 0.9 < product.metrics["aggregator.kept"] <= 1 and "aggregator.kept" not in mean.metrics
    assert 0.5 < ranks.metrics["aggregator.kept"] <= 1


# ---- `share` of a spec: groups of parameters by their names


def shares(groups, out=None, **how):
    """Two rounds of one step on all rows: what the aggregator sees, and the first parameters."""
    seen, first = [], {}

    @fl.trainer("share-net")
    class Net(fl.torch.Trainer):
        """Two layers."""

        lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.5

        def net(self):
            return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))

        def fit(self, x, target, how, stream):
            # not a copy, which tries what the client does
            if not first and not self._fl_made.alone:
                first.update({name: value.copy() for name, value in self.params().items()})
            return super().fit(x, target, how, stream)

    @fl.aggregator("share-mean")
    class Mean:
        """The mean, which tells the names of what came."""

        def aggregate(self, round, inbox):
            seen.extend(tuple(sorted(mail)) for mail in inbox)
            return inbox.mean()

    protocol = {"use": "fedavg", "share": groups, "rounds": 2, "keep-clients": True, "local": {"steps": 1, "batch": 30}}
    spec = {**SPEC, "protocol": protocol, "parts": {"model": {"use": "share-net"}, "aggregator": {"use": "share-mean"}}}
    data = {"train": clients(), "test": rows(20, 9)}
    results = fl.run(spec, data=data, quiet=True, threads=1, out=out, **how)
    if results.stopped:
        results = fl.run(resume=results.folder, data=data, quiet=True, threads=1)
    return results, seen, first


@pytest.mark.parametrize("groups, shared", [(["body"], "0."), (["head"], "2."), (["2"], "2.")], ids=str)
def test_close_share_sends_its_names_alone_as_in_plain_pytorch(groups, shared, tmp_path):
    results, seen, first = shares(groups)
    names = tuple(sorted(name for name in first if name.startswith(shared)))
    # two rounds of three, and once more, since it writes outside of itself
    assert set(seen) == {names} and len(seen) == 9 and len(names) == 2 and len(first) == 4
    leaves = sum(first[name].size for name in names)
    # the whole network goes to each client once
    whole = sum(value.size for value in first.values())
    assert results.bytes == {"up": 2 * 3 * leaves * 4, "down": 3 * (2 * leaves + whole) * 4}

    nets = []
    for _ in range(3):
        net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        net.load_state_dict({name: torch.from_numpy(value) for name, value in first.items()})
        nets.append(net)
    for round in range(2):
        if round:
            mean = {name: sum(net.state_dict()[name] for net in nets) / 3 for name in names}
            for net in nets:
                net.load_state_dict(mean, strict=False)
        for net, (x, y) in zip(nets, clients().values(), strict=True):
            optimiser = torch.optim.SGD(net.parameters(), 0.5)
            nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y)).backward()
            optimiser.step()
            optimiser.zero_grad()
    for client, net in enumerate(nets):
        found = results.model("model", client).arrays()
        for name, value in net.state_dict().items():
            assert np.allclose(found[name], value, atol=1e-6), (client, name)
    # what is private is each client's own, and lives on after a stop
    private = next(name for name in first if name not in names)
    assert not np.allclose(*(results.model("model", client).arrays()[private] for client in (0, 1)))
    again, _, _ = shares(groups, tmp_path / "stopped", stop_after=1)
    assert again.digest == results.digest
    for client in range(3):
        one, other = (of.model("model", client).arrays() for of in (results, again))
        assert all(np.array_equal(one[name], other[name]) for name in first)
