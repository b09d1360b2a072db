"""DP-FedAvg on MNIST in a plain PyTorch loop and here: the same network, clients, draws of clients,
clipping, noise, rounds and learning rate.

    pip install torch
    cargo build --release
    python tests/bench/pytorch_dp_fedavg.py target/release/fl [SEEDS] [EPSILON ..]

FL_DATA_DIR says where `mnist` is. Prints, for each epsilon (2, 4 and 8 at delta 1e-5, for a
client), the noise that `fl account` finds for it and both accuracies over the seeds; each on one
thread. The two draw different first weights, splits, clients and noise.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from mnist import tensors

PROGRAM = sys.argv[1]
SEEDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
EPSILONS = [float(e) for e in sys.argv[3:]] or [2.0, 4.0, 8.0]
SPEC = pathlib.Path(__file__).parents[2] / "specs/dp-fedavg/mnist.yaml"
CLIENTS, RATE, ROUNDS, EPOCHS, BATCH, CLIP, LEARNING_RATE = 6000, 0.05, 100, 2, 10, 1.0, 0.1


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, 3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))


def pytorch(train, test, sigma, seed):
    """The accuracy in percent, and seconds (McMahan, Ramage, Talwar, Zhang 2018, algorithm 1 with
    equal weights)."""
    torch.manual_seed(seed)
    began = time.time()
    x, y = train
    own = torch.randperm(len(x)).view(CLIENTS, -1)
    model, loss = network(), nn.CrossEntropyLoss()
    server = parameters_to_vector(model.parameters()).detach().clone()
    for _ in range(ROUNDS):
        total = torch.zeros_like(server)
        for client in torch.nonzero(torch.rand(CLIENTS) < RATE).flatten().tolist():
            # a copy: the parameters become views of what they are given, and training would move
            # the server
            vector_to_parameters(server.clone(), model.parameters())
            optimiser = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
            for _ in range(EPOCHS):
                for rows in own[client][torch.randperm(own.shape[1])].split(BATCH):
                    optimiser.zero_grad()
                    loss(model(x[rows]), y[rows]).backward()
                    optimiser.step()
            update = parameters_to_vector(model.parameters()).detach() - server
            total += update * min(1.0, CLIP / max(update.norm().item(), 1e-12))
        total += sigma * CLIP * torch.randn_like(total)
        server = server + total / (RATE * CLIENTS)
    vector_to_parameters(server, model.parameters())
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in zip(test[0].split(1000), test[1].split(1000)))
    return 100 * right / len(test[1]), time.time() - began


def ours(sigma, seed):
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        said = subprocess.run(
            [PROGRAM, "run", SPEC, "--out", f"{folder}/run", "--json", "--quiet", "--threads", "1", "--set", f"seed={seed}",
             "--set", f"parts.server-privacy.noise-multiplier={sigma}"], check=True, capture_output=True, text=True).stdout
    said = json.loads(said)
    return 100 * said["metrics"]["accuracy"], time.time() - began, said["privacy"]["readers"]["epsilon"]


def spread(values):
    return f"{statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main():
    torch.set_num_threads(1)
    train, test = tensors("train"), tensors("t10k")
    for epsilon in EPSILONS:
        found = subprocess.run(
            [PROGRAM, "account", "gaussian", "--rate", str(RATE), "--times", str(ROUNDS), "--target", str(epsilon), "--delta", "1e-5", "--json"],
            check=True, capture_output=True, text=True).stdout
        sigma = json.loads(found)["sigma"]
        theirs = [pytorch(train, test, sigma, seed) for seed in range(1, SEEDS + 1)]
        here = [ours(sigma, seed) for seed in range(1, SEEDS + 1)]
        print(
            f"epsilon {epsilon:g}: noise {sigma}, spent {here[0][2]:.4f}; here {spread([run[0] for run in here])} in {statistics.median(run[1] for run in here):.0f} s, "
            f"PyTorch {spread([run[0] for run in theirs])} in {statistics.median(run[1] for run in theirs):.0f} s", flush=True)


main()
