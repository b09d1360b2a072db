"""The ports of other programs' methods learn, on made rows, and their page counts their lines."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import PORTS


def lines(*files: Path) -> int:
    """Lines of code: without empty lines, comments and docstrings."""
    count = 0
    for file in files:
        text = file.read_text()
        tree = ast.parse(text)
        no_code: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
                no_code |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
        all = enumerate(text.splitlines(), 1)
        count += sum(at not in no_code and bool(re.match(r"\s*[^\s#]", line)) for at, line in all)
    return count


def made(n, shape, seed):
    """Pictures of ten classes, each bright in another place."""
    draws = np.random.default_rng(seed)
    y = draws.integers(0, 10, n)
    x = draws.normal(0, 0.3, (n, *shape)).astype(np.float32)
    for label in range(10):
        x[y == label, :, 2 * label : 2 * label + 5, 4:12] += 1
    return x, y


def test_the_quickstart_of_flower_learns():
    pytest.importorskip("torch")
    import flower_quickstart

    results = flower_quickstart.main(made(600, (3, 32, 32), 1), made(200, (3, 32, 32), 2), rounds=20, clients=3, lr=0.05)
    assert results.rounds == 20 and results.metrics["accuracy"] > 0.5


def test_the_noise_of_a_larger_cohort_is_priced_as_drawn():
    pytest.importorskip("torch")
    import pfl_dp_fedavg

    given = made(200, (1, 28, 28), 1), made(200, (1, 28, 28), 2)
    results = pfl_dp_fedavg.main(*given, rounds=2, users=20, cohort=10, each=10, sigma=0.53)
    assert results.metrics["accuracy"] > 0.2
    assert results.epsilon > 100  # 2 is what 1,000 of a million users would pay


def test_clients_share_prototypes_and_nothing_else():
    pytest.importorskip("torch")
    import pfllib_fedproto

    results = pfllib_fedproto.main(made(800, (1, 28, 28), 1), rounds=2, clients=4, lr=0.05)
    assert results.metrics["clients.accuracy"] > 0.5
    # means of 512 numbers and a count of each of ten classes, of each client in each round
    assert results.bytes["up"] < 2 * 4 * 10 * (513 * 4 + 100)


def test_the_page_counts_the_lines():
    table = re.findall(r"^\| \[`(\w+\.py)`\].*?\| (\d+) \| (\d+) \|", (PORTS / "README.md").read_text(), re.M)
    assert len(table) == 3
    for name, own, peers in table:
        assert int(own) == lines(*([PORTS / name] + [PORTS / "fedproto.py"] * (name == "pfllib_fedproto.py"))), name
        if name != "pfllib_fedproto.py":
            assert int(peers) == lines(PORTS / "peers" / name), name
