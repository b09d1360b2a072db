"""Methods over pixels in plain NumPy: every pixel of an image has a class, and every pixel's scores
come from its own channels, by softmax regression from 0: a matrix of `channels + 1` rows, the last
of biases.

Means of losses are over the pixels of the batch (`CrossEntropyLoss` of PyTorch). Images are
`images x channels x pixels`, masks `images x pixels`. This file knows nothing of fl.
"""

import numpy as np

STEPS, RATE = 3, 0.5


def scores(w, images):
    """`images x classes x pixels`."""
    return np.einsum("icp,ck->ikp", images, w[:-1]) + w[-1][None, :, None]


def _shares(z):
    top = np.exp(z - z.max(axis=1, keepdims=True))
    return top / top.sum(axis=1, keepdims=True)


def _one_hot(masks, classes):
    return np.eye(classes)[masks].transpose(0, 2, 1)


def cross_entropy(z, masks):
    """Mean over the pixels of the batch."""
    due = _one_hot(masks, z.shape[1])
    return -(due * np.log(_shares(z))).sum() / masks.size


def dice(z, masks):
    """One minus the mean over the classes but the first of `(2 sum p g + 1) / (sum p + sum g + 1)`
    over the pixels of the batch (Milletari et al. 2016, with sums smoothed by 1)."""
    p, g = _shares(z), _one_hot(masks, z.shape[1])
    parts = [(2 * (p[:, c] * g[:, c]).sum() + 1) / (p[:, c].sum() + g[:, c].sum() + 1) for c in range(1, z.shape[1])]
    return 1 - np.mean(parts)


def descend(w, loss, steps=STEPS):
    for _ in range(steps):
        slope = np.zeros_like(w)
        for place in np.ndindex(w.shape):
            step = np.zeros_like(w)
            step[place] = 1e-5
            slope[place] = (loss(w + step) - loss(w - step)) / 2e-5
        w = w - RATE * slope
    return w


def fedavg(clients, classes, cohorts, w, weight):
    """FedAvg (McMahan et al. 2017) on cross-entropy plus `weight` times the Dice loss; clients
    count by their images."""
    for cohort in cohorts:
        answers = []
        for k in cohort:
            images, masks = clients[k]

            def loss(w, images=images, masks=masks):
                z = scores(w, images)
                return cross_entropy(z, masks) + weight * dice(z, masks)

            answers.append(descend(w, loss))
        w = np.average(answers, axis=0, weights=[len(clients[k][1]) for k in cohort])
    return w


def fedmd(clients, public, classes, rounds, begin):
    """FedMD (Li and Wang 2019) over pixels: parties approach the mean of the scores of every pixel
    of the public images by squared difference, then learn their own examples. `begin` are the
    models before the first round."""
    own = [descend(w, lambda w, k=k: cross_entropy(scores(w, clients[k][0]), clients[k][1])) for k, w in enumerate(begin)]
    for _ in range(rounds):
        due = np.mean([scores(w, public) for w in own], axis=0)
        own = [descend(w, lambda w: ((scores(w, public) - due) ** 2).mean()) for w in own]  # noqa: B023
        own = [descend(w, lambda w, k=k: cross_entropy(scores(w, clients[k][0]), clients[k][1])) for k, w in enumerate(own)]
    return own
