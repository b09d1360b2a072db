"""Averaging methods, server optimisers and robust rules beside their papers in plain NumPy (tests/oracles): six rounds with all, some
and one client a round, full batches, so that both do the same sums."""

import importlib.util
from itertools import cycle, islice
from pathlib import Path

import fl
import numpy as np
import pytest

_FILE = Path(__file__).parents[3] / "tests" / "oracles" / "rounds.py"
_SPEC = importlib.util.spec_from_file_location("rounds", _FILE)
oracle = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(oracle)

ROUNDS, CLASSES = 6, 3


def rows(n, seed):
    draws = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(CLASSES), draws.integers(0, CLASSES, n - CLASSES)])
    return (draws.normal(size=(n, 3)) + 0.5 * labels[:, None] + 0.2 * seed).astype(np.float32), labels


CLIENTS = [rows(n, seed) for seed, n in enumerate([8, 12, 20, 6, 14])]


def cohorts(size):
    order = cycle(range(len(CLIENTS)))
    return [sorted(islice(order, size)) for _ in range(ROUNDS)]


def ours(size, aggregator, protocol="fedavg", **settings):
    """The parameters after the rounds, as one vector."""
    local = {"epochs": oracle.STEPS, "batch": 100}
    parts = {"model": {"use": "linear", "lr": oracle.RATE}, "aggregator": aggregator}
    if size < len(CLIENTS):
        parts["cohort"] = {"use": "cyclic", "size": size}
    spec = {
        "name": "oracle",
        "seed": 1,
        "protocol": {"use": protocol, "rounds": ROUNDS, "local": local, **settings},
        "parts": parts,
    }
    data = {"train": {f"client {k}": own for k, own in enumerate(CLIENTS)}, "test": rows(9, 9)}
    model = fl.run(spec, data=data, quiet=True).model("model").arrays()
    return np.concatenate([model["weight"].T.ravel(), model["bias"]])


def close(found, due):
    assert np.abs(found - due).max() < 1e-6, (found, due)


def theirs(size, rule, **more):
    rows = [(x.astype(float), y) for x, y in CLIENTS]
    return oracle.run(rows, CLASSES, cohorts(size), rule, **more)


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
