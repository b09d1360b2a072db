"""Rows in memory: they are files by another name."""

import copy
import hashlib
import importlib.util
import io
import json
import pickle
import re
import threading
from pathlib import Path

import fl
import numpy as np
import pytest
import state_parts
from conftest import QUICK

SPEC = {
    "name": "memory",
    "seed": 3,
    "protocol": {"use": "fedavg", "rounds": 3, "local": {"epochs": 1, "batch": 8}},
    "parts": {"model": {"use": "linear", "lr": 0.1}, "aggregator": {"use": "mean"}},
}
PUBLIC = {
    **SPEC,
    "protocol": {"use": "co-distill", "rounds": 2, "labels": "hard", "samples": 10, "warm-up": {"epochs": 1, "batch": 8}, "local": {"epochs": 1, "batch": 8}, "distil": {"epochs": 1, "batch": 8}},
    "parts": {"model": {"use": "linear", "lr": 0.1}, "student": {"use": "linear", "lr": 0.1}, "ensemble": {"use": "mean-labels"}},
}  # fmt: skip


def rows(n, seed, width=4):
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, 3, n)
    return (draws.normal(size=(n, width)) + labels[:, None]).astype(np.float32), labels


def clients():
    return {name: rows(30, seed) for seed, name in enumerate(["alice", "bob smith", "carol/x"])}


def run(data, spec=SPEC, **more):
    return fl.run(spec, data=data, quiet=True, **more)


def test_exact_arrays_have_the_digest_of_the_same_arrays_in_files():
    sources = []
    for name, (inputs, labels) in {**clients(), "test": rows(50, 9)}.items():
        stem = name.replace("/", "_")
        np.save(f"{stem}-x.npy", inputs)
        np.save(f"{stem}-y.npy", labels)
        sources.append({"inputs": f"{stem}-x.npy", "labels": f"{stem}-y.npy"})
    files = {"format": "npy", "train": sources[:-1], "test": sources[-1]}
    by_files = fl.run({**SPEC, "data": {"set": {"files": files}}}, quiet=True)
    in_memory = run({"train": clients(), "test": rows(50, 9)})
    assert in_memory.digest == by_files.digest
    assert in_memory.clients == ["alice", "bob smith", "carol/x"]
    assert by_files.clients == []


def test_a_mapping_of_one_client_is_one_client():
    one = run({"train": {"alice": rows(30, 0)}, "test": rows(50, 9)})
    assert one.clients == ["alice"]
    text = "there are 1 training files for 3 clients; leave `clients` out, or say how they are shared out"
    with pytest.raises(fl.SpecError, match=text):
        run({"train": {"alice": rows(30, 0)}, "test": rows(50, 9)}, {**SPEC, "data": {"clients": 3}})


def test_exact_clients_test_with_rows_of_their_own_in_any_order():
    tests = {name: rows(10 + 5 * at, 20 + at) for at, name in enumerate(clients())}
    spec = {**SPEC, "data": {"test": {"own": "files"}}}
    one = run({"train": clients(), "test": tests}, spec)
    turned = run({"train": clients(), "test": dict(reversed(tests.items()))}, spec)
    assert one.digest == turned.digest
    all_rows = np.concatenate([x for x, _ in tests.values()]), np.concatenate([y for _, y in tests.values()])
    assert one.metrics["own.over-rows.accuracy"] == pytest.approx(run({"train": clients(), "test": all_rows}).metrics["accuracy"])
    with pytest.raises(fl.Error, match="there are 2 test files for 3 training files"):
        run({"train": list(clients().values()), "test": list(tests.values())[:2]}, spec)


def test_test_rows_by_name_are_those_of_each_client():
    alice, *others = [(name, rows(10, 20)) for name in clients()]
    with pytest.raises(fl.SpecError, match="test rows `alice`: there are none of this client of `train`. Give a mapping with those of each client"):
        run({"train": clients(), "test": dict(others)})
    with pytest.raises(fl.SpecError, match="test rows `dora`: `train` has no such client; it has alice, bob smith, carol/x"):
        run({"train": clients(), "test": dict([alice, *others, ("dora", alice[1])])})


