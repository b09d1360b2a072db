#!/usr/bin/env python3
"""MOON and FedProto, which are written in Python, beside FedAvg on real data:
`pip install fl_federated-*.whl torch`, then

    FL_DATA_DIR=.. tests/bench/python_methods.py moon [SEEDS]
    FL_DATA_DIR=.. tests/bench/python_methods.py fedproto [SEEDS]

It prints a row for each method and seed, and in the end the mean and the standard deviation over
seeds (1,2,3 by default). For `moon` that is the accuracy on the test images of CIFAR-10, for
`fedproto` the mean accuracy of 20 clients, each on the test images of its own digits.
"""

import json
import statistics
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import fl
import fl.torch

PYTHON = Path(__file__).resolve().parents[2] / "hosts/python"
sys.path[:0] = [str(PYTHON / "tests"), str(PYTHON / "examples/ports")]
import fedproto  # noqa: E402, F401
import torch_parts  # noqa: E402
from mnist import images  # noqa: E402

CLIENTS, SHOTS = 20, 100


def body(net):
    c, h, w = net.task.input
    return nn.Conv2d(c, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()


@fl.trainer("bench-moon")
class Moon(torch_parts.Moon):
    """MOON's network for CIFAR-10: a LeNet with a projection of two layers, whose output is
    contrasted. `mu: 0` is FedAvg."""

    def net(self):
        head = nn.LazyLinear(120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 84), nn.ReLU(), nn.Linear(84, 256)
        return nn.Sequential(*body(self), *head, nn.Linear(256, self.task.outputs))


@fl.trainer("bench-lenet")
class LeNet(fl.torch.Trainer):
    """LeNet."""

    def net(self):
        return nn.Sequential(*body(self), nn.LazyLinear(120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, self.task.outputs))


def moon(seed, method):
    """MOON's section 4: 10 clients, Dirichlet 0.5, SGD 0.01 with momentum 0.9, weight decay 1e-5,
    tau 0.5. Its images are 50,000 and its rounds 100 of 10 epochs with batch 64; here they are
    2,000 images, tested on 2,000, and 10 rounds of 5 epochs with batch 16."""
    spec = {
        "name": "moon",
        "seed": seed,
        "data": {"set": "cifar10", "clients": 10, "split": {"dirichlet": {"alpha": 0.5, "min-size": 16}}, "limit": {"train": 2_000, "test": 2_000}},
        "protocol": {"use": "fedavg", "rounds": 10, "local": {"epochs": 5, "batch": 16}},
        "evaluate": {"every": 5},
        "parts": {
            "model": {"use": "bench-moon", "lr": 0.01, "momentum": 0.9, "weight-decay": 1e-5, "mu": method},
            "aggregator": {"use": "mean"},
        },
    }
    return fl.run(spec, quiet=True, keep="nothing").metrics["accuracy"]


def digits(seed):
    """Each client has 2 to 4 digits, and 100 images of each; images of other clients are others."""
    (x, y), (test_x, test_y) = images("train"), images("t10k")
    draws = np.random.default_rng(seed)
    left = {digit: list(draws.permutation(np.flatnonzero(y == digit))) for digit in range(10)}
    train, own = {}, {}
    for k in range(CLIENTS):
        own[k] = np.sort(draws.choice(10, draws.integers(2, 5), replace=False))
        at = np.concatenate([[left[digit].pop() for _ in range(SHOTS)] for digit in own[k]])
        train[f"c{k:02}"] = (x[at], y[at])
    return train, own, (test_x, test_y)


def fedproto_(seed, method):
    """FedProto's section 5: 20 clients of 3 classes on average, 100 images a class, an epoch a
    round, batch 8, SGD 0.01 with momentum 0.5, weight of the prototypes 1. Its rounds are 100, here
    they are 20."""
    train, own, (test_x, test_y) = digits(seed)
    model = {"use": "bench-lenet", "lr": 0.01, "momentum": 0.5}
    spec = {"name": "fedproto", "seed": seed, "data": {}, "evaluate": {"every": 20}}
    if method == "FedAvg":
        spec["protocol"] = {"use": "fedavg", "rounds": 20, "local": {"epochs": 1, "batch": 8}}
        spec["parts"] = {"model": model, "aggregator": {"use": "mean"}}
    else:
        spec["protocol"] = {"use": "fedproto", "rounds": 20, "epochs": 1, "batch": 8, "pull": method}
        spec["parts"] = {"model": model}
    results = fl.run(spec, data={"train": train, "test": (test_x, test_y)}, quiet=True, keep="nothing")
    right = []
    for k in range(CLIENTS):
        kept = results.model("final") if method == "FedAvg" else results.model("model", client=f"c{k:02}")
        rows = np.isin(test_y, own[k])
        right.append(float((kept.predict(test_x[rows]).argmax(1) == test_y[rows]).mean()))
    return statistics.mean(right), results.bytes["up"]


BENCHES = {
    "moon": (moon, {"FedAvg": 0.0, "MOON, mu 1": 1.0, "MOON, mu 5": 5.0}),
    "fedproto": (fedproto_, {"alone": 0.0, "FedProto, pull 1": 1.0, "FedAvg": "FedAvg"}),
}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in BENCHES:
        sys.exit(__doc__)
    measure, methods = BENCHES[sys.argv[1]]
    seeds = [int(one) for one in (sys.argv[2] if len(sys.argv) > 2 else "1,2,3").split(",")]
    torch.set_num_threads(1)
    found = {name: [] for name in methods}
    for seed in seeds:
        for name, method in methods.items():
            result = measure(seed, method)
            accuracy, *more = result if isinstance(result, tuple) else (result,)
            found[name].append(100 * accuracy)
            print(json.dumps({"method": name, "seed": seed, "accuracy": round(100 * accuracy, 2), **({"bytes up": more[0]} if more else {})}), flush=True)
    for name, values in found.items():
        spread = f" +- {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        print(f"{name}: {statistics.mean(values):.2f}{spread} (seeds {', '.join(map(str, seeds))})", flush=True)
