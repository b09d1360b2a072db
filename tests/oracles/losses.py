"""The losses on scores in plain NumPy, each as its paper or PyTorch's page defines it, and descent
on a linear model by numeric slopes. This file knows nothing of fl: a test compares both.

`scores` and `target` are `rows x outputs`. `target` of `cross_entropy` holds probabilities, of
`several` 1, 0, or -1 for unknown, and of the others scores, or numbers to predict.
"""

import numpy as np


def _shares(scores, tau=1.0):
    top = np.exp((scores - scores.max(axis=1, keepdims=True)) / tau)
    return top / top.sum(axis=1, keepdims=True)


def cross_entropy(scores, target):
    """Of probabilities, mean over rows."""
    return -(target * np.log(_shares(scores))).sum(axis=1).mean()


def several(scores, target):
    """Binary cross-entropy of several labels, mean over those that are known
    (`BCEWithLogitsLoss`)."""
    known = target >= 0
    return (np.log1p(np.exp(scores)) - scores * target)[known].mean()


def mae(scores, target):
    """Mean absolute difference, over rows and outputs (FedMD; `L1Loss`)."""
    return np.abs(scores - target).mean()


def mse(scores, target):
    """Mean squared difference, over rows and outputs (`MSELoss`)."""
    return ((scores - target) ** 2).mean()


def huber(delta):
    """Huber 1964, linear from a difference of `delta`, mean over rows and outputs (`HuberLoss`)."""

    def loss(scores, target):
        off = np.abs(scores - target)
        return np.where(off <= delta, off**2 / 2, delta * (off - delta / 2)).mean()

    return loss


def norm(scores, target):
    """Mean over rows of the Euclidean norm of the difference (FedKD)."""
    return np.linalg.norm(scores - target, axis=1).mean()


def kl(tau):
    """Hinton et al. 2015: divergence of both softmaxes at a temperature, times its square."""

    def loss(scores, target):
        due, found = _shares(target, tau), _shares(scores, tau)
        return tau**2 * (due * np.log(due / found)).sum(axis=1).mean()

    return loss


def descend(loss, rows, target, outputs, rate, steps):
    """A linear model from 0 after full-batch steps along central differences of the loss by the
    scores: weights by output, then biases, and the loss before each step."""
    weights, biases, seen = np.zeros((outputs, rows.shape[1])), np.zeros(outputs), []
    for _ in range(steps):
        scores = rows @ weights.T + biases
        seen.append(loss(scores, target))
        slope = np.zeros_like(scores)
        for at in np.ndindex(scores.shape):
            up, down = scores.copy(), scores.copy()
            up[at] += 1e-5
            down[at] -= 1e-5
            slope[at] = (loss(up, target) - loss(down, target)) / 2e-5
        weights -= rate * slope.T @ rows
        biases -= rate * slope.sum(axis=0)
    return np.concatenate([weights.ravel(), biases]), seen
