"""What a run came to."""

from __future__ import annotations

import html
import json
import math
import os
import re
import shutil
import threading
import webbrowser
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import _fl, _model
from ._data import rows as _data
from ._errors import RunError


@dataclass(frozen=True)
class Results:
    """What a run came to. It holds no part of the run itself: it can be pickled, and read again
    with `fl.open(results.folder)`."""

    outcome: dict[str, Any]
    """As `outcome.json` has it."""
    rows: list[dict[str, Any]] = field(repr=False)
    """One for each measurement: `step`, `round`, `name`, `value`, `std` over clients, `each` of
    `clients`."""
    notes: list[str] = field(repr=False, default_factory=list)
    """What the user should know."""
    _temporary: Any = field(repr=False, default=None, compare=False)
    """The run folder, if it is to last as long as this."""

    def __reduce__(self):
        return Results, (self.outcome, self.rows, self.notes, self._temporary)

    @property
    def name(self) -> str:
        return self.outcome["name"]

    @property
    def metrics(self) -> dict[str, float]:
        """The last measurement of each kind, NaN if it was no finite number; deviations over
        clients end in `.std`."""
        return self.outcome["metrics"]

    @property
    def digest(self) -> str:
        """Of all that was sent, answered and kept, and of predictions for test rows. The same spec
        and seed have the same."""
        return self.outcome["digest"]

    @property
    def seconds(self) -> float:
        """How long the run took; NaN if its folder does not say so, as with an accountant."""
        return math.nan if self.outcome["seconds"] is None else self.outcome["seconds"]

    @property
    def rounds(self) -> int:
        """Steps done."""
        return self.outcome["rounds"]

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes that crossed, `up` from clients and `down` to them."""
        return self.outcome["bytes"]

    @property
    def guarantees(self) -> dict[str, dict[str, Any]]:
        """What is guaranteed against `server`, `clients` and `readers` of the results: an `epsilon`
        with all that it depends on, or `nothing`, and why. Empty without an accountant."""
        return self.outcome.get("privacy") or {}

    @property
    def epsilon(self) -> float | None:
        """Epsilon against readers of the results, who see least; `None`: nothing is guaranteed.
        With seeded noise, or as the claim of a library, it is an estimate: see `guarantees`, also
        for the other observers."""
        readers = self.guarantees.get("readers", {})
        if "nothing" in readers or not readers:
            return None
        return math.inf if readers["epsilon"] is None else readers["epsilon"]

    @property
    def stopped(self) -> str | None:
        """The step after which the run was stopped, if it can go on."""
        return self.outcome.get("stopped")

    @property
    def done(self) -> bool:
        """Did the run come to its end? One that failed, or that was stopped, did not."""
        return self.outcome.get("done", self.stopped is None)

    @property
    def folder(self) -> Path:
        """The run folder, absolute."""
        return Path(self.outcome["out"])

    @property
    def models(self) -> list[str]:
        """The names of the models that were kept: `SLOT`, and of clients' own `SLOT-CLIENT`."""
        return _model.names(self.folder)

    @property
    def clients(self) -> list[str]:
        """The names of the clients, if `data=` named them."""
        return _data.client_names(json.loads(_fl.run_text(self.folder / "run.json")))

    def model(self, name: str = "final", client: int | str | None = None, data_dir=None) -> _model.KeptModel:
        """A model that was kept: `final`, the one that the server has in the end, or the one of
        this slot. With `client`, a number or a name, the one of this client. `data_dir` is where
        the run's data set is, if the program needs it to make the model."""
        return _model.KeptModel(self.folder, _model.find(self.folder, name, client, self.clients), data_dir, self._temporary)

    def export(self, folder) -> list[Path]:
        """Writes every kept model that has parameters as `NAME.safetensors` into a folder, those of
        a notebook's parts too."""
        written = []
        for name in self.models:
            model = _model.KeptModel(self.folder, name)
            try:
                written.append(model.save(Path(folder) / f"{name}.safetensors"))
            except RunError:
                continue  # trees, for example
        return written

    def frame(self, kind: str | None = None):
        """The measurements as a data frame: of pandas, or of polars if only that is installed (or
        if `kind` names it)."""
        if kind not in (None, "pandas", "polars"):
            raise ValueError(f"a frame is of pandas or polars, not {kind!r}")
        rows = [{key: row.get(key) for key in ("step", "round", "name", "value", "std")} for row in self.rows]
        for library in [kind] if kind else ["pandas", "polars"]:
            try:
                return __import__(library).DataFrame(rows)
            except ModuleNotFoundError as error:
                if error.name != library:
                    raise
        wanted = kind or "pandas or polars"
        raise ModuleNotFoundError(f"a frame needs {wanted}: pip install {kind or 'pandas'}; without it, see `results.rows`")

    def plot(self, *names: str, ax=None):
        """Measurements over rounds, with a band of one deviation over clients, on matplotlib's
        axes; all accuracies if no `names` are given. Without matplotlib the run's page is shown
        instead."""
        known = dict.fromkeys(row["name"] for row in self.rows)
        for name in names:
            if name not in known:
                raise ValueError(f"nothing called {name!r} was measured; there are {', '.join(known)}")
        try:
            from matplotlib import pyplot
        except ModuleNotFoundError:
            return self.show()
        ax = ax or pyplot.gca()
        for name in names or [n for n in known if n.endswith(("accuracy", "mauc", "rmse"))] or known:
            rows = [row for row in self.rows if row["name"] == name and row["value"] is not None]
            x, y = [row["round"] for row in rows], [row["value"] for row in rows]
            (line,) = ax.plot(x, y, marker=".", label=name)
            if rows and all(row.get("std") is not None for row in rows):
                low = [row["value"] - row["std"] for row in rows]
                high = [row["value"] + row["std"] for row in rows]
                ax.fill_between(x, low, high, alpha=0.2, color=line.get_color())
        ax.set_xlabel("round")
        ax.set_title(self.name)
        ax.legend()
        return ax

    def worse_than(self, alone: Results) -> dict[str, dict[str, Any]]:
        """The clients that are worse off than in `alone`, a run of `solo` with the same data,
        data files and seed. By measure: how many `clients` have a score in both, how many are
        `worse`, their share (`rate`), their mean `loss`, and `burden`, the loss over all clients;
        no numbers for the last two if a client's model diverged."""
        if (protocol := alone.outcome.get("protocol", "solo")) != "solo":
            raise RunError(f"{alone.folder} is a run of `{protocol}`, and clients are alone in one of `solo`: this is `results.worse_than(alone)`")
        _, out, err = _fl.command(["fl", "compare", str(alone.folder), str(self.folder), "--json"])
        found = json.loads(out)["alone"] if out else None
        if found is None:
            raise RunError(err.strip() or f"{alone.folder} is no run of `solo` with the data and the seed of {self.folder}")
        return {of.pop("name"): of for of in found}

    def report(self) -> Path:
        """The run's page, in HTML; it is made if it is not there."""
        from ._tools import command

        page = self.folder / "report.html"
        if not page.exists():
            command("report", str(self.folder))
        return page

    def show(self):
        """Shows the run's page: in a notebook, or in the browser."""
        page = self.report()
        from ._display import notebook

        if notebook():
            from IPython.display import display

            return display(_Inline(_fl.run_text(page)))
        webbrowser.open(page.resolve().as_uri())
        return None

    def __repr__(self) -> str:
        shown = ", ".join(f"{k} {v:.4f}" for k, v in self.metrics.items() if not k.endswith(".std"))
        return f"<fl.Results {self.name}: {shown}; digest {self.digest[:12]}, {self.folder}>"

    def _repr_html_(self) -> str:
        rows = ""
        for key, value in self.metrics.items():
            if not key.endswith(".std"):
                std = self.metrics.get(f"{key}.std")
                more = "" if std is None else f" &plusmn; {std:.4f}"
                rows += f"<tr><td>{html.escape(key)}</td><td>{value:.4f}{more}</td></tr>"
        readers = self.guarantees.get("readers")
        if readers:
            privacy = f"against readers: {_fl.guarantee(json.dumps(readers))[0]}"
            rows += f"<tr><td>privacy</td><td>{html.escape(privacy)}</td></tr>"
        rows += f"<tr><td>bytes</td><td>{self.bytes['up']:,} up, {self.bytes['down']:,} down</td></tr>"
        took = "" if math.isnan(self.seconds) else f", {self.seconds:.1f} s"
        head = f"{html.escape(self.name)} (seed {self.outcome['seed']}, {self.rounds} steps{took})"
        foot = f"<code>{self.digest[:16]}</code> {html.escape(str(self.folder))}"
        return f"<b>{head}</b><table>{rows}</table>{foot}"


