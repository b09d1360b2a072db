"""Networks of PyTorch in every protocol, beside those of others."""

import gc
import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Annotated

import fl
import fl.testing
import numpy as np
import pytest
from conftest import PORTS, QUICK

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import fl.torch  # noqa: E402


@fl.trainer("torch-small")
class Small(fl.torch.Trainer):
    """One hidden layer."""

    lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.1
    width: Annotated[int, "Hidden units.", fl.between(ge=1)] = 16
    dropout: Annotated[float, "Share that is dropped.", fl.between(ge=0, lt=1)] = 0.0

    def net(self):
        dropped = [nn.Dropout(self.dropout)] if self.dropout else []
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(self.width), nn.Tanh(), *dropped, nn.LazyLinear(self.task.outputs))


@fl.trainer("torch-norm")
class Norm(fl.torch.Trainer):
    """Batch normalisation, and Adam."""

    lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.01

    def net(self):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(16), nn.BatchNorm1d(16), nn.Tanh(), nn.LazyLinear(self.task.outputs))

    def optimiser(self, parameters):
        return torch.optim.Adam(parameters, self.lr)


@fl.trainer("torch-odd")
class Odd(fl.torch.Trainer):
    """Gives scores for other classes."""

    def net(self):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(self.task.outputs + 1))


@fl.trainer("torch-logistic")
class Logistic(fl.torch.Trainer):
    """No layer of features."""

    def net(self):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(self.task.outputs))


NETS = [("torch-small", {}), ("torch-small", {"dropout": 0.3}), ("torch-norm", {})]


@fl.trainer("torch-momentum")
class Momentum(Logistic):
    """Gradient descent with momentum, and a schedule by epochs if `falls`."""

    lr: float = 0.1
    momentum: float = 0.5
    weight_decay: float = 0.0
    falls: bool = False

    def optimiser(self, parameters):
        return torch.optim.SGD(parameters, self.lr, self.momentum, weight_decay=self.weight_decay)

    def schedule(self, optimiser):
        return torch.optim.lr_scheduler.StepLR(optimiser, 2) if self.falls else None


def test_methods_that_take_steps_of_their_own_know_what_a_network_does_beside():
    short = {"rounds": 1, "local": {"epochs": 2, "batch": 16}}

    def run(method, part, **settings):
        changes = {"protocol": {"use": method, **short, **settings}, "parts.cohort": None, "parts.model": part}
        return fl.run(QUICK / "fedavg.yaml", changes, quiet=True)

    run("fednova", {"use": "torch-momentum"}, momentum=0.5)
    for part in [{"use": "torch-momentum", "falls": True}, {"use": "torch-momentum", "momentum": 0.4}, {"use": "torch-norm"}]:
        with pytest.raises(fl.SpecError, match="not those of gradient descent with momentum 0.5"):
            run("fednova", part, momentum=0.5)
    with pytest.raises(fl.SpecError, match="it has dropout"):
        run("per-fedavg", {"use": "torch-small", "dropout": 0.3})
    with pytest.raises(fl.SpecError, match="it has weight decay"):
        run("per-fedavg", {"use": "torch-momentum", "weight-decay": 0.1})
    with pytest.raises(fl.SpecError, match='schedule_by = "batch"'):
        run("fedavg", {"use": "torch-momentum", "falls": True}, share=["1.weight"], **{"freeze-rest": True})


@pytest.mark.parametrize("net", NETS, ids=str)
def test_a_network_is_held_to_what_trainers_promise(net):
    fl.testing.conformance(f"trainer {net[0]}", net[1])


@pytest.mark.parametrize("net", NETS, ids=str)
@pytest.mark.parametrize("spec", ["fedavg", "scaffold", "feddf", "fesem"])
def test_exact_threads_and_stops_change_nothing(spec, net):
    use = {"parts.model": {"use": net[0], **net[1]}, "protocol.rounds": 3}
    if spec == "scaffold" and net[0] == "torch-norm":
        use["protocol.control"] = "gradient"  # Adam's steps are of no one length
    whole = fl.run(QUICK / f"{spec}.yaml", use, threads=1, quiet=True)
    assert fl.run(QUICK / f"{spec}.yaml", use, threads=4, quiet=True).digest == whole.digest
    fl.run(QUICK / f"{spec}.yaml", use, threads=2, stop_after=2, out="here", quiet=True)
    assert fl.run(resume="here", quiet=True).digest == whole.digest


