"""`fl.run`."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import _fl, _forks
from ._data import rows as _data
from ._display import Display, terminal
from ._errors import RunError, SpecError, spec_error
from ._results import GoingOn, Results, read, remove_before
from ._spec import overrides, source
from ._steps import step_report
from .sinks import Live, Sink


class _Temporary:
    """A folder that lasts as long as this object, and goes without a warning."""

    def __init__(self):
        self.name = tempfile.mkdtemp(prefix="fl-")
        self.cleanup = weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)

    def __deepcopy__(self, _memo) -> _Temporary:
        return self

    def __reduce__(self):
        return type(None), ()  # nobody else can hold it


class _Stop:
    """The type of `fl.STOP`."""

    def __repr__(self) -> str:
        return "fl.STOP"


STOP = _Stop()
"""What `on_step` returns to end the rounds."""


def _at_least_one(name: str, value):
    if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 1):
        raise SpecError(f"{name}: must be a whole number, at least 1, got {value!r}")
    return None if value is None else value.__index__()


def _seconds(processes, deadline):
    if deadline is None:
        return None
    if processes is None or isinstance(deadline, bool) or not 0 < deadline < 1e9:
        raise SpecError(f"deadline: must be a number of seconds, above 0, together with processes; got {deadline!r}")
    return float(deadline)


def run(
    spec=None,
    set=None,
    *,
    resume=None,
    locked: bool = False,
    out=None,
    threads: int | None = None,
    data_dir=None,
    stop_after: int | None = None,
    wire: bool = False,
    processes: int | None = None,
    deadline: float | None = None,
    memory: int | None = None,
    quiet: bool = False,
    on_step: Callable[[dict], Any] | None = None,
    data=None,
    keep: str = "all",
    sinks: Sequence[Sink] = (),
) -> Results:
    """Runs a spec in this process, and returns its results.

    `spec` is a path, a text in YAML or a mapping; what is relative in a text or a mapping is
    relative to the working directory. `set` changes values by path:
    `{"protocol.rounds": 5, "seed": 3}`. With `resume` in place of a spec, the run that was stopped
    in that folder goes on. With `locked` only the plugins that the `fl.lock` beside the spec pins
    are loaded (for a text or a mapping, the one in the working directory). Results do not depend on
    the rest: `out` is the run folder (otherwise `runs/NAME-1`, ..), `threads` how many clients are
    served at once, `stop_after` so many steps the run stops, `wire` sends messages in their wire
    form, `processes` lets clients live in so many processes of their own (PyTorch trains in
    parallel so; a client that has not answered after `deadline` seconds has then not answered at
    all, which results do depend on), and `memory` is how many bytes the program is to hold at most
    (what Python holds counts too). `on_step` is called after each step with a mapping: `step`, its
    `number` of `of` rounds (0: it runs once), `metrics` (each measure of the step; deviations over
    clients end in `.std`), `each` (values by client of measures that have them), `accuracy` (the
    last score), `bytes_up`, `bytes_down` and their sum `bytes` so far, `epsilon` by observer so far
    (`None` without an accountant), the `guarantees` that it is a part of, as in
    `Results.guarantees`, and `seconds` so far (`None` with an accountant). When it returns
    `fl.STOP`, the rounds end and the run comes to its results; a run with an accountant fails then,
    for its epsilon would follow from results. `stop-when` in a spec does the same by a rule. An
    exception in `on_step` ends the run as Ctrl-C does.

    `data` is rows in memory in place of the spec's set: `(inputs, labels)`, a frame, a data set of
    PyTorch or of Hugging Face, or `{"train": .., "test": .., "public": ..}` of these, where `train`
    is one whole, a list with the rows of each client, or a mapping from clients' names to theirs.
    Further keys are `label` (the column of the classes), `inputs`, `classes`, `columns`, `missing`
    and `holdout`, as in the set `files`. The rows are written into the folder `data` beside the run
    folder, in files named by a hash with a key of the user: the digest is that of a run on these
    files, and a run is resumed without `data`, or with the same.

    `keep` says what stays in `runs/`: `all`; `last`, which removes the finished runs of the same
    name before this one; or `nothing`: the run folder lasts as long as the results do. `sinks` hear
    of the run's begin, each step and its end (`fl.sinks`), as those do that a spec names.

    Ctrl-C lets the step that is going on come to its end; the run is written down, and
    `KeyboardInterrupt` says how it goes on. A second Ctrl-C does not wait: the step ends in the
    background.

    Raises `SpecError` if the spec is wrong, with all its mistakes, and `RunError` if the run fails.
    """
    return begin(
        spec,
        set,
        resume=resume,
        locked=locked,
        out=out,
        threads=threads,
        data_dir=data_dir,
        stop_after=stop_after,
        wire=wire,
        processes=processes,
        deadline=deadline,
        memory=memory,
        quiet=quiet,
        on_step=on_step,
        data=data,
        keep=keep,
        sinks=sinks,
    )


def _imports(spec, given: list[str]) -> bool:
    """Does the spec name modules or packages of Python, which are here then?"""
    name, text, _ = source(spec)
    resolved, _ = _fl.check(name, text, given, False)
    return resolved is not None and bool(json.loads(resolved[0]).get("plugins"))


def begin(
    spec=None,
    set=None,
    *,
    resume=None,
    locked=False,
    out=None,
    threads=None,
    data_dir=None,
    stop_after=None,
    wire=False,
    processes=None,
    courier=None,
    deadline=None,
    memory=None,
    quiet=False,
    on_step=None,
    data=None,
    keep="all",
    sinks=(),
) -> Results:
    """As `run`; the clients may be those that a courier reaches."""
    if keep not in ("all", "last", "nothing"):
        raise SpecError(f"keep: must be `all`, `last` or `nothing`, got {keep!r}")
    if keep != "all" and (out is not None or resume is not None):
        raise SpecError("keep: it is about runs in `runs/`; leave out `out` and `resume`")
    if (spec is None) == (resume is None):
        raise SpecError("fl.run takes a spec, or resume= and the folder of a run that was stopped")
    if locked and resume is not None:
        raise SpecError("locked: a run that goes on always has the plugins that it was begun with; leave it out")
    name, text, mapping = ("", "", False) if spec is None else source(spec)
    threads, stop_after = _at_least_one("threads", threads), _at_least_one("stop_after", stop_after)
    processes, memory = _at_least_one("processes", processes), _at_least_one("memory", memory)
    path = lambda p: None if p is None else os.fspath(p)  # noqa: E731
    temporary = _Temporary() if keep == "nothing" else None
    if temporary is not None:
        out = Path(temporary.name) / "run"
    given = overrides(set)
    if data is not None and resume is not None:
        with tempfile.TemporaryDirectory() as folder:
            _data.same_as(Path(resume), _data.write(data, Path(folder)))
    elif data is not None:
        written = _data.write(data, Path("runs" if out is None else Path(out).parent) / "data")
        given = written.overrides + given
    events = Live(sinks) if sinks else None
    plugins = processes is not None and _imports(Path(resume) / "spec.yaml" if resume is not None else spec, given)
    with _forks.shared(plugins), GoingOn() as going_on:
        native = _fl.Run(
            name,
            text,
            given,
            resume=path(resume),
            locked=bool(locked),
            out=path(out),
            threads=threads,
            stop_after=stop_after,
            wire=wire,
            processes=processes,
            courier=courier,
            deadline=_seconds(processes, deadline),
            memory=memory,
            data_dir=path(data_dir),
            command=["fl", "run", name] if resume is None else ["fl", "run", "--resume", os.fspath(resume)],
            bar=not quiet and terminal(),
            steps=on_step is not None,
            events=events,
        )
        watch = _Watch(native, Display(quiet), on_step, mapping, going_on)
        try:
            results = watch.wait()
        except BaseException as error:
            told = error
            if temporary is not None and error is watch.own and isinstance(error, RunError):
                error.folder = None
            if error is watch.own and isinstance(error, SpecError) and data is not None and resume is None:
                told = _data.named(error, written)  # it reads the files
                written.discard()
            if temporary is not None:
                temporary.cleanup()
            if told is not error:
                raise told from None
            raise
    if temporary is not None:
        return dataclasses.replace(results, _temporary=temporary)
    if keep == "last" and not results.stopped:
        remove_before(results.folder)
    return results


class _Watch:
    """Takes a run's events until it is done."""

    def __init__(self, native, display: Display, on_step, mapping: bool, going_on: GoingOn):
        self.native, self.display, self.on_step, self.mapping, self.going_on = native, display, on_step, mapping, going_on
        self.notes: list[str] = []
        self.folder: str | None = None
        self.own: SpecError | RunError | None = None
        """The run's error, which is none of `on_step`."""

    def wait(self) -> Results:
        try:
            while (done := self.next()) is None:
                pass
        except BaseException as why:  # Ctrl-C above all
            self.native.stop()
            self.display.note("the run stops after this step; Ctrl-C again does not wait for it")
            self.on_step = None
            while (done := self.next()) is None:
                pass
            try:
                results = self.end(done)
            except (SpecError, RunError) as error:
                why.add_note(str(error))
                raise why from None
            if results is None:
                raise _with_note(why, "nothing was begun") from None
            if results.stopped is None:
                raise _with_note(why, f"the run was done by then: fl.open({str(results.folder)!r})") from None
            on = f"stopped after {results.stopped}; go on with: fl.run(resume={str(results.folder)!r})"
            raise _with_note(why, on) from None
        return self.end(done)

    def next(self):
        """The text of the last event, if this was it."""
        event = self.native.next()
        match event:
            case None:
                return None
            case ("step", name, number, of, score, crossed):
                self.display.step(name, number, of, score, crossed)
                return None
            case ("after", text):
                ends = False
                try:
                    ends = self.on_step is not None and self.on_step(step_report(json.loads(text))) is STOP
                finally:
                    self.native.go_on(ends)
                return None
            case ("note", text):
                self.notes.append(text)
                self.display.note(text)
                return None
            case ("folder", path):
                self.folder, self.going_on.folder = path, Path(path).absolute()
                return None
        return event

    def end(self, event) -> Results | None:
        match event:
            case ("done", None):
                self.display.end()
                return None
            case ("done", outcome):
                results = read(json.loads(outcome), self.notes)
                self.display.end(f"stopped after {results.stopped}" if results.stopped else "")
                return results
            case (_, "spec", text, mistakes):
                self.display.end()
                self.own = spec_error(text, mistakes, self.mapping)
                raise self.own
            case (_, _, text, _):
                self.display.end()
                if re.search("from this session[^:]* has sha256", text):
                    text += "; of a notebook, run the cells that declare it, and what it uses, as they were"
                if self.folder and os.path.exists(os.path.join(self.folder, "state")):
                    text += f"\nwhat was done until the last checkpoint is kept; go on with: fl.run(resume={self.folder!r})"
                self.own = RunError(text, self.folder if self.folder and os.path.exists(self.folder) else None)
                raise self.own


def _with_note(why: BaseException, text: str) -> BaseException:
    """The same exception with a note."""
    if isinstance(why, KeyboardInterrupt) and not why.args:
        return KeyboardInterrupt(text)
    why.add_note(text)
    return why
