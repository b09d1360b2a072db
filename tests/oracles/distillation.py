"""Methods that exchange labels, scores or votes in plain NumPy, each written from its paper.

The model is softmax regression from 0, a matrix of `inputs + 1` rows of which the last is the
biases. All steps are of full batches, so that nothing is drawn. This file knows nothing of fl: a
test compares both.
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
    """The slope by each score of the mean cross-entropy to rows of probabilities. Rows may sum to
    more than 1: the losses of several targets."""
    return lambda z: (softmax(z) * target.sum(axis=1, keepdims=True) - target) / len(z)


def to_scores(target):
    """The slope of the mean absolute difference, over rows and classes."""
    return lambda z: np.sign(z - target) / z.size


def to_scores_squared(target):
    """The slope of the mean squared difference, over rows and classes."""
    return lambda z: 2 * (z - target) / z.size


def to_softmax(target, tau):
    """The slope of the divergence of both softmaxes at a temperature, times its square (Hinton et
    al. 2015), mean over rows."""
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
    """FedMD (Li and Wang 2019, Algorithm 1). Each party learns the labelled public samples, then
    its own examples. In each round the scores of the public samples are averaged, each party
    approaches the mean ("digest"), and learns its own examples ("revisit")."""
    own = [learn(learn(new(public, classes), (public, known)), client) for client in clients]
    for _ in range(rounds):
        consensus = np.mean([scores(w, public) for w in own], axis=0)
        own = [learn(descend(w, public, loss(consensus)), client) for w, client in zip(own, clients, strict=True)]
    return own


def feded(clients, public, classes, rounds):
    """FedED (Sui et al. 2020): the server's model learns the mean of the clients' probabilities of
    the public samples, and the clients learn the labels that it then gives."""
    own, server = [new(public, classes) for _ in clients], new(public, classes)
    for _ in range(rounds):
        ensemble = np.mean([softmax(scores(w, public)) for w in own], axis=0)
        server = descend(server, public, to_labels(ensemble))
        taught = softmax(scores(server, public))
        own = [descend(learn(w, client), public, to_labels(taught)) for w, client in zip(own, clients, strict=True)]
    return own, server


def dsfl(clients, public, classes, rounds, temperature):
    """DS-FL (Itahara et al. 2020, Algorithm 1) with entropy reduction: clients learn their own
    examples and label; the softmax of the mean label over the temperature is what all learn."""
    own, server = [new(public, classes) for _ in clients], new(public, classes)
    for _ in range(rounds):
        own = [learn(w, client) for w, client in zip(own, clients, strict=True)]
        mean = np.mean([softmax(scores(w, public)) for w in own], axis=0)
        label = softmax(mean, temperature)
        own = [descend(w, public, to_labels(label)) for w in own]
        server = descend(server, public, to_labels(label))
    return own, server


def robust_mean(points, share):
    """The spectral filter (Diakonikolas et al. 2017) as Cronus uses it: twice, those `share / 2` of
    the points go that lie farthest along the direction in which the points differ most."""
    for _ in range(2):
        away = points - points.mean(axis=0)
        values, vectors = np.linalg.eigh(away.T @ away / len(points))
        drop = int(np.ceil(share / 2 * len(points)))
        if values[-1] <= 1e-12 or drop >= len(points):
            break
        points = points[np.sort(np.argsort(np.abs(away @ vectors[:, -1]), kind="stable")[: len(points) - drop])]
    return points.mean(axis=0)


def cronus(clients, public, classes, rounds, combine):
    """Cronus (Chang et al. 2019): each party learns its own examples, then in each round labels the
    public samples, and trains on its own and the public samples together: here a step on each in
    turn. `combine` makes one label of the parties' labels of a sample."""
    own = [learn(new(public, classes), client) for client in clients]
    for _ in range(rounds):
        said = np.array([softmax(scores(w, public)) for w in own])
        label = to_labels(np.array([combine(said[:, at]) for at in range(len(public))]))
        for _ in range(STEPS):
            own = [descend(learn(w, client, 1), public, label, 1) for w, client in zip(own, clients, strict=True)]
    return own


def density_ratio(uniform, own, width, weight):
    """KuLSIF (Kanamori et al. 2012), the ratio of the density of `own` to that of `uniform`: the
    function of kernels on all points that minimises
    `mean_uniform w^2 / 2 - mean_own w + weight |w|^2 / 2`."""
    kernel = lambda a, b: np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=2) / (2 * width**2))  # noqa: E731
    points = np.concatenate([uniform, own])
    of_uniform = (np.arange(len(points)) < len(uniform)).astype(float)
    # the slope of the objective by the function is 0 where (U K + weight) c = S 1
    system = of_uniform[:, None] / len(uniform) * kernel(points, points) + weight * np.eye(len(points))
    factors = np.linalg.solve(system, (1 - of_uniform) / len(own))
    return lambda x: kernel(x, points) @ factors