def test_exact_fedproto_pulls_features_of_a_network():
    import fedproto  # noqa: F401

    spec = PORTS / "fedproto.yaml"
    use = {"parts.model": {"use": "torch-small"}, "protocol.rounds": 3}
    digests = fl.testing.ways(fl.check(spec, use))
    assert len(set(digests.values())) == 1, digests
    assert fl.run(spec, use | {"protocol.pull": 0}, quiet=True).digest not in digests.values()
    with pytest.raises(fl.SpecError, match="no layers before the last one that a loss on features could train"):
        fl.check(spec, {"parts.model": {"use": "torch-logistic"}})


def test_networks_of_others_teach_and_learn_in_one_run():
    spec = fl.check(QUICK / "fedkd.yaml")
    linked = spec["parts"]["teacher"][-1]
    spec["parts"]["teacher"] = [{"clients": "0-1", "use": "torch-small"}, {k: v for k, v in linked.items() if k != "clients"}]
    assert fl.run(spec, quiet=True).metrics["accuracy"] > 0.5
    spec["parts"]["student"] = {"use": "torch-small"}
    assert fl.run(spec, quiet=True).metrics["accuracy"] > 0.5


def test_a_generator_learns_by_the_slopes_of_a_network():
    spec = fl.check(QUICK / "fediod.yaml")
    spec["parts"]["teacher"] = {"use": "torch-small"}
    assert fl.run(spec, quiet=True).metrics


def test_pytorch_is_left_as_it_was():
    before = torch.get_num_threads(), torch.get_rng_state(), torch.are_deterministic_algorithms_enabled()
    fl.run(QUICK / "fedavg.yaml", {"parts.model": {"use": "torch-small", "dropout": 0.3}}, quiet=True)
    after = torch.get_num_threads(), torch.get_rng_state(), torch.are_deterministic_algorithms_enabled()
    assert before[0] == after[0] and torch.equal(before[1], after[1]) and before[2] == after[2]


def test_exact_a_default_type_of_the_session_changes_nothing():
    use = {"parts.model": {"use": "torch-norm"}}
    due = fl.run(QUICK / "fedavg.yaml", use, quiet=True).digest
    torch.set_default_dtype(torch.float64)
    try:
        assert fl.run(QUICK / "fedavg.yaml", use, quiet=True).digest == due
        stopped = fl.run(QUICK / "fedavg.yaml", use, quiet=True, stop_after=2)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert fl.run(resume=stopped.folder, quiet=True).digest == due


