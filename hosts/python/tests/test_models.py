"""The models of a run, after it."""

import copy
import pickle
from typing import Annotated

import fl
import numpy as np
import pytest
from conftest import QUICK
from test_data import PUBLIC, SPEC, clients, rows, run


def accuracy(scores, labels):
    return float((scores.argmax(1) == labels).mean())


def test_a_model_of_a_linked_part_has_arrays_and_predicts():
    inputs, labels = rows(50, 9)
    results = run({"train": clients(), "test": (inputs, labels)})
    model = results.model("final")
    assert results.models == ["model"] and model.name == "model"
    arrays = model.arrays()
    assert {name: value.shape for name, value in arrays.items()} == {"bias": (3,), "weight": (4, 3)} or {v.shape for v in arrays.values()} == {(3,), (3, 4)}
    assert accuracy(model.predict(inputs), labels) == results.metrics["accuracy"]
    # the arrays are the model: they give the same scores
    weight = next(value for value in arrays.values() if value.ndim == 2)
    bias = next(value for value in arrays.values() if value.ndim == 1)
    by_hand = inputs @ (weight if weight.shape[0] == 4 else weight.T) + bias
    np.testing.assert_allclose(model.predict(inputs), by_hand, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="rows of shape"):
        model.predict(inputs[:, :2])
    with pytest.raises(fl.RunError, match="is no network of PyTorch"):
        model.module()


def test_exact_copies_of_a_model_that_was_used_predict_the_same():
    inputs, labels = rows(50, 9)
    model = run({"train": clients(), "test": (inputs, labels)}).model()
    scores = model.predict(inputs)
    for copied in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(copied.predict(inputs), scores)


def test_rows_are_scaled_as_the_run_scaled_its_own():
    inputs, labels = rows(50, 9)
    scale = {"data": {"normalise": {"mean": [1.0, 1, 1, 1], "std": [2.0, 2, 2, 2]}}}
    results = run({"train": clients(), "test": (inputs, labels)}, {**SPEC, **scale})
    assert accuracy(results.model().predict(inputs), labels) == results.metrics["accuracy"]
    pictures = np.random.default_rng(0).integers(0, 256, (60, 6, 6, 3), np.uint8)
    light = (pictures.reshape(60, -1).mean(1) > 127).astype(int)
    seen = run({"train": [(pictures, light)] * 2, "test": (pictures, light)}, {**SPEC, "data": {"normalise": {"mean": [0.5] * 3, "std": [0.25] * 3}}})
    assert accuracy(seen.model().predict(pictures), light) == seen.metrics["accuracy"]
    assert accuracy(seen.model().predict(np.moveaxis(pictures, 3, 1)), light) == seen.metrics["accuracy"]


def test_rows_are_put_through_the_features_of_the_run():
    inputs, labels = rows(50, 9)
    # as many features as inputs, so the shapes do not tell them apart
    scale = {"normalise": {"mean": [1.0, 1, 1, 1], "std": [2.0, 2, 2, 2]}}
    for data in ({"features": {"random-relu": {"width": 4}}}, {**scale, "features": {"random-fourier": {"width": 4, "scale": 2.0}}}):
        results = run({"train": clients(), "test": (inputs, labels)}, {**SPEC, "data": data})
        model = results.model()
        scores = model.predict(inputs)
        assert accuracy(scores, labels) == results.metrics["accuracy"]
        np.testing.assert_allclose(scores[:7], model.predict(inputs[:7]), rtol=1e-5, atol=1e-6)
        # the arrays are those of a linear model of the features, not of the inputs
        weight = next(value for value in model.arrays().values() if value.ndim == 2)
        bias = next(value for value in model.arrays().values() if value.ndim == 1)
        by_hand = inputs @ (weight if weight.shape[0] == 4 else weight.T) + bias
        assert np.abs(scores - by_hand).max() > 0.01
        with pytest.raises(ValueError, match=r"rows of shape \[3\], and the model takes \[4\]"):
            model.predict(inputs[:, :3])
    draws = np.random.default_rng(0)
    pictures = draws.integers(0, 256, (60, 5, 6, 3), np.uint8)
    light = (pictures[..., 0].mean((1, 2)) > 127).astype(int)
    kinds = {"normalise": {"mean": [0.5] * 3, "std": [0.25] * 3}, "features": {"random-relu": {"width": 90}}}
    seen = run({"train": [(pictures, light)] * 2, "test": (pictures, light)}, {**SPEC, "data": kinds})
    for given in (pictures, np.moveaxis(pictures, 3, 1)):
        assert accuracy(seen.model().predict(given), light) == seen.metrics["accuracy"]


