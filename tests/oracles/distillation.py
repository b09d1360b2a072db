"""Methods that exchange labels, scores or votes in plain NumPy, each written from its paper.

The model is softmax regression from 0, a matrix of `inputs + 1` rows of which the last is the biases.
All steps are of full batches, so that nothing is drawn. This file knows nothing of fl: a test
compares both.
"""

import numpy as np

STEPS, RATE = 3, 0.2


def new(rows, classes):
    return np.zeros((rows.shape[1] + 1, classes))


def scores(w, rows):
    return rows @ w[:-1] + w[-1]


def softmax(z, tau=1.0):
    top = np.exp((z - z.max(axis=1, keepdims=True)) / tau)
    return top / top.sum(axis=1, keepdims=True)


def one_hot(labels, classes):
    return np.eye(classes)[labels]


def to_labels(target):
    """The slope by each score of the mean cross-entropy to rows of probabilities. Rows may sum to more
    than 1: the losses of several targets."""
    return lambda z: (softmax(z) * target.sum(axis=1, keepdims=True) - target) / len(z)


def to_scores(target):
    """The slope of the mean absolute difference, over rows and classes."""
    return lambda z: np.sign(z - target) / z.size


def to_scores_squared(target):
    """The slope of the mean squared difference, over rows and classes."""
    return lambda z: 2 * (z - target) / z.size


def to_softmax(target, tau):
    """The slope of the divergence of both softmaxes at a temperature, times its square (Hinton et al.
    2015), mean over rows."""
    return lambda z: tau * (softmax(z, tau) - softmax(target, tau)) / len(z)


def descend(w, rows, slope, steps=STEPS):
    for _ in range(steps):
        by_score = slope(scores(w, rows))
        w = w - RATE * np.vstack([rows.T @ by_score, by_score.sum(axis=0)])
    return w


def learn(w, client, steps=STEPS):
    """Descent on a client's own examples."""
    rows, labels = client
    return descend(w, rows, to_labels(one_hot(labels, w.shape[1])), steps)


def fedmd(clients, public, known, classes, rounds, loss=to_scores):
    """FedMD (Li and Wang 2019, Algorithm 1). Each party learns the labelled public samples, then its
    own examples. In each round the scores of the public samples are averaged, each party approaches
    the mean ("digest"), and learns its own examples ("revisit")."""
    own = [learn(learn(new(public, classes), (public, known)), client) for client in clients]
    for _ in range(rounds):
        consensus = np.mean([scores(w, public) for w in own], axis=0)
        own = [learn(descend(w, public, loss(consensus)), client) for w, client in zip(own, clients, strict=True)]
    return own


def feded(clients, public, classes, rounds):
    """FedED (Sui et al. 2020): the server's model learns the mean of the clients' probabilities of the
    public samples, and the clients learn the labels that it then gives."""
    own, server = [new(public, classes) for _ in clients], new(public, classes)
    for _ in range(rounds):
        ensemble = np.mean([softmax(scores(w, public)) for w in own], axis=0)
        server = descend(server, public, to_labels(ensemble))
        taught = softmax(scores(server, public))
        own = [descend(learn(w, client), public, to_labels(taught)) for w, client in zip(own, clients, strict=True)]
    return own, server


def dsfl(clients, public, classes, rounds, temperature):
    """DS-FL (Itahara et al. 2020, Algorithm 1) with entropy reduction: clients learn their own examples
    and label; the softmax of the mean label over the temperature is what all learn."""
    own, server = [new(public, classes) for _ in clients], new(public, classes)
    for _ in range(rounds):
        own = [learn(w, client) for w, client in zip(own, clients, strict=True)]
        mean = np.mean([softmax(scores(w, public)) for w in own], axis=0)
        label = softmax(mean, temperature)
        own = [descend(w, public, to_labels(label)) for w in own]
        server = descend(server, public, to_labels(label))
    return own, server


def fkd(clients, classes, rounds, others_only, weight=1.0):
    """Federated distillation (Jeong et al. 2018): clients exchange the mean output of each class. The
    loss of an example also has the cross-entropy to the mean of its class over the clients that have
    it, in the paper over the other clients (`others_only`)."""
    own = [new(rows, classes) for rows, _ in clients]
    for _ in range(rounds):
        said = []
        for w, (rows, labels) in zip(own, clients, strict=True):
            out = softmax(scores(w, rows))
            said.append({c: out[labels == c].mean(axis=0) for c in np.unique(labels)})
        for k, (rows, labels) in enumerate(clients):
            heard = [means for j, means in enumerate(said) if j != k or not others_only]
            means = {c: np.mean([of[c] for of in heard if c in of], axis=0) for c in set().union(*heard)}
            taught = np.array([means.get(c, np.zeros(classes)) for c in labels])
            own[k] = descend(own[k], rows, to_labels(one_hot(labels, classes) + weight * taught))
    return own


def feddf(clients, public, classes, cohorts, temperature, of_scores=True):
    """FedDF (Lin et al. 2020, Algorithm 1): the server's model begins each round at the mean of the
    clients' parameters and learns the softmax of the mean of their scores, or, if not `of_scores`, the
    mean of their softmaxes."""
    w = new(public, classes)
    for cohort in cohorts:
        sent = [learn(w, clients[k]) for k in cohort]
        said = np.array([scores(own, public) for own in sent])
        teacher = softmax(said.mean(axis=0), temperature) if of_scores else np.mean([softmax(z, temperature) for z in said], axis=0)
        mean = np.average(sent, axis=0, weights=[len(clients[k][1]) for k in cohort])
        w = descend(mean, public, to_labels(teacher))
    return w


def fedkd(clients, public, classes, loss):
    """FedKD (Gong et al. 2022, Equations 1 and 2): the score of a class counts by the client's share of
    its examples, and the student learns the sums."""
    counts = np.array([np.bincount(labels, minlength=classes) for _, labels in clients])
    said = np.array([scores(learn(new(public, classes), client), public) for client in clients])
    return descend(new(public, classes), public, loss((said * (counts / counts.sum(axis=0))[:, None]).sum(axis=0)))


def student(parts, public, classes):
    """FedKT (Li et al. 2021, Algorithm 1), a party's student: it learns what most of the teachers say, one
    teacher for each part of a partition of the party's examples."""
    votes = sum(one_hot(scores(learn(new(public, classes), part), public).argmax(axis=1), classes) for part in parts)
    return learn(new(public, classes), (public, votes.argmax(axis=1)))


def final(parties, public, classes, consistent):
    """FedKT's model at the server, which learns what most of the parties' students say. If `consistent`, a
    party whose students do not all agree on a sample has no vote there."""
    counts = np.zeros((len(public), classes))
    for students in parties:
        votes = np.array([scores(w, public).argmax(axis=1) for w in students])
        agreed = (votes == votes[0]).all(axis=0) if consistent else np.ones(len(public), bool)
        counts += agreed[:, None] * sum(one_hot(said, classes) for said in votes)
    return learn(new(public, classes), (public, counts.argmax(axis=1)))