def test_exact_frames_have_the_digest_of_the_same_csv():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    jobs = ["cook", "smith", "judge", '"a, b"']
    text = "age,job,member,income\n" + "".join(f"{20 + i % 50}{'' if i % 3 else '.5'},{jobs[i % 4]},{bool(i % 2)},{'high' if i % 5 < 2 else 'low'}\n" for i in range(120))
    Path("people.csv").write_text(text)
    files = {"format": "csv", "train": "people.csv", "label": "income", "holdout": 0.25, "columns": {"age": {"number": {"range": [0, 100]}}}}
    wanted = fl.run({**SPEC, "data": {"set": {"files": files}, "clients": 3}}, quiet=True).digest
    for frame in (pandas.read_csv("people.csv"), polars.read_csv("people.csv")):
        given = {"train": frame, **{key: files[key] for key in ("label", "holdout", "columns")}}
        assert run(given, {**SPEC, "data": {"clients": 3}}).digest == wanted
    labels = pandas.read_csv("people.csv")["income"]
    split = {"train": (pandas.read_csv("people.csv").drop(columns="income"), labels), "holdout": 0.25, "columns": files["columns"]}
    assert run(split, {**SPEC, "data": {"clients": 3}}).digest == wanted


def test_exact_pytorch_data_sets_have_the_digest_of_their_arrays():
    torch = pytest.importorskip("torch")
    wanted = run({"train": [*clients().values()], "test": rows(50, 9)}).digest

    class Rows(torch.utils.data.Dataset):
        def __init__(self, inputs, labels):
            self.inputs, self.labels = inputs, labels

        def __len__(self):
            return len(self.inputs)

        def __getitem__(self, at):
            return torch.from_numpy(self.inputs[at]), int(self.labels[at])

    sets = [Rows(*each) for each in clients().values()]
    assert run({"train": sets, "test": Rows(*rows(50, 9))}).digest == wanted
    tensors = [torch.utils.data.TensorDataset(*map(torch.from_numpy, each)) for each in clients().values()]
    loose = [torch.utils.data.Subset(each, range(30)) for each in tensors]
    assert run({"train": loose, "test": tuple(map(torch.from_numpy, rows(50, 9)))}).digest == wanted


def test_exact_hugging_face_data_sets_and_partitioners_of_flwr_datasets():
    datasets = pytest.importorskip("datasets")

    def of(inputs, labels):
        features = {"x": datasets.Sequence(datasets.Value("float32")), "label": datasets.ClassLabel(names=["a", "b", "c"])}
        return datasets.Dataset.from_dict({"x": inputs.tolist(), "label": labels.tolist()}, features=datasets.Features(features))

    wanted = run({"train": [*clients().values()], "test": rows(50, 9)}).digest
    results = run({"train": [of(*each) for each in clients().values()], "test": of(*rows(50, 9))})
    assert results.digest == wanted
    whole = datasets.concatenate_datasets([of(*each) for each in clients().values()])
    flwr = pytest.importorskip("flwr_datasets.partitioner")
    partitioner = flwr.DirichletPartitioner(num_partitions=3, partition_by="label", alpha=5.0, seed=1, min_partition_size=5)
    partitioner.dataset = whole
    by_partitions = run({"train": partitioner, "test": of(*rows(50, 9))})
    parts = [partitioner.load_partition(at) for at in range(3)]
    assert sum(map(len, parts)) == 90
    assert run({"train": parts, "test": of(*rows(50, 9))}).digest == by_partitions.digest != wanted

    class Federated:
        """A FederatedDataset as flwr-datasets documents it; the real one downloads."""

        partitioners = {"train": partitioner}

        def load_partition(self, at, split):
            return {"train": partitioner}[split].load_partition(at)

        def load_split(self, split):
            return {"test": of(*rows(50, 9))}[split]

    assert run(Federated()).digest == by_partitions.digest
    table = datasets.Dataset.from_dict({"age": [1.0, 2.0, 5.0] * 20, "job": ["x", "y", "z"] * 20, "label": ["no", "no", "yes"] * 20})
    assert run({"train": table, "holdout": 0.2}, {**SPEC, "data": {"clients": 2}}).metrics["accuracy"] >= 0


