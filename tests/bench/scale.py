#!/usr/bin/env python3
"""A model of what a run of rounds costs: bytes, seconds of the processor, memory and disk, by
registered clients K, cohort C, parameters P and rounds R. It is fitted to runs of four sizes and
tested on a fifth, which is larger than each of them.

    tests/bench/scale.py target/release/fl [THREADS]

A client has one row and takes one step. What its training takes beyond that is added to the
seconds. The peak memory and the seconds are those that the system counted for the process, so that
other programs disturb them little.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

# registered clients, cohort, hidden units, rounds
FITTED = [(1_000, 100, 900, 5), (100_000, 1_000, 7_000, 3), (10_000, 100, 80_000, 3), (300_000, 3_000, 80, 10)]
TESTED = (1_000_000, 10_000, 7_000, 3)
FEATURES, CLASSES = 8, 4


def parameters(hidden):
    return (FEATURES + 1) * hidden + (hidden + 1) * CLASSES


def spec(clients, cohort, hidden, rounds):
    return f"""name: scale
seed: 1
data: {{ set: {{ blobs: {{ train: {clients}, features: {FEATURES}, classes: {CLASSES}, test: 100 }} }}, clients: {clients}, split: iid }}
protocol: {{ use: fedavg, rounds: {rounds}, local: {{ steps: 1, batch: 1 }} }}
parts:
  model: {{ use: dfdx, net: [{{ linear: {hidden} }}, relu, {{ linear: {CLASSES} }}], optimiser: {{ sgd: {{ lr: 0.01 }} }} }}
  aggregator: {{ use: mean }}
  cohort: {{ use: uniform, share: {cohort / clients} }}
"""


def measured(fl, threads, size):
    """Bytes that were sent, seconds of the processor, MB of peak memory and MB of the run
    folder."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "s.yaml").write_text(spec(*size))
        args = [fl, "run", str(folder / "s.yaml"), "--json", "--quiet", "--threads", threads, "--out", str(folder / "r")]
        child = os.posix_spawn(fl, args, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, str(folder / "out"), os.O_WRONLY | os.O_CREAT, 0o600)])
        _, status, used = os.wait4(child, 0)
        assert status == 0, (folder / "out").read_text()
        sent = json.loads((folder / "out").read_text())["bytes"]
        disk = sum(file.stat().st_size for file in (folder / "r").rglob("*") if file.is_file())
        return sent["up"] + sent["down"], used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3, disk / 1e6


def terms(what, size):
    """What a quantity is a sum of, each times something that is not negative."""
    k, c, hidden, r = size
    p = parameters(hidden)
    return {
        "bytes": [r * c, r * c * p],
        "CPU s": [1, k, r * c, r * c * p],
        "memory MB": [1, k, p],
        "disk MB": [1, k, p],
    }[what]


NAMES = {
    "bytes": ["R C", "R C P"],
    "CPU s": ["1", "K", "R C", "R C P"],
    "memory MB": ["1", "K", "P"],
    "disk MB": ["1", "K", "P"],
}


def fit(rows, found):
    """The factors, none negative, with the least squares of relative errors: coordinate descent."""
    rows = [[x / y for x in row] for row, y in zip(rows, found)]
    scale = [max(abs(row[j]) for row in rows) for j in range(len(rows[0]))]
    rows = [[x / s for x, s in zip(row, scale)] for row in rows]
    w = [0.0] * len(scale)
    for _ in range(20_000):
        for j in range(len(w)):
            left = [1 - sum(w[i] * row[i] for i in range(len(w)) if i != j) for row in rows]
            top = sum(row[j] * e for row, e in zip(rows, left))
            w[j] = max(0.0, top / sum(row[j] ** 2 for row in rows))
    return [x / s for x, s in zip(w, scale)]


def main():
    fl, threads = str(Path(sys.argv[1]).resolve()), sys.argv[2] if len(sys.argv) > 2 else "2"
    sizes = [*FITTED, TESTED]
    found = []
    print("|  | K | C | P | R | bytes | CPU s | memory MB | disk MB |\n|---|---|---|---|---|---|---|---|---|")
    for size in sizes:
        found.append(measured(fl, threads, size))
        k, c, hidden, r = size
        b, s, m, d = found[-1]
        print(f"| {'tested' if size == TESTED else 'fitted'} | {k:,} | {c:,} | {parameters(hidden):,} | {r} | {b:,} | {s:.2f} | {m:.0f} | {d:.1f} |", flush=True)
    print()
    for at, what in enumerate(NAMES):
        rows = [terms(what, size) for size in sizes]
        w = fit(rows[:-1], [f[at] for f in found[:-1]])
        model = [sum(a * b for a, b in zip(w, row)) for row in rows]
        errors = [f"{100 * (m / f[at] - 1):+.1f} %" for m, f in zip(model, found)]
        law = " + ".join(f"{x:.4g}" + ("" if name == "1" else f" {name}") for x, name in zip(w, NAMES[what]))
        print(f"{what} = {law}\n  errors where it was fitted {', '.join(errors[:-1])}; at the fifth {errors[-1]} ({model[-1]:.6g} for {found[-1][at]:.6g})")


main()
