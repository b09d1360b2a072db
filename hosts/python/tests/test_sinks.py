"""Where events go while a run goes on."""

import json
import math
import operator
import re
import subprocess
import sys
from pathlib import Path

import fl
import pytest
from conftest import QUICK

ALL = ["json-lines", "prometheus"]
ESTIMATE = "an estimate, and no guarantee: who knows the seed can remove the noise"
STOPPED = "nothing: the run was stopped after round 2"


class Recorded(fl.sinks.Sink):
    """A sink of a user."""

    def __init__(self):
        self.seen = []

    def begin(self, run):
        self.seen.append(("begin", run))

    def step(self, step):
        self.seen.append(("step", step))

    def end(self, end):
        self.seen.append(("end", end))


def test_a_sink_hears_of_the_begin_of_each_step_and_of_the_end():
    sink, steps = Recorded(), []
    results = fl.run(QUICK / "fedavg.yaml", sinks=[sink], on_step=steps.append, quiet=True)
    kinds = [kind for kind, _ in sink.seen]
    assert kinds == ["begin", *["step"] * len(steps), "end"]
    begin, *middle, end = [about for _, about in sink.seen]
    assert (begin["name"], begin["folder"]) == (results.name, str(results.folder)) and begin["spec"]["protocol"]["rounds"] == 5
    assert middle == steps and end["outcome"]["digest"] == results.digest
    assert fl.run(QUICK / "fedavg.yaml", quiet=True).digest == results.digest


def test_a_sink_hears_of_a_failure():
    @fl.aggregator("py-fails-now")
    class FailsNow:
        """Fails."""

        def aggregate(self, round, inbox):
            raise ZeroDivisionError("now")

    sink = Recorded()
    with pytest.raises(fl.RunError):
        fl.run(QUICK / "fedavg.yaml", {"parts.aggregator": {"use": "py-fails-now"}}, sinks=[sink], quiet=True)
    assert sink.seen[-1][0] == "end" and "ZeroDivisionError: now" in sink.seen[-1][1]["error"]


def test_a_sink_that_fails_is_a_warning_and_the_run_goes_on():
    class Full(Recorded):
        """The disk is full."""

        def step(self, step):
            raise OSError("no space left on device")

    other = Recorded()
    with pytest.warns(RuntimeWarning, match="the sink Full takes no more events: OSError: no space left"):
        results = fl.run(QUICK / "fedavg.yaml", sinks=[Full(), other], quiet=True)
    assert results.done and other.seen[-1][0] == "end"