@pytest.mark.parametrize("names", [("train", "test"), ("Train", "validation_matched", "test"), ("train", "val"), ("train_1", "dev")])
def test_splits_of_a_data_set_are_no_clients(names):
    splits = {name: rows(20, at) for at, name in enumerate(names)}
    for data in [{"train": splits, "test": rows(20, 9)}, {"train": [splits, rows(20, 8)]}, {"train": rows(20, 8), "test": splits}]:
        with pytest.raises(fl.SpecError, match=rf"it has the splits {', '.join(names)}; give one of them, such as `data\['{names[0]}'\]`"):
            run(data)
    # a client may have such a name beside others
    assert run({"train": clients() | {"test": rows(20, 9)}, "test": rows(20, 8)}).done


def test_splits_of_hugging_face_are_no_clients():
    datasets = pytest.importorskip("datasets")
    of = lambda seed: datasets.Dataset.from_dict({"x": rows(20, seed)[0].tolist(), "label": rows(20, seed)[1].tolist()})  # noqa: E731
    both = datasets.DatasetDict(train=of(0), test=of(1))
    streamed = datasets.IterableDatasetDict({name: one.to_iterable_dataset() for name, one in both.items()})
    for splits in (both, streamed):
        for data in [{"train": splits, "test": of(2)}, {"train": of(2), "test": splits}]:
            with pytest.raises(fl.SpecError, match="it has the splits train, test; give one of them, such as `data\\['train'\\]`"):
                run(data)
    with pytest.raises(fl.SpecError, match="it has the splits alice, bob; .* if they are clients, give `dict\\(..\\)` of it"):
        run({"train": datasets.DatasetDict(alice=of(0), bob=of(1)), "test": of(2)})
    assert run({"train": dict(datasets.DatasetDict(alice=of(0), bob=of(1))), "test": of(2)}).done


def test_labels_may_be_texts_truth_values_and_one_column():
    inputs, labels = rows(60, 0)
    names = np.array(["setosa", "versicolor", "virginica"])
    numbers = run({"train": [(inputs, labels)] * 2, "test": (inputs, labels)}).digest
    texts = {"train": [(inputs, names[labels]), (inputs, names[labels].astype(object))], "test": (inputs, [*names[labels]])}
    assert run(texts).digest == numbers
    assert run({"train": [(inputs, labels[:, None]), (inputs, labels.astype(float))], "test": (inputs, labels)}).digest == numbers
    assert run({"train": (inputs, labels > 0), "holdout": 0.2}).metrics["accuracy"] > 0.3


def test_exact_labels_are_classes_whatever_type_a_frame_has():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    (x, y), test = rows(60, 0, width=1), rows(30, 1, width=1)
    y = y > 0
    wanted = run({"train": [(x[:30], y[:30]), (x[30:], y[30:])], "test": (test[0], test[1] > 0)}).digest
    table = lambda kind, at, labels: kind({"x": x[at, 0].astype(float), "y": labels})  # noqa: E731
    one, other = slice(0, 30), slice(30, 60)
    for labels in (y[other], y[other].astype(float), [str(int(label)) for label in y[other]], [str(label) for label in y[other]]):
        frames = [table(pandas.DataFrame, one, y[one].astype(int)), table(polars.DataFrame, other, labels)]
        test_rows = pandas.DataFrame({"x": test[0][:, 0].astype(float), "y": (test[1] > 0).astype(object)})
        assert run({"train": frames, "test": test_rows, "label": "y"}).digest == wanted


def test_public_rows_may_have_labels_or_none():
    inputs, labels = rows(40, 5)
    bare = run({"train": clients(), "test": rows(50, 9), "public": inputs}, PUBLIC)
    labelled = run({"train": clients(), "test": rows(50, 9), "public": (inputs, labels)}, PUBLIC)
    resolved = lambda results: fl.check(results.folder / "spec.yaml")["data"]["public"]  # noqa: E731
    assert (resolved(bare)["labelled"], resolved(labelled)["labelled"]) == (False, True)
    assert bare.digest == labelled.digest  # this protocol does not look at them


