"""The weighted mean of what clients sent, in NumPy's BLAS on one array in which all of it stands
already, and how much slower ours is.

    pip install numpy
    cargo bench -p fl-bench --bench mean
    python tests/bench/numpy_mean.py target/criterion

NumPy sums in f32 and finds the numbers stacked; ours sums in f64, of as many tensors as there are
clients.
"""
import json
import pathlib
import statistics
import sys
import time

import numpy


def ours(clients, numbers, name):
    found = pathlib.Path(sys.argv[1]) / f"{clients} x {numbers}" / name / "new/estimates.json"
    return 1e3 * json.loads(found.read_text())["median"]["point_estimate"] / 1e9


for clients, numbers in [(10, 10_000_000), (100, 1_000_000), (100, 10_000_000)]:
    stacked = numpy.ones((clients, numbers), numpy.float32)
    weights = numpy.arange(1, clients + 1, dtype=numpy.float32)
    weights /= weights.sum()
    times = []
    for _ in range(12):
        began = time.perf_counter()
        weights @ stacked
        times.append(1e3 * (time.perf_counter() - began))
    peer = statistics.median(times[2:])
    names = ["read", "read, all", "mean", "mean, all", "fold", "free"]
    print(f"{clients} x {numbers}: NumPy {peer:.1f} ms; ours", end="")
    print(*(f" {name}: {ours(clients, numbers, name):.1f} ms" for name in names), sep=",", flush=True)
    del stacked