def test_close_a_loss_that_counts_its_calls_learns_as_in_plain_pytorch():
    def warm(self, scores, target):
        self.calls = getattr(self, "calls", 0) + 1
        return nn.functional.cross_entropy(scores, target) * min(1, self.calls / 6)

    def zeros():
        net = nn.Linear(6, 2)
        [nn.init.zeros_(p) for p in net.parameters()]
        return net

    @fl.trainer("torch-warms-up")
    class _WarmsUp(fl.torch.Trainer):
        """A loss that warms up over the first six steps."""

        lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.5

        def net(self):
            return zeros()

        def loss(self, scores, target, how):
            return warm(self, scores, target)

    x = np.random.default_rng(0).normal(size=(40, 6)).astype("float32")
    y = (x[:, 0] > 0).astype(int)
    spec = {"name": "warm", "protocol": {"use": "fedavg", "rounds": 3, "local": {"epochs": 2, "batch": 64}}}
    spec["parts"] = {"model": {"use": "torch-warms-up"}, "aggregator": {"use": "mean"}}
    made = fl.run(spec, data={"train": [(x, y)], "test": (x, y)}, quiet=True).model().arrays()["weight"]
    net, plain = zeros(), type("Plain", (), {})()
    steps = torch.optim.SGD(net.parameters(), 0.5)
    for _ in range(6):
        steps.zero_grad()
        warm(plain, net(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        steps.step()
    np.testing.assert_allclose(made, net.weight.detach().numpy(), atol=1e-5)


def test_exact_runs_beside_each_other_draw_what_they_draw_alone():
    use = {"parts.model": {"use": "torch-small", "dropout": 0.3}}
    alone = fl.run(QUICK / "fedavg.yaml", use, quiet=True).digest
    found = []
    threads = [threading.Thread(target=lambda: found.append(fl.run(QUICK / "fedavg.yaml", use, quiet=True).digest)) for _ in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert found == [alone] * 3


def test_a_network_that_does_not_fit_is_found_before_the_run():
    with pytest.raises(fl.SpecError, match=r"net\(\) gives scores of shape \[2, 5\] for 2 samples, and the task needs \[2, 4\]"):
        fl.check(QUICK / "fedavg.yaml", {"parts.model": {"use": "torch-odd"}})


def test_parameters_go_out_by_the_names_of_the_network():
    results = fl.run(QUICK / "fedavg.yaml", {"parts.model": {"use": "torch-norm"}}, quiet=True)
    held = results.model().arrays()
    assert {"1.weight", "2.running_var", "2.num_batches_tracked", "4.bias"} <= set(held)
    assert all(np.isfinite(value).all() for value in held.values())


@fl.aggregator("watches-buffers", takes="params", gives="params")
class WatchesBuffers:
    """Momentum at the server, which leaves buffers alone."""

    needs = ("samples", "sent")

    def aggregate(self, round, inbox):
        assert round.buffers == {"2.running_mean", "2.running_var"}, round.buffers
        for name, due in getattr(self, "due", {}).items():
            np.testing.assert_allclose(round.sent[name], due, rtol=1e-5, atol=1e-6)
        mean = dict(inbox.mean(inbox.weights))
        self.due = {name: mean[name] for name in round.buffers}
        return {name: value if name in round.buffers else 3 * value - 2 * round.sent[name] for name, value in mean.items()}


@pytest.mark.parametrize("use", ["fed-avg-m", "fed-adam", "watches-buffers"])
def test_close_running_statistics_are_averaged_and_never_stepped(use):
    results = fl.run(QUICK / "fedavg.yaml", {"parts.model": {"use": "torch-norm"}, "parts.aggregator": {"use": use}}, quiet=True)
    held = results.model().arrays()
    assert (held["2.running_var"] >= 0).all() and all(np.isfinite(value).all() for value in held.values())
    # whole numbers are no parameters: each model counts its own batches
    assert held["2.num_batches_tracked"] == 0


def test_a_protocol_knows_the_buffers_of_a_model():
    (trainer,) = nets(1, of=Norm)
    assert trainer.buffers == {"2.running_mean", "2.running_var"}
    params = {name: np.full_like(value, -1) for name, value in trainer.params().items()}
    trainer.set_params(params)
    now = trainer.params()
    assert (now.pop("2.running_var") == 0).all() and all((value == -1).all() for value in now.values())


def nets(count, device="cpu", of=None, **more):
    """Trainers as the program makes them."""
    from fl._parts import calls

    index = next(at for at, cls in enumerate(calls.CLASSES) if cls is (of or Adaptive))
    task = '{"input": [6], "kind": {"Classes": 3}}'
    settings = json.dumps({"lr": 0.01, "momentum": 0.0, "weight-decay": 0.0, "device": device} | more)
    return [calls.create(index, settings, task, bytes([k] * 32)) for k in range(count)]


@fl.trainer("torch-adaptive")
class Adaptive(fl.torch.Trainer):
    """Adam, whose state moves with the network."""

    def net(self):
        return nn.Sequential(nn.Linear(self.task.input[0], 8), nn.Tanh(), nn.Linear(8, self.task.outputs))

    def optimiser(self, parameters):
        return torch.optim.Adam(parameters, self.lr)


def fitted(net, seed=0, rounds=2, rows=40, **more):
    from fl._parts.arguments import Pass, Stream

    draws = np.random.default_rng(seed)
    x, y = draws.normal(size=(rows, 6)).astype("float32"), draws.integers(3, size=rows).astype("uint32")
    how = Pass(**{"target": "classes", "loss": "cross-entropy", "batch": 8, "epochs": 1, "steps": None, "fresh": False} | more)
    for k in range(rounds):
        net.fit(x, y, how, Stream(bytes([seed, k] + [0] * 30)))
    return x


def test_no_more_networks_than_its_share_are_on_a_card(monkeypatch):
    cards, moved = fl._torch.devices._Cards(), []
    monkeypatch.setattr(fl.torch, "_CARDS", cards)
    monkeypatch.setattr(Adaptive, "_move", lambda net, device: moved.append((all.index(net), device)))
    all = nets(4)
    before = all[0]._bytes()
    [fitted(net) for net in all]
    size = all[0]._bytes()
    assert size > 1.5 * before  # with Adam's two moments
    monkeypatch.setattr(cards, "limit", lambda device, share: 2.5 * size)
    moved.clear()
    for at in (0, 1, 0, 2, 3):
        fitted(all[at], rounds=1)
    # where it trains is the processor too, so whoever goes there and is not used then has left
    held = lambda: [all.index(ref()) for ref in cards.held["cpu"].values()]  # noqa: E731
    assert held() == [2, 3] and [at for at, _ in moved] == [0, 1, 0, 1, 2, 0, 3]
    with cards.use(all[2]), cards.use(all[3]), cards.use(all[0]), cards.use(all[1]):
        assert held() == [2, 3, 0, 1]  # nobody who is at work leaves
    assert not cards.users


def test_other_generators_are_left_alone():
    from fl._parts.arguments import Stream

    before, seeded = torch.get_rng_state(), []
    lazily = torch.cuda._lazy_call
    # what `torch.manual_seed` asks of cards
    torch.cuda._lazy_call = lambda *given, **more: seeded.append(given)
    try:
        with fl.torch._drawing(Stream(bytes(32)).seed):
            drawn = torch.rand(3)
        with fl.torch._drawing(Stream(bytes(32)).seed):
            assert torch.equal(drawn, torch.rand(3))
    finally:
        torch.cuda._lazy_call = lazily
    assert not seeded and torch.equal(before, torch.get_rng_state())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch has no card here")
def test_a_card_trains_as_the_processor_does(monkeypatch):
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") in (None, ":4096:8", ":16:8")
    before = torch.cuda.get_rng_state()
    here, there = nets(3), nets(3, "cuda")
    # a bound that has room for one with its optimiser: the others wait in the processor's memory
    monkeypatch.setattr(fl.torch._CARDS, "limit", lambda device, share: here[0]._bytes() * 1.5 if device == "cuda" else None)
    for _ in range(2):
        for seed, (one, other) in enumerate(zip(here, there)):
            x = fitted(one, seed)
            fitted(other, seed)
            np.testing.assert_allclose(other.predict(x), one.predict(x), rtol=1e-3, atol=1e-4)
    assert sum(next(net._model.parameters()).is_cuda for net in there) == 1
    assert torch.equal(before, torch.cuda.get_rng_state())
    digests = {fl.run(QUICK / "fedavg.yaml", {"parts.model": {"use": "torch-small", "dropout": 0.3, "device": "cuda"}}, quiet=True).digest for _ in range(2)}
    assert len(digests) == 1 and not torch.backends.cuda.matmul.allow_tf32
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] in (":4096:8", ":16:8")


@fl.trainer("torch-together")
class Together(Adaptive):
    """The same, with nine others."""

    together = 10


@fl.trainer("torch-looks")
class Looks(Together):
    """Looks at a number, which `vmap` does not know."""

    class Net(nn.Linear):
        def forward(self, x):
            return super().forward(x * (2 if x.sum().item() > 0 else 1))

    def net(self):
        return self.Net(self.task.input[0], self.task.outputs)


@fl.trainer("torch-looks-alone")
class LooksAlone(Looks):
    """The same, one by one."""

    together = 1


def all_fitted(all, **more):
    """Trains networks at the same time, on rows of different numbers; gives what went wrong with
    each."""
    wrong, ready = [None] * len(all), threading.Barrier(len(all))

    def one(k):
        ready.wait()
        try:
            fitted(all[k], k, rows=20 + 7 * k, **more)
        except Exception as error:
            wrong[k] = error

    threads = [threading.Thread(target=one, args=(k,)) for k in range(len(all))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return wrong


@pytest.mark.parametrize("more", [{}, {"clip": 0.1, "batch": 16}, {"fresh": True, "epochs": 2}], ids=str)
def test_equal_networks_train_together_as_one_by_one(monkeypatch, more):
    alone, beside = nets(10), nets(10, of=Together)
    for k, net in enumerate(alone):
        fitted(net, k, rows=20 + 7 * k, **more)
    groups, slopes = [], fl.torch._TOGETHER.slopes
    monkeypatch.setattr(fl.torch._TOGETHER, "slopes", lambda group: groups.append(len(group)) or slopes(group))
    # nobody begins before all ten are there
    monkeypatch.setattr(fl.torch._TOGETHER, "PAUSE", 600)
    assert all_fitted(beside, **more) == [None] * 10
    assert max(groups) == 10 and not fl.torch._TOGETHER.tables
    for one, other in zip(alone, beside):
        for name, value in one.params().items():
            np.testing.assert_allclose(other.params()[name], value, rtol=1e-4, atol=1e-6)


def test_one_that_fails_beside_others_fails_alone(monkeypatch):
    monkeypatch.setattr(fl.torch._TOGETHER, "PAUSE", 600)
    all = nets(10, of=Together)
    all[3].set_params({name: np.full_like(value, np.nan) for name, value in all[3].params().items()})
    # in a second round only nine would come, and wait for a tenth
    wrong = all_fitted(all, rounds=1)
    assert isinstance(wrong[3], FloatingPointError) and sum(one is not None for one in wrong) == 1


def test_exact_a_network_that_vmap_does_not_know_trains_alone():
    from fl._parts import calls

    for cls in (Looks, LooksAlone):
        assert cls in calls.CLASSES
    alone, beside = nets(4, of=LooksAlone), nets(4, of=Looks)
    for k, net in enumerate(alone):
        fitted(net, k, rows=20 + 7 * k)
    with pytest.warns(UserWarning, match="Looks trains one client at a time, for `torch.func.vmap` says"):
        assert all_fitted(beside) == [None] * 4
    for one, other in zip(alone, beside):
        assert all(np.array_equal(other.params()[name], value) for name, value in one.params().items())
    fl.torch._TOGETHER.alone.clear()


class Writes(nn.Module):
    """Its forward() writes while it trains: `in-place`, to another `tensor`, a `norm` of PyTorch, a
    plain `number`, or only in `later` steps."""

    def __init__(self, how, of, outputs):
        super().__init__()
        self.how, self.steps, self.last = how, 0, nn.Linear(of, outputs)
        self.register_buffer("mean", torch.zeros(of))
        self.norm = nn.InstanceNorm1d(1, track_running_stats=True) if how == "norm" else None

    def forward(self, x):
        if self.norm is not None:
            return self.last(self.norm(x[:, None])[:, 0])
        if self.training:
            at = x.detach().mean(0)
            if self.how == "tensor":
                self.mean = 0.9 * self.mean + 0.1 * at
            elif self.how == "number":
                self.steps += 1
            elif self.how == "in-place" or torch.is_grad_enabled():
                self.mean.mul_(0.9).add_(0.1 * at)
        return self.last(x - self.mean) / (1 + 0.2 * self.steps)


@fl.trainer("torch-writes")
class WritesOneByOne(fl.torch.Trainer):
    """Keeps a running mean."""

    how: Annotated[str, "How it writes."] = "tensor"

    def net(self):
        return Writes(self.how, self.task.input[0], self.task.outputs)


@fl.trainer("torch-writes-together")
class WritesTogether(WritesOneByOne):
    """The same, together."""

    together = 4


@pytest.mark.parametrize("how", ["in-place", "tensor", "norm", "number"])
def test_exact_networks_that_write_while_they_train_train_alone(how):
    alone, beside = nets(4, of=WritesOneByOne, how=how), nets(4, of=WritesTogether, how=how)
    for k, net in enumerate(alone):
        fitted(net, k, rows=20 + 7 * k)
    assert all_fitted(beside) == [None] * 4
    for one, other in zip(alone, beside):
        assert all(np.array_equal(other.params()[name], value) for name, value in one.params().items())
        assert one._model.steps == other._model.steps


def test_exact_a_network_whose_later_steps_write_says_that_it_trains_alone():
    alone, beside = nets(4, of=WritesOneByOne, how="later"), nets(4, of=WritesTogether, how="later")
    for k, net in enumerate(alone):
        fitted(net, k, rows=20 + 7 * k)
    with pytest.warns(UserWarning, match=r"WritesTogether trains one client at a time, for its forward\(\) wrote into a buffer"):
        assert all_fitted(beside) == [None] * 4
    for one, other in zip(alone, beside):
        assert all(np.array_equal(other.params()[name], value) for name, value in one.params().items())
    fl.torch._TOGETHER.alone.clear()


def test_a_run_with_networks_together_is_near_the_one_without():
    use = lambda of: {"parts.model": {"use": of}, "protocol.rounds": 3}  # noqa: E731
    one, other = (fl.run(QUICK / "fedavg.yaml", use(of), threads=4, quiet=True) for of in ("torch-adaptive-flat", "torch-together-flat"))
    for name, value in one.model().arrays().items():
        np.testing.assert_allclose(other.model().arrays()[name], value, rtol=1e-3, atol=1e-5)


@fl.trainer("torch-adaptive-flat")
class Flat(Adaptive):
    """For inputs of any shape."""

    def net(self):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.Tanh(), nn.Linear(8, self.task.outputs))


@fl.trainer("torch-together-flat")
class TogetherFlat(Flat):
    """The same, together."""

    together = 4


class OnCard(fl.torch.Trainer):
    """As if the processor were a card; its network writes into its inputs."""

    lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.1

    def net(self):
        return nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.LazyLinear(self.task.outputs))

    def _copied(self, x):
        COPIED[threading.get_ident()] += 1
        return super()._copied(x)


COPIED = Counter()


@pytest.mark.parametrize("room, copies", [(1e9, "few"), (30_000, "some"), (0, "all")])
def test_exact_samples_stay_on_a_card_while_there_is_room(monkeypatch, room, copies):
    @fl.trainer(f"on-card-{copies}")
    class Net(OnCard):
        """As if on a card."""

    cards = fl._torch.devices._Cards()
    monkeypatch.setattr(fl.torch, "_CARDS", cards)
    seen = {}
    for limit in (None, None, room):  # the first run tries the network on copies
        monkeypatch.setattr(cards, "limit", lambda *_, limit=limit: limit)
        COPIED.clear()
        results = fl.run(QUICK / "fedavg.yaml", {"parts.model": {"use": f"on-card-{copies}"}, "protocol.rounds": 5}, threads=1, quiet=True)
        seen[limit] = results.digest, sum(COPIED.values())
        assert all(sum(t.numel() * t.element_size() for t in held.values()) <= room for held in cards.samples.values())
    assert seen[None][0] == seen[room][0]
    least, most = {"few": (0.0, 0.5), "some": (0.2, 1.0), "all": (1.0, 1.0)}[copies]
    assert least * seen[None][1] <= seen[room][1] <= most * seen[None][1], seen
    gc.collect()
    assert not any(cards.samples.values())  # the run is over


# ---- networks whose layers share a tensor


class Shared(nn.Module):
    """Two layers share a weight and a buffer."""

    def __init__(self, width, outputs):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, outputs)
        self.b.weight = self.a.weight
        for layer in (self.a, self.b):
            layer.register_buffer("scale", torch.ones(1) if layer is self.a else self.a.scale)

    def forward(self, x):
        return self.out(torch.tanh(self.b(torch.tanh(self.a(x.flatten(1)) * self.a.scale)) * self.b.scale))


