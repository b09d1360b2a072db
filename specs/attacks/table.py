"""The table of README.md: every attack by every aggregator, mean and deviation of the final accuracy over seeds.

    cargo build --release
    python3 specs/attacks/table.py --data-dir DIR --seeds 3
"""

import argparse
import os
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from runs import Memory  # noqa: E402

ATTACKS = {
    "nobody": [],
    "sign-flip 3": ["parts.attack={use: sign-flip, scale: 3, clients: [0, 1]}"],
    "gaussian 1": ["parts.attack={use: gaussian, clients: [0, 1]}"],
    "little-is-enough": ["parts.attack={use: little-is-enough, clients: [0, 1]}", "protocol.looks=4"],
    "inner-product 0.5": ["parts.attack={use: inner-product, epsilon: 0.5, clients: [0, 1]}"],
    "label-flip": ["parts.labels={use: label-flip, clients: [0, 1]}"],
    "replacement 5, label-flip": ["parts.attack={use: replacement, scale: 5, clients: [0, 1]}", "parts.labels={use: label-flip, clients: [0, 1]}"],
}
AGGREGATORS = {
    "mean": "{use: mean}",
    "median": "{use: median}",
    "trimmed-mean": "{use: trimmed-mean, trim: 0.2}",
    "geometric-median": "{use: geometric-median}",
    "krum": "{use: krum, bad: 0.2}",
    "multi-krum": "{use: multi-krum, bad: 0.2}",
    "bulyan": "{use: bulyan, bad: 0.2}",
    "norm-bounding": "{use: norm-bounding, bound: 1.5}",
    "centred-clipping": "{use: centred-clipping, radius: 1.5}",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fl", default=str(HERE.parent.parent / "target/release/fl"))
    parser.add_argument("--data-dir", default=os.environ.get("FL_DATA_DIR"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], help="for every run, such as protocol.rounds=3")
    parser.add_argument("--cache", help="a file that remembers what was run")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    options = ["--threads", "1"] + (["--data-dir", args.data_dir] if args.data_dir else [])
    runs = Memory(args, HERE, options)
    print("| aggregator | " + " | ".join(ATTACKS) + " |")
    print("|---|" + "---|" * len(ATTACKS))
    for name, aggregator in AGGREGATORS.items():
        cells = []
        for attack in ATTACKS.values():
            sets = [f"parts.aggregator={aggregator}", *attack, *args.set]
            each = [100 * runs.run("mnist.yaml", [*sets, f"seed={seed}"])["metrics"]["accuracy"] for seed in range(1, args.seeds + 1)]
            cells.append(f"{statistics.mean(each):.1f} +- {statistics.stdev(each):.1f}")
        print(f"| `{name}` | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
