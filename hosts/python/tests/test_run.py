"""Runs, and what they come to."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path

import fl
import pytest
from conftest import QUICK, with_part

import my_parts  # noqa: F401

PROGRAM = os.environ.get("FL_PROGRAM")


def told_by_program(*args):
    """What the program says of a run: the one that cargo built, or the one in the wheel."""
    program = [PROGRAM] if PROGRAM else [sys.executable, "-m", "fl"]
    done = subprocess.run([*program, "run", *map(str, args), "--quiet", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("spec", sorted(QUICK.glob("*.yaml")), ids=lambda path: path.stem)
def test_exact_a_spec_has_the_same_digest_in_python(spec):
    results = fl.run(spec, threads=2, quiet=True)
    told = told_by_program(spec)
    assert results.digest == told["digest"]
    assert results.metrics == told["metrics"]
    assert results.guarantees == (told["privacy"] or {})


def test_results_say_who_is_worse_than_alone():
    blobs = {"blobs": {"classes": 4, "features": 8, "train": 400, "test": 80}}
    split = {"dirichlet": {"alpha": 0.5, "min-size": 4}}
    data = {"set": blobs, "clients": 12, "split": split, "test": {"own": 0.25, "of": "all"}}
    local = {"epochs": 1, "batch": 16}
    spec = {"name": "own", "seed": 3, "data": data, "parts": {"model": {"use": "linear"}}}
    alone = fl.run(spec | {"protocol": {"use": "solo", "local": local}}, quiet=True)
    spec["parts"]["aggregator"] = {"use": "mean"}
    ours = fl.run(spec | {"protocol": {"use": "fedavg", "rounds": 1, "local": local}}, quiet=True)
    each = [next(row["each"] for row in of.rows[::-1] if row["name"] == name) for of, name in [(alone, "clients.accuracy"), (ours, "own.accuracy")]]
    losses = [a - b for a, b in zip(*each, strict=True) if a > b]
    found = ours.worse_than(alone)["own.accuracy"]
    assert (found["clients"], found["worse"]) == (12, len(losses)) and losses
    assert found["burden"] == pytest.approx(sum(losses) / 12) == pytest.approx(found["rate"] * found["loss"])
    other = fl.run(spec | {"seed": 4, "protocol": {"use": "fedavg", "rounds": 1, "local": local}}, quiet=True)
    with pytest.raises(fl.RunError, match="is no run of `solo`"):
        other.worse_than(alone)
    with pytest.raises(fl.RunError, match="is a run of `fedavg`, and clients are alone in one of `solo`"):
        alone.worse_than(ours)


def test_a_spec_is_a_path_a_text_or_a_mapping(fedavg):
    by_path = fl.run(QUICK / "fedavg.yaml", quiet=True)
    by_name = fl.run(str(QUICK / "fedavg.yaml"), quiet=True)
    by_text = fl.run((QUICK / "fedavg.yaml").read_text(), quiet=True)
    by_mapping = fl.run(fedavg, quiet=True)
    assert len({r.digest for r in (by_path, by_name, by_text, by_mapping)}) == 1
    assert by_path.folder == Path("runs/quick-fedavg-1").absolute()
    assert (by_mapping.folder / "report.html").exists()


def test_what_is_set_changes_the_spec(fedavg):
    results = fl.run(fedavg, {"protocol.rounds": 2, "seed": 7}, out="here", quiet=True)
    assert (results.rounds, results.outcome["seed"], results.folder) == (2, 7, Path("here").absolute())
    fedavg["protocol"]["rounds"], fedavg["seed"] = 2, 7
    assert fl.run(fedavg, quiet=True).digest == results.digest


def test_results_are_read_again_and_pickled(fedavg):
    results = fl.run(fedavg, quiet=True)
    again = pickle.loads(pickle.dumps(results))
    assert again == results
    assert fl.open(results.folder).metrics == results.metrics
    assert [row["round"] for row in results.rows if row["name"] == "accuracy"] == [1, 2, 3, 4, 5]
    assert "accuracy" in results._repr_html_() and results.digest[:12] in repr(results)


def test_results_do_not_depend_on_the_working_directory(fedavg, tmp_path, monkeypatch):
    results = fl.run(fedavg, {"protocol.rounds": 1}, quiet=True, out="here")
    every = [results, fl.open("here"), pickle.loads(pickle.dumps(results))]
    models = [one.model(data_dir=".") for one in every]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for one, model in zip(every, models, strict=True):
        assert one.folder.is_absolute() and model.arrays() and one.models and one.clients == [] and one.report().exists()
        assert model._data_dir == str(elsewhere.parent)


def test_a_frame_needs_a_library_and_says_so(fedavg, monkeypatch):
    results = fl.run(fedavg, quiet=True)
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleNotFoundError):
        results.frame()
    monkeypatch.undo()
    pandas = pytest.importorskip("pandas")
    frame = results.frame()
    assert isinstance(frame, pandas.DataFrame) and list(frame.columns) == ["step", "round", "name", "value", "std"]


def test_a_plot_shows_what_was_measured(fedavg):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    results = fl.run(fedavg, quiet=True)
    (line,) = results.plot("accuracy").get_lines()
    assert list(line.get_ydata()) == [row["value"] for row in results.rows if row["name"] == "accuracy"]
    with pytest.raises(ValueError, match="nothing called 'acuracy'"):
        results.plot("acuracy")


def test_epsilon_is_what_the_accountant_guarantees():
    results = fl.run(QUICK / "fedmd-nfdp.yaml", quiet=True)
    assert results.epsilon == results.guarantees["readers"]["epsilon"] > 0
    assert fl.run(QUICK / "fedavg.yaml", quiet=True).epsilon is None


def test_two_runs_at_once_do_not_disturb_each_other(fedavg):
    alone = {seed: fl.run(fedavg, {"seed": seed}, quiet=True).digest for seed in range(4)}
    beside = {}

    def one(seed):
        set = {"seed": seed, **with_part("aggregator", "py-mean")}
        beside[seed] = fl.run(fedavg, set, quiet=True).digest

    threads = [threading.Thread(target=one, args=(seed,)) for seed in alone]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert beside == alone


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_of_a_process_that_has_run_can_run(fedavg):
    here = fl.run(fedavg, quiet=True).digest
    ends, begins = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(begins, fl.run(fedavg, with_part("aggregator", "py-mean"), quiet=True).digest.encode())
        finally:
            os._exit(0)
    os.close(begins)
    with os.fdopen(ends) as told:
        assert told.read() == here
    os.waitpid(child, 0)


def rounds_without_end(fedavg):
    fedavg["protocol"]["rounds"] = 100_000
    return fedavg


def test_ctrl_c_writes_the_run_down_and_says_how_it_goes_on(fedavg):
    def at_three(step):
        if step["number"] == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r"stopped after round \d+; go on with: fl.run\(resume='.*here'\)"):
        fl.run(rounds_without_end(fedavg), out="here", on_step=at_three, quiet=True)
    assert not fl.open("here").done
    on = fl.run(resume="here", stop_after=1000, quiet=True)
    assert on.stopped == "round 1000"


def test_exact_a_run_that_ctrl_c_ended_comes_to_what_it_would_have_come_to(fedavg):
    whole = fl.run(fedavg, quiet=True)
    first = fl.run(fedavg, stop_after=2, out="here", quiet=True)
    assert first.stopped == "round 2"
    assert fl.run(resume="here", quiet=True).digest == whole.digest


def test_ctrl_c_is_noticed_while_a_run_is_waited_for(fedavg):
    @fl.aggregator("py-interrupts")
    class Interrupts:
        """Somebody presses Ctrl-C in round 3."""

        def aggregate(self, round, inbox):
            if round.number == 3:
                os.kill(os.getpid(), signal.SIGINT)
            return inbox.mean()

    with pytest.raises(KeyboardInterrupt, match="go on with"):
        fl.run(rounds_without_end(fedavg), with_part("aggregator", "py-interrupts"), quiet=True)


def test_a_second_ctrl_c_does_not_wait_for_the_step(fedavg):
    free = threading.Event()

    @fl.aggregator("py-hangs")
    class Hangs:
        """Never comes back, as it seems."""

        def aggregate(self, round, inbox):
            for _ in range(0 if free.is_set() else 2):  # a copy answers once more
                os.kill(os.getpid(), signal.SIGINT)
            while not free.wait(0.01):
                os.kill(os.getpid(), signal.SIGINT)
            return inbox.mean()

    caught = 0
    try:
        fl.run(fedavg, with_part("aggregator", "py-hangs"), quiet=True)
    except KeyboardInterrupt:
        caught += 1
    finally:
        # those that are still under way
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        free.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert caught == 1


def test_an_exception_of_on_step_ends_the_run(fedavg):
    def fails(step):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as told:
        fl.run(rounds_without_end(fedavg), out="here", on_step=fails, quiet=True)
    assert any("go on with" in note for note in told.value.__notes__)


@pytest.mark.parametrize("kind", [fl.SpecError, fl.RunError])
def test_an_error_of_another_run_in_on_step_ends_the_run(fedavg, kind):
    def fails(step):
        if kind is fl.RunError:
            fl.open("nowhere")
        fl.run(fedavg, {"parts.model.lrr": 1}, quiet=True)

    with pytest.raises(kind) as told:
        fl.run(rounds_without_end(fedavg), out="here", on_step=fails, quiet=True)
    assert any("stopped after round" in note and "go on with" in note for note in told.value.__notes__)
    assert fl.run(resume="here", stop_after=1000, quiet=True).stopped == "round 1000"


def test_a_run_goes_on_in_a_thread(fedavg):
    found = []
    thread = threading.Thread(target=lambda: found.append(fl.run(fedavg, quiet=True)))
    thread.start()
    thread.join()
    assert found[0].digest == fl.run(fedavg, quiet=True).digest


def test_data_of_a_mapping_are_relative_to_where_one_is(fedavg):
    rows = [f"{(i * 37) % 11},{(i * 17) % 7},{'ab'[i % 2]}" for i in range(60)]
    Path("points.csv").write_text("x,y,label\n" + "\n".join(rows) + "\n")
    fedavg["data"] = {"set": {"files": {"format": "csv", "train": "points.csv", "label": "label", "holdout": 0.5}}, "clients": 3, "split": "iid"}
    from_mapping = fl.run(fedavg, quiet=True)
    Path("below").mkdir()
    (Path("below") / "points.csv").write_text(Path("points.csv").read_text())
    (Path("below") / "spec.yaml").write_text(json.dumps(fedavg))
    assert fl.run("below/spec.yaml", quiet=True).digest == from_mapping.digest
    with pytest.raises(fl.SpecError, match="nowhere.csv"):
        fl.check(fedavg, {"data.set": {"files": {"format": "csv", "train": "nowhere.csv", "label": "label", "holdout": 0.5}}})


def test_the_package_tells_its_version():
    assert fl.__version__ == version("fl-federated")