def accepted(client, asked, uniform, width, weight, share, level):
    """Selective-FD's selector at a client: for each class a ratio, fitted to the first `share` of
    its examples, and a threshold, the quantile `level` over the others. A sample passes by any
    class."""
    rows, labels = client
    passes = np.zeros(len(asked), bool)
    for c in np.unique(labels):
        mine = rows[labels == c]
        first = max(1, int(np.rint(share * len(mine))))
        ratio = density_ratio(uniform, mine[:first], width, weight)
        passes |= ratio(asked) >= np.quantile(ratio(mine[first:] if first < len(mine) else mine), level)
    return passes


def selective(clients, public, classes, rounds, masks, most, hard=False):
    """Selective-FD (Shao et al. 2024, Algorithm 1) from models that know their own examples: the
    mean of the labels of a sample over the clients whose mask has it; the server drops those whose
    distance to the one-hot label is above `most`; clients learn their own examples, then these.
    Also gives how many labels were kept in each round."""
    own, kept = [learn(new(public, classes), client) for client in clients], []
    known = np.any(masks, axis=0)
    for _ in range(rounds):
        said = [softmax(scores(w, public)) for w in own]
        said = [one_hot(z.argmax(axis=1), classes) for z in said] if hard else said
        of = lambda at: [z[at] for z, mask in zip(said, masks, strict=True) if mask[at]]  # noqa: B023, E731
        label = np.array([np.mean(of(at), axis=0) for at in np.flatnonzero(known)])
        clear = np.abs(label - one_hot(label.argmax(axis=1), classes)).sum(axis=1) <= most + 1e-7
        asked, kept = public[known][clear], [*kept, clear.sum()]
        own = [learn(w, client) for w, client in zip(own, clients, strict=True)]
        if clear.any():
            own = [descend(w, asked, to_labels(label[clear])) for w in own]
    return own, kept


def fkd(clients, classes, rounds, others_only, weight=1.0, agreeing=False):
    """Federated distillation (Jeong et al. 2018): clients exchange the mean output of each class.
    The loss of an example also has the cross-entropy to the mean of its class over the clients that
    have it, in the paper over the other clients (`others_only`). PLS: only means that name their
    class."""
    own = [new(rows, classes) for rows, _ in clients]
    for _ in range(rounds):
        said = []
        for w, (rows, labels) in zip(own, clients, strict=True):
            out = softmax(scores(w, rows))
            means = {c: out[labels == c].mean(axis=0) for c in np.unique(labels)}
            said.append({c: mean for c, mean in means.items() if not agreeing or mean.argmax() == c})
        for k, (rows, labels) in enumerate(clients):
            heard = [means for j, means in enumerate(said) if j != k or not others_only]
            means = {c: np.mean([of[c] for of in heard if c in of], axis=0) for c in set().union(*heard)}
            taught = np.array([means.get(c, np.zeros(classes)) for c in labels])
            own[k] = descend(own[k], rows, to_labels(one_hot(labels, classes) + weight * taught))
    return own


def feddf(clients, public, classes, cohorts, temperature, of_scores=True):
    """FedDF (Lin et al. 2020, Algorithm 1): the server's model begins each round at the mean of the
    clients' parameters and learns the softmax of the mean of their scores, or, if not `of_scores`,
    the mean of their softmaxes."""
    w = new(public, classes)
    for cohort in cohorts:
        sent = [learn(w, clients[k]) for k in cohort]
        said = np.array([scores(own, public) for own in sent])
        teacher = softmax(said.mean(axis=0), temperature) if of_scores else np.mean([softmax(z, temperature) for z in said], axis=0)
        mean = np.average(sent, axis=0, weights=[len(clients[k][1]) for k in cohort])
        w = descend(mean, public, to_labels(teacher))
    return w


def fedkd(clients, public, classes, loss):
    """FedKD (Gong et al. 2022, Equations 1 and 2): the score of a class counts by the client's
    share of its examples, and the student learns the sums."""
    counts = np.array([np.bincount(labels, minlength=classes) for _, labels in clients])
    said = np.array([scores(learn(new(public, classes), client), public) for client in clients])
    return descend(new(public, classes), public, loss((said * (counts / counts.sum(axis=0))[:, None]).sum(axis=0)))


def student(parts, public, classes):
    """FedKT (Li et al. 2021, Algorithm 1), a party's student: it learns what most of the teachers
    say, one teacher for each part of a partition of the party's examples."""
    votes = sum(one_hot(scores(learn(new(public, classes), part), public).argmax(axis=1), classes) for part in parts)
    return learn(new(public, classes), (public, votes.argmax(axis=1)))


def final(parties, public, classes, consistent):
    """FedKT's model at the server, which learns what most of the parties' students say. If
    `consistent`, a party whose students do not all agree on a sample has no vote there."""
    counts = np.zeros((len(public), classes))
    for students in parties:
        votes = np.array([scores(w, public).argmax(axis=1) for w in students])
        agreed = (votes == votes[0]).all(axis=0) if consistent else np.ones(len(public), bool)
        counts += agreed[:, None] * sum(one_hot(said, classes) for said in votes)
    return learn(new(public, classes), (public, counts.argmax(axis=1)))