@fl.trainer("torch-shared")
class SharedNet(fl.torch.Trainer):
    """Adam learns them."""

    def net(self):
        return Shared(self.task.input[0], self.task.outputs)

    def optimiser(self, parameters):
        return torch.optim.Adam(parameters, self.lr)


SHARED = {"a.weight", "a.bias", "a.scale", "b.bias", "out.weight", "out.bias"}


def test_exact_a_shared_tensor_has_one_name_and_learns_as_in_pytorch():
    from fl._parts.arguments import Pass

    part = nets(1, of=SharedNet)[0]
    x = fitted(part)
    y = np.zeros(len(x), "uint32")
    slopes = part.gradient(x, y, Pass("classes", "cross-entropy"))
    assert set(part.params()) == set(slopes) == SHARED
    loss = nn.functional.cross_entropy(part._model.eval()(torch.from_numpy(x)), torch.zeros(len(x), dtype=torch.int64))
    (wanted,) = torch.autograd.grad(loss, [part._model.a.weight])
    assert np.array_equal(slopes["a.weight"], wanted.numpy()) and np.abs(wanted.numpy()).max() > 0
    moved = {name: value - slopes[name] for name, value in part.params().items()}
    part.set_params(moved)
    assert all(np.array_equal(value, moved[name]) for name, value in part.params().items())
    assert part._model.b.weight is part._model.a.weight


