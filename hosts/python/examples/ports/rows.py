"""Real rows for the ports, of the folder that FL_DATA_DIR names: pictures from -1 to 1, and
classes."""

from __future__ import annotations

import functools
import gzip
import lzma
import os
from pathlib import Path

import numpy as np

Rows = tuple[np.ndarray, np.ndarray]


def _folder(name: str) -> Path:
    if "FL_DATA_DIR" not in os.environ:
        raise SystemExit(f"set FL_DATA_DIR to the folder that holds `{name}`; specs/book/src/get-data.md says where the files come from")
    return Path(os.environ["FL_DATA_DIR"]) / name


def _scaled(pictures: np.ndarray) -> np.ndarray:
    return pictures.astype(np.float32) / 127.5 - 1


@functools.cache
def cifar10(part: str) -> Rows:
    """The pictures of CIFAR-10 (`part`: `train` or `test`), `rows x 3 x 32 x 32`."""
    names = {"train": [f"data_batch_{n}" for n in range(1, 6)], "test": ["test_batch"]}[part]
    packed = b"".join(lzma.open(_folder("cifar10") / f"{name}.bin.xz").read() for name in names)
    table = np.frombuffer(packed, np.uint8).reshape(-1, 3073)
    return _scaled(table[:, 1:]).reshape(-1, 3, 32, 32), table[:, 0].astype(np.int64)


def fashion(part: str) -> Rows:
    """The pictures of Fashion-MNIST (`part`: `train` or `t10k`), `rows x 1 x 28 x 28`."""
    folder = _folder("fashion-mnist")
    pictures = np.frombuffer(gzip.open(folder / f"{part}-images-idx3-ubyte.gz").read(), np.uint8, offset=16)
    labels = np.frombuffer(gzip.open(folder / f"{part}-labels-idx1-ubyte.gz").read(), np.uint8, offset=8)
    return _scaled(pictures).reshape(-1, 1, 28, 28), labels.astype(np.int64)


def picked(rows: Rows, at: np.ndarray) -> Rows:
    """The rows at these positions."""
    return rows[0][at], rows[1][at]


def equal_parts(rows: Rows, parts: int, each: int | None = None) -> list[Rows]:
    """Rows in an order of chance, dealt to `parts` clients, of which each gets `each`, or all."""
    order = np.random.default_rng(0).permutation(len(rows[1]))
    return [picked(rows, at) for at in np.array_split(order[: each and parts * each], parts)]


def dirichlet_parts(rows: Rows, parts: int, alpha: float, least: int) -> list[Rows]:
    """Each class is shared out by a draw of Dirichlet's distribution, until each client has `least`
    rows."""
    draws = np.random.default_rng(0)
    while True:
        owner = np.empty(len(rows[1]), int)
        for label in np.unique(rows[1]):
            of = np.flatnonzero(rows[1] == label)
            owner[of] = draws.choice(parts, len(of), p=draws.dirichlet([alpha] * parts))
        if np.bincount(owner, minlength=parts).min() >= least:
            return [picked(rows, draws.permutation(np.flatnonzero(owner == client))) for client in range(parts)]


def cut(rows: Rows, share: float) -> tuple[Rows, Rows]:
    """The first rows, and the last `share` of them."""
    at = len(rows[1]) - round(share * len(rows[1]))
    return (rows[0][:at], rows[1][:at]), (rows[0][at:], rows[1][at:])
