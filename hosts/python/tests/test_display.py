"""What is seen while a run goes on."""

import html
import re
import sys
import types

import fl
import pytest
from conftest import QUICK


@pytest.fixture
def notebook(monkeypatch):
    """Stands in for a notebook; gives what it shows."""
    shown = []
    handle = types.SimpleNamespace(update=shown.append)
    display = types.SimpleNamespace(HTML=lambda text: text, IFrame=lambda page, **_: page, display=lambda one, **_: shown.append(one) or handle)
    shell = types.SimpleNamespace(has_trait=lambda name: name == "kernel")
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def test_a_notebook_shows_every_step_and_is_left_clean(notebook):
    fl.run(QUICK / "fedavg.yaml")
    assert '<progress value="5" max="5"></progress> 5 of 5 rounds, accuracy 0.9' in notebook[-2]
    assert notebook[-1] == ""


def test_a_notebook_shows_the_page_of_a_run(notebook):
    results = fl.run(QUICK / "fedavg.yaml", quiet=True)
    results.show()
    (shown,) = notebook
    page = (results.folder / "report.html").read_text()
    # the page itself, so that it does not matter where the notebook is served from
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', shown._repr_html_())[1]) == page and "src=" not in shown._repr_html_()[:30]


def test_notes_are_said_and_kept(capsys):
    results = fl.run(QUICK / "fedkt-l1.yaml")
    assert [f"note: {note}" for note in results.notes] == capsys.readouterr().err.splitlines()
    fl.run(QUICK / "fedkt-l1.yaml", quiet=True)
    assert capsys.readouterr().err == ""


def test_notes_and_steps_go_to_the_logger_too(caplog, capsys):
    with caplog.at_level("DEBUG", "fl"):
        results = fl.run(QUICK / "fedavg.yaml", {"parts.aggregator": {"use": "lora-product"}}, quiet=True)
    found = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "fl"]
    assert [text for level, text in found if level == "INFO"] == list(results.notes) != []
    assert any(level == "DEBUG" and "accuracy" in text for level, text in found)
    assert capsys.readouterr().err == ""


def test_on_step_is_called_after_every_step_with_all_that_it_measured():
    steps = []
    results = fl.run(QUICK / "fedavg.yaml", on_step=steps.append, quiet=True)
    rounds = [step for step in steps if step["number"]]
    assert [step["number"] for step in rounds] == [1, 2, 3, 4, 5]
    measured = [row for row in results.rows if row["round"]]
    assert [(f"round {row['round']}", row["value"]) for row in measured if row["name"] == "accuracy"] == [
        (step["step"], step["metrics"]["accuracy"]) for step in rounds
    ]
    assert rounds[-1]["accuracy"] == results.metrics["accuracy"]
    assert (rounds[-1]["bytes_up"], rounds[-1]["bytes_down"]) == (results.bytes["up"], results.bytes["down"])
    assert rounds[-1]["epsilon"] is None and rounds[-1]["seconds"] > 0


def test_on_step_has_values_by_client_and_epsilons():
    steps = []
    results = fl.run(QUICK / "solo.yaml", on_step=steps.append, quiet=True)
    last = next(row for row in reversed(results.rows) if row["name"] == "clients.accuracy")
    found = next(step["each"]["clients.accuracy"] for step in reversed(steps) if step["each"])
    assert found == dict(zip(last["clients"], last["each"], strict=True))
    steps.clear()
    results = fl.run(QUICK / "dp-fedavg.yaml", on_step=steps.append, quiet=True)
    epsilons = [step["epsilon"]["readers"] for step in steps]
    assert epsilons == sorted(epsilons) and epsilons[-1] == results.epsilon


def test_stop_ends_the_rounds_and_the_run_is_done(fedavg):
    fedavg["protocol"]["rounds"] = 50
    fedavg["evaluate"] = {"every": 10}
    results = fl.run(fedavg, on_step=lambda step: fl.STOP if step["number"] == 3 else None, quiet=True)
    assert results.rounds == 3 and results.stopped is None and results.report().exists()
    # the last round is evaluated, though it would not have been
    assert [row["round"] for row in results.rows if row["name"] == "accuracy"][-1] == 3
    fedavg["protocol"]["rounds"] = 3
    assert fl.run(fedavg, quiet=True).digest == results.digest


def test_stop_is_refused_with_an_accountant():
    with pytest.raises(fl.RunError, match="epsilon of a number of rounds that follows from results"):
        fl.run(QUICK / "dp-fedavg.yaml", on_step=lambda step: fl.STOP, quiet=True)