def test_exact_a_shared_tensor_is_read_by_any_of_its_names():
    from fl._data import tensors as _tensors

    one, *others = nets(5, of=SharedNet)
    x = fitted(one)
    held = _tensors.unpack_tensors(one.save())
    assert set(held) == SHARED
    files = [held, held | {"b.weight": held["a.weight"]}, {("b.weight" if name == "a.weight" else name): value for name, value in held.items()}]
    for part, file in zip(others, files):
        part.load(_tensors.pack(file))
        assert np.array_equal(part.predict(x), one.predict(x))
    with pytest.raises(fl.Shape, match="`b.weight` and `a.weight` are one tensor of this network, and here they differ"):
        others[3].load(_tensors.pack(held | {"b.weight": held["a.weight"] + 1}))
    others[3].load_state(one.save_state())
    fitted(one, seed=3), fitted(others[3], seed=3)
    assert np.array_equal(others[3].predict(x), one.predict(x))


def test_a_shared_tensor_travels_once_and_goes_into_a_network_whole(monkeypatch):
    cls = fl.trainer("torch-shared-flat")(type("SharedFlat", (SharedNet,), {"net": lambda self: Shared(int(np.prod(self.task.input)), self.task.outputs), "__doc__": "For inputs of any shape."}))
    results = fl.run(QUICK / "fedavg.yaml", {"parts.model": {"use": "torch-shared-flat"}}, quiet=True)
    assert set(results.model().arrays()) == SHARED
    network = cls.net(results.model().part())
    network.load_state_dict(results.model().state_dict())
    splits = type("Splits", (cls,), {"travels": lambda self, name: not name.startswith("b"), "__doc__": "Splits them."})
    fl.trainer("torch-shared-splits")(splits)
    with pytest.raises(fl.SpecError, match=r"`b.weight` and `a.weight` are one tensor of the network, and travels\(\) of Splits lets one of them travel"):
        fl.check(QUICK / "fedavg.yaml", {"parts.model": {"use": "torch-shared-splits"}})


