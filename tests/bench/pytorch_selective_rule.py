"""Selective-FD's rule as its published code runs it, in PyTorch and here, on the same splits:
MNIST, one class a client.

    pip install torch safetensors
    cargo build --release
    FL_DATA_DIR=... python tests/bench/pytorch_selective_rule.py target/release/fl [SEEDS] [ROUNDS]

For every seed (`5`, `1-3`, default 1-5) each class is shuffled and cut 90 to 10; seed 0 is the
order of MNIST's file, of each class the last tenth public. Both programs read the same files: ten
clients, the public samples, the test images. The rule is that of
`specs/selective-fd/mnist-strong-code.yaml` (Shao et al. 2024 and its code): a client takes one step
of 64 of its own images, labels those of the round's 512 public samples that its density ratio
accepts (KuLSIF: sigma 5, 250 uniform points, fitted to the first 5 % of its images, cut at the 0.25
quantile of the others), the mean of the probabilities is the label, and everybody takes ten steps
of cross-entropy on the batch. First weights, draws of batches, uniform points and dropout are each
program's own. Prints the mean accuracy over clients after rounds 10, 20, 30 ..; after the last, the
mean over clients of the share of ones that are found (how soon digit 1 is learnt decides the mean);
of the filters, precision and recall over all clients, and how many public samples somebody knows.
One thread each.
"""

import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from mnist import images

PROGRAM = os.path.abspath(sys.argv[1])
FIRST, _, LAST = (sys.argv[2] if len(sys.argv) > 2 else "1-5").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 50
EVERY = 10
SPEC = pathlib.Path(__file__).parents[2] / "specs/selective-fd/mnist-strong-code.yaml"
CLIENTS, OWN, PUBLIC, STEPS, RATE = 10, 64, 512, 10, 0.1
SIGMA, UNIFORM, SHARE, QUANTILE, BOX = 5.0, 250, 0.05, 0.25, (-0.4242, 2.82157)