@pytest.mark.parametrize("sides", [(5, 6, 3), (4, 4, 4)])
def test_exact_floats_with_channels_behind_are_those_with_channels_in_front(sides):
    pictures = np.random.default_rng(0).normal(size=(60, *sides)).astype(np.float32)
    light = (pictures[..., 0].mean((1, 2)) > 0).astype(int)
    turned = np.ascontiguousarray(np.moveaxis(pictures, 3, 1))
    said = {} if sides[0] != sides[2] else {"channels": "last"}
    behind = run({"train": [(pictures, light)] * 2, "test": (pictures, light), **said})
    in_front = run({"train": [(turned, light)] * 2, "test": (turned, light)})
    assert behind.digest == in_front.digest
    assert accuracy(behind.model().predict(pictures), light) == behind.metrics["accuracy"]
    frame = pytest.importorskip("pandas").DataFrame({"a": [1, 2], "y": [0, 1]})
    with pytest.raises(fl.SpecError, match="the rows are a table; leave it out"):
        run({"train": frame, "label": "y", "holdout": 0.5, "channels": "last"})


def test_a_frame_is_read_as_the_run_read_its_own():
    pandas = pytest.importorskip("pandas")
    draws = np.random.default_rng(0)
    frame = pandas.DataFrame({"age": draws.integers(20, 70, 200), "job": draws.choice(["cook", "smith", "judge"], 200)})
    frame["income"] = np.where((frame["age"] > 45) ^ (frame["job"] == "judge"), "high", "low")
    train, test = frame[:150], frame[150:]
    how = {"label": "income", "columns": {"age": {"number": {"range": [0, 100]}}}}
    results = run({"train": [train[:70], train[70:]], "test": test, **how})
    labels = (test["income"] == "low").to_numpy().astype(int)  # classes are sorted
    for given in (test, test.drop(columns="income")):
        assert accuracy(results.model().predict(given), labels) == results.metrics["accuracy"]


def test_columns_that_the_run_skipped_need_not_be_there():
    train, test = income()
    how = {"label": "income", "columns": {"owns": "skip"}}
    results = run({"train": [train[:70], train[70:]], "test": test, **how})
    found = results.model().predict(test.drop(columns="owns"))
    assert (found == results.model().predict(test)).all()


def income():
    pandas = pytest.importorskip("pandas")
    draws = np.random.default_rng(0)
    frame = pandas.DataFrame({"age": draws.integers(20, 70, 200), "job": draws.choice(["cook", "smith", "judge"], 200), "owns": draws.random(200) > 0.5})
    frame["income"] = np.where((frame["age"] > 45) ^ (frame["job"] == "judge"), "high", "low")
    return frame[:150], frame[150:]