def test_exact_a_run_is_resumed_without_its_data_or_with_the_same():
    data = {"train": clients(), "test": rows(50, 9)}
    whole = run(data).digest
    run(data, stop_after=1, out="one")
    assert fl.run(resume="one", quiet=True).digest == whole
    run(data, stop_after=1, out="two")
    other = {**data, "train": {**clients(), "bob smith": rows(30, 77)}}
    with pytest.raises(fl.SpecError, match="client `bob smith`, inputs: they are not those that the run in two was begun with"):
        fl.run(resume="two", data=other, quiet=True)
    fewer = {**data, "train": {"alice": clients()["alice"], "bob smith": clients()["bob smith"]}}
    with pytest.raises(fl.SpecError, match="client `carol/x`, (inputs|labels): they are missing"):
        fl.run(resume="two", data=fewer, quiet=True)
    with pytest.raises(fl.SpecError, match="test rows, inputs: they are not those"):
        fl.run(resume="two", data={**data, "test": rows(50, 10)}, quiet=True)
    # rows that were removed are put back
    for file in Path("data").glob("train.alice.*"):
        file.unlink()
    with pytest.raises(fl.SpecError, match="there is no file"):
        fl.run(resume="two", quiet=True)
    assert fl.run(resume="two", data=data, quiet=True).digest == whole
    # nobody else reads them
    assert {file.stat().st_mode & 0o077 for file in Path("data").iterdir()} == {0}


def test_exact_rows_in_memory_have_one_name_where_the_key_of_a_user_cannot_be_opened(tmp_path, monkeypatch):
    (tmp_path / "user").mkdir()
    (tmp_path / "user/fl").write_text("no folder")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user"))
    data = {"train": clients(), "test": rows(50, 9)}
    whole = run(data, out="whole").digest
    names = {file.name for file in Path("data").iterdir()}
    run(data, stop_after=1, out="one")
    assert fl.run(resume="one", data=data, quiet=True).digest == whole
    assert {file.name for file in Path("data").iterdir()} == names


def test_exact_rows_in_memory_are_the_same_in_processes_and_over_the_wire():
    data = {"train": clients(), "test": rows(50, 9)}
    assert len({run(data).digest, run(data, wire=True).digest, run(data, processes=2).digest}) == 1


def test_a_client_without_rows_takes_part_where_a_guarantee_hides_it():
    private = {key: value for key, value in fl.check(QUICK / "fedavg-private.yaml").items() if key != "data"}
    given = {"train": list(clients().values()), "test": rows(50, 9), "classes": [0, 1, 2]}
    full = run(given, private)
    inputs, labels = given["train"][1]
    empty = run({**given, "train": [given["train"][0], (inputs[:0], labels[:0]), given["train"][2]]}, private)
    assert full.guarantees == empty.guarantees and full.epsilon
    assert full.bytes == empty.bytes


def test_no_reader_can_check_a_guess_of_rows_in_memory_or_count_them():
    private = {key: value for key, value in fl.check(QUICK / "fedavg-private.yaml").items() if key != "data"}
    given = {"train": list(clients().values()), "test": rows(50, 9), "classes": [0, 1, 2]}
    results = run(given, private, sinks=[fl.sinks.JsonLines()])
    guess = io.BytesIO()
    np.save(guess, given["train"][1][0])
    guessed = hashlib.sha256(guess.getvalue()).hexdigest()[:16]
    told = "".join(path.read_text(errors="replace") for path in results.folder.rglob("*") if path.is_file())
    assert "train.1.inputs." in told and guessed not in told
    few, many = (run({**given, "train": [rows(n, 1, 2000) for _ in range(3)], "test": rows(50, 9, 2000)}, private) for n in (30, 6000))
    hidden = lambda results: re.sub(r"\.[0-9a-f]{16}\.", ".", (results.folder / "spec.yaml").read_text())  # noqa: E731
    assert hidden(few) == hidden(many)


def test_the_ledger_knows_rows_in_memory_again():
    command = fl._tools.command
    command("ledger", "init", "spent.ledger", "--epsilon", "20", "--delta", "1e-3")
    spec = fl.check(QUICK / "dp-fedavg.yaml", {"protocol.rounds": 3, "parts.cohort": {"use": "poisson", "rate": 0.5}, "ledger": str(Path("spent.ledger").absolute())})
    spec["data"] = {}
    given = {"train": clients(), "test": rows(50, 9), "classes": [0, 1, 2]}
    once = fl.run(spec, data=given, quiet=True)
    first = command("ledger", "show", "spent.ledger")
    # rows in memory are known again, so the ledger adds up what both runs spent
    fl.run(spec, {"seed": 5}, data=given, quiet=True)
    second = command("ledger", "show", "spent.ledger")
    epsilon = lambda shown: max(float(n) for n in re.findall(r"epsilon (\d+\.?\d*)", shown.partition("\n")[2]))  # noqa: E731
    assert once.epsilon and epsilon(second) > epsilon(first)
    with pytest.raises(fl.Error, match="spent.ledger"):
        for seed in range(9, 60):
            fl.run(spec, {"seed": seed}, data=given, quiet=True)


