"""PFLlib's FedProto as a run of fl: the method is `fedproto.py`, a protocol in Python.

    FL_DATA_DIR=DIR python examples/ports/pfllib_fedproto.py

The setting is PFLlib's: Dirichlet 0.1 over 20 clients, a quarter of each client's rows to test on,
one epoch a round in batches of 10 at 0.005, and PFLlib's network. Here the rows are the test set of
Fashion-MNIST alone, and the rounds 10 of 2,000.
"""

from __future__ import annotations

from torch import nn

import fedproto  # noqa: F401
import fl
import fl.torch
from rows import Rows, cut, dirichlet_parts, fashion


@fl.trainer("pfllib-cnn")
class PfllibCnn(fl.torch.Trainer):
    """PFLlib's network: two convolutions, and features of 512 numbers before the scores."""

    def net(self) -> nn.Module:
        layers: list[nn.Module] = [nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, self.task.outputs))


def main(rows: Rows, rounds: int = 10, clients: int = 20, lr: float = 0.005) -> fl.Results:
    """Clients share the means of their features of each class, and nothing else."""
    spec = {
        "name": "pfllib-fedproto",
        "seed": 1,
        "protocol": {"use": "my-fedproto", "rounds": rounds, "epochs": 1, "batch": 10, "pull": 1.0},
        "parts": {"model": {"use": "pfllib-cnn", "lr": lr}},
        "data": {"test": {"own": "files"}},
    }
    shared = {f"client {k:02}": cut(mine, 0.25) for k, mine in enumerate(dirichlet_parts(rows, clients, 0.1, 40))}
    data = {side: {name: halves[at] for name, halves in shared.items()} for at, side in enumerate(("train", "test"))}
    return fl.run(spec, data=data)


if __name__ == "__main__":
    print(main(fashion("t10k")))
