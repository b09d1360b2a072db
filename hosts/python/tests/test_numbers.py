"""Numbers to predict, with trainers that are written in Python."""

import copy
from typing import Annotated

import fl
import fl.testing
import numpy as np
import pytest
from conftest import QUICK

LOSSES = {
    "mse": lambda off: (off**2, 2 * off),
    "mae": lambda off: (np.abs(off), np.sign(off)),
}


@fl.trainer("py-line")
class Line:
    """A linear model of one number, from 0, in full batches."""

    lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.2
    learns = ("mse", "mae")
    scales_rate = True

    def setup(self, stream):
        if not self.task.numbers:
            raise fl.Lacks("it learns a number, and the task is another: give the label `kind: number`")
        self.w = np.zeros((int(np.prod(self.task.input)) + 1, self.task.outputs), np.float32)

    def fit(self, x, target, how, stream):
        if how.target != "scores" or how.loss not in self.learns:
            raise fl.Lacks("it learns numbers by squared or absolute error")
        rows, steps, loss = self._rows(x).astype(float), how.epochs if how.steps is None else how.steps, 0.0
        for _ in range(steps if len(x) else 0):
            loss, slope = LOSSES[how.loss](rows @ self.w - target)
            self.w = (self.w - self.lr * how.rate * rows.T @ slope / slope.size).astype(np.float32)
        return (steps if len(x) else 0), float(np.mean(loss))

    def predict(self, x):
        return np.einsum("ij,jk->ik", self._rows(x), self.w)

    def _rows(self, x):
        if tuple(x.shape[1:]) != self.task.input:
            raise fl.Shape(f"samples of shape {list(x.shape[1:])}; the task has {list(self.task.input)}")
        return np.concatenate([np.array(x).reshape(len(x), -1), np.ones((len(x), 1), np.float32)], axis=1)

    def params(self):
        return {"w": self.w}

    def set_params(self, params):
        self.w = params["w"].copy()

    def save(self):
        return self.w.tobytes()

    def load(self, state):
        self.w = np.frombuffer(state, np.float32).reshape(self.w.shape).copy()


def rows(n, seed):
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(n, 3)).astype(np.float32)
    return x, 30 + 4 * x @ [1.0, -2.0, 0.5] + draws.normal(size=n)


SCALE = {"centre": 30.0, "spread": 10.0}
TEST = rows(60, 9)


def run(model, protocol, parts=None, loss="mse", public=None, **settings):
    spec = {
        "name": "numbers",
        "seed": 1,
        "protocol": {"use": protocol, **settings},
        "parts": {name: {"use": model, "lr": 0.2} if use is None else use for name, use in (parts or {"model": None, "aggregator": {"use": "mean"}}).items()},
    }
    data = {"train": {f"client {k}": rows(20 + 10 * k, k) for k in range(3)}, "test": TEST, "label": {"kind": {"number": {**SCALE, "loss": loss}}}}
    return fl.run(spec, data=data | ({} if public is None else {"public": public}), quiet=True)


@pytest.mark.parametrize("loss", LOSSES)
def test_close_a_trainer_in_python_learns_a_number_as_the_linked_one(loss):
    own, linked = (run(model, "fedavg", loss=loss, rounds=6, local={"epochs": 3, "batch": 100}) for model in ("py-line", "linear"))
    assert set(linked.metrics) == set(own.metrics) >= {"rmse", "mae", "r2"}
    for name, value in linked.metrics.items():
        assert own.metrics[name] == pytest.approx(value, rel=1e-5), name
    # errors and what a kept model says are in the number's own unit
    said = own.model("model").predict(TEST[0])
    assert said.shape == (60, 1) and said.dtype == np.float64
    found = np.sqrt(np.mean((said[:, 0] - TEST[1]) ** 2))
    assert own.metrics["rmse"] == pytest.approx(found, rel=1e-5)


def test_close_a_kept_model_says_numbers_in_a_unit_that_fl_found_and_of_frames():
    pandas = pytest.importorskip("pandas")
    spec = {"name": "n", "protocol": {"use": "fedavg", "rounds": 3, "local": {"epochs": 3, "batch": 100}}, "parts": {"model": {"use": "linear", "lr": 0.2}, "aggregator": {"use": "mean"}}}
    frames = [pandas.DataFrame(x).rename(columns=str).assign(price=1000 * y + 5e6) for x, y in (rows(40, 1), rows(40, 2), TEST)]
    results = fl.run(spec, data={"train": frames[:2], "test": frames[2], "label": {"column": "price", "kind": "number"}}, quiet=True)
    for given in (frames[2], frames[2].drop(columns="price"), frames[2].assign(price=None)):
        off = results.model().predict(given)[:, 0] - frames[2]["price"]
        assert results.metrics["rmse"] == pytest.approx(np.sqrt(np.mean(off**2)), rel=1e-4)


