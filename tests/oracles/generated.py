"""FedIOD (Gong et al. 2023) in plain NumPy, written from its equations.

Teachers, discriminators and student are linear models, the first two from 0, matrices of
`inputs + 1` rows of which the last is the biases; the generator is a linear map of noise. Teachers
and discriminators take full-batch steps; the generator's slopes are numeric. This file knows
nothing of fl: a test compares both.
"""

import numpy as np

RATE = 0.3


def scores(w, rows):
    return rows @ w[:-1] + w[-1]


def _softmax(z):
    top = np.exp(z - z.max(axis=1, keepdims=True))
    return top / top.sum(axis=1, keepdims=True)


def _sigmoid(z):
    return 1 / (1 + np.exp(-z))


def _moved(w, rows, by_score, rate=RATE):
    return w - rate * np.vstack([rows.T @ by_score, by_score.sum(axis=0)])


def _entropy(p):
    return -(p * np.log(p)).sum(axis=1)


def teacher(client, classes, steps):
    rows, labels = client
    w = np.zeros((rows.shape[1] + 1, classes))
    for _ in range(steps):
        w = _moved(w, rows, (_softmax(scores(w, rows)) - np.eye(classes)[labels]) / len(rows))
    return w


def target(made, teachers, judges, clients, classes):
    """Equations 8 and 9: the teachers' scores, each class weighted by the share of the class at the
    client times how far the client's discriminator finds the input less real than its own."""
    raw = []
    for judge, (rows, labels) in zip(judges, clients, strict=True):
        share = np.bincount(labels, minlength=classes) / len(labels)
        raw.append(_sigmoid(scores(judge, made)) / _sigmoid(scores(judge, rows)).mean() * share)
    return sum(w * scores(of, made) for w, of in zip(raw / np.sum(raw, axis=0), teachers, strict=True))


def objective(made, teachers, judges, student, clients, classes, linear):
    """What the generator minimises: the terms of Equations 2, 3, 5 and 10. The discriminators'
    outputs are probabilities of "made"; against them either Equation 2 as it stands, or
    cross-entropy."""
    sizes = np.array([len(labels) for _, labels in clients], float)
    shares = sizes / sizes.sum()
    said = [_softmax(scores(of, made)) for of in teachers]
    sure = sum(share * _entropy(q) for share, q in zip(shares, said, strict=True))
    apart = _entropy(sum(share * q for share, q in zip(shares, said, strict=True))) - sure
    fooled = [_sigmoid(scores(judge, made)) for judge in judges]
    game = sum(-(1 - d).mean() if linear else -np.log(1 - d).mean() for d in fooled)
    unlike = ((scores(student, made) - target(made, teachers, judges, clients, classes)) ** 2).sum(axis=1)
    return game + sure.mean() - apart.mean() - unlike.mean()


def run(clients, classes, local, batches, generator, student, rates, linear):
    """`batches` are the inputs that were made in each step, `generator` weights and biases. Gives
    how far the made inputs lie from what this generator can make of any noise, then the generator
    and the student. `rates` are those of generator and student."""
    weights, bias = generator
    teachers = [teacher(client, classes, local) for client in clients]
    judges = [np.zeros((len(bias) + 1, 1)) for _ in clients]
    off = 0.0
    total = sum(len(labels) for _, labels in clients)
    for made in batches:
        noise = np.linalg.lstsq(weights.T, (made - bias).T, rcond=None)[0].T
        off = max(off, np.abs(noise @ weights + bias - made).max())
        due = target(made, teachers, judges, clients, classes)

        def loss(both, noise=noise, student=student, judges=judges):
            made = noise @ both[:-1] + both[-1]
            return objective(made, teachers, judges, student, clients, classes, linear)

        both = np.vstack([weights, bias])
        slope = np.zeros_like(both)
        for place in np.ndindex(both.shape):
            step = np.zeros_like(both)
            step[place] = 1e-5
            slope[place] = (loss(both + step) - loss(both - step)) / 2e-5
        both = both - rates[0] * slope
        weights, bias = both[:-1], both[-1]
        for k, (rows, _) in enumerate(clients):
            judge = judges[k]
            real, fake = _sigmoid(scores(judge, rows)), _sigmoid(scores(judge, made))
            if linear:  # Equation 2, minimised
                real, fake = real * (1 - real) / len(rows) * len(rows) / total, -fake * (1 - fake) / len(made)
            else:  # cross-entropy, as many real as made
                real, fake = real / len(rows) / 2, (fake - 1) / len(made) / 2
            judges[k] = _moved(judge, np.concatenate([rows, made]), np.concatenate([real, fake]))
        student = _moved(student, made, 2 * (scores(student, made) - due) / due.size, rates[1])
    return off, (weights, bias), student
