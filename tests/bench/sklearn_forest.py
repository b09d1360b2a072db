"""One forest and one tree on a9a: scikit-learn and fl side by side, one thread each.

    python -m pip install scikit-learn
    cargo build --release -p fl-plugin-trainer-trees --example fit
    FL_DATA_DIR=... python tests/bench/sklearn_forest.py [path of the example `fit`]

Prints the median seconds of a fit, the mean accuracy on a9a.t, and the ratios. scikit-learn is
given the set as it likes it best of the two: dense f32 and sparse columns are both timed, and the
faster one counts. fl is given sparse rows, and its seconds include the binning.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is loaded

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy
import sklearn
from sklearn.datasets import load_svmlight_file
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

ROUNDS = 5
HERE = Path(__file__).resolve().parent


def example() -> str:
    if len(sys.argv) > 1:
        return sys.argv[1]
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target"))
    return str(target / "release" / "examples" / "fit")


def ours(method: str, settings: str, train: Path, test: Path, width: int, repeats: int) -> list[dict]:
    command = [example(), method, settings, str(train), str(test), str(width), str(repeats)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def timed(work) -> tuple[float, object]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def main() -> None:
    data = Path(os.environ["FL_DATA_DIR"]) / "adult"
    train, test = data / "a9a.gz", data / "a9a.t.gz"
    (x, y), (xt, yt) = (load_svmlight_file(str(p), n_features=123, dtype=numpy.float32) for p in (train, test))
    for part in (x, xt):  # forests take 32-bit indices only
        part.indices, part.indptr = part.indices.astype(numpy.int32), part.indptr.astype(numpy.int32)
    inputs = {"dense": (x.toarray(), xt.toarray()), "sparse": (x.tocsc(), xt.tocsr())}
    print(f"scikit-learn {sklearn.__version__}; a9a {x.shape[0]} x {x.shape[1]}; one thread; medians of {ROUNDS}")
    makers = {
        "forest": lambda seed: RandomForestClassifier(100, max_depth=6, n_jobs=1, random_state=seed),
        "tree": lambda seed: DecisionTreeClassifier(max_depth=6, random_state=seed),
    }
    for method, maker in makers.items():
        theirs = {kind: [] for kind in inputs}
        mine = []
        # in turn, so that what else the machine does hits all alike
        for seed in range(ROUNDS):
            for kind, (seen, unseen) in inputs.items():
                fit, model = timed(lambda: maker(seed).fit(seen, y))
                predict, guessed = timed(lambda: model.predict(unseen))
                theirs[kind].append({"fit": fit, "predict": predict, "accuracy": float((guessed == yt).mean())})
            mine = mine + ours(method, "{}", train, test, 123, seed + 1)[-1:]
        rows = {**{f"scikit-learn, {kind}": runs for kind, runs in theirs.items()}, "fl": mine}
        median = lambda runs, key: statistics.median(run[key] for run in runs)
        print(f"\n{method}, depth 6:")
        for name, runs in rows.items():
            accuracy = statistics.mean(run["accuracy"] for run in runs)
            print(f"  {name:22} fit {median(runs, 'fit'):8.4f} s  predict {median(runs, 'predict'):8.4f} s  accuracy {accuracy:.4f}")
        for key in ("fit", "predict"):
            best = min(median(runs, key) for runs in theirs.values())
            print(f"  {key}: fl is {best / median(mine, key):.1f} times as fast as the faster scikit-learn")


if __name__ == "__main__":
    main()
