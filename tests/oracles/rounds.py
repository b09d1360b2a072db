"""Rounds of federated learning in plain NumPy, each method written from its paper.

The model is softmax regression from 0, with the mean cross-entropy of a client's rows as its loss;
clients take full-batch steps, so that nothing is drawn. Parameters are one vector of float64. This
file knows nothing of fl: a test compares both.
"""

import numpy as np

STEPS, RATE = 3, 0.5


def gradient(w, rows, labels, classes):
    """The gradient of the mean cross-entropy; `w` is weights by class, then biases."""
    inputs = rows.shape[1]
    weights, biases = w[: classes * inputs].reshape(classes, inputs), w[classes * inputs :]
    scores = rows @ weights.T + biases
    scores -= scores.max(axis=1, keepdims=True)
    shares = np.exp(scores)
    shares /= shares.sum(axis=1, keepdims=True)
    error = (shares - np.eye(classes)[labels]) / len(rows)
    return np.concatenate([(error.T @ rows).ravel(), error.sum(axis=0)])


def loss(w, rows, labels, classes):
    """The mean cross-entropy, see `gradient`."""
    inputs = rows.shape[1]
    scores = rows @ w[: classes * inputs].reshape(classes, inputs).T + w[classes * inputs :]
    top = scores.max(axis=1)
    total = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
    return np.mean(total - scores[np.arange(len(rows)), labels])


def trained(w, client, classes, pull=0.0, offset=0.0, steps=STEPS, share=1.0):
    """Full-batch descent from `w`; `pull` is FedProx's mu, `offset` is added to each gradient, and
    the rate is `share` of the full one."""
    start, w = w, w.copy()
    for _ in range(steps):
        w -= share * RATE * (gradient(w, *client, classes) + pull * (w - start) + offset)
    return w


def run(clients, classes, cohorts, aggregate, mu=0.0, shares=None):
    """FedAvg (McMahan et al. 2017), or FedProx (Li et al. 2020) with `mu`: one round for each
    cohort. `aggregate` gets the server's parameters, the clients', and their numbers of rows;
    `shares` are those of the learning rate in each round."""
    w = np.zeros(classes * clients[0][0].shape[1] + classes)
    for cohort, share in zip(cohorts, shares or [1.0] * len(cohorts), strict=True):
        answers = np.array([trained(w, clients[k], classes, mu, share=share) for k in cohort])
        w = aggregate(w, answers, np.array([len(clients[k][1]) for k in cohort], float))
    return w


def scaffold(clients, classes, cohorts, server_rate=1.0, shares=None):
    """SCAFFOLD with option II (Karimireddy et al. 2020, Algorithm 1): clients count alike. `shares`
    are those of the local rate in each round."""
    n = classes * clients[0][0].shape[1] + classes
    w, c, own = np.zeros(n), np.zeros(n), np.zeros((len(clients), n))
    for cohort, share in zip(cohorts, shares or [1.0] * len(cohorts), strict=True):
        moves, changes = [], []
        for k in cohort:
            y = trained(w, clients[k], classes, offset=c - own[k], share=share)
            new = own[k] - c + (w - y) / (STEPS * share * RATE)
            moves.append(y - w)
            changes.append(new - own[k])
            own[k] = new
        w = w + server_rate * np.mean(moves, axis=0)
        c = c + np.sum(changes, axis=0) / len(clients)
    return w


def feddyn(clients, classes, cohorts, alpha):
    """FedDyn (Acar et al. 2021, Algorithm 1): clients count alike. The term
    `alpha / 2 |w - sent|^2` is `pull`, and the linear term an offset."""
    n = classes * clients[0][0].shape[1] + classes
    w, h, own = np.zeros(n), np.zeros(n), np.zeros((len(clients), n))
    for cohort in cohorts:
        answers = np.array([trained(w, clients[k], classes, alpha, -own[k]) for k in cohort])
        own[list(cohort)] -= alpha * (answers - w)
        h = h - alpha * (answers - w).sum(axis=0) / len(clients)
        w = answers.mean(axis=0) - h / alpha
    return w


def fedamp(clients, classes, cohorts, alpha, sigma, weight):
    """FedAMP (Huang et al. 2021, Algorithm 1): all models begin at 0. Returns those of the
    clients."""
    own = np.zeros((len(clients), classes * clients[0][0].shape[1] + classes))
    for cohort in cohorts:
        before = own.copy()
        for k in cohort:
            shares = alpha * np.exp(-((before - before[k]) ** 2).sum(axis=1) / sigma) / sigma
            aim = before[k] + shares @ (before - before[k])
            for _ in range(STEPS):
                own[k] -= RATE * (gradient(own[k], *clients[k], classes) + weight / alpha * (own[k] - aim))
    return own


