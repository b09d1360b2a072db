"""Networks of several inputs, sparse embeddings, and what a check finds in a network."""

import collections
import functools
import logging
import time
import warnings
import zlib
from pathlib import Path
from typing import Annotated

import fl
import fl.testing
import numpy as np
import pytest
from conftest import QUICK
from test_data import SPEC
from test_oracles import png

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import fl.torch  # noqa: E402
import torch_parts  # noqa: E402

WORDS, LENGTH = 12, 5
ROWS = {"train": [(np.zeros((9, 6), "float32"), np.arange(9) % 3)], "holdout": 0.3}


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


def test_exact_several_inputs_are_joined_by_name_in_the_order_of_the_first_rows():
    def turned(inputs):
        return dict(reversed(inputs.items()))

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 200

        def __getitem__(self, at):
            inputs, labels = data()["test"]
            one = {name: value[at] for name, value in inputs.items()}
            return (turned(one) if at % 2 else one), labels[at]

    (first, *others), test = data()["train"], data()["test"]
    train = [first, *((turned(inputs), labels) for inputs, labels in others)]
    due = run("two-tuple").digest
    assert run("two-tuple", {"train": train, "test": (turned(test[0]), test[1])}).digest == due
    assert run("two-tuple", {"train": train, "test": Rows()}).digest == due
    with pytest.raises(fl.SpecError, match="test rows: its inputs are a, b, and those of the first rows ids, mask; give all rows the same names"):
        run("two-tuple", {"train": train, "test": (dict(zip("ab", test[0].values())), test[1])})
    with pytest.raises(fl.SpecError, match="test rows: the input `ids` has 2 numbers a row, and that of the first rows 5"):
        run("two-tuple", {"train": train, "test": ({name: value[:, :2] for name, value in test[0].items()}, test[1])})


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


def sequences(folder, n, seed):
    """Files of words from 1 to 5, 0 after the end, and of a class for each: 1, or 2 if the word
    before is 1 or 2."""
    draws = np.random.default_rng(seed)
    words = draws.integers(1, 6, (n, 9)).astype(np.uint8)
    words[np.arange(9) >= draws.integers(4, 10, (n, 1))] = 0
    before = np.pad(words, ((0, 0), (1, 0)))[:, :-1]
    classes = ((1 + np.isin(before, (1, 2))) * (words > 0)).astype(np.uint8)
    for kind, rows in {"inputs": words, "labels": classes}.items():
        (folder / kind).mkdir(parents=True)
        for at, row in enumerate(rows):
            (folder / kind / f"{at:03}.png").write_bytes(png(row[None]))
    return {kind: str(folder / kind) for kind in ("inputs", "labels")}


def tagging(folder, rounds=6):
    train = [sequences(folder / f"client {k}", 40, k) for k in range(3)]
    files = {"format": "masks", "classes": ["none", "other", "after"], "train": train, "test": sequences(folder / "test", 20, 9)}
    return {
        "name": "tagging",
        "data": {"set": {"files": files}, "normalise": None, "clients": 3},
        "protocol": {"use": "fedavg", "rounds": rounds, "local": {"epochs": 2, "batch": 10}},
        "parts": {"model": {"use": "torch-tagger"}, "aggregator": {"use": "mean"}},
        "plugins": [{"module": "torch_parts", "path": str(Path(torch_parts.__file__).parent)}],
    }


def test_exact_a_class_for_each_position_is_learnt_and_has_one_digest(tmp_path):
    @fl.metric("by-position", task="masks")
    def by_position(scores, labels):
        found = scores.reshape(len(scores), -1, labels.shape[1]).argmax(1)
        return float((found == labels)[labels > 0].mean())

    spec = tagging(tmp_path)
    try:
        results = fl.run(spec, quiet=True)
    finally:
        fl._parts.metric._METRICS.pop("by-position")
    # without a memory nothing is better than `other` everywhere, for about two of three positions
    assert results.metrics["by-position"] > 0.95
    assert {*fl.testing.ways(spec).values()} == {results.digest}
    assert fl.run(spec, quiet=True, threads=3).digest == results.digest