@pytest.mark.parametrize("how", ["jsonl", "csv", {"csv": {"separator": ";"}}, {"csv": {"header": False}}], ids=str)
def test_frames_go_to_a_model_of_any_table_with_or_without_labels(how):
    train, test = income()
    header = how != {"csv": {"header": False}}
    for name, frame in (("train", train), ("test", test)):
        if how == "jsonl":
            frame.to_json(f"{name}.table", orient="records", lines=True)
        else:
            frame.to_csv(f"{name}.table", index=False, header=header, sep=";" if header and how != "csv" else ",")
    label = "income" if header else 4
    files = {"format": how, "train": "train.table", "test": "test.table", "label": label}
    data = {"set": {"files": files}, "clients": 2, "split": "iid", "limit": {"test": 40}}
    model = fl.run({**SPEC, "data": data}, quiet=True).model()
    same = run({"train": [train[:70], train[70:]], "test": test, "label": "income"}).model()
    assert model.arrays()["weight"].shape == same.arrays()["weight"].shape
    if not header:
        with pytest.raises(fl.RunError, match="the run's table has no names of columns; call those of the frame 1 to"):
            model.predict(test)
        test = test.set_axis(["1", "2", "3", "4"], axis=1)
    scores = model.predict(test)
    assert scores.shape == (50, 2)
    given = test.assign(**{str(label): "nothing known"})
    np.testing.assert_array_equal(model.predict(given), scores)
    np.testing.assert_array_equal(model.predict(given.drop(columns="income")) if header else scores, scores)
    # the numbers of the table are read as such
    numbers = model.arrays()
    weight, bias = numbers["weight"], numbers["bias"]
    columns = [test.iloc[:, 0], *(test.iloc[:, 1] == one for one in ("cook", "judge", "smith")), ~test.iloc[:, 2], test.iloc[:, 2]]
    np.testing.assert_allclose(scores, np.stack(columns, 1).astype(float) @ weight + bias, rtol=1e-4, atol=1e-4)


def test_a_frame_needs_no_findings_and_categories_that_no_row_had_are_told():
    train, test = income()
    results = run({"train": [train[:70], train[70:]], "test": test, "label": "income"})
    with pytest.warns(UserWarning, match=r"^rows have categories that no row of a client has.*`job` in 50 of 50 \(`pilot`\)"):
        results.model().predict(test.assign(job="pilot"))
    several = [frame.assign(a=(frame["age"] > 45).astype(int), b=frame["owns"].astype(int)).drop(columns="income") for frame in (train, test)]
    model = run({"train": [several[0][:70], several[0][70:]], "test": several[1], "findings": ["a", "b"]}).model()
    np.testing.assert_array_equal(model.predict(several[1].drop(columns=["a", "b"])), model.predict(several[1]))


def test_rows_to_predict_are_read_as_those_of_a_run():
    inputs, labels = rows(50, 9)
    model = run({"train": clients(), "test": (inputs, labels)}).model()
    scores = model.predict(inputs)
    pairs = [*zip(inputs, labels, strict=True)]
    dataset = type("Pairs", (), {"__len__": lambda _: len(pairs), "__getitem__": lambda _, at: pairs[at]})()
    for given in ((inputs, labels), (inputs, None), dataset, {"one": inputs[:, :1], "others": inputs[:, 1:]}, inputs.tolist(), inputs.astype(float)):
        np.testing.assert_array_equal(model.predict(given), scores)
    for wrong in (np.nan, np.inf, 1e39):
        bad = inputs.astype(float)
        bad[7, 2] = wrong
        with pytest.raises(fl.SpecError, match="rows, row 7: an input is"):
            model.predict(bad)
    with pytest.raises(fl.SpecError, match="it has the splits train, test"):
        model.predict({"train": inputs, "test": inputs})
    frame = pytest.importorskip("pandas").DataFrame(inputs)
    with pytest.raises(fl.RunError, match="the run's rows were no table; give an array"):
        model.predict(frame)
    train, test = income()
    of_table = run({"train": [train[:70], train[70:]], "test": test, "label": "income"}).model()
    with pytest.raises(fl.RunError, match="the run's rows were a table; give a frame"):
        of_table.predict({"age": test["age"], "owns": test["owns"]})


