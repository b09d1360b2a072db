"""Where the events of a run go while it runs: files, TensorBoard, MLflow, Weights & Biases.

    fl.run(spec, sinks=[fl.sinks.TensorBoard("events"), fl.sinks.JsonLines("events.jsonl")])

A spec names them as well, and then `fl run` of this package has them too:

    sinks: [json-lines, {tensorboard: {path: events}}, {mlflow: {experiment: mine}}]

A sink of your own is a subclass of `Sink`. A package that is missing is an error before the run.
What a sink raises later is a warning, and the run goes on without it.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import threading
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import _fl
from ._errors import SpecError
from ._steps import step_report


class Sink:
    """Hears of a run: once of its begin, of each step, and of its end.

    `begin` is a mapping with `name`, `seed`, `folder` and the resolved `spec`. `step` is as
    `fl.run` gives it to `on_step`: `step`, `number`, `of`, `metrics` by name, `each` by client,
    `accuracy`, `bytes_up`, `bytes_down`, `epsilon` by observer, `guarantees` that they are a part
    of, `seconds`. `end` has the `outcome` as in `outcome.json`, or an `error`; with an accountant
    the text of an error stays at the terminal. `caveats` says what a reader must know of an
    epsilon.
    """

    def begin(self, run: dict[str, Any]) -> None:
        """The run has a folder."""

    def step(self, step: dict[str, Any]) -> None:
        """A step is done."""

    def end(self, end: dict[str, Any]) -> None:
        """The run is over."""


def scalars(step: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a step by name: its measures, and bytes, seconds and epsilons of the run so
    far. With an accountant there are no seconds."""
    found = {**step["metrics"], "bytes.up": step["bytes_up"], "bytes.down": step["bytes_down"], "seconds": step["seconds"]}
    found |= {f"epsilon.{observer}": value for observer, value in (step["epsilon"] or {}).items() if value is not None}
    return {name: float(value) for name, value in found.items() if value is not None}


def guarantees(told: Mapping[str, Any]) -> dict[str, str]:
    """The guarantee against each observer, or why there is none, in a text, as the program prints
    it: of a step, or of `end`."""
    return {observer: _fl.guarantee(json.dumps(one))[0] for observer, one in _told(told).items()}


def caveats(told: Mapping[str, Any]) -> dict[str, str]:
    """What a reader must know of the epsilon against each observer: that its noise is seeded, who
    claims it, or why there is no guarantee. Empty if there is nothing to know."""
    return {observer: "; ".join(_fl.guarantee(json.dumps(one))[1]) for observer, one in _told(told).items()}


def _told(told: Mapping[str, Any]) -> dict[str, Any]:
    return (told["outcome"].get("privacy") if "outcome" in told else told.get("guarantees")) or {}


class JsonLines(Sink):
    """A file with one JSON object a line: `begin`, each `step`, and `end`. A run that goes on
    appends."""

    def __init__(self, path: str | os.PathLike[str] | None = None):
        self.path = path

    def begin(self, run: dict[str, Any]) -> None:
        path = _path(self.path, run, "events.jsonl")
        self._file = path.open("a", encoding="utf-8")
        self._write({"event": "begin", **run})

    def step(self, step: dict[str, Any]) -> None:
        self._write({"event": "step", **step})

    def end(self, end: dict[str, Any]) -> None:
        self._write({"event": "end", **end})
        self._file.close()

    def _write(self, event: dict[str, Any]) -> None:
        self._file.write(json.dumps(_finite(event)) + "\n")
        self._file.flush()


class Prometheus(Sink):
    """The last values in the text format of Prometheus, in a file that is replaced after each step:
    for the text-file collector of its node exporter, which wants names that end in `.prom`."""

    def __init__(self, path: str | os.PathLike[str] | None = None):
        self.path = path

    def begin(self, run: dict[str, Any]) -> None:
        self._path = _path(self.path, run, "metrics.prom")
        self._labels = {"run": run["name"], "seed": str(run["seed"])}
        self._write([("fl_run_running", {}, 1.0)])

    def step(self, step: dict[str, Any]) -> None:
        rows: list[tuple[str, dict[str, str], float]] = [("fl_run_running", {}, 1.0), ("fl_round", {}, float(step["number"])), ("fl_rounds", {}, float(step["of"]))]
        rows += [("fl_metric", {"metric": name}, value) for name, value in step["metrics"].items() if value is not None]
        rows += [("fl_bytes_total", {"direction": way}, float(step[f"bytes_{way}"])) for way in ("up", "down")]
        rows += [("fl_run_seconds", {}, float(step["seconds"]))] if step["seconds"] is not None else []
        self._last = rows
        self._write(rows + self._epsilons(step["guarantees"] or {}, caveats(step)))

    def end(self, end: dict[str, Any]) -> None:
        last = [row for row in getattr(self, "_last", []) if row[0] != "fl_run_running"]
        # a run that failed guarantees nothing
        told = _told(end)
        self._write([("fl_run_running", {}, 0.0), ("fl_run_failed", {}, float("error" in end)), *last, *self._epsilons(told, caveats(end))])

    def _epsilons(self, told: Mapping[str, Any], known: Mapping[str, str]) -> list[tuple[str, dict[str, str], float]]:
        """The epsilon against each observer, with what a reader must know of it; none where there
        is no guarantee."""
        holds = {who: one["epsilon"] for who, one in told.items() if one.get("epsilon") is not None}
        return [("fl_epsilon", {"observer": who} | ({"caveats": known[who]} if known[who] else {}), value) for who, value in holds.items()]

    def _write(self, rows: Iterable[tuple[str, dict[str, str], float]]) -> None:
        lines, seen = [], set()
        for name, labels, value in rows:
            if name not in seen:
                seen.add(name)
                lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
            inner = ",".join(f'{key}="{_label(text)}"' for key, text in {**self._labels, **labels}.items())
            lines.append(f"{name}{{{inner}}} {_number(value)}")
        part = self._path.with_name(self._path.name + ".part")
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.replace(part, self._path)


