"""What a run came to."""

from __future__ import annotations

import html
import json
import math
import webbrowser
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._errors import RunError


@dataclass(frozen=True)
class Results:
    """What a run came to. It holds no part of the run itself: it can be pickled, and read again with `fl.open(results.folder)`."""

    outcome: dict[str, Any]
    """As `outcome.json` has it."""
    rows: list[dict[str, Any]] = field(repr=False)
    """One for each measurement: `step`, `round`, `name`, `value`, `std` over clients, `each` of `clients`."""
    notes: list[str] = field(repr=False, default_factory=list)
    """What the user should know."""

    @property
    def name(self) -> str:
        return self.outcome["name"]

    @property
    def metrics(self) -> dict[str, float]:
        """The last measurement of each kind; deviations over clients end in `.std`."""
        return self.outcome["metrics"]

    @property
    def digest(self) -> str:
        """Of everything that was sent, answered, measured and kept: the same spec and seed have the same."""
        return self.outcome["digest"]

    @property
    def seconds(self) -> float:
        return self.outcome["seconds"]

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
        """What is guaranteed against `server`, `clients` and `readers` of the results: an `epsilon` with all that it depends on,
        or `nothing`, and why. Empty without an accountant."""
        return self.outcome.get("privacy") or {}

    @property
    def epsilon(self) -> float | None:
        """Epsilon against readers of the results, who see least; `None`: nothing is guaranteed. For the others see `guarantees`."""
        readers = self.guarantees.get("readers", {})
        if "nothing" in readers or not readers:
            return None
        return math.inf if readers["epsilon"] is None else readers["epsilon"]

    @property
    def stopped(self) -> str | None:
        """The step after which the run was stopped, if it can go on."""
        return self.outcome.get("stopped")

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.outcome["out"])

    def frame(self, kind: str | None = None):
        """The measurements as a data frame: of pandas, or of polars if only that is installed (or if `kind` names it)."""
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
        """Measurements over rounds, with a band of one deviation over clients, on matplotlib's axes; all accuracies if no
        `names` are given. Without matplotlib the run's page is shown instead."""
        known = dict.fromkeys(row["name"] for row in self.rows)
        for name in names:
            if name not in known:
                raise ValueError(f"nothing called {name!r} was measured; there are {', '.join(known)}")
        try:
            from matplotlib import pyplot
        except ModuleNotFoundError:
            return self.show()
        ax = ax or pyplot.gca()
        for name in names or [n for n in known if n.endswith(("accuracy", "mauc"))] or known:
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
            from IPython.display import IFrame, display

            return display(IFrame(str(page), width="100%", height=600))
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
        privacy = "nothing is guaranteed" if self.epsilon is None else f"epsilon {self.epsilon:.4g}"
        rows += f"<tr><td>privacy</td><td>{privacy}</td></tr>"
        rows += f"<tr><td>bytes</td><td>{self.bytes['up']:,} up, {self.bytes['down']:,} down</td></tr>"
        head = f"{html.escape(self.name)} (seed {self.outcome['seed']}, {self.rounds} steps, {self.seconds:.1f} s)"
        foot = f"<code>{self.digest[:16]}</code> {html.escape(str(self.folder))}"
        return f"<b>{head}</b><table>{rows}</table>{foot}"


def _rows(folder: Path) -> list[dict[str, Any]]:
    with (folder / "metrics.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read(outcome: dict[str, Any], notes: list[str]) -> Results:
    """The results of a run that has just ended."""
    return Results(outcome, _rows(Path(outcome["out"])), notes)


def open(folder) -> Results:
    """The results of a run that is done, from its folder."""
    folder = Path(folder)
    try:
        summary = json.loads((folder / "outcome.json").read_text(encoding="utf-8"))
        summary["outcome"]["out"] = str(folder)
        return Results(summary["outcome"], _rows(folder), summary["notes"])
    except FileNotFoundError as error:
        if (folder / "spec.yaml").exists():
            text = f"the run in {folder} is not done; go on with fl.run(resume={str(folder)!r})"
            raise RunError(text, str(folder)) from None
        raise RunError(f"{folder} is no run folder: there is no {Path(error.filename).name}") from None
