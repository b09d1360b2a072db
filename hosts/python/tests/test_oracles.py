"""Methods, server optimisers, robust rules and losses beside their papers in plain NumPy
(tests/oracles): six rounds with all, some and one client a round, full batches, so that both do the
same sums."""

import importlib.util
import struct
import zlib
from itertools import cycle, islice, permutations, product
from pathlib import Path

import fl
import numpy as np
import pytest
from fl._flower.plain_client import _Reader


def _module(name):
    file = Path(__file__).parents[3] / "tests" / "oracles" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


oracle, losses, by_features, distillation, generated, by_pixel, sequences, personal = (
    _module(name) for name in ("rounds", "losses", "features", "distillation", "generated", "pixels", "sequences", "personal")
)

ROUNDS, CLASSES = 6, 3


def rows(n, seed):
    draws = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(CLASSES), draws.integers(0, CLASSES, n - CLASSES)])
    return (draws.normal(size=(n, 3)) + 0.5 * labels[:, None] + 0.2 * seed).astype(np.float32), labels


CLIENTS = [rows(n, seed) for seed, n in enumerate([8, 12, 20, 6, 14])]


def cohorts(size):
    order = cycle(range(len(CLIENTS)))
    return [sorted(islice(order, size)) for _ in range(ROUNDS)]


def taking_part(size):
    return cohorts(size) if size < len(CLIENTS) else [range(size)] * ROUNDS


def ours(size, aggregator, protocol="fedavg", clients=CLIENTS, epochs=oracle.STEPS, batch=100, by_round=None, before=None, **settings):
    """The parameters after the rounds, as one vector."""
    local = {"epochs": epochs, "batch": batch} | ({"rate": {"by-round": by_round}} if by_round else {})
    parts = {"model": {"use": "linear", "lr": oracle.RATE}, "aggregator": aggregator}
    if before:
        parts["before-aggregator"] = before
    if size < len(clients):
        parts["cohort"] = {"use": "cyclic", "size": size}
    spec = {
        "name": "oracle",
        "seed": 1,
        "protocol": {"use": protocol, "rounds": ROUNDS, "local": local, **settings},
        "parts": parts,
    }
    data = {"train": {f"client {k}": own for k, own in enumerate(clients)}, "test": rows(9, 9)}
    model = fl.run(spec, data=data, quiet=True).model("model").arrays()
    return np.concatenate([model["weight"].T.ravel(), model["bias"]])


def close(found, due):
    assert np.abs(found - due).max() < 1e-6, (found, due)


def exact(clients=CLIENTS):
    return [(x.astype(float), y) for x, y in clients]


def theirs(size, rule, clients=CLIENTS, **more):
    return oracle.run(exact(clients), CLASSES, cohorts(size) if size < len(clients) else [range(size)] * ROUNDS, rule, **more)


OPTIMISERS = {
    "mean": ({"use": "mean"}, lambda: oracle.mean),
    "fed-avg-m": ({"use": "fed-avg-m", "beta": 0.7, "lr": 0.8}, lambda: oracle.Momentum(0.7, 0.8)),
    "fed-adagrad": ({"use": "fed-adagrad", "lr": 0.1, "beta1": 0.3}, lambda: oracle.Adaptive("adagrad", 0.1, 0.3)),
    "fed-adam": ({"use": "fed-adam", "lr": 0.05}, lambda: oracle.Adaptive("adam", 0.05)),
    "fed-yogi": ({"use": "fed-yogi", "lr": 0.05}, lambda: oracle.Adaptive("yogi", 0.05)),
    "norm-bounding": ({"use": "norm-bounding", "bound": 0.2}, lambda: oracle.norm_bounding(0.2)),
    "centred-clipping": ({"use": "centred-clipping", "radius": 0.2}, lambda: oracle.CentredClipping(0.2)),
    "median": ({"use": "median"}, lambda: oracle.median),
    "trimmed-mean": ({"use": "trimmed-mean", "trim": 0.34}, lambda: oracle.trimmed(0.34)),
}


@pytest.mark.parametrize("size", [5, 3, 1])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_close_a_rule_is_that_of_its_paper(name, size):
    part, rule = OPTIMISERS[name]
    close(ours(size, part), theirs(size, rule()))


def test_close_rules_of_distances_are_those_of_their_papers():
    close(ours(5, {"use": "krum", "byzantine-share": 0.2}), theirs(5, oracle.krum(0.2)))
    close(ours(5, {"use": "multi-krum", "byzantine-share": 0.2}), theirs(5, oracle.multi_krum(0.2)))
    close(ours(5, {"use": "geometric-median", "passes": 1000}), theirs(5, oracle.geometric_median))


# mixing three answers of five, two different points would be equally good for Krum
STEPS = {
    "mixing": ({"use": "nearest-neighbour-mixing", "byzantine-share": 0.2}, oracle.mixing(0.2)),
    # with so many columns no two of the model's numbers share one, and distances are exact
    "sketching": ({"use": "sketching", "byzantine-share": 0.2, "columns": 1 << 20}, oracle.mixing(0.2)),
    "clipping": ({"use": "update-clipping", "radius": 0.2}, oracle.clipping(0.2)),
    "adaptive clipping": ({"use": "adaptive-clipping", "byzantine-share": 0.4}, oracle.adaptive_clipping(0.4)),
}
BEHIND = {
    "mean": ({"use": "mean"}, oracle.mean),
    "median": ({"use": "median"}, oracle.median),
    "krum": ({"use": "krum", "byzantine-share": 0.2}, oracle.krum(0.2)),
}


@pytest.mark.parametrize("rule", BEHIND)
@pytest.mark.parametrize("step", STEPS)
def test_close_a_step_before_a_rule_is_that_of_its_paper(step, rule):
    (part, change), (aggregator, combine) = STEPS[step], BEHIND[rule]
    close(ours(5, aggregator, before=part), theirs(5, oracle.before(change, combine)))


@fl.aggregator("py-mixing", "params", "params-list")
class PyMixing:
    """Nearest-neighbour mixing of three answers of five, in Python."""

    def aggregate(self, round, inbox):
        flat = np.array([np.concatenate([mail[name].ravel() for name in mail]) for mail in inbox], float)
        apart = np.linalg.norm(flat[:, None] - flat[None], axis=2)
        near = [np.argsort(row, kind="stable")[:3] for row in apart]
        stacked = {name: np.stack([mail[name] for mail in inbox]).astype(float) for name in inbox[0]}
        mixed = {f"params.{name}": np.stack([all[at].mean(axis=0) for at in near]) for name, all in stacked.items()}
        return {"weights": inbox.weights, **mixed}