@pytest.mark.parametrize("public", ["half-of-test", "tabular"])
def test_all_rows_of_a_frame_are_scored_whatever_a_run_takes_from_its_own(public):
    train, test = income()
    train.to_csv("train.csv", index=False)
    test.to_csv("test.csv", index=False)
    files = {"format": "csv", "train": "train.csv", "test": "test.csv", "label": "income"}
    data = {"set": {"files": files}, "clients": 2, "split": "iid", "public": {"from": public}}
    model = fl.run({**PUBLIC, "data": data}, quiet=True).model("model", client=0)
    scores = model.predict(test[:10])
    weight, bias = (model.arrays()[name] for name in ("weight", "bias"))
    columns = [test["age"], *(test["job"] == job for job in ("cook", "judge", "smith")), ~test["owns"], test["owns"]]
    np.testing.assert_allclose(scores, (np.stack(columns, 1).astype(float) @ weight + bias)[:10], rtol=1e-4, atol=1e-4)


def test_a_frame_is_not_read_by_training_files_that_are_others_than_the_runs():
    train, test = income()
    train.to_csv("train.csv", index=False)
    test.to_csv("test.csv", index=False)
    files = {"format": "csv", "train": "train.csv", "test": "test.csv", "label": "income"}
    model = fl.run({**SPEC, "data": {"set": {"files": files}, "clients": 2, "split": "iid"}}, quiet=True).model()
    train.assign(job=train["job"].replace("judge", "baker")).to_csv("train.csv", index=False)
    with pytest.raises(ValueError, match=r"training files, which say how columns are read, are not as they were in the run"):
        model.predict(test.assign(job="cook"))


def test_rows_of_a_set_that_scales_itself_are_scaled_as_it_was(tmp_path):
    draws = np.random.default_rng(0)
    inputs, labels = 50 + 20 * draws.random((80, 8)), np.arange(80) % 2
    inputs[:, 0] += 9 * labels
    (tmp_path / "cod-rna").mkdir()
    for name, rows in (("cod-rna", slice(0, 60)), ("cod-rna.t", slice(60, 80))):
        lines = (f"{2 * label - 1} " + " ".join(f"{at + 1}:{value}" for at, value in enumerate(row)) for row, label in zip(inputs[rows], labels[rows], strict=True))
        (tmp_path / "cod-rna" / name).write_text("\n".join(lines) + "\n")
    data = {"set": {"cod-rna": {"scale": "standard"}}, "clients": 2, "split": "iid"}
    model = fl.run({**SPEC, "data": data}, quiet=True, data_dir=tmp_path).model()
    scaled = (inputs - inputs[:60].mean(0)) / inputs[:60].std(0)
    np.testing.assert_allclose(model.predict(inputs), scaled @ model.arrays()["weight"] + model.arrays()["bias"], rtol=1e-3, atol=1e-3)


def test_a_tuple_of_clients_is_told_to_be_a_list():
    with pytest.raises(fl.SpecError, match="make no array: .*; a list gives each client its own rows"):
        run({"train": (rows(30, 1), rows(30, 2)), "test": rows(30, 3)})


def test_pictures_of_another_type_than_the_runs_are_told(recwarn):
    pictures = np.random.default_rng(0).integers(0, 256, (60, 6, 6), np.uint8)
    light = (pictures.reshape(60, -1).mean(1) > 127).astype(int)
    of_bytes = run({"train": [(pictures, light)] * 2, "test": (pictures, light)}).model()
    of_floats = run({"train": [(pictures[:, None] / 255, light)] * 2, "test": (pictures[:, None] / 255, light)}).model()
    recwarn.clear()
    scores = of_bytes.predict(pictures)
    for given in (pictures[:, None] / 255, pictures / 255):
        np.testing.assert_allclose(of_bytes.predict(given), scores, rtol=1e-5, atol=1e-6)
    of_floats.predict(pictures[:, None] / 255)
    assert not recwarn.list
    for kind in ("int64", "float32"):
        with pytest.warns(UserWarning, match=f"the run's pictures were bytes, which fl divides by 255, and these are {kind} up to 255"):
            of_bytes.predict(pictures[:, None].astype(kind))
    with pytest.warns(UserWarning, match="the run's pictures were float64, and these are bytes"):
        of_floats.predict(pictures)