# ---- numbers that cannot travel


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "float8_e4m3fn", "quint8"])
@pytest.mark.parametrize("where", ["parameter", "buffer"])
def test_numbers_that_cannot_travel_are_refused_before_anything_runs(dtype, where):
    if dtype == "quint8":
        value = torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.quint8)
    else:
        value = torch.zeros(3).to(getattr(torch, dtype))
    if where == "parameter" and dtype == "quint8":
        pytest.skip("PyTorch has no such parameters")

    class Net(nn.Module):
        def __init__(self, width, outputs):
            super().__init__()
            self.out, self.odd = nn.Linear(width, outputs), nn.Module()
            if where == "parameter":
                self.odd.w = nn.Parameter(value, dtype.startswith("complex"))
            else:
                self.odd.register_buffer("w", value)

        def forward(self, x):
            return self.out(x.flatten(1))

    name = f"torch-{dtype.replace('_', '-')}-{where}"
    fl.trainer(name)(type("Odd", (fl.torch.Trainer,), {"net": lambda self: Net(int(np.prod(self.task.input)), self.task.outputs), "__doc__": "Odd numbers."}))
    with pytest.raises(fl.SpecError, match=rf"net\(\) of Odd has `odd.w` of {dtype}, which can be neither sent nor kept"):
        fl.check(QUICK / "fedavg.yaml", {"parts.model": {"use": name}})