X, Y = rows(10, 0)
BAD = X.copy()
BAD[7, 1] = np.nan
WRONG = [
    (X, "train: the rows have no labels; give (inputs, labels)"),
    ((X, Y[:5]), "train: 10 rows and 5 labels"),
    ({"train": {"alice": (X, Y), "bob": (X[:, :2], Y)}, "test": (X, Y)}, "client `bob`: rows of shape [2], and those of client `alice` have [4]"),
    ({"train": {"alice": (BAD, Y)}, "holdout": 0.2}, "client `alice`, row 7: an input is nan"),
    ({"train": (X.astype(complex), Y)}, "train, row 0: inputs must be numbers, got complex"),
    ({"train": (X, Y.astype(float) + 0.5), "holdout": 0.2}, "train, row 0: the label is"),
    ({"train": {"al": (X, ["a", 3] * 5)}, "holdout": 0.2}, "client `al`, row 1: the label is 3 (int)"),
    ({"train": (X, np.eye(3)[Y]), "holdout": 0.2}, "of one-hot rows give `labels.argmax(1)`"),
    ({"train": (X[:, 0], Y)}, "inputs of shape [10]"),
    ({"train": (X, Y)}, "test: there are no test rows; give `test`, or `holdout`"),
    ({"trian": (X, Y)}, "'trian': no such key; known: train, test, public, label"),
    ({"train": [], "holdout": 0.2}, "train: there are no clients"),
    ({"train": {"a": 5}, "holdout": 0.2}, "client `a`: rows are (inputs, labels), an array"),
    ({"train": {"a": [(X[0], 1), (X[0, :2], 1)]}, "holdout": 0.2}, "client `a`, row 1: an input of shape [2], and that of row 0 has [4]"),
    ({"train": {"al": (np.ma.masked_greater(X, 1), Y)}, "holdout": 0.2}, "client `al`: it has masked numbers, and fl would read what is below"),
    ({"train": {"al": [*zip(np.ma.masked_less(X, 100), Y)]}, "holdout": 0.2}, "client `al`, row 0: it has masked numbers"),
    ({"train": ({"a": np.ma.masked_greater(X, 1)}, Y), "holdout": 0.2}, "train, input `a`: it has masked numbers"),
    ({"train": (X, np.ma.masked_equal(Y, 1)), "holdout": 0.2}, "train, labels: it has masked numbers"),
    ({"train": [{"a": X, "b": Y}], "holdout": 0.2}, "client `0`: a mapping is no rows; give (inputs, labels), or a frame"),
    ({"train": (X, np.where(Y > 0, 1e300, 0.0)), "holdout": 0.2}, "; a label is the number of a class, counted from 0"),
    ({"train": (X, Y, Y)}, "got 3 things; a list gives each client its own rows"),
]


@pytest.mark.parametrize(("data", "text"), WRONG, ids=[text[:40] for _, text in WRONG])
def test_mistakes_name_the_client_the_row_and_the_type(data, text):
    with pytest.raises(fl.SpecError) as told:
        run(data)
    assert text in str(told.value) and told.value.mistakes[0].path == "data"
    assert not Path("runs").exists()


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("of", ["alone", "pair", "rows", "labels"])
def test_sparse_rows_are_refused_with_what_makes_them_dense(of):
    kinds = []
    if importlib.util.find_spec("scipy"):
        kinds.append((__import__("scipy.sparse").sparse.csr_matrix, "sparse matrices are not read; give `matrix.toarray()`"))
    if importlib.util.find_spec("torch"):
        torch = __import__("torch")
        kinds += [(lambda x, to=to: getattr(torch.as_tensor(x), to)(), "sparse tensors are not read; give `tensor.to_dense()`") for to in ("to_sparse", "to_sparse_csr")]
    if not kinds:
        pytest.skip("neither scipy nor torch")
    for sparse, text in kinds:
        x = sparse(X)
        given = {"alone": lambda: x, "pair": lambda: (x, Y), "rows": lambda: [*zip([sparse(X[:2])] * 4, Y)], "labels": lambda: (X, sparse(Y[:, None]))}[of]()
        with pytest.raises(fl.SpecError, match=re.escape(text)):
            run({"train": {"ann": given}, "holdout": 0.2})