def test_files_of_a_spec_are_written_in_the_run_folder_and_on_resuming(fedavg):
    fedavg["sinks"] = ALL
    results = fl.run(fedavg, quiet=True)
    lines = [json.loads(line) for line in (results.folder / "events.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["begin", *["step"] * 5, "end"] or lines[0]["event"] == "begin"
    last = [line for line in lines if line["event"] == "step"][-1]
    assert last["metrics"]["accuracy"] == results.metrics["accuracy"] and lines[-1]["outcome"]["digest"] == results.digest
    fl.run(fedavg, stop_after=2, out="here", quiet=True)
    assert fl.run(resume="here", quiet=True).digest == results.digest
    again = [json.loads(line)["event"] for line in Path("here/events.jsonl").read_text().splitlines()]
    assert again.count("begin") == again.count("end") == 2


def test_prometheus_reads_what_it_writes():
    results = fl.run(QUICK / "dp-fedavg.yaml", sinks=[fl.sinks.Prometheus("node/fl.prom")], quiet=True)
    text = Path("node/fl.prom").read_text()
    line = re.compile(r'# TYPE \w+ (gauge|counter)|\w+\{run="[^"]*",seed="\d+"(,\w+="[^"]*")*\} (NaN|[+-]?Inf|-?\d[\d.e+-]*)')
    assert all(line.fullmatch(one) for one in text.splitlines())
    value = lambda name: float(re.search(rf"^{re.escape(name)} (.+)$", text, re.MULTILINE)[1])  # noqa: E731
    labels = f'run="{results.name}",seed="{results.outcome["seed"]}"'
    assert value(f'fl_metric{{{labels},metric="accuracy"}}') == results.metrics["accuracy"]
    assert value(f'fl_bytes_total{{{labels},direction="up"}}') == results.bytes["up"]
    assert value(f'fl_epsilon{{{labels},observer="readers",caveats="{ESTIMATE}"}}') == results.epsilon
    assert 'observer="server"' not in text, "nothing is guaranteed against it"
    assert value(f"fl_run_running{{{labels}}}") == 0
    parser = pytest.importorskip("prometheus_client.parser")
    families = {family.name for family in parser.text_string_to_metric_families(text)}
    assert {"fl_metric", "fl_round", "fl_epsilon"} <= families


@fl.selector("takes-all")
class TakesAll:
    """Says that each client was drawn by chance."""

    draw = {"poisson": {"rate": 0.2}}

    def select(self, round, pool):
        import numpy as np

        return np.arange(len(pool.clients))


def test_what_is_no_guarantee_is_said_with_every_epsilon():
    claimed = {"noise": "system", "parts.cohort": {"use": "takes-all"}, "protocol.rounds": 2}
    for settings, said in [({"protocol.rounds": 2}, ESTIMATE), (claimed, "as claimed by ")]:
        results = fl.run(QUICK / "dp-fedavg.yaml", settings, sinks=[fl.sinks.JsonLines("e.jsonl"), fl.sinks.Prometheus("m.prom")], quiet=True)
        events = [json.loads(line) for line in Path("e.jsonl").read_text().splitlines()]
        for step in events[1:-1]:
            assert step["guarantees"]["readers"]["epsilon"] == step["epsilon"]["readers"], "one source"
            assert fl.sinks.caveats(step)["readers"].startswith(said)
            assert fl.sinks.caveats(step)["server"].startswith("no guarantee: clients answer")
        assert events[-2]["guarantees"] == results.guarantees and fl.sinks.guarantees(events[-1])["readers"].startswith("epsilon ")
        (line,) = [line for line in Path("m.prom").read_text().splitlines() if 'observer="readers"' in line]
        assert f'caveats="{said}' in line
        shown = results._repr_html_()
        assert ("not a guarantee" if said == ESTIMATE else said) in shown
        Path("e.jsonl").unlink()


def test_a_run_that_was_stopped_or_failed_shows_no_epsilon():
    def shown():
        return "fl_epsilon" in Path("m.prom").read_text()

    seen = []
    sinks = [fl.sinks.Prometheus("m.prom")]
    fl.run(QUICK / "dp-fedavg.yaml", stop_after=2, out="stopped", sinks=sinks, on_step=lambda _: seen.append(shown()), quiet=True)
    assert any(seen) and not shown()

    @fl.aggregator("fails-in-round-2")
    class Fails:
        """Fails."""

        def aggregate(self, round, inbox):
            if round.number == 2:
                raise ZeroDivisionError(f"of {inbox[0]}")
            return {name: inbox[0][name] for name in inbox[0]}

    sinks.append(fl.sinks.JsonLines("e.jsonl"))
    with pytest.raises(fl.RunError, match="ZeroDivisionError"):
        fl.run(QUICK / "fedavg-private.yaml", {"parts.aggregator": {"use": "fails-in-round-2"}}, sinks=sinks, quiet=True)
    assert not shown()
    # which may hold values of private rows
    last = Path("e.jsonl").read_text().splitlines()[-1]
    assert "ZeroDivisionError" not in last and "stays at the terminal" in last


def test_tensorboard_describes_an_epsilon_and_takes_it_back():
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    epsilons = []

    def run(**how):
        epsilons.clear()
        on_step = lambda step: epsilons.append(step["epsilon"]["readers"])  # noqa: E731
        results = fl.run(QUICK / "dp-fedavg.yaml", {"protocol.rounds": 3}, sinks=[fl.sinks.TensorBoard("events")], on_step=on_step, quiet=True, **how)
        events = accumulator.EventAccumulator(f"events/{results.folder.name}")
        events.Reload()
        (text,) = events.Tensors("guarantee/readers")
        return results, events, text.tensor_proto.string_val[0].decode()

    results, events, told = run(out="whole")
    times = {one.wall_time for one in events.Scalars("bytes/up")}
    assert len(times) == 1 and times.pop() % 86400 == 0, "when steps end follows the clients' data"
    (file,) = Path("events/whole").iterdir()
    assert int(file.name.split(".")[3]) % 86400 == 0
    assert events.SummaryMetadata("epsilon/readers").summary_description == ESTIMATE
    shown = [one.value for one in events.Scalars("epsilon/readers")]
    assert shown == pytest.approx(epsilons, rel=1e-6) and all(map(operator.ge, shown, epsilons)), "rounded up"
    assert told.startswith("epsilon ") and "not a guarantee" in told
    _, events, told = run(out="half", stop_after=2)
    *before, last = [one.value for one in events.Scalars("epsilon/readers")]
    assert math.isnan(last) and all(map(math.isfinite, before)) and told.startswith(STOPPED)


def test_mlflow_tells_the_guarantee_and_takes_an_epsilon_back(monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = Path("mlruns").absolute().as_uri()
    client = mlflow.tracking.MlflowClient(tracking_uri=uri)
    for how, said in [({}, "epsilon "), ({"stop_after": 2}, STOPPED)]:
        sinks = [fl.sinks.MlFlow(uri, f"of {said}")]
        results = fl.run(QUICK / "dp-fedavg.yaml", {"protocol.rounds": 3}, sinks=sinks, quiet=True, **how)
        (found,) = client.search_runs([client.get_experiment_by_name(f"of {said}").experiment_id])
        assert found.data.tags["fl.guarantee.readers"].startswith(said)
        times = {one.timestamp for one in client.get_metric_history(found.info.run_id, "bytes.up")}
        assert times == {found.info.start_time} == {found.info.end_time} and found.info.start_time % 86_400_000 == 0
        last = client.get_metric_history(found.info.run_id, "epsilon.readers")[-1].value
        assert math.isnan(last) if how else last == results.epsilon
        assert how or "not a guarantee" in found.data.tags["fl.guarantee.readers"]


def test_tensorboard_reads_what_it_writes(fedavg):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    fedavg["sinks"] = [{"tensorboard": {"path": "events"}}]
    results = fl.run(fedavg, out="mine", quiet=True)
    events = accumulator.EventAccumulator("events/mine")
    events.Reload()
    rounds = {one.step: one.value for one in events.Scalars("accuracy")}
    wanted = {row["round"]: row["value"] for row in results.rows if row["name"] == "accuracy"}
    assert rounds == pytest.approx(wanted, rel=1e-6) and "bytes/up" in events.Tags()["scalars"]


def test_mlflow_has_settings_measures_and_the_digest(fedavg, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = Path("mlruns").absolute().as_uri()
    fedavg["sinks"] = [{"mlflow": {"uri": uri, "experiment": "mine"}}]
    results = fl.run(fedavg, quiet=True)
    client = mlflow.tracking.MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert found.info.status == "FINISHED" and found.data.tags["fl.digest"] == results.digest
    assert found.data.params["protocol.rounds"] == "5"
    history = client.get_metric_history(found.info.run_id, "accuracy")
    assert [(one.step, one.value) for one in history] == [(row["round"], row["value"]) for row in results.rows if row["name"] == "accuracy"]


def records(data):
    """The records of a log in the format of LevelDB, which wandb writes after a head of seven
    bytes."""
    at, held = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        held += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield held
            held = b""


def test_wandb_writes_offline_into_the_run_folder(fedavg, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    fedavg["sinks"] = ["wandb"]
    results = fl.run(fedavg, quiet=True)
    (file,) = (results.folder / "wandb").glob("offline-run-*/run-*.wandb")
    from wandb.proto import wandb_internal_pb2 as proto

    seen = []
    for data in records(file.read_bytes()):
        record = proto.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            seen.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item})
    assert [one["accuracy"] for one in seen if "accuracy" in one] == [row["value"] for row in results.rows if row["name"] == "accuracy"]


def test_wandb_tells_the_guarantee_and_takes_an_epsilon_back(monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    from wandb.proto import wandb_internal_pb2 as proto

    for how, said in [({}, "epsilon "), ({"stop_after": 2}, STOPPED)]:
        results = fl.run(QUICK / "dp-fedavg.yaml", {"protocol.rounds": 3}, sinks=[fl.sinks.Wandb("mine")], quiet=True, **how)
        (file,) = (results.folder / "wandb").glob("offline-run-*/run-*.wandb")
        summary = {}
        for data in records(file.read_bytes()):
            record = proto.Record()
            record.ParseFromString(data)
            summary |= {item.key or item.nested_key[0]: item.value_json for item in record.summary.update}
        assert json.loads(summary["guarantee.readers"]).startswith(said)
        last = summary["epsilon.readers"]
        assert last == "null" if how else float(last) == results.epsilon


def test_the_program_of_the_package_has_them_too(fedavg):
    fedavg["sinks"] = [{"json-lines": {"path": "events.jsonl"}}]
    Path("spec.yaml").write_text(fl._spec.flow(fedavg))
    subprocess.run([sys.executable, "-m", "fl", "run", "spec.yaml", "--quiet"], check=True)
    assert json.loads(Path("events.jsonl").read_text().splitlines()[-1])["event"] == "end"


def test_mistakes_are_told_before_the_run(fedavg, monkeypatch):
    with pytest.raises(fl.SpecError, match="sinks.*json-lines"):
        fl.run({**fedavg, "sinks": ["jsonlines"]}, quiet=True)
    with pytest.raises(fl.SpecError, match="each is an object of a class of fl.sinks, got 'json-lines'"):
        fl.run(fedavg, sinks=["json-lines"], quiet=True)
    with pytest.raises(fl.SpecError, match=r"sinks: give a list, such as \[fl.sinks.JsonLines\(\)\]"):
        fl.run(fedavg, sinks=fl.sinks.JsonLines(), quiet=True)
    find = fl.sinks.importlib.util.find_spec
    monkeypatch.setattr(fl.sinks.importlib.util, "find_spec", lambda name: None if name == "wandb" else find(name))
    with pytest.raises(fl.SpecError, match="there is no module `wandb`: pip install wandb"):
        fl.run({**fedavg, "sinks": ["wandb"]}, quiet=True)
    assert not Path("runs").exists()