def test_close_a_step_in_python_is_like_a_linked_one():
    close(ours(5, {"use": "median"}, before={"use": "py-mixing"}), theirs(5, oracle.before(oracle.mixing(0.4), oracle.median)))


def _buckets(size):
    """Every way to draw buckets of this size from the clients."""
    orders = permutations(range(len(CLIENTS)))
    cut = ([frozenset(order[at : at + size]) for at in range(0, len(order), size)] for order in orders)
    return [[sorted(group) for group in groups] for groups in {frozenset(groups) for groups in cut}]


@pytest.mark.parametrize("rule", ["median", "krum"])
def test_close_buckets_are_means_of_some_groups_of_clients(rule):
    # fl draws the groups: in each round, one way to draw them must give what fl has
    (aggregator, combine), w, drawn = BEHIND[rule], np.zeros(CLASSES * 4), set()
    for round in range(1, ROUNDS + 1):
        found = ours(5, aggregator, before={"use": "bucketing", "size": 2}, rounds=round)
        answers = np.array([oracle.trained(w, client, CLASSES) for client in exact()])
        rows = np.ones(len(answers))
        every = [(groups, oracle.before(oracle.buckets(groups), combine)(w, answers, rows)) for groups in _buckets(2)]
        groups, w = min(every, key=lambda one: np.abs(one[1] - found).max())
        close(found, w)
        drawn.add(str(groups))
    assert len(drawn) > 1  # each round draws anew


def test_close_a_sketch_of_one_column_is_a_sum_with_some_signs():
    # fl draws the signs: in each round, some signs must give what fl has
    w = np.zeros(CLASSES * 4)
    for round in range(1, ROUNDS + 1):
        found = ours(5, {"use": "mean"}, before={"use": "sketching", "byzantine-share": 0.4, "columns": 1}, rounds=round)
        answers = np.array([oracle.trained(w, client, CLASSES) for client in exact()])
        every = {}
        for signs in product([1, -1], repeat=len(w) - 1):
            step = oracle.mixing(0.4, lambda x: x @ np.array([1, *signs])[:, None])
            made = oracle.before(step, oracle.mean)(w, answers, np.array([len(y) for _, y in CLIENTS]))
            every[made.tobytes()] = made
        w = min(every.values(), key=lambda made: np.abs(made - found).max())
        close(found, w)
        assert len(every) > 20  # signs matter


def test_close_a_mean_of_buckets_is_the_mean_of_the_answers():
    close(ours(5, {"use": "mean"}, before={"use": "bucketing", "size": 2}), theirs(5, oracle.mean))


def test_close_a_step_of_an_lstm_is_that_of_its_equations():
    letters = np.array([[1, 2, 3, 4, 1], [2, 2, 1, 0, 0], [4, 0, 3, 1, 0], [3, 3, 3, 3, 2]], np.float32)
    labels, rate = np.array([0, 1, 2, 1]), 0.5
    net = [{"embedding": {"vocabulary": 4, "width": 3}}, {"lstm": 4}, "last-over-time", "outputs"]
    model = {"use": "dfdx", "net": net, "optimiser": {"sgd": {"lr": rate}}}

    def after(rounds):
        spec = {
            "name": "lstm",
            "seed": 1,
            "protocol": {"use": "fedavg", "rounds": rounds, "local": {"epochs": 1, "batch": 4}},
            "parts": {"model": model, "aggregator": {"use": "mean"}},
        }
        data = {"train": {"one": (letters, labels)}, "test": (letters, labels)}
        return fl.run(spec, data=data, quiet=True).model("model").arrays()

    found, due = after(2), sequences.step(after(1), letters, labels, rate)
    assert set(found) == set(due)
    for name, array in due.items():
        close(found[name], array)


@pytest.mark.parametrize("size", [5, 3, 1])
def test_close_fedprox_pulls_to_the_servers_parameters(size):
    close(ours(size, {"use": "mean"}, "fedprox", mu=0.4), theirs(size, oracle.mean, mu=0.4))


@pytest.mark.parametrize("size", [5, 3, 1])
def test_close_fednova_of_equal_steps_is_fedavg(size):
    close(ours(size, {"use": "mean"}, "fednova"), theirs(size, oracle.mean))


@pytest.mark.parametrize("size", [5, 3, 1])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_close_scaffold_corrects_by_control_variates(size, rate):
    rows = [(x.astype(float), y) for x, y in CLIENTS]
    due = oracle.scaffold(rows, CLASSES, cohorts(size), rate)
    close(ours(size, {"use": "mean", "weigh": "uniform"}, "scaffold", **{"server-lr": rate}), due)


@pytest.mark.parametrize("size", [5, 3, 1])
@pytest.mark.parametrize("alpha", [0.1, 0.7])
def test_close_feddyn_corrects_by_gradients(size, alpha):
    due = oracle.feddyn(exact(), CLASSES, taking_part(size), alpha)
    close(ours(size, {"use": "mean", "weigh": "uniform"}, "feddyn", alpha=alpha), due)


def flat(model):
    """Biases and weights of each layer, by their names."""
    return np.concatenate([array.ravel() for _, array in sorted(model.arrays().items())])


def kept(size, protocol, parts, rounds=ROUNDS, rate=by_features.RATE, net=None, **settings):
    """The results of a run with clients that keep their models."""
    if size < len(CLIENTS):
        parts = parts | {"cohort": {"use": "cyclic", "size": size}}
    settings = {"local": {"steps": by_features.STEPS, "batch": 100}} | settings
    spec = {"name": "kept", "seed": 1, "protocol": {"use": protocol, "rounds": rounds, **settings}}
    net = net or [{"linear": by_features.WIDTH}, "outputs"]
    spec["parts"] = {"model": {"use": "dfdx", "net": net, "optimiser": {"sgd": {"lr": rate}}}} | parts
    data = {"train": {f"client {k}": own for k, own in enumerate(CLIENTS)}, "test": rows(9, 9)}
    return fl.run(spec, data=data, quiet=True)


def of_clients(results):
    return [flat(results.model("model", client=k)) for k in range(len(CLIENTS))]


MEAN, PROTOTYPES = {"aggregator": {"use": "mean", "weigh": "uniform"}}, {"prototypes": {"use": "mean-of-features"}}
#: A rate that moves no number of 32 bits: a run of one round then shows where models begin.
STILL = {"rounds": 1, "rate": 1e-30}