class _Inline:
    """A page in a notebook, whole: a path would be relative to wherever the notebook is served
    from."""

    def __init__(self, page: str):
        self.page = page

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.page)}" width="100%" height="600" style="border: 0"></iframe>'


def _rows(folder: Path) -> list[dict[str, Any]]:
    return _lines(folder / "metrics.jsonl")


def _lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a file: a run that was killed may leave half a line."""
    return [json.loads(line) for line in _fl.run_text(path).split("\n")[:-1]]


def read(outcome: dict[str, Any], notes: list[str]) -> Results:
    """The results of a run that has ended."""
    # absolute, for the working directory may change
    folder = Path(outcome["out"]).absolute()
    # JSON has no NaN
    metrics = {name: math.nan if value is None else value for name, value in outcome["metrics"].items()}
    return Results(outcome | {"metrics": metrics, "out": str(folder)}, _rows(folder), notes)


def open(folder) -> Results:
    """The results of a run from its folder. Of a run that failed or was stopped they are what was
    measured until then: `done` is false, and there is no digest."""
    folder = Path(folder).absolute()
    try:
        summary = json.loads(_fl.run_text(folder / "outcome.json"))
        return read(summary["outcome"] | {"out": folder}, summary["notes"])
    except FileNotFoundError:
        return _unfinished(folder)


def _unfinished(folder: Path) -> Results:
    for name in ("run.json", "spec.yaml"):
        if not (folder / name).exists():
            raise RunError(f"{folder} is no run folder: there is no {name}")
    run = json.loads(_fl.run_text(folder / "run.json"))
    name = re.search(r"^name: (.+)$", _fl.run_text(folder / "spec.yaml"), re.MULTILINE)
    rows, costs = _rows(folder), _lines(folder / "costs.jsonl")
    metrics = {}
    for row in rows:
        metrics[row["name"]] = math.nan if row["value"] is None else row["value"]
        if row.get("std") is not None:
            metrics[f"{row['name']}.std"] = row["std"]
    last = costs[-1] if costs else {"bytes_up": 0, "bytes_down": 0}
    outcome = {
        "name": name[1].strip("'\"") if name else folder.name, "seed": run["seed"], "rounds": len(costs), "metrics": metrics, "out": str(folder),
        "bytes": {"up": last["bytes_up"], "down": last["bytes_down"]}, "digest": "", "seconds": math.nan, "privacy": None,
    }  # fmt: skip
    stopped = costs[-1]["step"] if costs else None
    how = f"it can go on: fl.run(resume={str(folder)!r})" if (folder / "state").exists() else "it has no checkpoint to go on from"
    return Results(outcome | {"stopped": stopped, "done": False}, rows, [f"the run is not done; {how}"])


class GoingOn:
    """A run of this process whose results are not read yet: its folder stays."""

    def __init__(self):
        self.folder: Path | None = None
        """Where it is, once that is known."""

    def __enter__(self) -> GoingOn:
        with _REMOVING:
            _GOING_ON.add(self)
        return self

    def __exit__(self, *_: object):
        with _REMOVING:
            _GOING_ON.discard(self)


_GOING_ON: set[GoingOn] = set()
_REMOVING = threading.RLock()


def _alone():
    """In a forked process no other thread has a run."""
    global _REMOVING
    _REMOVING = threading.RLock()
    _GOING_ON.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alone)


def remove_before(folder: Path):
    """Removes the finished runs `NAME-1`, `NAME-2`, .. before the run `NAME-3`, with the rows in
    memory that only they had."""
    name, _, number = folder.name.rpartition("-")
    for path in folder.parent.glob(f"{name}-*"):
        before = path.name.rpartition("-")[2]
        if path.name.rpartition("-")[0] == name and before.isdigit() and int(before) < int(number) and (path / "outcome.json").exists():
            with _REMOVING:
                _remove(path, folder)


def _remove(path: Path, last: Path):
    if any(run.folder in (None, path.absolute()) for run in _GOING_ON):
        return
    rows = {one["path"] for one in _inputs(path)} - {one["path"] for one in _inputs(last)}
    try:
        # at once, so that nobody finds half of it
        gone = path.rename(path.with_name(f".{path.name}.{os.getpid()}"))
    except OSError:
        return  # another process was first
    shutil.rmtree(gone, ignore_errors=True)
    others = {one["path"] for other in last.parent.iterdir() for one in _inputs(other)}
    for file in map(Path, rows - others):
        if file.parent == last.parent.absolute() / "data":
            file.unlink(missing_ok=True)


def _inputs(folder: Path) -> list[dict[str, str]]:
    try:
        return json.loads(_fl.run_text(folder / "run.json"))["data"]
    except (OSError, ValueError, KeyError):
        return []