def test_close_many_rounds_of_it_are_least_squares():
    found = run("py-line", "fedavg", rounds=100, local={"epochs": 1, "batch": 100}).metrics["rmse"]
    clients = [rows(20 + 10 * k, k) for k in range(3)]
    x, y = (np.concatenate(one) for one in zip(*clients, strict=True))
    with_one = [np.concatenate([one, np.ones((len(one), 1))], axis=1) for one in (x, TEST[0])]
    w = np.linalg.lstsq(with_one[0], y, rcond=None)[0]
    assert found == pytest.approx(np.sqrt(np.mean((with_one[1] @ w - TEST[1]) ** 2)), rel=1e-4)


def test_exact_it_is_the_same_in_every_way_of_running():
    spec = fl.check(QUICK / "regression.yaml", {"parts.model": {"use": "py-line", "lr": 0.1}, "protocol.rounds": 3})
    assert len(set(fl.testing.ways(spec).values())) == 1


def test_its_outputs_teach_a_student():
    parts = {"teacher": None, "student": {"use": "linear", "lr": 0.2}, "ensemble": {"use": "mean-logits"}}
    length = {"epochs": 100, "batch": 100}
    found = run("py-line", "fedkd", parts, public=rows(50, 5)[0], local=length, student=length, loss="mse")
    assert found.metrics["r2"] > 0.9


def in_pytorch(net, rounds, rate=lambda round: 1.0):
    """FedAvg of this network of plain PyTorch, three steps of full batches a round; the error in
    the number's unit."""
    torch = pytest.importorskip("torch")
    clients = [[torch.tensor(one, dtype=torch.float32) for one in rows(20 + 10 * k, k)] for k in range(3)]
    for round in range(1, rounds + 1):
        sent = []
        for x, y in clients:
            own = copy.deepcopy(net)
            steps = torch.optim.SGD(own.parameters(), 0.2 * rate(round))
            for _ in range(3):
                steps.zero_grad()
                torch.nn.functional.mse_loss(own(x)[:, 0], (y - SCALE["centre"]) / SCALE["spread"]).backward()
                steps.step()
            sent.append((len(x), own.state_dict()))
        total = sum(n for n, _ in sent)
        net.load_state_dict({name: sum(n / total * one[name] for n, one in sent) for name in sent[0][1]})
    with torch.no_grad():
        found = net(torch.from_numpy(TEST[0])).numpy()[:, 0] * SCALE["spread"] + SCALE["centre"]
    return float(np.sqrt(np.mean((found - TEST[1]) ** 2)))


RATES = {"by-round": {"factor": 0.8, "steps": [{"from": 3, "factor": 0.5}]}}


def rate(round):
    """What `RATES` says, by hand."""
    return 0.8 ** (round - 1) * (0.5 if round >= 3 else 1)


def test_close_a_network_of_pytorch_learns_a_number_as_plain_pytorch_does():
    torch = pytest.importorskip("torch")
    import fl.torch

    def net():
        made = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        with torch.no_grad():
            for p in made.parameters():
                p.copy_(torch.linspace(-0.5, 0.5, p.numel()).reshape(p.shape))
        return made

    fl.trainer("torch-number")(type("Number", (fl.torch.Trainer,), {"__doc__": "A number.", "net": lambda self: net()}))
    length = {"epochs": 3, "batch": 100}
    plain = run("torch-number", "fedavg", rounds=6, local=length)
    assert plain.metrics["rmse"] == pytest.approx(in_pytorch(net(), 6), rel=1e-5)
    assert plain.model("model").predict(TEST[0]).shape == (60, 1)
    falling = run("torch-number", "fedavg", rounds=6, local={**length, "rate": RATES})
    assert falling.metrics["rmse"] == pytest.approx(in_pytorch(net(), 6, rate), rel=1e-5)
    assert falling.metrics["rmse"] != pytest.approx(plain.metrics["rmse"], rel=1e-3)


def test_close_a_rate_by_round_of_a_trainer_in_python_is_that_of_plain_pytorch():
    torch = pytest.importorskip("torch")
    line = torch.nn.Linear(3, 1)
    torch.nn.init.zeros_(line.weight), torch.nn.init.zeros_(line.bias)
    found = run("py-line", "fedavg", rounds=6, local={"epochs": 3, "batch": 100, "rate": RATES}).metrics["rmse"]
    assert found == pytest.approx(in_pytorch(line, 6, rate), rel=1e-5)


def test_what_it_does_not_learn_is_refused():
    with pytest.raises(fl.SpecError, match="it learns a number, and the task is another"):
        fl.run(QUICK / "fedavg.yaml", {"parts.model": {"use": "py-line"}}, quiet=True)
    with pytest.raises(fl.SpecError, match="it cannot minimise the loss of the labels, huber from 1, .* name this loss in what it `learns`"):
        run("py-line", "fedavg", loss={"huber": 1.0}, rounds=1, local={"epochs": 1})
    for settings in ({"mu": 0.1}, {"mu": 0.0, "local": {"epochs": 1, "clip": 1.0}}):
        with pytest.raises(fl.SpecError, match="no proximal term, no offset and no clipping, which protocol `fedprox` needs"):
            run("py-line", "fedprox", **{"rounds": 2, "local": {"epochs": 1}, **settings})