@pytest.mark.parametrize("size", [5, 3, 1])
def test_close_moon_contrasts_features(size):
    start = flat(kept(5, "moon", MEAN, **STILL).model("model")).astype(float)
    due = by_features.moon(exact(), CLASSES, taking_part(size), start, 2.0, 0.4)
    found = kept(size, "moon", MEAN, mu=2.0, temperature=0.4)
    close(flat(found.model("model")), due)


@pytest.mark.parametrize("size", [5, 3, 1])
def test_close_fedproto_draws_features_to_prototypes(size):
    keep = {"keep-clients": True}
    begin = [w.astype(float) for w in of_clients(kept(5, "fedproto", PROTOTYPES, **STILL, **keep))]
    due = by_features.fedproto(exact(), CLASSES, taking_part(size), begin, 1.5)
    found = kept(size, "fedproto", PROTOTYPES, **{"lambda": 1.5}, **keep)
    close(np.array(of_clients(found)), np.array(due))


WIDTH = by_features.WIDTH
#: Layers of the network with normalisation, and numbers of each.
NORMALISED = [{"linear": WIDTH}, "batch-norm", "outputs"]
LAYERS = [WIDTH * 4, 2 * WIDTH, CLASSES * (WIDTH + 1)]


def personal_models(size, protocol, net=None, **settings):
    """The clients' models without the running statistics of layers that normalise."""
    settings = {"keep-clients": True, "rounds": ROUNDS, "rate": personal.RATE} | settings
    found = kept(size, protocol, MEAN, net=net, **settings)
    arrays = [found.model("model", client=k).arrays().items() for k in range(len(CLIENTS))]
    return np.array([np.concatenate([a.ravel() for name, a in sorted(of) if "running" not in name]) for of in arrays], float)


def full(steps):
    return {"steps": steps, "batch": 100}


BODY = np.repeat([1.0, 0.0], [LAYERS[0], LAYERS[2]])
PERSONAL = {
    "fedper": ({}, lambda *of: personal.fedper(*of, BODY)),
    "lg-fedavg": ({}, lambda *of: personal.fedper(*of, 1 - BODY)),
    "fedrep": ({"head": full(3)}, lambda *of: personal.fedrep(*of, BODY, 3)),
    "fedbabu": ({"tune": full(3)}, lambda *of: personal.fedbabu(*of, BODY, 3)),
    "ditto": ({"lambda": 0.3, "own": full(3)}, lambda *of: personal.ditto(*of, 0.3, 3)),
    "apfl": ({"mix": 0.3, "adaptive": False}, lambda *of: personal.apfl(*of, 0.3)),
    "apfl, adaptive": ({"mix": 0.3, "adaptive": True}, lambda *of: personal.apfl(*of, 0.3, True)),
    "per-fedavg": ({"adapt": 0.4, "learn": 0.2, "tune": full(1)}, lambda *of: personal.per_fedavg(*of, 0.4, 0.2)),
}


@pytest.mark.parametrize("size", [5, 3, 1])
@pytest.mark.parametrize("name", PERSONAL)
def test_close_a_personal_model_is_that_of_its_paper(name, size):
    settings, method = PERSONAL[name]
    begin = personal_models(5, "fedper", **STILL)
    clients = [personal.network(client, CLASSES, WIDTH) for client in exact()]
    found = personal_models(size, name.split(",")[0], **settings)
    close(found, np.array(method(clients, taking_part(size), begin)))


@pytest.mark.parametrize("size", [5, 3, 1])
def test_close_fedbn_keeps_layers_that_normalise(size):
    begin = personal_models(5, "fedbn", NORMALISED, **STILL)
    clients = [personal.network(client, CLASSES, WIDTH, True) for client in exact()]
    due = personal.fedper(clients, taking_part(size), begin, np.repeat([1.0, 0.0, 1.0], LAYERS))
    close(personal_models(size, "fedbn", NORMALISED), np.array(due))


def drawn_network():
    """The network of FedTGP's server as it is drawn, from a checkpoint: embedding, then bias and
    weights of both layers."""
    still = {"use": "trainable-prototypes", "lr": 1e-300, "epochs": 1, "batch": 100}
    spec = {"name": "drawn", "seed": 1, "checkpoint": {"keep": True}, "protocol": {"use": "fedproto", "rounds": 2}}
    net = {"use": "dfdx", "net": [{"linear": by_features.WIDTH}, "outputs"]}
    spec["parts"] = {"model": net, "prototypes": still}
    data = {"train": {f"client {k}": own for k, own in enumerate(CLIENTS)}, "test": rows(9, 9)}
    state = (fl.run(spec, data=data, quiet=True).folder / "state").read_bytes()
    kind = b"prototype-network"
    at = state.index(bytes([len(kind)]) + kind)
    reader = _Reader(state[at:])
    assert reader.text() == kind.decode()
    at += int.from_bytes(state[at - 4 : at], "little")
    arrays = {}
    for _ in range(reader.number()):
        name, dtype = reader.text(), reader.take(1)[0]
        shape = tuple(reader.number() for _ in range(reader.number()))
        arrays[name] = np.frombuffer(state, "<f4" if dtype == 0 else "<u4", int(np.prod(shape)), at).astype(float)
        at += 4 * len(arrays[name])
    ends = ["embedding.values", "1.bias", "1.weight", "2.bias", "2.weight"]
    [*parts] = ([one for name, one in arrays.items() if name.endswith(end)] for end in ends)
    assert all(len(one) == 1 for one in parts), arrays.keys()
    return np.concatenate([one for [one] in parts])


@pytest.mark.parametrize(("size", "margin"), [(5, 100.0), (3, 0.5), (1, 100.0)])
def test_close_fedtgp_trains_prototypes_apart(size, margin):
    keep = {"keep-clients": True}
    begin = [w.astype(float) for w in of_clients(kept(5, "fedproto", PROTOTYPES, **STILL, **keep))]
    due = by_features.fedtgp(exact(), CLASSES, taking_part(size), begin, 1.5, drawn_network(), margin, 0.1, 4)
    prototypes = {"use": "trainable-prototypes", "margin": margin, "lr": 0.1, "epochs": 4, "batch": 100}
    found = kept(size, "fedtgp", {"prototypes": prototypes}, **{"lambda": 1.5}, **keep)
    close(np.array(of_clients(found)), np.array(due))


