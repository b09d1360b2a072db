"""What the program does besides runs."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import _fl
from ._data import rows as _data
from ._errors import RunError, SpecError, spec_error
from ._parts import metric as _metric, classes
from ._spec import overrides, source


def command(*args: str) -> str:
    """What the program answers to these arguments: `fl.command("list")`."""
    code, out, err = _fl.command(["fl", *args])
    if code == 0:
        return out
    text = err.strip() or out.strip() or f"it ended with code {code}"
    raise (RunError(text.removeprefix("error: ")) if code == 1 else SpecError(text))


def check(spec, set=None, *, data=None) -> dict:
    """The resolved spec: every default filled in. Raises `SpecError`, with every mistake, if there
    are any, and warns of what `fl check` notes, also of the data and of cards that this machine
    lacks. `data` is rows in memory, as `fl.run` takes them; they are written into `runs/data`."""
    name, text, mapping = source(spec)
    written = _data.Written() if data is None else _data.write(data, Path("runs/data"))
    resolved, wrong = _fl.check(name, text, written.overrides + overrides(set), True)
    if wrong is not None:
        raise _data.named(spec_error(wrong[1], wrong[2], mapping), written)
    for note in resolved[2]:
        warnings.warn(note, stacklevel=2)
    return json.loads(resolved[0])


class _Page(dict):
    """A mapping that shows itself as the program shows it."""

    def __init__(self, content: dict, text: str):
        super().__init__(content)
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_pretty_(self, printer, _cycle):
        printer.text(self._text)


def inspect(what) -> dict:
    """What is known of a part, data set, split or network: its doc, settings, ranges, defaults. It
    shows itself as `fl inspect` does. `what` is its name, or a class that was declared as a
    part."""
    name = what._fl["name"] if hasattr(what, "_fl") else str(what)
    found = json.loads(command("inspect", name, "--json"))
    return _Page(found, command("inspect", name).rstrip())


def parts(role: str | None = None) -> list[dict]:
    """Every part that a spec can name, those of this session too; or those of one role."""
    return json.loads(command("list", *([role] if role else []), "--json"))["parts"]


def schema() -> dict:
    """The JSON Schema of a spec, with every part in it."""
    return json.loads(command("schema"))


def account(kind: str, **options) -> dict:
    """What releases cost, or how much noise an epsilon needs: `fl.account("gaussian", sigma=2.0,
    rate=0.1, times=100)`. Options are those of `fl account KIND --help`."""
    return json.loads(command("account", kind.replace("_", "-"), *_options(options), "--json"))


@dataclass(frozen=True)
class Study:
    """The results of a study: its tables in Markdown, and the measurements."""

    text: str
    rows: list[dict[str, Any]] = field(repr=False)
    """One for each measurement of a run, as in `NAME-runs.csv`: `value` is a float, NaN for a run
    that failed, and `seed` a whole number."""
    folder: Path

    def frame(self):
        """The rows as a data frame of pandas."""
        import pandas

        return pandas.DataFrame(self.rows)

    def __str__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text


def _options(options: dict) -> list[str]:
    """Options of the program: `rate=0.1` is `--rate 0.1`, and `True` a flag."""
    args = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            args.append(flag)
        elif value is not None and value is not False:
            args += [flag, str(value)]
    return args


def _other_process(args: list[str], quiet: bool) -> tuple[int, str, list[str]]:
    """Runs the program in another process: its exit code, 0 or 1, what it printed, and its
    messages, which are shown."""
    # results go to a file: two pipes, of which one is read, could wait for each other
    with tempfile.TemporaryFile("w+", encoding="utf-8") as printed:
        # in a session of its own, so that Ctrl-C reaches it once, from here
        program = [sys.executable, "-m", "fl", *args]
        with subprocess.Popen(program, stdout=printed, stderr=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True) as program:
            said: list[str] = []

            def follow():
                for line in program.stderr:
                    said.append(line)
                    if not quiet:
                        print(line, end="", file=sys.stderr)

            try:
                follow()
            except BaseException:
                program.send_signal(signal.SIGINT)
                try:
                    follow()
                except BaseException:
                    program.kill()
                raise
        printed.seek(0)
        text = printed.read()
    if program.returncode not in (0, 1):
        wrong = "".join(said).strip()
        here = _of_session(wrong, ((cls._fl["role"], cls._fl["name"], cls.__module__) for cls in classes.CLASSES))
        raise SpecError("\n".join([wrong, *here]))
    return program.returncode, text, said


def _of_session(text: str, known: Iterable[tuple[str, str, str]]) -> list[str]:
    """Of these parts or measures (what it is, its name, its module): what to do about those of a
    notebook that `text` names, for another process does not know them."""
    found = {f"{what} `{name}`" for what, name, module in known if module == "__main__" and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)}
    return [f"{one} is from this session, and the runs are done by another process: put it in a module and name it under `plugins`" for one in sorted(found)]


def audit(spec, set=None, *, quiet: bool = False, **options) -> dict:
    """Proves a lower bound of epsilon for each observer of a spec's runs, beside the claim:
    `fl.audit("spec.yaml", runs=200)`. Options are those of `fl audit --help`. `findings` of the
    result has a `verdict` for each observer: `broken` if its claim is, `suspect` if it looks so.

    The runs are done by another process, so parts in Python come from modules that the spec names
    under `plugins`. After Ctrl-C the next call goes on.
    """
    args = ["audit", os.fspath(spec), "--json"]
    for one in overrides(set):
        args += ["--set", one]
    _, text, said = _other_process(args + _options(options), quiet)
    if not text:
        raise RunError("".join(said).strip().removeprefix("error: "))
    return json.loads(text)


def study(file, set=None, *, only=(), out="runs/studies", threads: int | None = None, data_dir=None, quiet: bool = False) -> Study:
    """Does every run of a study that is not done yet, and makes its tables. READMEs are left as
    they are (`fl study` writes them).

    The runs are done by another process, so parts in Python come from modules that specs name under
    `plugins`. Ctrl-C lets the runs that are going on end their step, a second one does not; what
    was done is kept, and the next call goes on.
    """
    measures = [("metric", one.name, one.module) for one in _metric._METRICS.values()]
    if os.path.isfile(file) and (here := _of_session(Path(file).read_text(encoding="utf-8"), measures)):
        raise SpecError("\n".join(here))
    folder = Path(out)
    args = ["study", os.fspath(file), "--check", "--out", str(folder)]
    for one in overrides(set):
        args += ["--set", one]
    for one in [only] if isinstance(only, str) else only:
        args += ["--only", one]
    if threads is not None:
        args += ["--threads", str(threads)]
    if data_dir is not None:
        args += ["--data-dir", os.fspath(data_dir)]
    _, text, said = _other_process(args, quiet)
    tables = [line for line in said if line.startswith("tables: ")]
    if not tables:
        raise RunError("".join(said).strip())
    # a folder's name may hold what stands between two files
    found = re.findall(rf"{re.escape(str(folder))}[/\\]([^/\\]*-runs\.csv)(?=, |$)", tables[-1].strip())
    with (folder / found[-1]).open(encoding="utf-8", newline="") as lines:
        rows = [row | {"seed": int(row["seed"]), "value": float(row["value"] or "nan")} for row in csv.DictReader(lines)]
    return Study(text.strip(), rows, folder)