class _Scalars(Sink):
    """A sink that cannot take numbers back: where the run ends without a guarantee, the last
    epsilon is NaN. With an accountant the day stands for every time."""

    def __init__(self) -> None:
        self._number, self._held, self._last = 0, set[str](), dict[str, str]()
        self._day: float | None = None

    def begin(self, run: dict[str, Any]) -> None:
        # two times show how long clients trained, which follows their data
        self._day = time.time() // 86400 * 86400 if "accountant" in run["spec"].get("parts", {}) else None

    def _time(self) -> float:
        """The seconds since 1970; with an accountant those of the day's begin."""
        return time.time() if self._day is None else self._day

    def _scalars(self, step: Mapping[str, Any]) -> dict[str, float]:
        found = scalars(step)
        self._number = step["number"]
        self._held |= {name for name in found if name.startswith("epsilon.")}
        self._last = guarantees(step)
        return found

    def _ended(self, end: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, float]]:
        """The guarantee against each observer, in a text, and the epsilons that are none after
        all."""
        told = dict.fromkeys(self._last, "nothing: the run failed") if "error" in end else guarantees(end)
        holds = {f"epsilon.{who}" for who, one in _told(end).items() if one.get("epsilon") is not None}
        return told, dict.fromkeys(sorted(self._held - holds), math.nan)


class TensorBoard(_Scalars):
    """Scalars for TensorBoard, in a folder of events for each run. Needs `tensorboard`."""

    def __init__(self, path: str | os.PathLike[str] | None = None):
        super().__init__()
        _needs("tensorboard", "tensorboard")
        self.path = path

    def begin(self, run: dict[str, Any]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        super().begin(run)
        self._event, self._summary = Event, Summary
        folder = Path(run["folder"]) / "events" if self.path is None else Path(self.path) / Path(run["folder"]).name
        folder.mkdir(parents=True, exist_ok=True)
        number = len([*folder.glob("events.out.tfevents.*")])
        self._writer = RecordWriter((folder / f"events.out.tfevents.{int(self._time()):010d}.fl.{number:06d}").open("xb"))
        self._add(file_version="brain.Event:2")

    def step(self, step: dict[str, Any]) -> None:
        known = {f"epsilon.{who}": text for who, text in caveats(step).items()}
        self._write(self._value(name, value, known.get(name, "")) for name, value in self._scalars(step).items())

    def end(self, end: dict[str, Any]) -> None:
        from tensorboard.compat.proto.summary_pb2 import SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        texts = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        told, lost = self._ended(end)
        for who, text in told.items():
            tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()])
            self._write([self._summary.Value(tag=f"guarantee/{who}", tensor=tensor, metadata=texts)])
        self._write(self._value(name, value, "") for name, value in lost.items())
        self._writer.close()

    def _value(self, name: str, value: float, about: str) -> Any:
        single = np.float32(value)  # in single precision, as TensorBoard has them
        if name.startswith("epsilon.") and float(single) < value:
            single = np.nextafter(single, np.float32(np.inf))
        found = self._summary.Value(tag=name.replace(".", "/"), simple_value=float(single))
        if about:
            found.metadata.summary_description = about
        return found

    def _write(self, values: Iterable[Any]) -> None:
        self._add(step=self._number, summary=self._summary(value=values))

    def _add(self, **about: Any) -> None:
        self._writer.write(self._event(wall_time=self._time(), **about).SerializeToString())
        self._writer.flush()