def test_close_a_class_for_each_position_is_learnt_as_in_plain_pytorch(tmp_path):
    """FedAvg of one client's full batches is training at one place."""
    spec = tagging(tmp_path)
    spec["data"]["clients"] = 1
    spec["data"]["set"]["files"]["train"] = spec["data"]["set"]["files"]["train"][:1]
    still, learnt = (
        fl.run(spec, {"protocol.rounds": 1, "protocol.local": {"epochs": epochs, "batch": 60}, "parts.model.lr": rate}, quiet=True)
        for epochs, rate in ((1, 1e-30), (5, 0.05))
    )
    net = still.model().module()
    files = [sorted((tmp_path / "client 0" / kind).iterdir()) for kind in ("inputs", "labels")]
    words, classes = (torch.stack([torch.from_numpy(pixels(file)) for file in of]).long() for of in files)
    optimiser = torch.optim.Adam(net.parameters(), 0.05)
    for _ in range(5):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(words), classes, ignore_index=0).backward()
        optimiser.step()
    for name, value in net.state_dict().items():
        np.testing.assert_allclose(learnt.model().arrays()[name], value.numpy(), rtol=1e-4, atol=1e-6)


def pixels(file):
    """The one row of a file that `png` wrote."""
    data = file.read_bytes()
    at = data.index(b"IDAT")
    packed = data[at + 4 : at + 4 + int.from_bytes(data[at - 4 : at], "big")]
    return np.frombuffer(zlib.decompress(packed), np.uint8)[1:].copy()


def test_scores_with_the_classes_last_are_refused(tmp_path):
    fl.trainer("torch-classes-last")(type("Last", (torch_parts.ClassesLast,), {"__doc__": "Its classes are last."}))
    text = r"scores of shape \[2, 9, 3\], and the 3 classes must be its second dimension"
    with pytest.raises(fl.SpecError, match=text):
        fl.check(tagging(tmp_path), {"parts.model": {"use": "torch-classes-last"}})


def made(cls, seed=0):
    """A trainer of this class for six inputs and three classes, as a run makes it."""
    from fl._parts import calls

    settings = '{"lr": 0.5, "momentum": 0.0, "weight-decay": 0.0, "device": "cpu"}'
    return calls.create(calls.CLASSES.index(cls), settings, '{"input": [6], "kind": {"Classes": 3}}', bytes([seed] * 32))


class Head(nn.Module):
    """A linear layer, and what a test adds."""

    def __init__(self, outputs, inputs=6):
        super().__init__()
        self.head = nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.head(x)


def trainer(name, of, **more):
    """A trainer with this network."""
    about = {"__doc__": "A network of a test.", "net": lambda self: of(self.task.outputs), **more}
    return fl.trainer(name)(type("Tried", (fl.torch.Trainer,), about))


def test_exact_a_try_of_a_network_leaves_no_trace():
    class Traces(Head):
        def __init__(self, outputs):
            super().__init__(outputs)
            self.calls, self.seen, self.last = 0, [], None
            self.register_buffer("sum", torch.zeros(6), persistent=False)
            self.register_buffer("mean", torch.zeros(6))

        def forward(self, x):
            if self.training:
                self.calls += 1
                self.late = getattr(self, "late", 0) + 1
                self.seen.append(x)
                self.last = x
                self.sum += 1
                self.mean = self.mean + 1
            return super().forward(x)

    tried = trainer("leaves-traces", Traces)
    for net in (made(tried, seed)._model for seed in (1, 2)):
        assert (net.calls, net.seen, net.last) == (0, [], None) and not hasattr(net, "late")
        assert not net.sum.any() and not net.mean.any()


