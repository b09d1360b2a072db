"""Flower's quickstart for PyTorch, with its network, partition and training, as a run of fl.

    FL_DATA_DIR=DIR python examples/ports/flower_quickstart.py
"""

from __future__ import annotations

from torch import nn

import fl
import fl.torch
from rows import Rows, cifar10, cut, equal_parts


@fl.trainer("quickstart-cnn")
class QuickstartCnn(fl.torch.Trainer):
    """The network of the quickstart: two convolutions and three linear layers."""

    def net(self) -> nn.Module:
        layers: list[nn.Module] = [nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, self.task.outputs)]
        return nn.Sequential(*layers)


def main(train: Rows, test: Rows, rounds: int = 3, clients: int = 10, lr: float = 0.1) -> fl.Results:
    """FedAvg of all clients, one epoch a round in batches of 32; each client keeps a fifth of its
    rows out of training."""
    spec = {
        "name": "flower-quickstart",
        "seed": 1,
        "protocol": {"use": "fedavg", "rounds": rounds, "local": {"epochs": 1, "batch": 32}},
        "parts": {"model": {"use": "quickstart-cnn", "lr": lr, "momentum": 0.9}, "aggregator": {"use": "mean"}},
    }
    mine = [cut(rows, 0.2)[0] for rows in equal_parts(train, clients)]
    return fl.run(spec, data={"train": mine, "test": test})


if __name__ == "__main__":
    print(main(cifar10("train"), cifar10("test")))