def test_a_spec_that_is_refused_leaves_no_rows():
    with pytest.raises(fl.SpecError, match="no aggregator is called `meen`"):
        run({"train": clients(), "test": rows(50, 9)}, {**SPEC, "parts": {**SPEC["parts"], "aggregator": {"use": "meen"}}})
    assert not Path("runs").exists()


def test_mistakes_that_the_program_finds_name_the_client_and_the_row():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0, np.nan], "b": ["two\nlines", "x", "y"], "label": [0, 1, 0]})
    data = {"train": {"ann": frame}, "label": "label", "holdout": 0.3}
    for call in (run, lambda data: run(data, keep="nothing"), lambda data: fl.check(SPEC, data=data)):
        with pytest.raises(fl.SpecError, match="client `ann`, row 2: column `a`: is missing") as told:
            call(data)
        assert ".csv" not in str(told.value) and told.value.mistakes[0].text.startswith("client `ann`, row 2: ")
    more = {"ann": frame.dropna(), "bob": frame.dropna().drop(columns="b")}
    with pytest.raises(fl.SpecError, match="client `bob`: there is no column `b`, which client `ann` has"):
        run({**data, "train": more})
    with pytest.raises(fl.SpecError, match="client `ann`, labels: label 0: `0` is none of the classes"):
        run({"train": {"ann": (X, Y * 0)}, "test": (X, Y * 0), "classes": ["x", "y"]})


def test_frames_may_have_whole_numbers_for_names_and_others_are_told():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({0: [1.0, 2.0, 3.0] * 9, 1: [0, 1, 0] * 9})
    named = frame.rename(columns=str)
    one, two = (run({"train": {"ann": of}, "test": of, "label": label}) for of, label in [(frame, 1), (named, "1")])
    assert one.digest == two.digest
    with pytest.raises(fl.SpecError, match=r"train: groups are no rows; give each client its own by `dict\(list\(groups\)\)`"):
        run({"train": frame.groupby(1), "test": frame, "label": 1})
    run({"train": {"ann": named.rename(columns={"0": "ngroups"})}, "label": "1", "holdout": 0.5})
    polars = pytest.importorskip("polars")
    with pytest.raises(fl.SpecError, match=r"client `ann`: a lazy frame has no rows yet; give `frame.collect\(\)`"):
        run({"train": {"ann": polars.DataFrame({"a": [1.0], "label": [0]}).lazy()}, "test": frame, "label": "label"})


def test_mistakes_in_frames_name_the_column():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2, 3], "b": ["x", ["y"], "z"], "label": [0, 1, 0]})
    with pytest.raises(fl.SpecError, match=r"client `ann`, row 1: column `b` holds a value of type list"):
        run({"train": {"ann": frame}, "label": "label", "holdout": 0.3})
    with pytest.raises(fl.SpecError, match="train: it has no column `labl`; it has a, b, label"):
        run({"train": frame, "label": "labl", "holdout": 0.3})
    with pytest.raises(fl.SpecError, match="name the column"):
        run({"train": frame, "holdout": 0.3})
    with pytest.raises(fl.SpecError, match="rows of train are a table, these are arrays"):
        run({"train": frame.drop(columns="b"), "label": "label", "test": (X, Y)})


