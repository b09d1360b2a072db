"""Numbers to predict, with trainers that are written in Python."""

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
            self.w = (self.w - self.lr * rows.T @ slope / slope.size).astype(np.float32)
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
    # errors are in the number's own unit
    scores = own.model("model").predict(TEST[0])[:, 0]
    found = np.sqrt(np.mean((scores * SCALE["spread"] + SCALE["centre"] - TEST[1]) ** 2))
    assert own.metrics["rmse"] == pytest.approx(found, rel=1e-5)


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


def test_what_it_does_not_learn_is_refused():
    with pytest.raises(fl.SpecError, match="it learns a number, and the task is another"):
        fl.run(QUICK / "fedavg.yaml", {"parts.model": {"use": "py-line"}}, quiet=True)
    with pytest.raises(fl.SpecError, match="it cannot minimise the loss of the labels, huber from 1, .* name this loss in what it `learns`"):
        run("py-line", "fedavg", loss={"huber": 1.0}, rounds=1, local={"epochs": 1})
    for settings in ({"mu": 0.1}, {"mu": 0.0, "local": {"epochs": 1, "clip": 1.0}}):
        with pytest.raises(fl.SpecError, match="no proximal term, no offset and no clipping, which protocol `fedprox` needs"):
            run("py-line", "fedprox", **{"rounds": 2, "local": {"epochs": 1}, **settings})