def nova(clients, classes, cohorts, steps):
    """FedNova with plain descent (Wang et al. 2020, section 4): client k takes `steps[k]` steps,
    its change counts per step, and the server moves by the mean number of steps."""
    w = np.zeros(classes * clients[0][0].shape[1] + classes)
    for cohort in cohorts:
        share = np.array([len(clients[k][1]) for k in cohort], float)
        share /= share.sum()
        length = np.array([steps[k] for k in cohort], float)
        changes = np.array([trained(w, clients[k], classes, steps=steps[k]) - w for k in cohort])
        w = w + (share @ length) * (share @ (changes / length[:, None]))
    return w


def fair(clients, classes, cohorts, q, rate):
    """q-FedAvg (Li et al. 2020, Algorithm 2), one local step, so that the loss of the training is
    that of the parameters that were sent."""
    w, big = np.zeros(classes * clients[0][0].shape[1] + classes), 1 / rate
    for cohort in cohorts:
        losses = np.array([loss(w, *clients[k], classes) for k in cohort])
        moves = big * np.array([w - trained(w, clients[k], classes, steps=1) for k in cohort])
        bounds = q * losses ** (q - 1) * (moves**2).sum(axis=1) + big * losses**q
        w = w - (losses[:, None] ** q * moves).sum(axis=0) / bounds.sum()
    return w


def _on_the_simplex(point):
    """The nearest point with entries of at least 0 that sum to 1, by bisection of the shift."""
    low, high = point.min() - 1, point.max()
    for _ in range(200):
        shift = (low + high) / 2
        low, high = (shift, high) if np.maximum(point - shift, 0).sum() > 1 else (low, shift)
    return np.maximum(point - low, 0)


def agnostic(clients, classes, rounds, rate):
    """Stochastic-AFL (Mohri et al. 2019) with all clients and one local step."""
    w = np.zeros(classes * clients[0][0].shape[1] + classes)
    shares = np.full(len(clients), 1 / len(clients))
    for _ in range(rounds):
        losses = np.array([loss(w, *client, classes) for client in clients])
        w = shares @ np.array([trained(w, client, classes, steps=1) for client in clients])
        shares = _on_the_simplex(shares + rate * losses)
    return w


def before(step, rule):
    """`rule` on the answers that `step` makes of the clients'. `step` gets and returns answers and
    their weights."""

    def both(w, answers, rows):
        return rule(w, *step(w, answers, rows))

    return both


def buckets(groups):
    """Bucketing (Karimireddy et al. 2022, Algorithm 1), with the groups that a permutation gives:
    the mean of each, with the weight of its answers together."""

    def step(_, answers, rows):
        means = [np.average(answers[list(group)], axis=0, weights=rows[list(group)]) for group in groups]
        return np.array(means), np.array([rows[list(group)].sum() for group in groups])

    return step


def mixing(share, sketch=lambda answers: answers):
    """Nearest-neighbour mixing (Allouah et al. 2023, Algorithm 2): the mean of the n - f answers
    nearest to each, by what `sketch` makes of them."""

    def step(_, answers, rows):
        keep = len(answers) - int(share * len(answers))
        seen = sketch(answers)
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)
        return np.array([answers[np.argsort(row, kind="stable")[:keep]].mean(axis=0) for row in apart]), rows

    return step


def clipping(radius):
    """Static clipping of updates."""
    return lambda w, answers, rows: (w + _clipped(answers - w, radius), rows)


