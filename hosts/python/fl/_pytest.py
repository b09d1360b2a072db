"""A plugin of pytest, which finds it by itself: each case of a file `*.cases.yaml` is a test, and
tests have the fixture `fl_snapshot`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from . import _fl
from ._results import Results
from ._spec import flow
from .testing import _named, _settings

_USED = pytest.StashKey[dict[Path, set[str]]]()
_WHOLE = pytest.StashKey[bool]()


def pytest_addoption(parser):
    group = parser.getgroup("fl", "parts and runs held to accepted answers")
    group.addoption("--fl-accept", action="store_true", help="accept the present answers of the cases and of `fl_snapshot` in the chosen tests")
    group.addoption("--fl-actual", action="store_true", help="where answers to a file of cases differ, write them to NAME.cases.actual.json")


def pytest_configure(config):
    config.stash[_USED], config.stash[_WHOLE] = {}, True
    if config.getoption("--fl-accept") and hasattr(config, "workerinput"):
        raise pytest.UsageError("--fl-accept writes files that several processes would share: leave `-n` out")


# ---- files of cases


def pytest_collect_file(file_path, parent):
    if file_path.name.endswith(".cases.yaml"):
        return CasesFile.from_parent(parent, path=file_path)
    return None


class CasesFile(pytest.File):
    def collect(self):
        code, out, err = _fl.command(["fl", "test", str(self.path), "--list", "--json"])
        if code != 0:
            raise self.CollectError(err.strip())
        if self.config.getoption("--fl-actual"):
            self.path.with_suffix(".actual.json").unlink(missing_ok=True)
        for one in json.loads(out)["cases"]:
            yield CaseItem.from_parent(self, name=one["case"], line=one["line"])


class Difference(Exception):
    """An answer is not the accepted one."""


class CaseItem(pytest.Item):
    def __init__(self, *, line: int, **more):
        super().__init__(**more)
        self.line = line

    def runtest(self):
        options = [name for name in ("accept", "actual") if self.config.getoption(f"--fl-{name}")]
        # what a file of cases does not use any more is for `fl test` to say
        args = ["--unreferenced=ignore", "--json", f"--only={self.name}", *(f"--{name}" for name in options)]
        code, out, err = _fl.command(["fl", "test", str(self.path), *args])
        if code not in (0, 1) or not out:
            raise Difference(err.strip())
        (case,) = json.loads(out)["cases"]
        if case["outcome"] in ("different", "new"):
            raise Difference(_text(case["outcome"], case["differences"]))

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, Difference):
            return f"{self.path}:{self.line}: {self.name}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, self.line - 1, self.name


def _text(outcome: str, lines: list[str]) -> str:
    hint = "; `--fl-accept` accepts it" if outcome == "new" else ""
    return "\n    ".join([f"{outcome}{hint}", *lines])


# ---- answers of tests


class Snapshot:
    """Compares answers with those that were accepted, in `NAME.answers.json` beside the test's
    file. `pytest --fl-accept` accepts the present ones."""

    def __init__(self, answers: Path, test: str, accept: bool, used: set[str]):
        self._answers, self._test, self._accept, self._used = answers, test, accept, used
        self._count = 0

    def __call__(
        self,
        what,
        input: dict | None = None,
        *,
        rounds: list[dict] | None = None,
        settings: dict | None = None,
        seed: int = 0,
        close: float | None = None,
        tolerance: dict | None = None,
        within: dict | None = None,
        name: str | None = None,
    ) -> None:
        """Holds `what` to its accepted answer: a part and its `input` or its inputs in several
        `rounds`, as `fl.testing.answer` takes them; the results of `fl.run`; or a value of numbers,
        texts, lists, mappings and arrays.

        All bits count, unless `close`, `tolerance` or `within` says otherwise, as in a file of
        cases. A second answer of a test has its own `name`, or its number. Raises `AssertionError`
        with the largest difference of each tensor.
        """
        __tracebackhide__ = True
        self._count += 1
        name = self._test + (f" {name}" if name else f" {self._count}" if self._count > 1 else "")
        case = {"name": name, "close": close, "tolerance": tolerance or {}, "within": within or {}}
        value = None
        if isinstance(what, str) or hasattr(what, "_fl"):
            given = {"input": input} if rounds is None else {"rounds": rounds}
            case |= {"part": _named(what), "settings": _settings(what, settings), "seed": seed, **given}
        elif input is not None or rounds is not None or settings is not None:
            raise TypeError(f"only a part has an input, rounds or settings, and this is {type(what).__name__}")
        elif isinstance(what, Results):
            value = {"digest": what.digest, "metrics": what.metrics, "bytes": what.bytes}
            if close is not None or tolerance:
                del value["digest"]  # it stands for all bits
        else:
            value = what
        if not within:
            self._used.add(name)
        text = None if value is None else json.dumps(_plain(value), allow_nan=False)
        outcome, lines = _fl.snapshot(flow(case), text, str(self._answers), self._accept)
        if outcome in ("different", "new"):
            raise AssertionError(f"{name}: {_text(outcome, lines)}")


def _plain(value):
    """Arrays as lists; single floats in their shortest form; floats that JSON cannot write as
    texts."""
    if hasattr(value, "detach"):  # a tensor of PyTorch
        value = value.detach().cpu().numpy()
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        short = (lambda x: float(str(x))) if value.dtype.name in ("float16", "float32") else (lambda x: x.item())
        if value.ndim == 0:
            return _plain(short(value[()]))
        return [_plain(one) for one in value]
    match value:
        case float() if value != value:
            return "nan"
        case float() if value in (float("inf"), float("-inf")):
            return "inf" if value > 0 else "-inf"
        case dict():
            return {str(key): _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"a snapshot has numbers, texts, lists, mappings and arrays, not {type(value).__name__}")


@pytest.fixture
def fl_snapshot(request) -> Snapshot:
    """Compares answers of parts, results of runs and values with those that were accepted: see
    `fl._pytest.Snapshot`."""
    answers = request.path.with_suffix(".answers.json")
    used = request.config.stash[_USED].setdefault(answers, set())
    test = request.node.nodeid.partition("::")[2]
    return Snapshot(answers, test, request.config.getoption("--fl-accept"), used)


def pytest_deselected(items):
    for item in items:
        item.config.stash[_WHOLE] = False


def pytest_runtest_logreport(report):
    if report.when == "call" and report.failed or report.skipped:
        _OPEN.append(report.nodeid)


_OPEN: list[str] = []


def pytest_terminal_summary(terminalreporter, config):
    """Names answers that no test asked for, if all tests of their file ran to their end."""
    whole = config.stash[_WHOLE] and not any("::" in arg for arg in config.args)
    for answers, used in config.stash[_USED].items():
        of_file = answers.name.removesuffix(".answers.json") + ".py::"
        if not whole or any(of_file in node for node in _OPEN):
            continue
        accept = config.getoption("--fl-accept")
        for name in _fl.unused_answers(str(answers), used, accept):
            done = "removed" if accept else "`--fl-accept` removes it"
            terminalreporter.write_line(f"{answers}: no test asked for the answer `{name}`; {done}", yellow=True)