# ---- gradients of single examples


@fl.trainer("torch-of-examples")
class OfExamples(fl.torch.Trainer):
    """A linear model, with a layer of normalisation whose statistics stay as they are."""

    def net(self):
        return nn.Sequential(nn.Flatten(), nn.LazyBatchNorm1d(), nn.LazyLinear(self.task.outputs))


def test_exact_sums_of_clipped_gradients_are_those_of_single_examples():
    from fl._parts.arguments import Pass

    part = nets(1)[0]
    draws, how = np.random.default_rng(1), Pass("classes", "cross-entropy")
    x, y = draws.normal(size=(9, 6)).astype("float32"), draws.integers(3, size=9).astype("uint32")
    x[4] *= 100
    each = [part.gradient(x[at : at + 1], y[at : at + 1], how) for at in range(9)]
    norms = [np.sqrt(sum(np.square(g, dtype=float).sum() for g in one.values())) for one in each]
    clip = float(np.median(norms))
    sums = part.clipped_gradients(x, y, how, clip)
    for name, value in sums.items():
        wanted = sum(one[name].astype(float) * min(1, clip / norm) for one, norm in zip(each, norms))
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-6)
    # one more example moves the sum by no more than the bound, and one that is not finite by
    # nothing
    fewer = part.clipped_gradients(x[1:], y[1:], how, clip)
    assert np.sqrt(sum(np.square(sums[n].astype(float) - fewer[n]).sum() for n in sums)) <= clip
    x[0] = np.inf
    assert all(np.array_equal(value, fewer[name]) for name, value in part.clipped_gradients(x, y, how, clip).items())


