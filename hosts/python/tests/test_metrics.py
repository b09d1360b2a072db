"""Measures in Python."""

import json
import math

import fl
import numpy as np
import pytest
from conftest import QUICK


@pytest.fixture(autouse=True)
def forgotten():
    """What a test declares ends with it."""
    before = dict(fl._parts.metric._METRICS)
    yield
    fl._parts.metric._METRICS.clear()
    fl._parts.metric._METRICS.update(before)


def declare():
    @fl.metric("worst-class")
    def worst(scores, labels):
        """The lowest recall of a class."""
        return min((scores.argmax(1)[labels == one] == one).mean() for one in np.unique(labels))

    return worst


def test_a_measure_is_in_results_steps_tables_and_reports():
    plain = fl.run(QUICK / "fedavg.yaml", quiet=True)
    declare()
    steps = []
    results = fl.run(QUICK / "fedavg.yaml", on_step=steps.append, quiet=True)
    assert results.digest == plain.digest
    values = [row["value"] for row in results.rows if row["name"] == "worst-class"]
    assert len(values) == 5 and results.metrics["worst-class"] == values[-1] <= results.metrics["accuracy"]
    assert [step["metrics"]["worst-class"] for step in steps if "worst-class" in step["metrics"]] == values
    assert "worst-class" in results.report().read_text() and "worst-class" in (results.folder / "report.md").read_text()
    assert "worst-class" in plain.metrics or "worst-class" not in plain.report().read_text()
    counts = next(row["confusion"] for row in reversed(results.rows) if row["name"] == "accuracy")
    recalls = [row[at] / sum(row) for at, row in enumerate(counts) if sum(row)]
    assert results.metrics["worst-class"] == pytest.approx(min(recalls))


def test_clients_models_are_measured_one_by_one():
    declare()
    results = fl.run(QUICK / "solo.yaml", quiet=True)
    last = next(row for row in reversed(results.rows) if row["name"] == "clients.worst-class")
    assert len(last["each"]) == len(last["clients"]) > 1 and last["value"] == pytest.approx(np.mean(last["each"]))


def test_stop_when_goes_by_it(fedavg):
    declare()

    @fl.metric("always-one")
    def one(scores, labels):
        return 1.0

    fedavg["protocol"]["rounds"] = 30
    fedavg["stop-when"] = {"metric": "always-one", "patience": 2}
    results = fl.run(fedavg, quiet=True)
    assert results.rounds < 30 and results.done and any("always-one" in note for note in results.notes)


def test_where_it_is_not_defined_nothing_is_measured():
    @fl.metric("never")
    def never(scores, labels):
        return None

    @fl.metric("pixels", task="masks")
    def pixels(scores, labels):
        return float(labels.mean())

    results = fl.run(QUICK / "fedavg.yaml", quiet=True)
    assert "never" not in results.metrics and "pixels" not in results.metrics


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_measure_that_is_no_number_is_nan_in_results(value):
    @fl.metric("no-number")
    def no_number(scores, labels):
        return value

    results = fl.run(QUICK / "fedavg.yaml", quiet=True)
    for one in (results, fl.open(results.folder)):
        assert math.isnan(one.metrics["no-number"])
        assert "no-number nan" in repr(one) and "<td>nan</td>" in one._repr_html_()


def test_a_measure_that_fails_ends_the_run_and_says_where():
    @fl.metric("broken")
    def broken(scores, labels):
        return scores[10**9]

    with pytest.raises(fl.RunError, match=r"metric `broken`: IndexError: .*(\n.*)*test_metrics.py:\d+ in broken: return scores"):
        fl.run(QUICK / "fedavg.yaml", quiet=True)


def test_names_and_tasks_are_checked():
    with pytest.raises(ValueError, match="the program records `auc` itself: .* such as `my-auc`"):
        fl.metric("auc")
    with pytest.raises(ValueError, match="small letters"):
        fl.metric("My Metric")
    with pytest.raises(ValueError, match="task must be one of"):
        fl.metric("mine", task="regression")
    with pytest.raises(TypeError, match="before a function"):
        fl.metric("mine")(3)


