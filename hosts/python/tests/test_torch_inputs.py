"""Networks of several inputs, sparse embeddings, and what a check finds in a network."""

import logging
import warnings
from typing import Annotated

import fl
import fl.testing
import numpy as np
import pytest
from conftest import QUICK
from test_data import SPEC

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import fl.torch  # noqa: E402

WORDS, LENGTH = 12, 5


class TwoInputs(nn.Module):
    """Words, and weights of these words."""

    def __init__(self, outputs, sparse=False):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 6, sparse=sparse), nn.Linear(6, outputs)

    def forward(self, ids, mask):
        return self.head((self.words(ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1))


class Base(fl.torch.Trainer):
    """Splits a row in two."""

    lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.5
    sparse: bool = False

    def net(self):
        return TwoInputs(self.task.outputs, self.sparse)


@fl.trainer("two-tuple")
class Tuple(Base):
    """As a tuple."""

    def collate(self, inputs):
        ids, mask = inputs.split(LENGTH, 1)
        return ids.long(), mask


@fl.trainer("two-mapping")
class Mapping(Tuple):
    """By the names of arguments."""

    def collate(self, inputs):
        ids, mask = super().collate(inputs)
        return {"mask": mask, "ids": ids}


@fl.trainer("two-inside")
class Inside(Base):
    """One input, which the network splits."""

    def net(self):
        class Split(TwoInputs):
            def forward(self, row):
                ids, mask = row.split(LENGTH, 1)
                return super().forward(ids.long(), mask)

        return Split(self.task.outputs, self.sparse)


@fl.trainer("two-together")
class Together(Mapping):
    """Up to three clients take their steps together."""

    together = 3


def texts(n, seed):
    draws = np.random.default_rng(seed)
    ids, mask = draws.integers(0, WORDS, (n, LENGTH)), (draws.random((n, LENGTH)) < 0.8).astype("float32")
    return {"ids": ids, "mask": mask}, (ids < WORDS // 2).sum(1) > LENGTH // 2


def data(join=lambda inputs: inputs):
    rows = lambda n, seed: (join(texts(n, seed)[0]), texts(n, seed)[1].astype(int))  # noqa: E731
    return {"train": [rows(60, seed) for seed in range(3)], "test": rows(200, 9)}


def run(name, data=data(), rounds=4, **more):  # noqa: B008
    set = {"parts.model": {"use": name} | more.pop("model", {}), "protocol.rounds": rounds, **more.pop("set", {})}
    return fl.run(SPEC, set, data=data, quiet=True, keep="nothing", **more)


def test_exact_several_inputs_are_one_row_that_collate_splits():
    whole = run("two-inside", rounds=8)
    assert whole.metrics["accuracy"] > 0.7
    assert {run(name, rounds=8).digest for name in ("two-tuple", "two-mapping")} == {whole.digest}
    side_by_side = data(lambda inputs: np.concatenate([inputs["ids"], inputs["mask"]], 1))
    assert run("two-tuple", side_by_side, rounds=8).digest == whole.digest

    class Rows(torch.utils.data.Dataset):
        def __init__(self, inputs, labels):
            self.inputs, self.labels = inputs, labels

        def __len__(self):
            return len(self.labels)

        def __getitem__(self, at):
            return {name: torch.from_numpy(value[at]) for name, value in self.inputs.items()}, self.labels[at]

    items = {"train": [Rows(*one) for one in data()["train"]], "test": Rows(*data()["test"])}
    assert run("two-tuple", items, rounds=8).digest == whole.digest


def test_close_networks_of_several_inputs_train_together():
    one, other = (run(name, threads=3).model().arrays() for name in ("two-mapping", "two-together"))
    for name, value in one.items():
        np.testing.assert_allclose(other[name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("wrong, text", [
    ({"ids": np.zeros((60, 2)), "mask": np.zeros((59, 2))}, r"the input `mask` has shape \[59, 2\], and `ids` \[60, 2\]"),
    ({"ids": np.zeros((60, 2)), "mask": np.full((60, 2), np.nan)}, "input `mask`, row 0: an input is nan"),
    ({}, "the mapping of inputs is empty"),
], ids=str)  # fmt: skip
def test_inputs_that_do_not_go_together_are_named(wrong, text):
    with pytest.raises(fl.SpecError, match=text):
        run("two-tuple", {"train": (wrong, np.zeros(60, int)), "holdout": 0.2})


def test_an_item_without_a_tuple_has_no_inputs_by_name():
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 20

        def __getitem__(self, at):
            return {"ids": np.zeros(5), "label": 1}  # a label would be an input

    with pytest.raises(fl.SpecError, match="an input must be numbers, got dict"):
        run("two-tuple", {"train": [Rows()], "holdout": 0.2})


CHANGES = [
    {},
    {"protocol.use": "fedprox", "protocol.mu": 0.5},
    {"protocol.use": "scaffold"},
    {"protocol.use": "scaffold", "protocol.control": "gradient"},
    {"protocol.local.clip": 0.05},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_close_a_sparse_embedding_learns_as_a_dense_one(change):
    dense, sparse = (run("two-tuple", set=change, model={"sparse": sparse}).model().arrays() for sparse in (False, True))
    plain = run("two-tuple").model().arrays()
    assert change == {} or any(not np.array_equal(plain[name], dense[name]) for name in plain)
    for name, value in dense.items():
        np.testing.assert_allclose(sparse[name], value, rtol=1e-4, atol=1e-6)


def test_close_dp_sgd_clips_a_sparse_gradient_with_all_its_rows():
    from fl._parts import calls
    from fl._parts.arguments import Pass

    inputs, labels = texts(8, 1)
    inputs["ids"][:, :2] = 3  # a word that is there twice has two rows in its gradient
    x = np.concatenate([inputs["ids"], inputs["mask"]], 1).astype("float32")
    index, task = calls.CLASSES.index(Tuple), f'{{"input": [{2 * LENGTH}], "kind": {{"Classes": 2}}}}'
    settings = '{"lr": 0.5, "momentum": 0.0, "weight-decay": 0.0, "device": "cpu", "sparse": %s}'
    how, found = Pass("classes", "cross-entropy"), []
    for sparse in ("false", "true"):
        part = calls.create(index, settings % sparse, task, bytes(32))
        found.append([part.gradient(x, labels.astype("uint32"), how), part.clipped_gradients(x, labels.astype("uint32"), how, 0.01)])
    for dense, sparse in zip(*found):
        for name, value in dense.items():
            np.testing.assert_allclose(sparse[name], value, rtol=1e-5, atol=1e-8)


def test_an_optimiser_that_needs_a_closure_is_found_by_check():
    @fl.trainer("closes")
    class Closes(fl.torch.Trainer):
        """Takes no single steps."""

        def net(self):
            return nn.Sequential(nn.Flatten(), nn.LazyLinear(self.task.outputs))

        def optimiser(self, parameters):
            return torch.optim.LBFGS(parameters)

    with pytest.raises(fl.SpecError, match=r"optimiser\(\) of Closes gives LBFGS, whose step needs a closure"):
        fl.check(QUICK / "fedavg.yaml", {"parts.model": {"use": "closes"}})


class FrozenBody(Base):
    """Its first layer does not learn."""

    def net(self):
        width = int(np.prod(self.task.input))
        return nn.Sequential(nn.Flatten(), nn.Linear(width, 4).requires_grad_(False), nn.Linear(4, self.task.outputs))


def test_a_frozen_body_that_travels_is_told_once():
    fl.trainer("frozen-travels")(type("FrozenTravels", (FrozenBody,), {"__doc__": "It travels."}))
    fl.trainer("frozen-stays")(type("FrozenStays", (FrozenBody,), {"__doc__": "It stays.", "travels": lambda self, name: name.startswith("2")}))
    with pytest.warns(UserWarning, match=r"\d+ of the \d+ numbers of FrozenTravels that travel in each round are frozen \(`1.weight`, \.\.\)"):
        fl.check(QUICK / "fedavg.yaml", {"parts.model": {"use": "frozen-travels"}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fl.check(QUICK / "fedavg.yaml", {"parts.model": {"use": "frozen-travels"}})
        fl.check(QUICK / "fedavg.yaml", {"parts.model": {"use": "frozen-stays"}})


def test_a_run_that_keeps_nothing_warns_of_nothing(recwarn, caplog):
    import gc

    with caplog.at_level(logging.WARNING):
        results = run("two-tuple")
        folder = results.folder
        results.model().arrays()
        assert folder.exists()
        del results
        gc.collect()
    assert not folder.exists() and not caplog.records and [str(one.message) for one in recwarn] == []