@fl.trainer("torch-convolutions-of-examples")
class Convolutions(fl.torch.Trainer):
    """Two convolutions and a dropout, which DP-SGD leaves out."""

    def net(self):
        layers = nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Conv1d(4, 4, 2), nn.Flatten(), nn.Dropout(), nn.LazyLinear(self.task.outputs)
        return nn.Sequential(*layers)


@fl.trainer("torch-branches-of-examples")
class Branches(Convolutions):
    """Looks at a number in its forward pass, which `torch.func.vmap` cannot."""

    def net(self):
        class Branch(nn.Module):
            def forward(self, x):
                return x * 2 if x.sum() > 0 else x

        return nn.Sequential(Branch(), super().net())


def test_exact_single_gradients_do_not_depend_on_their_company():
    from fl._parts.arguments import Pass
    from fl._torch import single_slopes

    draws, how = np.random.default_rng(1), Pass("classes", "cross-entropy")
    x, y = draws.normal(size=(40, 6)).astype("float32"), draws.integers(3, size=40).astype("uint32")
    single_slopes._ALIKE.clear()
    for use, together in ((Convolutions, True), (Branches, False)):
        part = nets(1, of=use)[0]
        find = lambda x, y, part=part: [  # noqa: E731
            {name: slope.detach().numpy() for name, slope in one.items()}
            for one in single_slopes._single_slopes(part._model.eval() and part, torch.from_numpy(x), torch.from_numpy(y.astype("int64")), how)
        ]
        all = find(x, y)
        assert list(single_slopes._ALIKE.values())[-1] is together
        for at in range(40):
            [alone] = find(x[at : at + 1], y[at : at + 1])
            assert all[at].keys() == alone.keys() and [np.array_equal(all[at][name], value) for name, value in alone.items()] == [True] * len(alone)
            plain = part.gradient(x[at : at + 1], y[at : at + 1], how)
            for name, value in plain.items():
                np.testing.assert_allclose(alone[name], value, rtol=1e-4, atol=1e-6)


def test_exact_dp_sgd_trains_a_network_in_every_way_at_the_price_of_a_linked_one():
    use = {"parts.model": {"use": "torch-of-examples", "lr": 0.5}}
    linked = fl.run(QUICK / "dp-sgd.yaml", quiet=True)
    whole = fl.run(QUICK / "dp-sgd.yaml", use, quiet=True)
    assert whole.epsilon == linked.epsilon and whole.metrics["accuracy"] > linked.metrics["accuracy"] - 0.1
    assert fl.run(QUICK / "dp-sgd.yaml", use, quiet=True, wire=True, threads=1).digest == whole.digest
    stopped = fl.run(QUICK / "dp-sgd.yaml", use, quiet=True, stop_after=2)
    assert fl.run(resume=stopped.folder, quiet=True).digest == whole.digest
    # statistics of a batch would tell of single examples
    assert np.array_equal(whole.model().arrays()["1.running_mean"], np.zeros(whole.model().arrays()["1.running_mean"].shape))