def split(seed, x, y):
    """The clients' images, one class each, and the public ones with their classes."""
    draws = np.random.default_rng(seed)
    own, public = [], []
    for digit in range(CLIENTS):
        rows = np.flatnonzero(y == digit)
        rows = draws.permutation(rows) if seed else rows
        cut = len(rows) - -(-len(rows) // 10)
        public.append(rows[cut:])
        own.append(x[rows[:cut]])
    public = draws.permutation(np.concatenate(public))
    return own, x[public], y[public]


def ours(seed, own, public, classes, test):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for digit, rows in enumerate(own):
            np.savez(folder / f"client-{digit}.npz", x=rows, y=np.full(len(rows), digit))
        np.savez(folder / "public.npz", x=public, y=classes)
        np.savez(folder / "test.npz", x=test[0], y=test[1])
        files = {"format": "npz", "label": "y", "max-bytes": 2**30, "classes": [str(digit) for digit in range(CLIENTS)]}
        clients = {"train": [f"client-{digit}.npz" for digit in range(CLIENTS)], "test": "test.npz"}
        data = {"set": {"files": files | clients}, "clients": CLIENTS,
                # what classes public samples have is known to the measurement of the filters only
                "public": {"from": {"set": {"files": files | {"train": "public.npz"}}}, "labelled": True}}
        # only `data` differs, and JSON is YAML; relative paths are relative to the spec
        (folder / "spec.yaml").write_text(SPEC.read_text())
        ran = subprocess.run(
            [PROGRAM, "run", "spec.yaml", "--out", "run", "--threads", "1", "--set", f"seed={seed}", "--set", f"data={json.dumps(data)}",
             "--set", f"protocol.rounds={ROUNDS}", "--set", f"evaluate.every={EVERY}"], check=True, cwd=folder, capture_output=True, text=True)
        subprocess.run(
            [PROGRAM, "export", "run", "--csv", "run.csv", "--safetensors", "models"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        with open(folder / "run.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        curve = {int(row["round"]): 100 * float(row["value"]) for row in rows if row["measure"] == "clients.accuracy" and not row["client"]}
        filters = {}
        for row in rows:
            if row["client"] and int(row["round"]) == 0:
                filters.setdefault(row["measure"], []).append(float(row["value"]))
        kept = len(public) * np.array(filters["filter.share"])
        right = (kept * filters["filter.precision"]).sum()
        lost = re.search(r"(\d+) of \d+ public samples are known to no client", ran.stderr)
        found = told(right, kept.sum(), len(public) - int(lost[1] if lost else 0), len(public))
        nets = []
        for digit in range(CLIENTS):
            net = network()
            # layers have the same numbers, but that there is no Flatten here
            kept = load_file(folder / f"models/run/model-{digit}.safetensors")
            net.load_state_dict({f"{int(name[0]) + (name[0] >= '6')}{name[1:]}": value for name, value in kept.items()})
            nets.append(net)
        x, y = (torch.from_numpy(rows) for rows in test)
        again, ones = accuracies(nets, x, y)
        assert abs(again - curve[ROUNDS]) < 0.05, f"the kept models have {again}, the run says {curve[ROUNDS]}"
        return curve, ones, found


def told(right, accepted, known, of):
    return f"precision {right / accepted:.3f}, recall {right / of:.3f}, {known} of {of} samples known to somebody"


def ratios(u, s, x):
    """KuLSIF with the penalty n_u^-1/2 (its published code multiplies by the matrix where the
    inverse is due)."""
    def kernel(a, b):
        return np.exp(-np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T, 0) / (2 * SIGMA**2))

    beta = len(u) ** -0.5
    alpha = np.linalg.solve(kernel(u, u) / len(u) + beta * np.eye(len(u)), -kernel(u, s).sum(1) / (len(u) * len(s) * beta))
    return kernel(x, u) @ alpha + kernel(x, s).sum(1) / (len(s) * beta)


def accepted(seed, own, public):
    """Client by public sample: does it label it?"""
    draws = np.random.default_rng([seed, 1])
    flat = [rows.reshape(len(rows), -1).astype(np.float64) for rows in (*own, public)]
    masks = []
    for rows in flat[:-1]:
        u = draws.uniform(*BOX, (UNIFORM, rows.shape[1]))
        cut = int(SHARE * len(rows))
        least = np.quantile(ratios(u, rows[:cut], rows[cut:]), QUANTILE)
        masks.append(ratios(u, rows[:cut], flat[-1]) >= least)
    return torch.from_numpy(np.stack(masks))


def network():
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(10, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Dropout(0.5), nn.Linear(50, 10))


def step(net, rule, x, y):
    net.train()
    rule.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    rule.step()


def said(net, x):
    net.eval()
    with torch.no_grad():
        return torch.cat([net(part) for part in x.split(2000)])


def accuracies(nets, x, y):
    """Of all images and of ones, in percent; the mean over clients."""
    right = [said(net, x).argmax(1) == y for net in nets]
    return (100 * statistics.mean(r.float().mean().item() for r in right),
            100 * statistics.mean(r[y == 1].float().mean().item() for r in right))


def pytorch(seed, own, public, classes, test):
    torch.manual_seed(seed)
    masks = accepted(seed, own, public)
    right = (masks & (torch.from_numpy(classes) == torch.arange(CLIENTS)[:, None])).sum().item()
    known = masks.any(0).nonzero().flatten()
    found = told(right, masks.sum().item(), len(known), len(public))
    own, public, x, y = [torch.from_numpy(rows) for rows in own], torch.from_numpy(public), torch.from_numpy(test[0]), torch.from_numpy(test[1])
    nets = [network() for _ in range(CLIENTS)]
    rules = [torch.optim.SGD(net.parameters(), lr=RATE) for net in nets]
    left, orders = torch.tensor([], dtype=torch.int64), [torch.tensor([], dtype=torch.int64) for _ in range(CLIENTS)]
    curve = {}
    for at in range(1, ROUNDS + 1):
        if len(left) < PUBLIC:
            left = known[torch.randperm(len(known))]
        batch, left = left[:PUBLIC], left[PUBLIC:]
        samples = public[batch]
        mean, voices = torch.zeros(PUBLIC, CLIENTS), torch.zeros(PUBLIC)
        for k, (net, rule) in enumerate(zip(nets, rules)):
            if len(orders[k]) < OWN:
                orders[k] = torch.randperm(len(own[k]))
            rows, orders[k] = orders[k][:OWN], orders[k][OWN:]
            step(net, rule, own[k][rows], torch.full((OWN,), k))
            mine = masks[k][batch]
            mean += torch.softmax(said(net, samples), 1) * mine[:, None]
            voices += mine
        mean /= voices[:, None]
        for net, rule in zip(nets, rules):
            for _ in range(STEPS):
                step(net, rule, samples, mean)
        if at % EVERY == 0 or at == ROUNDS:
            curve[at], ones = accuracies(nets, x, y)
    return curve, ones, found


def main():
    torch.set_num_threads(1)
    train, test = images("train"), images("t10k")
    ends = {"here": [], "PyTorch": []}
    for seed in SEEDS:
        own, public, classes = split(seed, *train)
        both = {"here": ours(seed, own, public, classes, test), "PyTorch": pytorch(seed, own, public, classes, test)}
        for who, (curve, ones, found) in both.items():
            rounds = " ".join(f"{at}: {value:.1f}" for at, value in curve.items())
            print(f"seed {seed}, {who}: {rounds}; ones {ones:.1f}; {found}", flush=True)
            ends[who].append(curve[ROUNDS])
    for who, last in ends.items():
        spread = f" +- {statistics.stdev(last):.1f}" if len(last) > 1 else ""
        print(f"{who}, round {ROUNDS}: {statistics.mean(last):.1f}{spread} ({min(last):.1f} to {max(last):.1f})")


main()