def adaptive_clipping(share):
    """ARC (Allouah et al. 2024, Algorithm 2): the floor(2 f / n (n - f)) longest updates get the
    length of the next one."""

    def step(w, answers, rows):
        n = len(answers)
        bad = int(share * n)
        longest = np.sort(np.linalg.norm(answers - w, axis=1))[::-1]
        return w + _clipped(answers - w, longest[2 * bad * (n - bad) // n]), rows

    return step


def mean(_, answers, rows):
    """FedAvg's rule."""
    return np.average(answers, axis=0, weights=rows)


class Adaptive:
    """FedAdagrad, FedAdam and FedYogi (Reddi et al. 2021, Algorithm 2)."""

    def __init__(self, kind, rate, beta1=0.9, beta2=0.99, tau=1e-3):
        self.kind, self.rate, self.beta1, self.beta2, self.tau = kind, rate, beta1, beta2, tau
        self.m, self.v = 0.0, tau**2

    def __call__(self, w, answers, rows):
        change = mean(w, answers, rows) - w
        square = change**2
        self.m = self.beta1 * self.m + (1 - self.beta1) * change
        self.v = {
            "adagrad": lambda: self.v + square,
            "adam": lambda: self.beta2 * self.v + (1 - self.beta2) * square,
            "yogi": lambda: self.v - (1 - self.beta2) * square * np.sign(self.v - square),
        }[self.kind]()
        return w + self.rate * self.m / (np.sqrt(self.v) + self.tau)


class Momentum:
    """FedAvgM (Hsu et al. 2019)."""

    def __init__(self, beta, rate):
        self.beta, self.rate, self.v = beta, rate, 0.0

    def __call__(self, w, answers, rows):
        self.v = self.beta * self.v + mean(w, answers, rows) - w
        return w + self.rate * self.v


def median(_, answers, __):
    """Yin et al. 2018."""
    return np.median(answers, axis=0)


def trimmed(share):
    """The trimmed mean (Yin et al. 2018)."""

    def rule(_, answers, __):
        drop = int(share * len(answers))
        return np.sort(answers, axis=0)[drop : len(answers) - drop].mean(axis=0)

    return rule


def _krum_scores(answers, bad):
    apart = ((answers[:, None] - answers[None]) ** 2).sum(axis=2)
    nearest = np.sort(apart, axis=1)[:, 1:]  # the first is the answer itself
    return nearest[:, : len(answers) - bad - 2].sum(axis=1)


def krum(share):
    """Blanchard et al. 2017: the answer with the least sum of distances to its n - f - 2
    nearest."""
    return lambda _, answers, __: answers[_krum_scores(answers, int(share * len(answers))).argmin()]


def multi_krum(share):
    """The mean of all but f answers, those of the least scores."""

    def rule(_, answers, __):
        bad = int(share * len(answers))
        best = np.argsort(_krum_scores(answers, bad))[: len(answers) - bad]
        return answers[best].mean(axis=0)

    return rule


def bulyan(share):
    """El Mhamdi et al. 2018: Krum chooses n - 2 f answers one by one; of each number, the mean of
    the n - 4 f values nearest to the median of those."""

    def rule(_, answers, __):
        bad = int(share * len(answers))
        left, chosen = list(range(len(answers))), []
        while len(chosen) < len(answers) - 2 * bad:
            here = answers[left]
            apart = ((here[:, None] - here[None]) ** 2).sum(axis=2)
            count = max(len(left) - bad - 2, 1)
            scores = np.sort(apart, axis=1)[:, 1 : count + 1].sum(axis=1)
            chosen.append(left.pop(scores.argmin()))
        chosen = answers[chosen]
        near = np.argsort(np.abs(chosen - np.median(chosen, axis=0)), axis=0)
        return np.take_along_axis(chosen, near[: len(chosen) - 2 * bad], axis=0).mean(axis=0)

    return rule


def fltrust(trusted):
    """Cao et al. 2021: updates count by their cosine with the trusted one's, if it is above 0, and
    have its length. `trusted` is its place among the answers."""

    def rule(w, answers, _):
        moves = answers - w
        root, others = moves[trusted], np.delete(moves, trusted, axis=0)
        sizes = np.linalg.norm(others, axis=1)
        trust = np.maximum(others @ root / (sizes * np.linalg.norm(root)), 0)
        scaled = others * (np.linalg.norm(root) / sizes)[:, None]
        return w + trust @ scaled / trust.sum()

    return rule


def geometric_median(_, answers, __):
    """The point of least sum of distances (Weiszfeld's steps, until they stand still)."""
    point = answers.mean(axis=0)
    for _ in range(20_000):
        near = 1 / np.maximum(np.linalg.norm(answers - point, axis=1), 1e-12)
        point, last = (near[:, None] * answers).sum(axis=0) / near.sum(), point
        if np.abs(point - last).max() < 1e-14:
            break
    return point


def _clipped(moves, radius):
    sizes = np.linalg.norm(moves, axis=1, keepdims=True)
    return moves * np.minimum(1, radius / np.maximum(sizes, 1e-300))


def norm_bounding(bound):
    """Sun et al. 2019: each client's change has this norm at most."""
    return lambda w, answers, rows: w + np.average(_clipped(answers - w, bound), axis=0, weights=rows)


class CentredClipping:
    """Karimireddy et al. 2021: answers are clipped around the last aggregate, here of changes."""

    def __init__(self, radius):
        self.radius, self.last = radius, 0.0

    def __call__(self, w, answers, _):
        centre = w + self.last
        new = centre + _clipped(answers - centre, self.radius).mean(axis=0)
        self.last = new - w
        return new
