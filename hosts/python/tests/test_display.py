"""What is seen while a run goes on."""

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
    assert notebook == [str(results.folder / "report.html")]


def test_notes_are_said_and_kept(capsys):
    results = fl.run(QUICK / "fedkt-l1.yaml")
    assert [f"note: {note}" for note in results.notes] == capsys.readouterr().err.splitlines()
    fl.run(QUICK / "fedkt-l1.yaml", quiet=True)
    assert capsys.readouterr().err == ""


def test_on_step_is_told_of_every_step():
    steps = []
    fl.run(QUICK / "fedavg.yaml", on_step=steps.append, quiet=True)
    assert [step["number"] for step in steps][:5] == [1, 2, 3, 4, 5]
    assert steps[0]["accuracy"] is None and steps[4]["accuracy"] > 0.9 and steps[4]["bytes"] > steps[1]["bytes"] > 0
