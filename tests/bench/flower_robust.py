"""Robust aggregation of 50 clients with a million numbers each in Flower 1.41, and how many times
as fast ours is.

    pip install 'flwr>=1.41,<1.42' numpy
    cargo bench -p fl-bench --bench robust
    python tests/bench/flower_robust.py target/criterion

Prints the median time of Flower's own functions; with criterion's folder also ours on one thread
and on all, and the ratios.
"""
import json
import pathlib
import statistics
import sys
import time

import numpy
from flwr.server.strategy.aggregate import aggregate_krum, aggregate_median, aggregate_trimmed_avg

CLIENTS, NUMBERS = 50, 1_000_000
draws = numpy.random.default_rng(7)
RESULTS = [([draws.standard_normal(NUMBERS, dtype=numpy.float32)], 1) for _ in range(CLIENTS)]
PEERS = {
    "median": lambda: aggregate_median(RESULTS),
    "trimmed": lambda: aggregate_trimmed_avg(RESULTS, 0.2),
    "krum": lambda: aggregate_krum(RESULTS, 10, 0),
}


def seconds(work):
    def once():
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    once()
    return statistics.median(once() for _ in range(5))


def ours(name, threads):
    found = list(pathlib.Path(sys.argv[1]).glob(f"robust*/{name}, {threads}/new/estimates.json"))
    return json.loads(found[0].read_text())["median"]["point_estimate"] / 1e9


for name, work in PEERS.items():
    peer = seconds(work)
    line = f"{name:8} Flower {1e3 * peer:7.0f} ms"
    if len(sys.argv) > 1:
        line += "".join(f"; ours, {threads}: {1e3 * ours(name, threads):6.1f} ms, {peer / ours(name, threads):5.1f} x" for threads in ("one", "all"))
    print(line, flush=True)