def test_keep_says_what_stays():
    data = {"train": clients(), "test": rows(50, 9)}
    results = run(data, keep="nothing")
    assert results.report().exists() and results.model().arrays()
    folder, model = results.folder, results.model()
    every = [copy.copy(results), copy.deepcopy(results), copy.deepcopy(model)]
    pickled = pickle.loads(pickle.dumps(results))
    del results, model
    while every:
        assert folder.exists() and pickled.models
        every.pop()
    with pytest.raises(fl.RunError, match=f"the run folder {folder} is gone"):
        pickled.models  # noqa: B018
    assert not folder.exists() and not Path("runs").exists()
    first = run(data)
    other = run({**data, "test": rows(50, 10)})
    last = run(data, keep="last")
    assert [path.name for path in sorted(Path("runs").glob("memory-*"))] == [last.folder.name] == ["memory-3"]
    assert not first.folder.exists() and not other.folder.exists()
    used = {Path(one["path"]).name for one in json.loads((last.folder / "run.json").read_text())["data"]}
    assert {path.name for path in Path("runs/data").iterdir()} == used
    with pytest.raises(fl.SpecError, match="keep: must be `all`, `last` or `nothing`, got 'some'"):
        run(data, keep="some")
    with pytest.raises(fl.SpecError, match="leave out `out` and `resume`"):
        run(data, keep="last", out="there")


def test_keep_last_removes_no_run_whose_results_are_not_read():
    found, free, done = [], threading.Event(), threading.Event()
    data = {"train": clients(), "test": rows(50, 9)}

    class Waits(fl.sinks.Sink):
        """Holds the run up when it is done, before its results are read."""

        def end(self, *_):
            done.set()
            free.wait(60)

    slow = threading.Thread(target=lambda: found.append(run(data, keep="last", sinks=[Waits()])))
    slow.start()
    assert done.wait(60)
    before = run(data, keep="last")
    assert before.folder.exists()
    free.set()
    slow.join()
    assert found[0].digest == before.digest and found[0].report().exists()
    last = run(data, keep="last")
    assert sorted(path.name for path in Path("runs").iterdir()) == ["data", last.folder.name]


def test_open_reads_runs_that_failed_or_were_stopped():
    @fl.aggregator("py-fails-late")
    class FailsLate:
        """Fails in the third round."""

        def aggregate(self, round, inbox):
            if round.number == 3:
                raise ZeroDivisionError("late")
            return inbox.mean()

    data = {"train": clients(), "test": rows(50, 9)}
    with pytest.raises(fl.RunError) as told:
        run(data, {**SPEC, "parts": {**SPEC["parts"], "aggregator": {"use": "py-fails-late"}}})
    failed = fl.open(told.value.folder)
    assert (failed.name, failed.done, failed.digest, failed.rounds) == ("memory", False, "", 2)
    measured = [row for row in failed.rows if row["name"] == "accuracy"]
    assert [row["round"] for row in measured] == [1, 2]
    assert failed.metrics["accuracy"] == measured[-1]["value"] and failed.bytes["up"] > 0
    assert "fl.run(resume=" in failed.notes[0]
    stopped = run(data, stop_after=1, out="here")
    assert not stopped.done and fl.open("here").stopped == "round 1"
    assert fl.run(resume="here", quiet=True).done and fl.open("here").done
    with pytest.raises(fl.RunError, match="is no run folder"):
        fl.open("nowhere")


@fl.trainer("moves-anyway")
class MovesAnyway(state_parts.Stateless):
    """Changes its model in every training, with rows or without."""

    def fit(self, x, target, how, stream):
        self.w = self.w + np.float32(1000 if len(x) == 0 else -1000)
        return 1, 0.0


def test_a_client_without_rows_changes_nothing_whatever_its_trainer_does():
    spec = {
        "name": "empty",
        "seed": 3,
        "protocol": {"use": "dp-fedavg", "rounds": 1, "local": {"epochs": 1, "batch": 8}},
        "parts": {
            "model": {"use": "moves-anyway"},
            "cohort": {"use": "poisson", "rate": 1},
            "aggregator": {"use": "mean", "weigh": "uniform"},
            "server-privacy": {"use": "gaussian-update", "clip": 1, "noise-multiplier": 1e-6},
            "accountant": {"use": "pld"},
        },
    }
    moved = []
    for full in [3, 2]:
        train = {name: rows(30 if k < full else 0, k) for k, name in enumerate("abc")}
        result = run({"train": train, "test": rows(50, 9)}, spec)
        moved.append(result.model("final").arrays()["w"])
    # the sum of updates of norm 1 over three clients: one client more is one third more
    one = np.linalg.norm(moved[0] - moved[1])
    assert abs(one - 1 / 3) < 1e-3, one


