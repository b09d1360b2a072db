"""Parts that keep something on themselves, one for each role, without PyTorch. `forgets` shows that
it matters."""

from collections import Counter
from typing import Annotated

import fl
import numpy as np


# ANCHOR: trainer
class Stateless:
    """A linear model with momentum, which also keeps the model of the previous request. No method
    saves its momentum."""

    lr: float = 0.05
    forgets: bool = False
    learns = ("cross-entropy",)
    remembers = ("previous", "seen", "_turns")

    def setup(self, stream):
        if self.task.multi_label:
            raise fl.Lacks("it learns one class for each sample")
        width = int(np.prod(self.task.input))
        self.w = stream.numpy().normal(0, 0.1, (width, self.task.outputs)).astype(np.float32)
        self._velocity = np.zeros_like(self.w)
        self.previous = None

    def fit(self, x, target, how, stream):
        if how.target != "classes" or how.loss != "cross-entropy" or how.proximal or how.gradient_offset or how.clip:
            raise fl.Lacks("it learns classes, by cross-entropy and nothing else")
        flat = self._rows(x)
        if target.size and target.max() >= self.task.outputs:
            raise fl.Shape(f"class {target.max()}, and there are {self.task.outputs}")
        if len(x) == 0 or how.epochs == 0 or how.steps == 0:
            return 0, 0.0
        if how.fresh:
            self._velocity = np.zeros_like(self.w)
        if self.forgets or not hasattr(self, "_turns"):
            self._turns, self.seen, self.previous = 0, Counter(), None
        losses = []
        for at in how.batches(len(x), stream):
            rows, wanted = flat[at], np.eye(self.task.outputs, dtype=np.float32)[target[at]]
            scores = rows @ self.w
            chances = np.exp(scores - scores.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            slope = rows.T @ (chances - wanted) / np.float32(len(at))
            if self.previous is not None:
                slope += np.float32(0.05) * (self.w - self.previous["w"])
            self._velocity = np.float32(0.5) * self._velocity + slope
            self.w = self.w - np.float32(self.lr / (1 + self._turns)) * self._velocity
            losses.append(float(-np.log(np.maximum(chances[wanted > 0], 1e-7)).mean()))
        self.previous, self._turns = {"w": self.w.copy()}, self._turns + 1
        self.seen.update(int(c) for c in target)
        return len(losses), float(np.mean(losses[-1:] or [0.0]))

    def predict(self, x):
        # not `@`, which adds in another order for other numbers of rows
        return np.einsum("ij,jk->ik", self._rows(x), self.w)

    def _rows(self, x):
        if tuple(x.shape[1:]) != self.task.input:
            raise fl.Shape(f"samples of shape {list(x.shape[1:])}, and the task has {list(self.task.input)}")
        return np.array(x).reshape(len(x), self.w.shape[0])

    def params(self):
        return {"w": self.w}

    def set_params(self, params):
        if set(params) != {"w"} or params["w"].shape != self.w.shape:
            raise fl.Shape(f"parameters {params}, and it has `w` {list(self.w.shape)}")
        self.w = params["w"].copy()

    def save(self):
        return self.w.tobytes()

    def load(self, state):
        self.w = np.frombuffer(state, np.float32).reshape(self.w.shape).copy()


# ANCHOR_END: trainer
@fl.trainer("state-trainer")
class Trainer(Stateless):
    """Its optimiser is saved too."""

    def save_state(self):
        return self.w.tobytes() + self._velocity.tobytes()

    def load_state(self, state):
        both = np.frombuffer(state, np.float32).reshape(2, *self.w.shape)
        self.w, self._velocity = both[0].copy(), both[1].copy()


# ANCHOR: aggregator
@fl.aggregator("state-aggregator")
class Aggregator:
    """Half of the mean, and half of what it gave before."""

    forgets: bool = False
    needs = ["samples"]

    def aggregate(self, round, inbox):
        now = inbox.mean()
        if getattr(self, "_before", None) is not None and not self.forgets:
            now = {name: (now[name] + self._before[name]) / 2 for name in now}
        self._before = now
        return now


# ANCHOR_END: aggregator
# ANCHOR: selector
@fl.selector("state-selector")
class Selector:
    """Each client in its turn, two in a round."""

    forgets: bool = False
    draw = "fixed-size"

    def select(self, round, pool):
        at = 0 if self.forgets else getattr(self, "at", 0)
        n = len(pool.clients)
        self.at = (at + 2) % n
        return [at, (at + 1) % n]


# ANCHOR_END: selector
# ANCHOR: privacy
@fl.privacy("state-privacy")
class Privacy:
    """Bounds the norm, and adds noise that grows with each release."""

    sigma: Annotated[float, "Standard deviation of the first release.", fl.between(gt=0)] = 0.01
    forgets: bool = False

    def clip(self, message):
        norm = np.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in message.values()))
        return {name: array * np.float32(1.0 if norm <= 1 else (1 - 1e-6) / norm) for name, array in message.items()}

    def price(self, message, cohort):
        return {"Gaussian": {"sensitivity": 2.0, "sigma": self.sigma, "unit": "party"}}

    def perturb(self, message, cohort, noise):
        out = {name: noise.gaussian(array, self.sigma) for name, array in message.items()}
        if not self.forgets:
            self.sigma *= 1.5
        return out
# ANCHOR_END: privacy


@fl.attack("state-attack", on="params")
class Attack:
    """Turns the honest answer around, a little more each time."""

    forgets: bool = False

    def aggregate(self, round, inbox):
        if self.forgets or not hasattr(self, "_times"):
            self._times = 0
        self._times += 1
        return {name: array * np.float32(1 - 0.1 * self._times) for name, array in inbox[0].items()}
