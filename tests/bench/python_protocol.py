"""FedAvg as a protocol in Python, beside the linked one: the same runs on MNIST, in turn.

    python tests/bench/python_protocol.py [ROUNDS] [PAIRS] [THREADS]

It needs MNIST in `FL_DATA_DIR`, and prints wall-clock and processor seconds of each pair, and the
medians of their ratios. Both runs of a pair must have the same digest.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import fl

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "hosts/python/tests"))
import my_protocols  # noqa: E402, F401


def timed(spec, threads):
    wall, processor = time.perf_counter(), time.process_time()
    digest = fl.run(spec, threads=threads, quiet=True).digest
    return time.perf_counter() - wall, time.process_time() - processor, digest


def main(rounds=3, pairs=5, threads=1):
    common = fl.check(ROOT / "specs/fedavg/mnist.yaml")
    how = {"rounds": rounds, "local": {"epochs": 1, "batch": 32}}
    linked, python = (common | {"protocol": {"use": use, **how}} for use in ("fedavg", "py-fedavg"))
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        timed(linked, threads)
        for pair in range(pairs):
            order = [linked, python] if pair % 2 == 0 else [python, linked]
            found = {id(spec): timed(spec, threads) for spec in order}
            ours, theirs = found[id(python)], found[id(linked)]
            assert ours[2] == theirs[2], "the same digest"
            ratios.append((ours[0] / theirs[0], ours[1] / theirs[1]))
            print(f"wall {theirs[0]:.2f} {ours[0]:.2f}  processor {theirs[1]:.2f} {ours[1]:.2f}", flush=True)
    wall, processor = (statistics.median(all) for all in zip(*ratios, strict=True))
    print(f"Python / linked, median of {pairs}: wall {wall:.3f}, processor {processor:.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
