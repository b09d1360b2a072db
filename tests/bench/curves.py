"""Errors of the trainer's own exp, tanh and sigmoid against mpmath: `python tests/bench/curves.py`.

Needs `pip install mpmath`. Runs an ignored test of the trainer, which writes every 39,989th number
of 32 bits and its curves (`cargo test -p fl-nets --lib`, or the program of these
tests in `FL_STEP_TEST`). Fails if an error exceeds what `curves.rs` states.
"""

import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import mpmath

ROOT = pathlib.Path(__file__).resolve().parents[2]
STATED = {"exp": 1.02, "tanh": 1.34, "sigmoid": 2.49}
SMALLEST = 2.0**-126  # of normal numbers: below it a unit has this number's size


def number(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def unit(value):
    """The distance of neighbouring numbers of 32 bits at a value."""
    _, exponent = mpmath.frexp(max(abs(value), SMALLEST))
    return mpmath.ldexp(1, exponent - 24)


def written():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "curves")
        program = [os.environ["FL_STEP_TEST"]] if "FL_STEP_TEST" in os.environ else ["cargo", "test", "-q", "-p", "fl-nets", "--lib", "--"]
        test = ["--ignored", "--exact", "curves::tests::exact_curves_are_written"]
        subprocess.run(program + test, env={**os.environ, "FL_CURVES": str(file)}, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return [[int(word) for word in line.split()] for line in file.read_text().splitlines()]


def worst(name, exact, column, rows):
    """The largest error in units in the last place over all numbers with a normal result; where."""
    found, at, n = 0, 0, 0
    for row in rows:
        x, got = number(row[0]), number(row[column])
        if abs(x) > 200 and name != "tanh":
            continue  # 0, 1 or infinity
        wanted = exact(mpmath.mpf(x))
        if not SMALLEST <= abs(wanted) < 2.0**128:
            continue
        n += 1
        error = abs(got - wanted) / unit(wanted)
        if error > found:
            found, at = error, x
    return float(found), at, n


if __name__ == "__main__":
    mpmath.mp.prec = 120
    rows = written()
    curves = {"exp": mpmath.exp, "tanh": mpmath.tanh, "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x))}
    print("| function | numbers | largest error, units in the last place | at | stated for all numbers |\n|---|---|---|---|---|")
    bad = False
    for column, (name, exact) in enumerate(curves.items(), 1):
        found, at, n = worst(name, exact, column, rows)
        bad |= found > STATED[name]
        print(f"| {name} | {n:,} | {found:.3f} | {at:.9g} | {STATED[name]} |")
    sys.exit("an error is larger than stated" if bad else 0)
