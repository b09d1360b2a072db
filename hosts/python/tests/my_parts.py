"""Parts that the tests use."""

from typing import Annotated, Literal

import fl
import numpy as np


@fl.aggregator("py-mean")
class PyMean:
    """The mean that everybody knows, in client order and in double precision."""

    scale: Annotated[float, "Multiplies the result.", fl.between(gt=0, le=10)] = 1.0
    how: Annotated[Literal["numpy", "kernel"], "Who adds."] = "numpy"
    trim_these: Annotated[list[float], "Not used."] = []
    most: float | None = None
    needs = ["samples"]
    claims = ["order_free", "weight_scale_free"]

    def aggregate(self, round, inbox):
        if self.how == "kernel":
            return inbox.mean()
        total = sum(mail.weight for mail in inbox)
        return {n: self.scale * sum(m.weight * m[n].astype(np.float64) for m in inbox) / total for n in inbox[0]}


# ANCHOR: losses
@fl.aggregator("py-loss-mean")
class LossMean:
    """Mean of the clients' parameters in which a client counts by a power of its training loss."""

    power: Annotated[float, "The power.", fl.between(ge=-4, le=4)] = 1.0
    needs = ["samples", "training_loss"]
    claims = ["order_free", "weight_scale_free", "within_hull"]

    def aggregate(self, round, inbox):
        # a loss of 0 would leave no weight at all
        losses = np.maximum(inbox.training_losses, 1e-10)
        return inbox.mean(inbox.weights * losses**self.power)


# ANCHOR_END: losses


@fl.aggregator("py-folds")
class Folds:
    """The mean, one message after the other."""

    needs = ["samples"]

    def aggregate(self, round, inbox):
        fold = self.fold(round)
        for mail in inbox:
            fold.add(mail)
        return fold.finish()

    def fold(self, round):
        return _Sum()


class _Sum:
    def __init__(self):
        self.sums, self.total = {}, 0.0

    def add(self, mail):
        self.total += mail.weight
        for name, array in mail.items():
            self.sums[name] = self.sums.get(name, 0.0) + mail.weight * array.astype(np.float64)

    def finish(self):
        return {name: (total / self.total).astype(np.float32) for name, total in self.sums.items()}


@fl.aggregator("py-remembers")
class Remembers:
    """Half of what came, and half of what it gave before."""

    needs = ["samples"]

    def __init__(self):
        self.before, self.rounds, self._cache = None, [], lambda: None

    def aggregate(self, round, inbox):
        now = inbox.mean()
        if self.before is not None:
            now = {name: (now[name] + self.before[name]) / 2 for name in now}
        self.before = now
        self.rounds.append((round.number, np.float32(1.5)))
        return now


@fl.aggregator("py-order", "params")
class TakesTheFirst:
    """A planted mistake: it says that the order does not matter, and takes the first."""

    claims = ["order_free"]

    def aggregate(self, round, inbox):
        return {name: array.copy() for name, array in inbox[0].items()}


@fl.aggregator("py-first-spreads", takes=fl.message(
    "py-spreads",
    "How far scores lie apart.",
    {"rows": ("u32", "rows"), "spread": ("f64", "rows x 2", "lowest and highest score"), "moves": ("i64", "rows")},
))
class FirstSpreads:
    """What the first client sent, in a message of its own."""

    claims = ["weight_free"]
    how: Literal["same", "narrow", "broken"] = "same"

    def aggregate(self, round, inbox):
        first = {name: array.copy() for name, array in inbox[0].items()}
        assert (first["spread"].dtype, first["moves"].dtype) == (np.float64, np.int64)
        if self.how == "narrow":
            first["spread"] = first["spread"][:, :1]
        if self.how == "broken":
            first["moves"] = first["moves"] + 0.5
        return first


@fl.selector("py-share")
class Share:
    """A share of the clients, drawn at random."""

    share: Annotated[float, "Which share.", fl.between(gt=0, le=1)] = 0.5
    draw = "fixed-size"

    def select(self, round, pool):
        n = max(1, int(self.share * len(pool.clients)))
        return round.stream.numpy().choice(len(pool.clients), n, replace=False)


@fl.privacy("py-gaussian")
class Gaussian:
    """Bounds the Euclidean norm and adds normal noise."""

    bound: Annotated[float, "Largest norm.", fl.between(gt=0)] = 1.0
    sigma: Annotated[float, "Standard deviation.", fl.between(gt=0)] = 2.0

    def clip(self, message):
        norm = np.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in message.values()))
        # a little less than the bound, for the product is rounded
        factor = np.float32(1.0 if norm <= self.bound else self.bound / norm * (1 - 1e-6))
        return {name: array * factor for name, array in message.items()}

    def price(self, message, cohort):
        return {"Gaussian": {"sensitivity": 2 * self.bound, "sigma": self.sigma, "unit": "party"}}

    def perturb(self, message, cohort, noise):
        return {name: noise.gaussian(array, self.sigma) for name, array in message.items()}
