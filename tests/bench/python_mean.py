#!/usr/bin/env python3
"""A mean as a Python aggregator beside the linked one: `pip install fl_federated-*.whl` of a
release build, then

    tests/bench/python_mean.py

It prints milliseconds of a call on two threads (median) and peak memory, each in a process of its
own, in turn. `lent` asks the program for the mean (`inbox.mean`), `numpy` adds up what it is lent
by itself, on one thread.
"""

import resource
import subprocess
import sys

import numpy as np

import fl
from fl import _fl

SIZES = [(1, 10, 2001), (10, 1000, 501), (100, 1_000_000, 9)]


@fl.aggregator("lent")
class Lent:
    """The weighted mean, by the program."""

    def aggregate(self, round, inbox):
        return inbox.mean([mail.weight for mail in inbox])


@fl.aggregator("numpy")
class Numpy:
    """The weighted mean, by numpy."""

    def aggregate(self, round, inbox):
        total = sum(mail.weight for mail in inbox)
        means = {}
        for name in inbox[0]:
            mean = np.zeros(inbox[0][name].shape, np.float32)
            part = np.empty_like(mean)
            for mail in inbox:
                np.multiply(mail[name], np.float32(mail.weight / total), out=part)
                mean += part
            means[name] = mean
        return means


def one(part, *size):
    seconds = sorted(_fl.seconds(f"aggregator {part}", "{}", *map(int, size), 2))
    print(1000 * seconds[len(seconds) // 2], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def all():
    for size in SIZES:
        for part in ["mean", "lent", "numpy"] * 3:
            out = subprocess.run([sys.executable, __file__, part, *map(str, size)], stdout=subprocess.PIPE, text=True, check=True).stdout
            milliseconds, mebibytes = map(float, out.split())
            print(f"{size[0]} x {size[1]} {part}: {milliseconds:.4f} ms, peak {mebibytes:.1f} MiB", flush=True)


if __name__ == "__main__":
    one(*sys.argv[1:]) if len(sys.argv) > 1 else all()
