"""Methods that learn by features in plain NumPy, each written from its paper.

The model is a network of two linear layers; the outputs of the first are the features. Clients take
full-batch steps along numeric slopes. Parameters are one vector: biases and weights of the first
layer, then of the last. This file knows nothing of fl: a test compares both.
"""

import numpy as np

STEPS, RATE, WIDTH = 2, 0.3, 4


def _layers(w, inputs, classes):
    sizes = [WIDTH, WIDTH * inputs, classes, classes * WIDTH]
    b1, w1, b2, w2 = np.split(w, np.cumsum(sizes)[:-1])
    return b1, w1.reshape(WIDTH, inputs), b2, w2.reshape(classes, WIDTH)


def features(w, rows, classes):
    bias, weight, _, _ = _layers(w, rows.shape[1], classes)
    return rows @ weight.T + bias


def cross_entropy(scores, labels):
    top = scores.max(axis=1, keepdims=True)
    logs = scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
    return -logs[np.arange(len(labels)), labels].mean()


def descend(w, loss, rate, steps):
    for _ in range(steps):
        slope = np.zeros_like(w)
        for i in range(len(w)):
            step = np.zeros_like(w)
            step[i] = 1e-5
            slope[i] = (loss(w + step) - loss(w - step)) / 2e-5
        w = w - rate * slope
    return w


def trained(w, client, classes, more):
    """Descent from `w` on the mean cross-entropy plus `more` of the features."""
    rows, labels = client

    def loss(w):
        _, _, bias, weight = _layers(w, rows.shape[1], classes)
        z = features(w, rows, classes)
        return cross_entropy(z @ weight.T + bias, labels) + more(z)

    return descend(w, loss, RATE, STEPS)


def _cosine(a, b):
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def moon(clients, classes, cohorts, w, mu, temperature):
    """MOON (Li et al. 2021, Algorithm 1, Equation 3): clients count alike; without a last model a
    client has no contrast."""
    last = {}
    for cohort in cohorts:
        answers = []
        for k in cohort:
            rows, _ = clients[k]

            def contrast(z, k=k, rows=rows, w=w):
                if k not in last:
                    return 0.0
                near = np.exp(_cosine(z, features(w, rows, classes)) / temperature)
                far = np.exp(_cosine(z, features(last[k], rows, classes)) / temperature)
                return -mu * np.log(near / (near + far)).mean()

            answers.append(trained(w, clients[k], classes, contrast))
        last |= dict(zip(cohort, answers, strict=True))
        w = np.mean(answers, axis=0)
    return w


def _prototypes(w, client, classes):
    rows, labels = client
    z = features(w, rows, classes)
    return {c: z[labels == c].mean(axis=0) for c in np.unique(labels)}


def fedproto(clients, classes, cohorts, own, weight):
    """FedProto (Tan et al. 2022, Algorithm 1), with the plain mean over clients of its published
    code. A class that no client of a round has keeps its prototype."""
    own, known = list(own), {}
    for cohort in cohorts:
        for k in cohort:
            labels = clients[k][1]
            there = np.array([[c in known] for c in labels], float)
            aims = np.array([known.get(c, np.zeros(WIDTH)) for c in labels])
            own[k] = trained(own[k], clients[k], classes, lambda z: weight * np.mean(there * (z - aims) ** 2))  # noqa: B023
        sent = [_prototypes(own[k], clients[k], classes) for k in cohort]
        for c in set().union(*sent):
            known[c] = np.mean([means[c] for means in sent if c in means], axis=0)
    return own


def _trainable(network, known):
    """FedTGP's prototypes of classes: embedding, linear layer, rectifier, linear layer. `network`
    has the embedding, and bias and weights of each layer."""
    sizes = np.cumsum([known * WIDTH, WIDTH, WIDTH * WIDTH, WIDTH])
    embedding, b1, w1, b2, w2 = np.split(network, sizes)
    embedding, w1, w2 = (of.reshape(-1, WIDTH) for of in (embedding, w1, w2))
    return np.maximum(embedding @ w1.T + b1, 0) @ w2.T + b2


def fedtgp(clients, classes, cohorts, own, weight, network, most, rate, epochs):
    """FedTGP (Zhang et al. 2024, Algorithm 1) with full batches at the server, where each client
    has every class: the margin is the largest distance of a class mean to its nearest other, at
    most `most`."""
    own, aims = list(own), None
    for cohort in cohorts:
        sent = []
        for k in cohort:
            labels = clients[k][1]
            more = (lambda _: 0.0) if aims is None else (lambda z: weight * np.mean((z - aims[labels]) ** 2))  # noqa: B023
            own[k] = trained(own[k], clients[k], classes, more)
            sent.append([mean for _, mean in sorted(_prototypes(own[k], clients[k], classes).items())])
        sent = np.array(sent)
        centres = sent.mean(axis=0)
        apart = np.linalg.norm(centres[:, None] - centres[None], axis=2) + np.diag([np.inf] * classes)
        margin = min(apart.min(axis=1).max(), most)
        means, of = sent.reshape(-1, WIDTH), np.tile(np.arange(classes), len(cohort))

        def loss(network, means=means, of=of, margin=margin):
            far = np.linalg.norm(means[:, None] - _trainable(network, classes)[None], axis=2)
            return cross_entropy(-(far + margin * np.eye(classes)[of]), of)

        network = descend(network, loss, rate, epochs)
        aims = _trainable(network, classes)
    return own