class MlFlow(_Scalars):
    """A run of MLflow: settings as parameters, measures by round, digest and guarantees as tags.
    Needs `mlflow` or `mlflow-skinny`."""

    def __init__(self, uri: str | None = None, experiment: str | None = None):
        super().__init__()
        _needs("mlflow", "mlflow-skinny")
        self.uri, self.experiment = uri, experiment

    def begin(self, run: dict[str, Any]) -> None:
        from mlflow.tracking import MlflowClient

        super().begin(run)
        self._client = MlflowClient(tracking_uri=self.uri)
        name = self.experiment or run["name"]
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self._run = self._client.create_run(number, start_time=self._now(), run_name=Path(run["folder"]).name).info.run_id
        for path, value in _flat(run["spec"]).items():
            self._client.log_param(self._run, path, str(value)[:500])

    def step(self, step: dict[str, Any]) -> None:
        before = self._last
        for name, value in self._scalars(step).items():
            if math.isfinite(value):
                self._client.log_metric(self._run, name, value, timestamp=self._now(), step=step["number"])
        self._tags({who: text for who, text in self._last.items() if before.get(who) != text})

    def _tags(self, told: Mapping[str, str]) -> None:
        for who, text in told.items():
            self._client.set_tag(self._run, f"fl.guarantee.{who}", text[:5000])

    def end(self, end: dict[str, Any]) -> None:
        outcome = end.get("outcome")
        told, lost = self._ended(end)
        self._tags(told)
        for name, value in lost.items():
            self._client.log_metric(self._run, name, value, timestamp=self._now(), step=self._number)
        if outcome:
            self._client.set_tag(self._run, "fl.digest", outcome["digest"])
            self._client.set_tag(self._run, "fl.folder", outcome["out"] or "")
        stopped = outcome and outcome.get("stopped")
        self._client.set_terminated(self._run, "KILLED" if stopped else "FINISHED" if outcome else "FAILED", end_time=self._now())

    def _now(self) -> int:
        return int(1000 * self._time())


class Wandb(_Scalars):
    """A run of Weights & Biases, offline in the run folder unless `mode` is `online`; `wandb sync`
    uploads it later. It keeps times of its own, with an accountant too. Needs `wandb`."""

    def __init__(self, project: str | None = None, mode: Literal["offline", "online"] = "offline"):
        super().__init__()
        _needs("wandb", "wandb")
        if mode not in ("offline", "online"):
            raise SpecError(f"sinks: mode must be `offline` or `online`, got {mode!r}")
        self.project, self.mode = project, mode

    def begin(self, run: dict[str, Any]) -> None:
        import wandb

        super().begin(run)
        if self._day is not None:
            warnings.warn("Weights & Biases keeps the time of each step, which follows the clients' data; no epsilon covers it", RuntimeWarning, stacklevel=2)
        about = {"project": self.project or run["name"], "name": Path(run["folder"]).name, "config": run["spec"]}
        self._run = wandb.init(**about, dir=os.path.abspath(run["folder"]), mode=self.mode, reinit="create_new", settings=wandb.Settings(console="off", silent=True))

    def step(self, step: dict[str, Any]) -> None:
        # now, so that `end` has the last word
        self._run.log(self._scalars(step), step=step["number"], commit=True)
        self._run.summary.update({f"guarantee.{who}": text for who, text in self._last.items()})

    def end(self, end: dict[str, Any]) -> None:
        outcome = end.get("outcome")
        told, lost = self._ended(end)
        self._run.summary.update({f"guarantee.{who}": text for who, text in told.items()} | lost)
        if outcome:
            self._run.summary["digest"] = outcome["digest"]
        self._run.finish(exit_code=0 if outcome else 1)


_KINDS = {"json-lines": JsonLines, "prometheus": Prometheus, "tensorboard": TensorBoard, "mlflow": MlFlow, "wandb": Wandb}


def open_all(settings: str) -> Live:
    """For the program: the sinks of a spec."""
    sinks = []
    for one in json.loads(settings):
        ((kind, given),) = one.items() if isinstance(one, dict) else ((one, {}),)
        sinks.append(_KINDS[kind](**(given or {})))
    return Live(sinks)


class Live:
    """Hands the events of a run to sinks."""

    def __init__(self, sinks: Iterable[Sink]):
        if isinstance(sinks, Sink):
            raise SpecError(f"sinks: give a list, such as [fl.sinks.{type(sinks).__name__}()]")
        self.sinks = [*sinks]
        for sink in self.sinks:
            if not isinstance(sink, Sink):
                raise SpecError(f"sinks: each is an object of a class of fl.sinks, got {sink!r}")
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        event = json.loads(text)
        kind = event.pop("event")
        given = step_report(event) if kind == "step" else event
        if kind == "begin":
            given["folder"] = os.path.abspath(given["folder"])  # as that of the results
        with self._lock:
            for sink in [*self.sinks]:
                try:
                    {"begin": sink.begin, "step": sink.step, "end": sink.end}[kind](given)
                except Exception as error:
                    self.sinks.remove(sink)
                    warnings.warn(f"the sink {type(sink).__name__} takes no more events: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)


def _needs(module: str, package: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise SpecError(f"sinks: there is no module `{module}`: pip install {package}")


def _path(given: str | os.PathLike[str] | None, run: Mapping[str, Any], name: str) -> Path:
    path = Path(run["folder"]) / name if given is None else Path(given)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(key): _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
    return value


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else "+Inf" if value == math.inf else "-Inf" if value == -math.inf else repr(value)


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Settings by path, such as `protocol.rounds`."""
    if not isinstance(value, dict):
        return {path: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= _flat(inner, f"{path}.{key}" if path else key)
    return found