@pytest.mark.parametrize("size", [5, 3, 1])
def test_close_fedgh_trains_the_last_layer_on_means(size):
    keep = {"keep-clients": True}
    head = flat(kept(5, "moon", MEAN, **STILL).model("model")).astype(float)[-CLASSES * (by_features.WIDTH + 1) :]
    begin = [w.astype(float) for w in of_clients(kept(5, "fedproto", PROTOTYPES, **STILL, **keep))]
    due = by_features.fedgh(exact(), CLASSES, taking_part(size), begin, head, 0.4, 2)
    found = kept(size, "fedgh", {}, **{"head-lr": 0.4, "head-epochs": 2, "head-batch": 100}, **keep)
    close(np.array(of_clients(found)), np.array(due))


@pytest.mark.parametrize("size", [5, 3, 1])
def test_close_fedamp_mixes_models(size):
    due = oracle.fedamp(exact(), CLASSES, taking_part(size), 0.2, 1.5, 0.1)
    settings = {"alpha": 0.2, "sigma": 1.5, "lambda": 0.1, "keep-clients": True}
    linear = {"model": {"use": "linear", "lr": oracle.RATE}}
    local = {"epochs": oracle.STEPS, "batch": 100}
    found = kept(size, "fedamp", MEAN | linear, **settings, local=local)
    arrays = [found.model("model", client=k).arrays() for k in range(len(CLIENTS))]
    found = [np.concatenate([own["weight"].T.ravel(), own["bias"]]) for own in arrays]
    close(np.array(found), due)


# what each gives in six rounds, by hand
RATES = {
    "factor": ({"factor": 0.5}, [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32]),
    "steps": ({"steps": [{"from": 3, "factor": 0.1}, {"from": 5, "factor": 0.5}]}, [1, 1, 0.1, 0.1, 0.05, 0.05]),
    "cosine": ({"cosine": {"over": 6, "to": 0.2}}, [0.2 + 0.4 * (1 + np.cos(np.pi * r / 6)) for r in range(6)]),
    "warm-up": ({"warm-up": 4, "factor": 0.5}, [1 / 4, 1 / 4, 3 / 16, 1 / 8, 1 / 16, 1 / 32]),
}


@pytest.mark.parametrize("size", [5, 3, 1])
@pytest.mark.parametrize("name", RATES)
def test_close_rates_follow_the_round(name, size):
    given, shares = RATES[name]
    close(ours(size, {"use": "mean"}, by_round=given), theirs(size, oracle.mean, shares=shares))
    due = oracle.scaffold(exact(), CLASSES, cohorts(size), shares=shares)
    close(ours(size, {"use": "mean", "weigh": "uniform"}, "scaffold", by_round=given), due)


def test_close_bulyan_and_fltrust_are_those_of_their_papers():
    # of fewer clients, the last two that are chosen are each other's nearest: a tie
    many = [rows(6 + 2 * seed, seed) for seed in range(15)]
    close(ours(15, {"use": "bulyan", "byzantine-share": 0.2}, clients=many), theirs(15, oracle.bulyan(0.2), many))
    close(ours(5, {"use": "fltrust", "trusted": 2}), theirs(5, oracle.fltrust(2)))


