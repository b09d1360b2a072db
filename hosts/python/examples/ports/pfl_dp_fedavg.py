"""pfl-research's DP-FedAvg, with the noise of a larger cohort than the one drawn, as a run of fl.

    FL_DATA_DIR=DIR python examples/ports/pfl_dp_fedavg.py

The setting is that of pfl-research's benchmark on CIFAR-10, here on Fashion-MNIST: 1,000 users of
50 pictures, 50 of them a round, and the noise of 1,000 of a million users, at epsilon 2 and delta
1e-6.
"""

from __future__ import annotations

from torch import nn

import fl
import fl.torch
from rows import Rows, equal_parts, fashion


@fl.trainer("pfl-cnn")
class PflCnn(fl.torch.Trainer):
    """The benchmark's network without its dropout: two convolutions and a hidden layer of 128."""

    def net(self) -> nn.Module:
        channels = self.task.input[0]
        layers: list[nn.Module] = [nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(128), nn.ReLU(), nn.Linear(128, self.task.outputs))


def main(train: Rows, test: Rows, rounds: int = 30, users: int = 1000, cohort: int = 50, each: int = 50, larger: int = 1000, sigma: float = 0.0) -> fl.Results:
    """Draws `cohort` users a round; the noise is that of `larger` users of a million, at the
    multiplier `sigma` or what epsilon 2 needs."""
    sigma = sigma or fl.account("gaussian", target=2.0, rate=larger / 10**6, times=rounds, delta=1e-6)["sigma"]
    noise = {"use": "gaussian-update", "clip": 0.4, "noise-multiplier": sigma, "noise-cohort": larger}
    spec = {
        "name": "pfl-dp-fedavg",
        "seed": 1,
        "protocol": {"use": "dp-fedavg", "rounds": rounds, "local": {"epochs": 1, "batch": 10}},
        "parts": {
            "model": {"use": "pfl-cnn", "lr": 0.1},
            "cohort": {"use": "uniform", "share": cohort / users},
            "aggregator": {"use": "mean", "weigh": "uniform"},
            "server-privacy": noise,
            "accountant": {"use": "rdp", "delta": 1e-6},
        },
        "evaluate": {"every": 10},
    }
    return fl.run(spec, data={"train": equal_parts(train, users, each), "test": test, "classes": list(range(10))})


if __name__ == "__main__":
    print(main(fashion("train"), fashion("t10k")))