def test_each_client_keeps_its_own_model_by_number_and_by_name():
    inputs, labels = rows(50, 9)
    results = run({"train": clients(), "test": (inputs, labels), "public": rows(40, 5)[0]}, PUBLIC)
    each = next(row for row in reversed(results.rows) if row["name"] == "clients.accuracy")["each"]
    assert [name for name in results.models if name.startswith("model")] == ["model-0", "model-1", "model-2"]
    for number, (name, expected) in enumerate(zip(clients(), each, strict=True)):
        for client in (number, name):
            assert accuracy(results.model("model", client=client).predict(inputs), labels) == expected
    assert results.model(client=1).name == "model-1"
    with pytest.raises(fl.RunError, match="no client is called 'dave'; known: alice, bob smith, carol/x"):
        results.model(client="dave")
    with pytest.raises(fl.RunError, match="no model `modl` was kept; there are "):
        results.model("modl")


def test_trees_predict_and_have_no_arrays():
    results = fl.run(QUICK / "fedkt-l1.yaml", quiet=True)
    for name in results.models:
        model = results.model(name) if not name.rpartition("-")[2].isdigit() else results.model(name.rpartition("-")[0], client=int(name.rpartition("-")[2]))
        try:
            assert model.arrays()
        except fl.RunError as error:
            assert "has no parameters; `predict(rows)` works" in str(error)


def test_models_of_a_notebook_are_networks_again():
    torch = pytest.importorskip("torch")
    import fl.torch

    @fl.trainer("kept-net")
    class Net(fl.torch.Trainer):
        """One hidden layer."""

        lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.1

        def net(self):
            return torch.nn.Sequential(torch.nn.LazyLinear(8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.LazyLinear(self.task.outputs))

    inputs, labels = rows(50, 9)
    spec = {**SPEC, "parts": {"model": {"use": "kept-net"}, "aggregator": {"use": "mean"}}}
    results = run({"train": clients(), "test": (inputs, labels)}, spec)
    model = results.model()
    module = model.module()
    assert isinstance(module, torch.nn.Sequential) and not module.training
    with torch.no_grad():
        scores = module(torch.from_numpy(inputs)).numpy()
    assert accuracy(scores, labels) == results.metrics["accuracy"]
    np.testing.assert_array_equal(scores, model.predict(inputs))
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in module.state_dict().items())
    # it is the caller's own
    with torch.no_grad():
        module[0].weight.zero_()
    np.testing.assert_array_equal(scores, model.predict(inputs))
    assert model.module() is not module and model.part().task.outputs == 3
    safetensors = pytest.importorskip("safetensors.torch")
    (written,) = results.export("out")
    assert written.name == "model.safetensors"
    loaded = safetensors.load_file(written)
    assert all(torch.equal(loaded[name], value) for name, value in state.items())
    # the program's command needs nothing of the notebook, for its file is one of safetensors
    assert fl._tools.command("export", str(results.folder), "--safetensors", "shell")
    (found,) = fl._tools.Path("shell").rglob("*.safetensors")
    assert found.read_bytes() == written.read_bytes()


def test_models_of_scikit_learn_are_their_classifiers():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression

    import fl.sklearn

    @fl.trainer("kept-logistic")
    class Logistic(fl.sklearn.Trainer):
        """Logistic regression."""

        def estimator(self):
            return LogisticRegression()

    inputs, labels = rows(50, 9)
    spec = fl.check(QUICK / "fedkt.yaml", {"parts.final": {"use": "kept-logistic"}})
    spec["data"] = {}
    results = run({"train": {name: rows(60, seed) for seed, name in enumerate("abcde")}, "test": (inputs, labels), "public": rows(60, 5)[0]}, spec)
    model = results.model("final")
    assert model.name == "final" and accuracy(model.predict(inputs), labels) == model.part()._fitted.score(inputs, labels) == results.metrics["accuracy"]
    assert "final.safetensors" not in {path.name for path in results.export("out")}