def fedgh(clients, classes, cohorts, own, head, rate, epochs):
    """FedGH (Yi et al. 2023, Algorithm 1) with full batches at the server; `head` is biases, then
    weights."""
    own = [w.copy() for w in own]
    for cohort in cohorts:
        sent = []
        for k in cohort:
            own[k][-len(head) :] = head
            own[k] = trained(own[k], clients[k], classes, lambda _: 0.0)
            sent += _prototypes(own[k], clients[k], classes).items()
        labels, means = np.array([c for c, _ in sent]), np.array([mean for _, mean in sent])

        def loss(head, labels=labels, means=means):
            return cross_entropy(means @ head[classes:].reshape(classes, WIDTH).T + head[:classes], labels)

        head = descend(head, loss, rate, epochs)
    return own


def made(generator, inputs):
    """FedGEN's features: a linear map of noise and a one-hot class; `generator` is weights, then
    biases."""
    return inputs @ generator[:-WIDTH].reshape(-1, WIDTH) + generator[-WIDTH:]


def _shares(scores):
    top = np.exp(scores - scores.max(axis=1, keepdims=True))
    return top / top.sum(axis=1, keepdims=True)


def fedgen(clients, classes, cohorts, w, generator, inputs, weights, decay, diversity, rate):
    """FedGEN (Zhu et al. 2021, Algorithm 1) with the losses of its published code. `inputs` are
    those of the generator: `inputs[round]` of each step at the server, and `inputs[round, k]` of
    each step at client `k`, those for its examples' classes and those for drawn classes. `weights`
    are those of the divergence and of the cross-entropy of made features."""
    head = lambda w, z: z @ w[-classes * WIDTH :].reshape(classes, WIDTH).T + w[-classes * (WIDTH + 1) : -classes * WIDTH]  # noqa: E731
    losses = []
    for at, cohort in enumerate(cohorts):
        answers = []
        for k in cohort:
            rows, labels = clients[k]
            own = w
            for step in range(STEPS):
                more = lambda _, __: 0.0  # noqa: E731
                if at > 0:
                    alike, drawn = inputs[at, k][step]
                    kl, entropy = (weight * decay**at for weight in weights)
                    order = np.argsort(alike[:, -classes:].argmax(axis=1), kind="stable")
                    due = np.zeros((len(labels), classes))
                    due[np.argsort(labels, kind="stable")] = _shares(head(own, made(generator, alike[order])))

                    def more(own, scores, due=due, drawn=drawn, kl=kl, entropy=entropy):
                        apart = (due * np.log(due / _shares(scores))).sum(axis=1).mean()
                        return kl * apart + entropy * cross_entropy(head(own, made(generator, drawn)), drawn[:, -classes:].argmax(axis=1))

                def loss(own, rows=rows, labels=labels, more=more):
                    scores = head(own, features(own, rows, classes))
                    return cross_entropy(scores, labels) + more(own, scores)

                own = descend(own, loss, RATE, 1)
            answers.append(own)
        counts = np.array([np.bincount(clients[k][1], minlength=classes) for k in cohort], float)
        w = np.average(answers, axis=0, weights=counts.sum(axis=1))
        shares = counts / np.maximum(counts.sum(axis=0), 1)
        total = 0.0
        for x in inputs[at]:
            noise, of = x[:, :-classes], x[:, -classes:].argmax(axis=1)
            noise = np.abs(noise[:, None] - noise[None]).mean(axis=2)

            def ensemble(generator, x=x, of=of, answers=answers, shares=shares):
                z, one = made(generator, x), np.arange(len(x))
                logs = [np.log(_shares(head(own, z))[one, of]) for own in answers]
                return -sum((share[of] * log).mean() for share, log in zip(shares, logs, strict=True))

            def loss(generator, x=x, noise=noise, ensemble=ensemble):
                z = made(generator, x)
                apart = np.abs(z[:, None] - z[None]).mean(axis=2)
                return ensemble(generator) + diversity * np.exp(-(apart * noise).mean())

            total += ensemble(generator)
            generator = descend(generator, loss, rate, 1)
        losses.append(total / len(inputs[at]))
    return w, generator, losses
