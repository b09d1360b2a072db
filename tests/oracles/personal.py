"""Methods with personal models in plain NumPy, each written from its paper.

A model is one vector, and a client is its loss of such a vector: the mean over its rows, so that
clients take full-batch steps. `body` marks the numbers of the body by 1. Clients count alike. This
file knows nothing of fl: a test compares both.
"""

import numpy as np

STEPS, RATE = 2, 0.3


def slope(w, loss):
    """The gradient, by central differences."""
    ends = np.eye(len(w)) * 1e-5
    return np.array([(loss(w + end) - loss(w - end)) / 2e-5 for end in ends])


def descend(w, loss, where=1.0, steps=STEPS, pull=0.0, to=0.0):
    """Steps of the numbers in `where`, which are also pulled `to` a point."""
    for _ in range(steps):
        w = w - RATE * where * (slope(w, loss) + pull * (w - to))
    return w


def partial(clients, cohorts, begin, shared, train):
    """Rounds in which clients share the numbers in `shared` and keep the others; `train` makes a
    client's model from that which it begins a round with. Returns the clients' models, and the last
    mean of what they share."""
    own, common = [w.copy() for w in begin], begin[0]
    for cohort in cohorts:
        for k in cohort:
            own[k] = train(np.where(shared, common, own[k]), clients[k])
        common = np.mean([own[k] for k in cohort], axis=0)
    return own, common


def fedper(clients, cohorts, begin, body):
    """FedPer (Arivazhagan et al. 2019, Algorithms 1 and 2). LG-FedAvg (Liang et al. 2020) shares
    what FedPer keeps, and FedBN (Li et al. 2021) all but the layers that normalise."""
    return partial(clients, cohorts, begin, body, descend)[0]


def fedrep(clients, cohorts, begin, body, head_steps):
    """FedRep (Collins et al. 2021, Algorithm 1): the head, then the body."""

    def train(w, loss):
        return descend(descend(w, loss, 1 - body, head_steps), loss, body)

    return partial(clients, cohorts, begin, body, train)[0]


def fedbabu(clients, cohorts, begin, body, tune_steps):
    """FedBABU (Oh et al. 2022, Algorithm 1): the head is not trained before the last round."""
    own, common = partial(clients, cohorts, begin, body, lambda w, loss: descend(w, loss, body))
    ends = (np.where(body, common, w) for w in own)
    return [descend(w, loss, steps=tune_steps) for w, loss in zip(ends, clients, strict=True)]


def ditto(clients, cohorts, begin, pull, own_steps):
    """Ditto (Li et al. 2021, Algorithm 1)."""
    own, common = list(begin), begin[0]
    for cohort in cohorts:
        for k in cohort:
            own[k] = descend(own[k], clients[k], steps=own_steps, pull=pull, to=common)
        common = np.mean([descend(common, clients[k]) for k in cohort], axis=0)
    return own


def apfl(clients, cohorts, begin, mix, adaptive=False):
    """APFL (Deng et al. 2020, Algorithm 1). Where the mixture is `adaptive`, a client moves its
    share along the slope of its loss by the share, before the first step of a round, and holds it
    within 0 and 1. Returns the mixtures."""
    own, shown, common = list(begin), list(begin), begin[0]
    mixes = [mix] * len(clients)
    for cohort in cohorts:
        answers = []
        for k in cohort:
            w = common
            for step in range(STEPS):
                by_mixture = slope(mixes[k] * own[k] + (1 - mixes[k]) * w, clients[k])
                if adaptive and step == 0:
                    mixes[k] = np.clip(mixes[k] - RATE * (own[k] - w) @ by_mixture, 0, 1)
                w = w - RATE * slope(w, clients[k])
                own[k] = own[k] - RATE * mixes[k] * by_mixture
            shown[k] = mixes[k] * own[k] + (1 - mixes[k]) * w
            answers.append(w)
        common = np.mean(answers, axis=0)
    return shown


def per_fedavg(clients, cohorts, begin, adapt, learn):
    """Per-FedAvg, first order (Fallah et al. 2020, Algorithm 1), with the same batch for both
    slopes. Returns the common model after a step of each client."""
    common = begin[0]
    for cohort in cohorts:
        answers = []
        for k in cohort:
            w = common
            for _ in range(STEPS // 2):
                w = w - learn * slope(w - adapt * slope(w, clients[k]), clients[k])
            answers.append(w)
        common = np.mean(answers, axis=0)
    return [descend(common, loss, steps=1) for loss in clients]


def network(client, classes, width, normalised=False):
    """The loss of a network of two linear layers, with batch normalisation between them or without.
    Its numbers are biases and weights, layer by layer."""
    rows, labels = client
    norm = [width, width] if normalised else []
    ends = np.cumsum([width, width * rows.shape[1], *norm, classes])

    def loss(w):
        b1, w1, *scale, b2, w2 = np.split(w, ends)
        z = rows @ w1.reshape(width, -1).T + b1
        if normalised:
            z = (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-5) * scale[1] + scale[0]
        scores = z @ w2.reshape(classes, -1).T + b2
        top = scores.max(axis=1)
        total = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        return np.mean(total - scores[np.arange(len(labels)), labels])

    return loss
