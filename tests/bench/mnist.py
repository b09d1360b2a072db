"""MNIST for the scripts here that train beside us: FL_DATA_DIR says where `mnist` is."""

import gzip
import os
import pathlib

import numpy as np


def images(part):
    """Of `train` or `t10k`: images, `n x 1 x 28 x 28`, normalised by the set's mean and deviation
    as ours are, and their classes."""
    def read(name, skip):
        path = pathlib.Path(os.environ["FL_DATA_DIR"]) / "mnist" / name
        raw = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
        return np.frombuffer(raw, dtype=np.uint8, offset=skip)

    x = read(f"{part}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    return ((x / 255 - 0.1307) / 0.3081).astype(np.float32), read(f"{part}-labels-idx1-ubyte", 8).astype(np.int64)


def tensors(part, most=None):
    """The first of them, as PyTorch has them."""
    import torch

    return tuple(torch.from_numpy(rows[:most]) for rows in images(part))
