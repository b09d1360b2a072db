"""Boosting on cod-rna: XGBoost `hist` and fl side by side, one thread each, depth 6, rate 0.05.

    python -m pip install xgboost scikit-learn
    cargo build --release -p fl-plugin-trainer-trees --example fit
    FL_DATA_DIR=... python tests/bench/xgboost_codrna.py [path of the example `fit`]

Prints the median seconds of a fit and of predicting cod-rna.t, the accuracy there, and the ratios.
Both sides' seconds include the binning (for XGBoost: from a dense f32 array).
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is loaded

import statistics
from pathlib import Path

import numpy
import xgboost
from sklearn.datasets import load_svmlight_file
from sklearn_forest import ours, timed

ROUNDS = 5


def main() -> None:
    data = Path(os.environ["FL_DATA_DIR"]) / "cod-rna"
    train, test = data / "cod-rna.gz", data / "cod-rna.t.gz"
    sets = (load_svmlight_file(str(p), n_features=8, dtype=numpy.float32) for p in (train, test))
    (x, y), (xt, yt) = ((x.toarray(), (y > 0).astype(int)) for x, y in sets)
    print(f"XGBoost {xgboost.__version__} hist; cod-rna {x.shape[0]} x {x.shape[1]}; one thread; medians of {ROUNDS}")
    for trees in (10, 100):
        theirs, mine = [], []
        # in turn, so that what else the machine does hits both alike
        for _ in range(ROUNDS):
            model = xgboost.XGBClassifier(n_estimators=trees, max_depth=6, learning_rate=0.05, tree_method="hist", n_jobs=1)
            fit, _ = timed(lambda: model.fit(x, y))
            predict, guessed = timed(lambda: model.predict(xt))
            theirs.append({"fit": fit, "predict": predict, "accuracy": float((guessed == yt).mean())})
            mine += ours("boosting", f"{{trees: {trees}}}", train, test, 8, 1)
        median = lambda runs, key: statistics.median(run[key] for run in runs)
        print(f"\n{trees} trees:")
        for name, runs in {"XGBoost": theirs, "fl": mine}.items():
            print(f"  {name:8} fit {median(runs, 'fit'):8.4f} s  predict {median(runs, 'predict'):8.4f} s  accuracy {median(runs, 'accuracy'):.4f}")
        for key in ("fit", "predict"):
            print(f"  {key}: fl is {median(theirs, key) / median(mine, key):.2f} times as fast as XGBoost")


if __name__ == "__main__":
    main()