def test_an_edited_measure_does_not_resume():
    declare()
    fl.run(QUICK / "fedavg.yaml", stop_after=2, out="here", quiet=True)
    recorded = json.loads(fl._tools.Path("here/run.json").read_text())["libraries"]
    assert [one["path"].split("`")[1] for one in recorded] == ["worst-class"]

    @fl.metric("worst-class")
    def other(scores, labels):
        return 0.5

    other.__module__ = "__main__"
    with pytest.raises((fl.RunError, fl.SpecError), match="libraries"):
        fl.run(resume="here", quiet=True)
    declare()
    assert fl.run(resume="here", quiet=True).done


def test_processes_need_it_in_a_module(fedavg, tmp_path):
    declare()
    with pytest.raises((fl.RunError, fl.SpecError), match=r"metric `worst-class` is from module test_metrics: name it under `plugins`"):
        fl.run(fedavg, processes=2, quiet=True)
    fl._parts.metric._METRICS.clear()
    (tmp_path / "mymeasures.py").write_text("import fl\n\n\n@fl.metric('tops')\ndef tops(scores, labels):\n    return float(scores.max())\n")
    fedavg["plugins"] = [{"module": "mymeasures"}]
    results = fl.run(fedavg, processes=2, quiet=True)
    assert "tops" in results.metrics
    assert fl.run(fedavg, quiet=True).digest == results.digest


def test_a_study_has_a_column_for_it(tmp_path):
    (tmp_path / "studymeasures.py").write_text("import fl\n\n\n@fl.metric('half')\ndef half(scores, labels):\n    return 0.5\n")
    spec = fl.check(QUICK / "fedavg.yaml")
    spec["plugins"] = [{"module": "studymeasures", "path": str(tmp_path)}]
    (tmp_path / "one.yaml").write_text(fl._spec.flow(spec))
    table = {"name": "halves", "title": "Halves", "base": "one.yaml", "rows": [{"name": "as it is"}], "measure": "half"}
    (tmp_path / "README.md").write_text("<!-- halves -->\n<!-- /halves -->\n")
    (tmp_path / "study.yaml").write_text(fl._spec.flow({"name": "small", "defaults": {"seeds": "1-2", "digits": 1}, "tables": [table]}))
    found = fl.study(tmp_path / "study.yaml", quiet=True)
    assert "0.5" in found.text and {float(row["value"]) for row in found.rows if "half" in row.values()} == {0.5}


def test_a_study_says_that_it_does_not_know_a_notebook(fedavg, tmp_path, monkeypatch):
    function = declare()
    monkeypatch.setattr(function, "__module__", "__main__")
    cls = type("OfNotebook", (), {"__module__": "__main__", "__doc__": "A mean.", "aggregate": lambda self, round, inbox: inbox.mean()})
    fl.aggregator("nb-mean")(cls)
    (tmp_path / "one.yaml").write_text(fl._spec.flow(fedavg))
    for row, measure, text in [
        ({}, "worst-class", "metric `worst-class` is from this session, and the runs are done by another process: put it in a module"),
        ({"set": {"parts.aggregator": {"use": "nb-mean"}}}, "accuracy", "(?s)no aggregator is called `nb-mean`.*\naggregator `nb-mean` is from this session"),
    ]:
        table = {"name": "t", "title": "T", "base": "one.yaml", "rows": [{"name": "one", **row}], "measure": measure}
        (tmp_path / "study.yaml").write_text(fl._spec.flow({"name": "small", "defaults": {"seeds": "1-2"}, "tables": [table]}))
        with pytest.raises(fl.SpecError, match=text):
            fl.study(tmp_path / "study.yaml", quiet=True)
    assert not (tmp_path / "runs").exists()


def test_a_rule_that_ends_the_rounds_can_name_it(fedavg):
    declare()
    fedavg["stop-when"] = {"metric": "worst-class", "patience": 2}
    fl.check(fedavg)
    fedavg["stop-when"]["metric"] = "worst-clas"
    with pytest.raises(fl.SpecError, match="nothing in this run measures `worst-clas`; did you mean `worst-class`?"):
        fl.check(fedavg)
