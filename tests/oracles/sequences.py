"""One step of a network with an LSTM in plain NumPy, by its equations (Hochreiter and Schmidhuber
1997; Gers et al. 2000) and numeric slopes.

The model embeds numbers of letters (0 is none), reads them, and scores by its output at the last
one. This file knows nothing of fl: a test compares both.
"""

import numpy as np


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def scores(w, rows):
    """`w` has the tensors by their names, gates in the order input, forget, candidate, output."""
    out = []
    for row in rows.astype(int):
        h = c = np.zeros(w["1.weight_hh"].shape[1])
        for letter in np.trim_zeros(row, "b"):
            x = w["0.weight"][letter - 1] if letter else np.zeros(w["0.weight"].shape[1])
            i, f, g, o = np.split(w["1.weight_ih"] @ x + w["1.weight_hh"] @ h + w["1.bias"], 4)
            c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
            h = _sigmoid(o) * np.tanh(c)
        out.append(w["3.weight"] @ h + w["3.bias"])
    return np.array(out)


def loss(w, rows, labels):
    found = scores(w, rows)
    top = found.max(axis=1, keepdims=True)
    logs = found - top - np.log(np.exp(found - top).sum(axis=1, keepdims=True))
    return -logs[np.arange(len(labels)), labels].mean()


def step(w, rows, labels, rate, by=1e-5):
    """The tensors after a step of gradient descent on all rows."""
    w, moved = {name: array.astype(float) for name, array in w.items()}, {}
    for name, array in w.items():
        moved[name] = array.copy()
        for at in np.ndindex(array.shape):
            kept = array[at]
            array[at] = kept + by
            above = loss(w, rows, labels)
            array[at] = kept - by
            moved[name][at] = kept - rate * (above - loss(w, rows, labels)) / (2 * by)
            array[at] = kept
    return moved
