"""A trainer whose parameters, moments and counters are arrays of JAX."""

from typing import Annotated

import fl
import fl.testing
import numpy as np
import pytest
from conftest import QUICK

jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.numpy as jnp  # noqa: E402


@fl.trainer("jax-logistic")
class Logistic:
    """Scores of a linear layer, by steps with momentum."""

    remembers = ("moments",)
    lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.1

    def setup(self, stream):
        self.weights = {"w": jnp.zeros((int(np.prod(self.task.input)), self.task.outputs)), "b": jnp.zeros(self.task.outputs)}
        self.moments = jax.tree.map(jnp.zeros_like, self.weights)
        self._slope = jax.jit(jax.value_and_grad(self.loss))

    def loss(self, weights, x, y):
        scores = jax.nn.log_softmax(x @ weights["w"] + weights["b"])
        return -scores[jnp.arange(len(y)), y].mean()

    def fit(self, x, target, how, stream):
        if how.target != "classes" or how.loss != "cross-entropy" or how.proximal or how.gradient_offset or how.clip:
            raise fl.Lacks("it learns classes by cross-entropy, without proximal term, offset or clipping")
        if how.fresh:
            self.moments = jax.tree.map(jnp.zeros_like, self.weights)
        losses = []
        for at in how.batches(len(x), stream):
            loss, slope = self._slope(self.weights, jnp.asarray(np.array(x[at]).reshape(len(at), -1)), jnp.asarray(np.array(target[at]).astype(np.int32)))
            self.moments = jax.tree.map(lambda m, s: 0.5 * m + s, self.moments, slope)
            self.weights = jax.tree.map(lambda w, m: w - self.lr * m, self.weights, self.moments)
            losses.append(float(loss))
        return len(losses), float(np.mean(losses)) if losses else 0.0

    def predict(self, x):
        return np.asarray(jnp.asarray(np.array(x).reshape(len(x), -1)) @ self.weights["w"] + self.weights["b"])

    def params(self):
        return self.weights

    def set_params(self, params):
        self.weights = {name: jnp.asarray(np.array(value)) for name, value in params.items()}

    def save(self):
        return b"".join(np.asarray(self.weights[name]).tobytes() for name in ("b", "w"))

    def load(self, state):
        numbers, outputs = np.frombuffer(state, np.float32), self.task.outputs
        self.weights = {"b": jnp.asarray(numbers[:outputs]), "w": jnp.asarray(numbers[outputs:].reshape(-1, outputs))}


def test_exact_arrays_of_jax_are_kept_in_every_way_of_running():
    spec = fl.check(QUICK / "fedavg.yaml", {"parts.model": {"use": "jax-logistic"}, "protocol.fresh": False, "protocol.rounds": 3})
    digests = fl.testing.ways(spec)
    assert len(set(digests.values())) == 1, digests
    results = fl.run(spec, quiet=True)
    assert results.digest in digests.values() and results.metrics["accuracy"] > 0.7
    anew = fl.run(spec, {"protocol.fresh": True}, quiet=True)
    assert fl.run(spec, {"protocol.fresh": True}, quiet=True, wire=True).digest == anew.digest != results.digest


def test_exact_an_exported_file_has_the_arrays():
    numbers = pytest.importorskip("safetensors.numpy")
    results = fl.run(QUICK / "fedavg.yaml", {"parts.model": {"use": "jax-logistic"}, "protocol.rounds": 1}, quiet=True)
    [file] = results.export("exported")
    held = numbers.load_file(file)
    assert held.keys() == {"w", "b"} and all(np.array_equal(value, results.model("model").arrays()[name]) for name, value in held.items())


def test_arrays_of_jax_are_written_down():
    from fl._parts import reachable, state

    held = {"a": jnp.arange(3, dtype=jnp.float32), "b": [jnp.ones((2, 2), jnp.bfloat16), jnp.array(3)], "c": jnp.zeros(0, bool)}
    back = state.load(state.save(held))
    assert reachable.same(held, back) and isinstance(back["b"][0], jax.Array) and back["b"][0].dtype == jnp.bfloat16
    assert not reachable.same(held["a"], held["a"] + 1)
    with pytest.raises(state.Unsavable):
        state.check(jax.random.key(1))