@pytest.mark.parametrize("size", [5, 3, 1])
def test_close_fednova_counts_each_change_per_step(size):
    # a client's rows are one row again and again: each of its mini-batches has the same gradient
    own = [rows(5, 20 + k) for k in range(5)]
    counts = [4, 12, 20, 8, 16]
    clients = [(np.repeat(x[k : k + 1] / 2, n, axis=0), np.full(n, k % CLASSES)) for k, ((x, _), n) in enumerate(zip(own, counts, strict=True))]
    due = oracle.nova(exact(clients), CLASSES, cohorts(size), [n // 4 for n in counts])
    close(ours(size, {"use": "mean"}, "fednova", clients, epochs=1, batch=4), due)


@pytest.mark.parametrize("method", ["fedavg", "fednova"])
def test_close_clients_draw_their_epochs(method):
    # fl draws the numbers: in each round, one choice of them must give what fl has
    few, most = CLIENTS[:3], 4
    counts, w, drawn = np.array([len(labels) for _, labels in few], float), np.zeros(CLASSES * 4), []
    for round in range(1, ROUNDS + 1):
        found = ours(3, {"use": "mean"}, method, few, epochs=most, rounds=round, **{"least-epochs": 2})
        moves = [[oracle.trained(w, client, CLASSES, steps=n) - w for n in range(2, most + 1)] for client in exact(few)]
        every = []
        for steps in product(range(2, most + 1), repeat=3):
            mine = [moves[k][n - 2] for k, n in enumerate(steps)]
            # Wang et al. 2020, equation (8): changes per step, times the mean number of steps
            per_step = np.average([move / n for move, n in zip(mine, steps, strict=True)], axis=0, weights=counts)
            nova = np.average(steps, weights=counts) * per_step
            every.append((steps, w + (nova if method == "fednova" else np.average(mine, axis=0, weights=counts))))
        steps, w = min(every, key=lambda one: np.abs(one[1] - found).max())
        close(found, w)
        drawn.append(steps)
    assert {n for steps in drawn for n in steps} == {2, 3, 4} and len(set(drawn)) > 1


@pytest.mark.parametrize("size", [5, 3, 1])
def test_close_q_fedavg_weighs_by_losses(size):
    due = oracle.fair(exact(), CLASSES, cohorts(size), 2.0, 0.5)
    close(ours(size, {"use": "q-fair-mean", "q": 2.0, "lr": 0.5}, epochs=1), due)


def test_close_afl_moves_weights_towards_large_losses():
    close(ours(5, {"use": "agnostic-mean", "lr": 0.3}, epochs=1), oracle.agnostic(exact(), CLASSES, ROUNDS, 0.3))


#: Public samples, and the labels that only FedMD learns.
PUBLIC = rows(15, 5)
#: Clients of which the second and the third lack a class each.
LACKING = [(x[y != less], y[y != less]) for (x, y), less in zip(CLIENTS, [None, 2, 0, None, None], strict=True)]


def distilled(protocol, clients, parts, public=None, seed=1, **settings):
    """The results of a run with linear models that learn in full batches."""
    length = {"epochs": distillation.STEPS, "batch": 100}
    spec = {
        "name": "distilled",
        "seed": seed,
        "protocol": {"use": protocol} | {name: length if value == "full" else value for name, value in settings.items()},
        "parts": {name: {"use": "linear", "lr": distillation.RATE} if value == "linear" else value for name, value in parts.items()},
    }
    data = {"train": {f"client {k}": own for k, own in enumerate(clients)}, "test": rows(9, 9)}
    if public is not None:
        data["public"] = public
    return fl.run(spec, data=data, quiet=True)


def matrix(results, slot, **whose):
    """The parameters of a linear model as the oracle has them."""
    arrays = results.model(slot, **whose).arrays()
    return np.vstack([arrays["weight"], arrays["bias"]])


def all_close(results, slot, due):
    for k, w in enumerate(due):
        close(matrix(results, slot, client=k), w)


FEDMD = {
    "mae": ("mae", distillation.to_scores),
    "mse": ("mse", distillation.to_scores_squared),
    "kl": ({"kl": 2.0}, lambda target: distillation.to_softmax(target, 2.0)),
}


@pytest.mark.parametrize("count", [5, 3, 1])
@pytest.mark.parametrize("name", FEDMD)
def test_close_fedmd_approaches_the_mean_of_scores(name, count):
    given, slope = FEDMD[name]
    public, known = PUBLIC
    due = distillation.fedmd(exact(CLIENTS[:count]), public.astype(float), known, CLASSES, ROUNDS, slope)
    full = dict.fromkeys(["pretrain", "warm-up", "distil", "local"], "full")
    how = full | {"rounds": ROUNDS, "labels": {"scores": {"loss": given}}}
    found = distilled("fedmd", CLIENTS[:count], {"model": "linear", "ensemble": {"use": "mean-logits"}}, PUBLIC, **how)
    all_close(found, "model", due)


@pytest.mark.parametrize("count", [5, 3, 1])
def test_close_feded_teaches_what_the_servers_model_says(count):
    own, server = distillation.feded(exact(CLIENTS[:count]), PUBLIC[0].astype(float), CLASSES, ROUNDS)
    parts = {"model": "linear", "student": "linear", "ensemble": {"use": "mean-labels"}}
    found = distilled("feded", CLIENTS[:count], parts, PUBLIC[0], rounds=ROUNDS, local="full", distil="full")
    close(matrix(found, "student"), server)
    all_close(found, "model", own)


@pytest.mark.parametrize("count", [5, 3, 1])
@pytest.mark.parametrize("temperature", [0.3, 2.0])
def test_close_ds_fl_reduces_the_entropy_of_the_mean_label(temperature, count):
    own, server = distillation.dsfl(exact(CLIENTS[:count]), PUBLIC[0].astype(float), CLASSES, ROUNDS, temperature)
    parts = {"model": "linear", "student": "linear", "ensemble": {"use": "entropy-reduction", "temperature": temperature}}
    found = distilled("ds-fl", CLIENTS[:count], parts, PUBLIC[0], rounds=ROUNDS, local="full", distil="full")
    close(matrix(found, "student"), server)
    all_close(found, "model", own)


ROBUST = {
    "spectral": ({"spectral": 0.5}, lambda points: distillation.robust_mean(points, 0.5)),
    "median": ("median", lambda points: np.median(points, axis=0)),
    "trimmed": ({"trimmed": 0.25}, lambda points: np.sort(points, axis=0)[len(points) // 4 : len(points) - len(points) // 4].mean(axis=0)),
}


# of three parties, the two that are left by the first pass lie equally far
@pytest.mark.parametrize("count", [5, 4, 1])
@pytest.mark.parametrize("rule", ROBUST)
def test_close_cronus_learns_robust_means_of_labels(rule, count):
    given, combine = ROBUST[rule]
    due = distillation.cronus(exact(CLIENTS[:count]), PUBLIC[0].astype(float), CLASSES, ROUNDS, combine)
    parts = {"model": "linear", "ensemble": {"use": "robust-labels", "rule": given}}
    full = dict.fromkeys(["warm-up", "local", "distil"], "full")
    all_close(distilled("cronus", CLIENTS[:count], parts, PUBLIC[0], rounds=ROUNDS, **full), "model", due)


#: Selective-FD's selectors at clients. All points of the box are one point, so nothing is drawn.
RATIO = {"use": "density-ratio", "uniform": 3, "bounds": [0.4, 0.4], "share": 0.3, "quantile": 0.2, "width": 1.3, "beta": 0.7}


@pytest.mark.parametrize("count", [5, 3, 1])
@pytest.mark.parametrize(("labels", "most"), [("soft", 0.9), ("soft", 2.0), ("hard", 0.7)])
def test_close_selective_fd_filters_at_clients_and_server(labels, most, count):
    clients, asked = exact(CLIENTS[:count]), rows(40, 5)[0]
    public, uniform = asked.astype(float), np.full((3, 3), np.float32(0.4), float)
    masks = [distillation.accepted(client, public, uniform, 1.3, 0.7, 0.3, 0.2) for client in clients]
    due, kept = distillation.selective(clients, public, CLASSES, ROUNDS, masks, most, labels == "hard")
    full = dict.fromkeys(["warm-up", "local", "distil"], "full")
    parts = {"model": "linear", "client-filter": RATIO, "ensemble": {"use": "mean-labels"}}
    parts["server-filter"] = {"use": "unambiguous", "max-distance": most}
    found = distilled("selective-fd", CLIENTS[:count], parts, asked, rounds=ROUNDS, labels=labels, **full)
    all_close(found, "model", due)
    assert found.metrics["taught.samples"] == kept[-1]
    assert 0 < np.mean(masks) < 1 and ((labels, most) != ("soft", 0.9) or min(kept) < np.any(masks, axis=0).sum())


@pytest.mark.parametrize("count", [5, 3, 1])
def test_close_pls_selects_means_that_name_their_class(count):
    due = distillation.fkd(exact(LACKING[:count]), CLASSES, ROUNDS, others_only=False, agreeing=True)
    parts = {"model": "linear", "ensemble": {"use": "mean-of-classes", "which": "agreeing"}}
    all_close(distilled("pls", LACKING[:count], parts, rounds=ROUNDS, local="full"), "model", due)
    every = distillation.fkd(exact(LACKING[:count]), CLASSES, ROUNDS, others_only=False)
    assert np.abs(np.array(every) - due).max() > 1e-3  # some mean names another class


@pytest.mark.parametrize("count", [5, 3, 1])
@pytest.mark.parametrize("weight", [1.0, 0.4])
@pytest.mark.parametrize("others_only", [True, False])
def test_close_fkd_exchanges_the_mean_output_of_each_class(others_only, weight, count):
    due = distillation.fkd(exact(LACKING[:count]), CLASSES, ROUNDS, others_only, weight)
    how = {"rounds": ROUNDS, "local": "full", "weight": weight, "leave-one-out": others_only}
    found = distilled("fkd", LACKING[:count], {"model": "linear", "ensemble": {"use": "mean-of-classes"}}, **how)
    all_close(found, "model", due)


@pytest.mark.parametrize("size", [5, 3, 1])
@pytest.mark.parametrize("teacher", ["mean-scores", "mean-probabilities"])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_close_feddf_learns_from_the_clients_models(temperature, teacher, size):
    cohort = {"cohort": {"use": "cyclic", "size": size}} if size < len(CLIENTS) else {}
    parts = {"model": "linear", "aggregator": {"use": "mean"}} | cohort
    how = {"rounds": ROUNDS, "local": "full", "training": "full", "temperature": temperature, "teacher": teacher}
    found = distilled("feddf", CLIENTS, parts, PUBLIC[0], **how)
    due = distillation.feddf(exact(), PUBLIC[0].astype(float), CLASSES, taking_part(size), temperature, teacher == "mean-scores")
    close(matrix(found, "model"), due)


@pytest.mark.parametrize("count", [5, 3, 1])
@pytest.mark.parametrize("name", FEDMD)
def test_close_fedkd_weighs_scores_by_the_examples_of_a_class(name, count):
    given, slope = FEDMD[name]
    due = distillation.fedkd(exact(LACKING[:count]), PUBLIC[0].astype(float), CLASSES, slope)
    parts = {"teacher": "linear", "student": "linear", "ensemble": {"use": "class-weighted"}}
    close(matrix(distilled("fedkd", LACKING[:count], parts, PUBLIC[0], local="full", student="full", loss=given), "student"), due)


#: The votes of the parties' students, `samples x students` for each party.
VOTES = []


@fl.aggregator("py-count", "votes", "counts")
class PyCount:
    """Counts all votes, and shows them to the test."""

    def aggregate(self, round, inbox):
        VOTES[:] = [np.array(mail["labels"]) for mail in inbox]
        return {"rows": inbox[0]["rows"], "values": np.eye(CLASSES)[np.concatenate(VOTES, axis=1)].sum(axis=1)}


@pytest.mark.parametrize("count", [5, 3, 1])
def test_close_fedkt_counts_votes_in_two_tiers(count):
    few, asked = [rows(4, 3 + k) for k in range(count)], rows(40, 1)[0]
    public = asked.astype(float)
    # fl draws the partitions: of each party's four rows, one of three cuts into pairs must give
    # each student
    cuts = [([0, 1], [2, 3]), ([0, 2], [1, 3]), ([0, 3], [1, 2])]
    made = [[distillation.student([(x[cut], y[cut]) for cut in both], public, CLASSES) for both in cuts] for x, y in exact(few)]
    parts = {"teacher": "linear", "student": "linear", "final": "linear", "tier1": {"use": "majority-vote"}}
    how = {"partitions": 2, "subsets": 2, "keep-clients": True} | dict.fromkeys(["teacher", "student", "final-model"], "full")

    def learnt(rule):
        # by this seed the two students of a party are of different cuts
        return distilled("fedkt", few, parts | {"tier2": {"use": rule}}, asked, seed=3, **how)

    found = learnt("py-count")
    parties = []
    for k, mine in enumerate(made):
        first = min(mine, key=lambda w, k=k: np.abs(w - matrix(found, "student", client=k)).max())
        close(matrix(found, "student", client=k), first)
        votes = {tuple(distillation.scores(w, public).argmax(axis=1)): w for w in mine}
        parties.append([votes[tuple(said)] for said in VOTES[k].T])
        assert tuple(VOTES[k].T[0]) == tuple(distillation.scores(first, public).argmax(axis=1))
    plain, consistent = (distillation.final(parties, public, CLASSES, only) for only in (False, True))
    close(matrix(found, "final"), plain)
    close(matrix(learnt("majority-vote"), "final"), plain)
    close(matrix(learnt("consistent-vote"), "final"), consistent)
    assert count == 1 or np.abs(plain - consistent).max() > 1e-3


#: What the client below is asked to do, and the losses and parameters that come of it.
HOW, SEEN = {}, []


@fl.protocol("one-training")
class OneTraining:
    """One client trains from zeros, in full batches, on the targets of `HOW`."""

    rounds = 1
    model = fl.slot("trainer", "What trains.", shared_parameters=True, at_server=True)
    mean = fl.slot("aggregator", "Hands the parameters on.", "params")

    @fl.exchange("parameters after training", into=mean, trains=True)
    def train(self, client, params):
        client.model(self.model).set_params(params)
        loss = client.fit(self.model, epochs=oracle.STEPS, batch=100, **HOW).loss
        params = {name: np.array(value) for name, value in client.model(self.model).params().items()}
        SEEN.append((loss, params))
        return params

    def lead(self, server):
        server.rounds(self.round)

    def round(self, server, round):
        zeros = {name: np.zeros_like(value) for name, value in server.model(self.model).params().items()}
        server.model(self.model).set_params(server.run(self.train, zeros))
        server.evaluate(self.model)


X, LABELS = rows(20, 3)
SCORES = np.random.default_rng(4).normal(size=(20, CLASSES)).astype(np.float32)
LOSSES = {
    "classes": (losses.cross_entropy, np.eye(CLASSES)[LABELS], {"target": LABELS}),
    "probabilities": (losses.cross_entropy, losses._shares(SCORES), {}),
    "mae": (losses.mae, SCORES, {"kind": "scores", "loss": "mae"}),
    "mse": (losses.mse, SCORES, {"kind": "scores", "loss": "mse"}),
    "huber": (losses.huber(1), SCORES, {"kind": "scores", "loss": "huber"}),
    "norm": (losses.norm, SCORES, {"kind": "scores", "loss": "norm"}),
    "kl": (losses.kl(2.5), SCORES, {"kind": "scores", "loss": "kl", "tau": 2.5}),
}
MODELS = {
    "linear": {"use": "linear", "lr": 0.3},
    "dfdx": {"use": "dfdx", "net": ["flatten", "outputs"], "optimiser": {"sgd": {"lr": 0.3}}},
}


def close_to_descent(model, loss, target, how, labels, monkeypatch, **data):
    """A training with these options is descent on that loss of the scores and the target."""
    monkeypatch.setattr(f"{__name__}.HOW", how)
    SEEN.clear()
    spec = {"name": "loss", "protocol": {"use": "one-training"}, "parts": {"model": MODELS[model], "mean": {"use": "mean"}}}
    fl.run(spec, data={"train": {"one": (X, labels)}, "test": (X, labels), **data}, quiet=True)
    [(found, params)] = SEEN
    weight, bias = sorted(params.values(), key=np.ndim, reverse=True)
    due, seen = losses.descend(loss, X.astype(float), target.astype(float), target.shape[1], 0.3, oracle.STEPS)
    close(np.concatenate([(weight.T if model == "linear" else weight).ravel(), bias]), due)
    assert abs(found - seen[-1]) < 1e-6  # of the last epoch


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", LOSSES)
def test_close_a_loss_is_that_of_its_paper(name, model, monkeypatch):
    loss, target, how = LOSSES[name]
    close_to_descent(model, loss, target, {"examples": X, "target": target, **how}, LABELS, monkeypatch)


@pytest.mark.parametrize("model", MODELS)
def test_close_the_loss_of_several_labels_leaves_out_the_unknown(model, monkeypatch):
    target = np.random.default_rng(5).integers(-1, 2, (20, 4))
    close_to_descent(model, losses.several, target, {}, target, monkeypatch, findings=list("abcd"))


NUMBERS = {"mse": losses.mse, "mae": losses.mae, "huber": losses.huber(0.4)}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NUMBERS)
def test_close_a_number_is_learnt_on_its_scale(name, model, monkeypatch):
    numbers = 30 + 4 * X @ [1.0, -2.0, 0.5] + SCORES[:, 0]
    scale = {"centre": 31.0, "spread": 5.0, "loss": {"huber": 0.4} if name == "huber" else name}
    target = (numbers[:, None] - scale["centre"]) / scale["spread"]
    close_to_descent(model, NUMBERS[name], target, {}, numbers, monkeypatch, label={"kind": {"number": scale}})


#: What the models below were given, with the numbers of rows.
GIVEN = []


@fl.trainer("py-shown")
class Shown:
    """A linear model from fixed numbers, in full batches, which shows the test what it is given."""

    lr: float = 0.2
    learns = ("mse",)

    def setup(self, stream):
        inputs, outputs = int(np.prod(self.task.input)), self.task.outputs
        self.w = np.cos(np.arange((inputs + 1) * outputs)).reshape(inputs + 1, outputs).astype(np.float32) / 2

    def predict(self, x):
        GIVEN.append(np.array(x, float))
        return (np.array(x, float) @ self.w[:-1] + self.w[-1]).astype(np.float32)

    def vjp(self, x, slope):
        return (np.array(slope, float) @ self.w[:-1].T).astype(np.float32)

    def gradient(self, x, target, how):
        rows = np.hstack([np.array(x, float), np.ones((len(x), 1))])
        off = rows @ self.w - target
        return {"w": (rows.T @ off * 2 / off.size).astype(np.float32)}

    def descend(self, gradient, at, of, rate=1.0):
        self.w = (self.w - self.lr * rate * gradient["w"]).astype(np.float32)

    def fit(self, x, target, how, stream):
        if (how.target, how.loss) != ("scores", "mse"):
            raise fl.Lacks("it learns scores by mse")
        for _ in range(how.epochs if how.steps is None else how.steps):
            self.descend(self.gradient(x, target, how), 0, 1)
        return 1, 0.0

    def params(self):
        return {"w": self.w}

    def set_params(self, params):
        self.w = params["w"].copy()

    def save(self):
        return self.w.tobytes()

    def load(self, state):
        self.w = np.frombuffer(state, np.float32).reshape(self.w.shape).copy()


def repeated(counts):
    """A client's examples: those of one class are all the same."""
    labels = np.repeat(np.arange(CLASSES), counts)
    return rows(CLASSES, 7)[0][labels] + np.float32(0.1) * np.float32(sum(counts)), labels


@pytest.mark.parametrize("size", [3, 2, 1])
def test_close_fedgen_makes_features_for_clients(size):
    # clients differ in their number of examples, by which the test knows whose inputs these are
    clients = [repeated(counts) for counts in ([2, 1, 1], [3, 2, 0], [0, 1, 5])]
    noise, steps, batch, rate = 2, 3, 9, 0.4
    start = flat(kept(5, "moon", MEAN, **STILL).model("model")).astype(float)
    spec = {
        "name": "fedgen",
        "seed": 1,
        "protocol": {"use": "fedgen", "rounds": ROUNDS, "local": {"steps": by_features.STEPS, "batch": 100}, "features": by_features.WIDTH}
        | {"noise": noise, "steps": steps, "batch": batch, "diversity": 0.8, "cross-entropy": 0.6, "kl": 0.4, "decay": 0.9},
        "parts": {"generator": {"use": "py-shown", "lr": rate}, "aggregator": {"use": "mean"}},
    }
    net = {"use": "dfdx", "net": [{"linear": by_features.WIDTH}, "outputs"], "optimiser": {"sgd": {"lr": by_features.RATE}}}
    spec["parts"] |= {"model": net} | ({"cohort": {"use": "cyclic", "size": size}} if size < 3 else {})
    data = {"train": {f"client {k}": own for k, own in enumerate(clients)}, "test": rows(9, 9)}
    GIVEN.clear()
    found = fl.run(spec, data=data, quiet=True)
    order = cycle(range(3))
    drawn = [sorted(islice(order, size)) if size < 3 else [0, 1, 2] for _ in range(ROUNDS)]
    asked = {n: iter([x for x in GIVEN if len(x) == n]) for n in (batch, 4, 5, 6)}
    inputs = {at: [next(asked[batch]) for _ in range(steps)] for at in range(ROUNDS)}
    for at, cohort in enumerate(drawn[1:], 1):
        for k in cohort:
            both = asked[len(clients[k][1])]
            inputs[at, k] = [(next(both), next(both)) for _ in range(by_features.STEPS)]
    assert all(next(left, None) is None for left in asked.values())
    first = np.cos(np.arange((noise + CLASSES + 1) * by_features.WIDTH)) / 2
    due, _, heard = by_features.fedgen(exact(clients), CLASSES, drawn, start, first, inputs, (0.4, 0.6), 0.9, 0.8, rate)
    close(flat(found.model("model")), due)
    assert abs(found.metrics["generator.loss"] - heard[-1]) < 1e-6


def kept_generator(results):
    """Weights, `noise x outputs`, and biases of the linear generator that a run has kept."""
    arrays = results.model("generator").arrays()
    return arrays["0.weight"].T.astype(float), arrays["0.bias"].astype(float)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("count", [3, 2, 1])
def test_close_fediod_makes_inputs_that_teach(count, linear):
    # a discriminator sees each own example once, or equally often
    clients = [rows(n, seed) for seed, n in enumerate([16, 8, 4])][:count]

    def made(rate, rounds):
        GIVEN.clear()
        parts = {
            "teacher": {"use": "linear", "lr": generated.RATE},
            "discriminator": {"use": "linear", "lr": generated.RATE},
            "student": {"use": "py-shown", "lr": 0.2},
            "generator": {"use": "noise-to-input", "net": "affine", "noise": 2, "optimiser": {"sgd": {"lr": rate}}},
        }
        how = {"rounds": rounds, "steps": 1, "batch": 16, "game": "linear" if linear else "non-saturating"}
        return distilled("fediod", clients, parts, local="full", **how)

    begin = kept_generator(made(1e-30, 1))
    found = made(0.05, ROUNDS)
    batches = [x for x in GIVEN if len(x) == 16]
    student = np.cos(np.arange(4 * CLASSES)).reshape(4, CLASSES) / 2
    off, generator, student = generated.run(exact(clients), CLASSES, distillation.STEPS, batches, begin, student, (0.05, 0.2), linear)
    close(off, 0)
    for ours, due in zip(kept_generator(found), generator, strict=True):
        close(ours, due)
    close(found.model("student").arrays()["w"], student)


def pictures(n, seed):
    """Images of three channels and 4 x 4 pixels, as bytes, and a class for each pixel."""
    draws = np.random.default_rng(seed)
    masks = draws.integers(0, CLASSES, (n, 16))
    images = draws.integers(0, 120, (n, 3, 16)) + 60 * (masks[:, None] == np.arange(CLASSES)[None, :, None])
    return images.astype(np.uint8), masks.astype(np.uint8)


def png(pixels):
    """A file of a grey image, `height x width`, or one in colour, `height x width x 3`."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape[:2]
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def written(folder, rows):
    """The files of images and masks, as a spec names them."""
    for kind in ("inputs", "labels"):
        (folder / kind).mkdir(parents=True)
    for at, (image, mask) in enumerate(zip(*rows, strict=True)):
        (folder / "inputs" / f"{at:02}.png").write_bytes(png(image.T.reshape(4, 4, 3)))
        (folder / "labels" / f"{at:02}.png").write_bytes(png(mask.reshape(4, 4)))
    return {kind: str(folder / kind) for kind in ("inputs", "labels")}


PICTURES = [pictures(n, 30 + n) for n in (2, 5, 3)]


def over_pixels(folder, protocol, parts, rate=by_pixel.RATE, dice=0.0, count=3, public=None, **settings):
    """The results of a run of 1 x 1 convolutions on images."""
    files = lambda name, rows: {"format": "masks", "classes": [0, 1, 2], "train": written(folder / name, rows)}  # noqa: E731
    train = [written(folder / f"client {k}", own) for k, own in enumerate(PICTURES[:count])]
    own = {"format": "masks", "classes": [0, 1, 2], "train": train, "test": written(folder / "test", pictures(2, 50))}
    data = {"set": {"files": own}, "normalise": None, "clients": count}
    if public is not None:
        data["public"] = {"from": {"set": {"files": files("public", public)}}}
    net = {"use": "dfdx", "net": ["outputs"], "optimiser": {"sgd": {"lr": rate}}} | ({"dice": dice} if dice else {})
    spec = {"name": "pixels", "seed": 1, "data": data, "protocol": {"use": protocol, **settings}, "parts": {"model": net} | parts}
    return fl.run(spec, quiet=True)


def convolution(model):
    """The weights of a 1 x 1 convolution as the oracle has them."""
    bias, weight = sorted(model.arrays().values(), key=np.ndim)
    return np.vstack([weight.reshape(CLASSES, 3).T, bias])


def as_numbers(images):
    return images.astype(np.float32).astype(float) / 255


@pytest.mark.parametrize("size", [3, 2, 1])
@pytest.mark.parametrize("dice", [0.0, 0.8])
def test_close_fedavg_over_pixels_is_a_mean_over_pixels(tmp_path, dice, size):
    cohort = {"cohort": {"use": "cyclic", "size": size}} if size < 3 else {}
    how = {"local": {"epochs": by_pixel.STEPS, "batch": 100}}
    begin = convolution(over_pixels(tmp_path / "still", "fedavg", MEAN, rate=1e-30, rounds=1, **how).model("model")).astype(float)
    found = over_pixels(tmp_path / "run", "fedavg", {"aggregator": {"use": "mean"}} | cohort, dice=dice, rounds=ROUNDS, **how)
    order = cycle(range(3))
    drawn = [sorted(islice(order, size)) if size < 3 else [0, 1, 2] for _ in range(ROUNDS)]
    clients = [(as_numbers(images), masks) for images, masks in PICTURES]
    close(convolution(found.model("model")), by_pixel.fedavg(clients, CLASSES, drawn, begin, dice))


@pytest.mark.parametrize("count", [3, 2, 1])
def test_close_fedmd_over_pixels_approaches_the_scores_of_each_pixel(tmp_path, count):
    public, full = pictures(4, 40), {"epochs": by_pixel.STEPS, "batch": 100}
    how = {"pretrain": None, "samples": 4, "labels": {"scores": {"loss": "mse"}}} | dict.fromkeys(["warm-up", "local", "distil"], full)
    ensemble = {"ensemble": {"use": "mean-logits"}}
    still = over_pixels(tmp_path / "still", "fedmd", ensemble, rate=1e-30, count=count, public=public, rounds=1, **how)
    found = over_pixels(tmp_path / "run", "fedmd", ensemble, count=count, public=public, rounds=ROUNDS, **how)
    clients = [(as_numbers(images), masks) for images, masks in PICTURES[:count]]
    begin = [convolution(still.model("model", client=k)).astype(float) for k in range(count)]
    due = by_pixel.fedmd(clients, as_numbers(public[0]), CLASSES, ROUNDS, begin)
    for k, w in enumerate(due):
        close(convolution(found.model("model", client=k)), w)