def adds(**kinds):
    """A linear layer with more attributes or buffers, which these functions of it make."""

    def of(outputs):
        made = Head(outputs)
        for name, make in kinds.items():
            value = make(made)
            made.register_buffer(name, value) if name.startswith("buffer") else setattr(made, name, value)
        return made

    return of


def order(_):
    return torch.randperm(6)


Pair = collections.namedtuple("Pair", "one other")
DRAWS = {
    "features": adds(waves=lambda _: torch.randn(6, 16)),
    "array": adds(waves=lambda _: np.random.normal(size=6)),
    "order": adds(order=lambda _: order(_).tolist()),
    "buffer": adds(buffer=order),
    "unkept": adds(unkept=lambda net: net.register_buffer("shift", torch.rand(6), persistent=False)),
    "partial": adds(to=lambda _: functools.partial(torch.add, torch.rand(6))),
    "pair": adds(pair=lambda _: Pair(torch.rand(6), 1)),
    "tuple": adds(pair=lambda _: (torch.rand(6), 1)),
    "length": adds(some=lambda _: [torch.zeros(2) for _ in range(int(torch.randint(2, 999, ())))]),
    "width": lambda outputs: nn.Sequential(nn.Linear(6, width := int(torch.randint(2, 999, ()))), nn.Linear(width, outputs)),
}


@pytest.mark.parametrize("kind", DRAWS)
def test_what_a_network_draws_and_no_message_carries_is_refused(kind):
    trainer(f"draws-{kind}", DRAWS[kind])
    with pytest.raises(fl.SpecError, match=r"net\(\) of Tried draws `.*each client would have another; .*fixed seed.*register_buffer"):
        fl.check(SPEC, {"parts.model": {"use": f"draws-{kind}"}}, data=ROWS)


@pytest.mark.parametrize("first", range(4))
def test_a_draw_that_happens_to_be_alike_is_refused_at_the_next_client(first):
    def attempts(cls):
        for seed in [first, *range(10)]:
            made(cls, seed)

    with pytest.raises(ValueError, match="draws `flip`"):
        attempts(trainer(f"flips-{first}", adds(flip=lambda _: bool(torch.rand(()) < 0.5))))


KEEPS = {
    "anchor": adds(start=lambda net: net.head.weight.detach().clone()),
    "anchors": adds(start=lambda net: (7, {name: p.detach().clone() for name, p in net.named_parameters()})),
    "buffer": adds(buffer=lambda _: torch.rand(6)),
    "partial": adds(norm=lambda _: functools.partial(nn.LayerNorm, eps=1e-6), pair=lambda _: Pair(torch.ones(2), (1, torch.zeros(2)))),
    "generator": adds(own=lambda _: torch.Generator().manual_seed(int(torch.randint(999, ())))),
    "fixed": adds(waves=lambda _: torch.rand(6, generator=torch.Generator().manual_seed(1))),
    "seconds": adds(made_at=lambda _: time.perf_counter_ns()),
    "weight-norm": lambda outputs: nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 4)), nn.utils.spectral_norm(nn.Linear(4, outputs))),
    "parametrised": lambda outputs: nn.utils.parametrizations.spectral_norm(nn.utils.parametrizations.weight_norm(nn.Linear(6, outputs))),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("kind", KEEPS)
def test_exact_what_is_no_draw_of_a_network_is_left_as_it_is(kind):
    cls = trainer(f"keeps-{kind}", KEEPS[kind])
    nets = [made(cls, seed)._model for seed in (1, 2, 1)]
    if kind == "anchor":
        assert all(torch.equal(net.start, net.head.weight) for net in nets)
    if kind == "fixed":
        assert torch.equal(nets[0].waves, nets[1].waves) and nets[0].waves is not nets[1].waves
    first, second, again = (net.state_dict() for net in nets)
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not all(torch.equal(value, second[name]) for name, value in first.items())


