"""Selective-FD's density ratio (KuLSIF) on MNIST: NumPy/SciPy and fl side by side.

    python -m pip install numpy scipy
    cargo build --release -p fl-plugin-sample-selectors --example kulsif
    OPENBLAS_NUM_THREADS=1 FL_DATA_DIR=... python tests/bench/kulsif_numpy.py [THE EXAMPLE kulsif]

The setting of the paper's MNIST demo: sigma 5, beta = n_u^(-1/2), uniform points in [-0.4242,
2.82157], the ratio fitted to 270 images (5 % of a client's 5,400) of one digit, and 6,000 proxy
images scored. Both sides do the same arithmetic in f64 on the same uniform points: kernels by
matrix products, one Cholesky. fl runs on one thread always. Prints median seconds, ratios, the
largest relative difference of the ratios, and whether the accept masks agree.
"""

import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy
from scipy.linalg import cho_factor, cho_solve

ROUNDS = 5
HERE = Path(__file__).resolve().parent


def example() -> str:
    if len(sys.argv) > 1:
        return sys.argv[1]
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target"))
    return str(target / "release" / "examples" / "kulsif")


def images() -> np.ndarray:
    """270 images of digit 0, then 600 other images of each digit."""
    folder = Path(os.environ["FL_DATA_DIR"]) / "mnist"
    pixels = gzip.open(folder / "train-images-idx3-ubyte.gz").read()[16:]
    labels = np.frombuffer(gzip.open(folder / "train-labels-idx1-ubyte.gz").read()[8:], np.uint8)
    pixels = np.frombuffer(pixels, np.uint8).reshape(-1, 784)
    of = [np.flatnonzero(labels == digit) for digit in range(10)]
    return np.concatenate([pixels[of[0][600:870]]] + [pixels[rows[:600]] for rows in of])


def kernel(a: np.ndarray, b: np.ndarray, sigma: float) -> np.ndarray:
    squares = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b)
    squares -= 2.0 * (a @ b.T)
    np.maximum(squares, 0.0, out=squares)
    squares *= -0.5 / sigma**2
    return np.exp(squares, out=squares)


def fit(u: np.ndarray, s: np.ndarray, sigma: float, beta: float) -> np.ndarray:
    n_u, n_s = len(u), len(s)
    matrix = kernel(u, u, sigma)
    matrix /= n_u
    matrix[np.diag_indices(n_u)] += beta
    right = kernel(u, s, sigma).sum(axis=1) / (-n_u * n_s * beta)
    return cho_solve(cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False), right, check_finite=False)


def score(x: np.ndarray, u: np.ndarray, s: np.ndarray, alpha: np.ndarray, sigma: float, beta: float) -> np.ndarray:
    return kernel(x, u, sigma) @ alpha + kernel(x, s, sigma).sum(axis=1) / (len(s) * beta)


def timed(work) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def main() -> None:
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "all")
    print(f"NumPy {np.__version__}, SciPy {scipy.__version__}, {threads} thread(s); fl: one thread; medians of {ROUNDS}")
    raw = images()
    normal = ((raw / np.float32(255) - np.float32(0.1307)) / np.float32(0.3081)).astype(np.float64)
    own, proxy = normal[:270], normal[270:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images"
        path.write_bytes(raw.tobytes())
        for n_u in (250, 2000):
            runs = {"fl": [], "NumPy": []}
            for _ in range(ROUNDS):  # in turn, so that what else the machine does hits both alike
                command = [example(), "mnist", str(path), str(n_u), "2"]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                runs["fl"].append(json.loads(out.splitlines()[-1]))
                u = np.fromfile(f"{path}.u", np.float32).reshape(n_u, 784).astype(np.float64)
                beta = n_u**-0.5
                took, alpha = timed(lambda: fit(u, own, 5.0, beta))
                scoring, w = timed(lambda: score(proxy, u, own, alpha, 5.0, beta))
                runs["NumPy"].append({"fit": took, "score": scoring})
            ours = np.fromfile(f"{path}.w", np.float64)
            apart = np.max(np.abs(ours - w) / np.abs(w))
            # digit 0 of the proxy set stands in for the client's validation part
            threshold = np.quantile(w[:600], 0.25)
            same = ((ours >= threshold) == (w >= threshold)).mean()
            print(f"\nn_u = {n_u}: ratios at most {apart:.1e} apart, {100 * same:.2f} % of the masks agree")
            median = lambda side, key: statistics.median(run[key] for run in runs[side])
            for key in ("fit", "score"):
                mine, theirs = median("fl", key), median("NumPy", key)
                print(f"  {key:5}  fl {mine:7.4f} s  NumPy {theirs:7.4f} s  fl is {theirs / mine:.2f} times as fast")
            mine, theirs = (median(side, "fit") + median(side, "score") for side in ("fl", "NumPy"))
            print(f"  both   fl {mine:7.4f} s  NumPy {theirs:7.4f} s  fl is {theirs / mine:.2f} times as fast")


if __name__ == "__main__":
    main()