def several(n, seed):
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, 2, (n, 3))
    inputs = (draws.normal(size=(n, 4)) + np.pad(2 * labels, ((0, 0), (0, 1)))).astype(np.float32)
    return inputs, np.where(draws.random((n, 3)) < 0.1, -1, labels)


NAMES = ["cough", "fever", "rash"]


def test_exact_rows_have_several_labels_in_arrays_frames_and_data_sets():
    pandas = pytest.importorskip("pandas")
    data = {"train": {"alice": several(40, 1), "bob": several(60, 2)}, "test": several(200, 3), "findings": NAMES}
    results = run(data)
    assert results.metrics["mauc"] > 0.8
    whole = {"train": {name: [*zip(*rows)] for name, rows in data["train"].items()}, "test": [*zip(*data["test"])]}
    assert run({**data, **{role: _Items(rows) if role == "test" else {name: _Items(own) for name, own in rows.items()} for role, rows in whole.items()}}).digest == results.digest
    frame = lambda rows: pandas.DataFrame(rows[0], columns=[*"abcd"]).assign(**dict(zip(NAMES, rows[1].T)))  # noqa: E731
    in_frames = {"train": {name: frame(own) for name, own in data["train"].items()}, "test": frame(data["test"]), "findings": NAMES, "columns": {name: "number" for name in "abcd"}}
    assert run(in_frames).digest == results.digest
    apart = lambda rows: (frame(rows)[[*"abcd"]], rows[1])  # noqa: E731
    for test in (apart(data["test"]), (apart(data["test"])[0], frame(data["test"])[NAMES[::-1]])):
        assert run({**in_frames, "train": {name: apart(own) for name, own in data["train"].items()}, "test": test}).digest == results.digest
    with pytest.raises(fl.SpecError, match="client `a`: the labels have no column `rash`; they have cough, fever"):
        run({"train": {"a": (several(30, 1)[0], frame(several(30, 1))[NAMES[:2]])}, "holdout": 0.5, "findings": NAMES})


class _Items:
    """A data set of PyTorch, as far as it is one."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        return self.rows[at]


@pytest.mark.parametrize("labels, told", [
    (np.zeros((30, 2)), r"client `a`: labels of shape \[30, 2\]; with the 3 `findings` it must be \[30, 3\]"),
    (np.full((30, 3), 0.5), r"client `a`, row 0: the label `cough` is 0.5; it must be 1, 0, or -1 or NaN"),
    (np.full((30, 3), "yes"), r"client `a`: labels of which a row can have several must be 0, 1 or -1"),
], ids=["shape", "half", "text"])  # fmt: skip
def test_wrong_labels_of_which_a_row_can_have_several_are_told(labels, told):
    with pytest.raises(fl.SpecError, match=told):
        run({"train": {"a": (several(30, 1)[0], labels)}, "holdout": 0.5, "findings": NAMES})


def test_rows_with_several_labels_need_their_names():
    with pytest.raises(fl.SpecError, match=r"if a row can have several labels, name them: data=\{.., 'findings': \[..\]\}"):
        run({"train": {"a": several(30, 1)}, "holdout": 0.5})


def test_exact_users_of_leafs_files_are_clients_and_their_arrays_have_the_same_digest():
    draws = np.random.default_rng(1)
    own = {f"f{user:04}_{user}": (draws.random((20, 4)).round(3).tolist(), draws.integers(0, 3, 20).tolist()) for user in range(3)}
    users = {"users": [*own], "num_samples": [20] * 3, "user_data": {name: {"x": x, "y": y} for name, (x, y) in own.items()}}
    Path("train").mkdir()
    Path("train", "all_data_0_niid_0_keep_0_train_9.json").write_text(json.dumps(users))
    test = rows(30, 5)
    Path("test.json").write_text(json.dumps({"users": ["x"], "num_samples": [30], "user_data": {"x": {"x": test[0].tolist(), "y": test[1].tolist()}}}))
    spec = {**SPEC, "data": {"set": {"files": {"format": "leaf", "train": "train", "test": "test.json"}}}}
    by_files = fl.run(spec, quiet=True)
    in_memory = run({"train": {name: (np.array(x, np.float32), y) for name, (x, y) in own.items()}, "test": test})
    assert by_files.digest == in_memory.digest