def test_a_network_that_a_notebook_changes_is_tried_again():
    """Its trainer stays, and so does the text of its layers."""
    cells = {"__name__": "__main__"}
    exec(NOTEBOOK, cells)
    assert made(cells["Cell"])._training.draws is False
    exec(BODY.replace("self.head(x)", "nn.functional.dropout(self.head(x), training=self.training)"), cells)
    assert made(cells["Cell"])._training.draws is True


BODY = """
class Body(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.head = nn.Linear(6, outputs)

    def forward(self, x):
        return self.head(x)
"""
NOTEBOOK = f"""
import fl, fl.torch
from torch import nn
{BODY}
@fl.trainer("notebook-cell")
class Cell(fl.torch.Trainer):
    "A network of a notebook."
    def net(self):
        return Body(self.task.outputs)
"""


class InList(Head):
    def __init__(self, outputs):
        super().__init__(outputs)
        self.layers = [nn.Linear(6, 6)]

    def forward(self, x):
        return super().forward(self.layers[0](x))


class Hides(InList):
    def __init__(self, outputs):
        super().__init__(outputs)
        self.layers = nn.ModuleList(self.layers)

    def state_dict(self, *args, **more):
        return {name: value for name, value in super().state_dict(*args, **more).items() if "head" in name}


@pytest.mark.parametrize("name, of, more, text", [
    ("in-list", InList, {}, r"has the parameter `layers\[0\]\.weight` where no optimiser finds it"),
    ("hides", Hides, {}, r"has `layers\.0\.weight`, which its state_dict\(\) leaves out"),
    ("of-others", Head, {"optimiser": lambda self, _: torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)}, "has no parameter of this network"),
], ids=str)  # fmt: skip
def test_what_would_not_learn_or_travel_is_refused(name, of, more, text):
    trainer(f"refused-{name}", of, **more)
    with pytest.raises(fl.SpecError, match=text):
        fl.check(SPEC, {"parts.model": {"use": f"refused-{name}"}}, data=ROWS)


def test_a_frozen_teacher_may_be_in_a_list():
    def net(self):
        made = InList(self.task.outputs)
        teacher = made.layers[0].requires_grad_(False)
        nn.init.normal_(teacher.weight, generator=torch.Generator().manual_seed(1))
        nn.init.zeros_(teacher.bias)
        return made

    frozen = fl.trainer("frozen-teacher")(type("Frozen", (fl.torch.Trainer,), {"__doc__": "Has a teacher.", "net": net}))
    one, other = (made(frozen, seed)._model for seed in (1, 2))
    assert torch.equal(one.layers[0].weight, other.layers[0].weight)


def test_an_optimiser_that_outlasts_a_training_is_refused_where_each_begins_anew():
    def optimiser(self, parameters):
        if not hasattr(self, "_own"):
            self._own = torch.optim.Adam(parameters)
        return self._own

    trainer("same-optimiser", lambda outputs: nn.Sequential(nn.Flatten(), nn.LazyLinear(outputs)), optimiser=optimiser)
    with pytest.raises(fl.RunError, match="the same object again, with moments of a training before"):
        fl.run(QUICK / "fedavg.yaml", {"parts.model": {"use": "same-optimiser"}}, quiet=True)


def test_a_compiled_network_is_warned_of():
    compiled = lambda outputs: torch.compile(nn.Sequential(nn.Flatten(), nn.Linear(2, outputs)), backend="eager")  # noqa: E731
    trainer("compiled", compiled)
    spec = fl.check(QUICK / "fedavg.yaml")
    width = {"data": {**spec["data"], "set": {"blobs": {"features": 2, "train": 60, "test": 20}}}}
    with pytest.warns(UserWarning, match=r"net\(\) of Tried is compiled.*digest, differ from run to run"):
        assert fl.run({**spec, **width}, {"parts.model": {"use": "compiled"}}, quiet=True).done
