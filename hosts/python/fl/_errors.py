"""What can go wrong. Every error holds the program's own text."""

from __future__ import annotations

import json
import linecache
import os
import re
import traceback
from dataclasses import dataclass
from types import TracebackType

HERE = os.path.dirname(__file__) + os.sep
"""The folder of this package: what is not in it is a user's own."""


def own_lines(trace: TracebackType | None) -> str:
    """The last lines of a user's own code that an exception came through, one below the other."""
    frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(HERE)]
    lines = [f"\n  {f.filename}:{f.lineno} in {f.name}: {(f.line or linecache.getline(f.filename, f.lineno or 0)).strip()}" for f in frames[-3:]]
    return "".join(lines)


@dataclass(frozen=True)
class Mistake:
    """One mistake in a spec: its place, and the correct form.

    `line` and `column` start at 1, and are `None` where the spec is a mapping or the value was set
    from outside.
    """

    text: str
    path: str
    line: int | None = None
    column: int | None = None
    file: str | None = None
    part: str | None = None
    set: str | None = None

    def __str__(self) -> str:
        if self.line is not None:
            where = f"{self.file}:{self.line}:{self.column}  "
        elif self.set is not None:
            where = f"set {self.set}  "
        else:
            where = ""
        return f"{where}{self.path + ': ' if self.path else ''}{self.text}"


class Error(Exception):
    """Anything that `fl` refuses or fails at."""


class SpecError(Error, ValueError):
    """A spec or an argument is wrong; nothing was run. `mistakes` has all of them, `line` and
    `column` are those of the first."""

    def __init__(self, text: str, mistakes: tuple[Mistake, ...] = ()):
        super().__init__(text)
        self.mistakes = tuple(mistakes)

    def __reduce__(self):
        return type(self), (str(self), self.mistakes)

    @property
    def line(self) -> int | None:
        return self.mistakes[0].line if self.mistakes else None

    @property
    def column(self) -> int | None:
        return self.mistakes[0].column if self.mistakes else None


class RunError(Error, RuntimeError):
    """A run failed. `folder` is its run folder, if it has one; it keeps the last checkpoint."""

    def __init__(self, text: str, folder: str | None = None):
        super().__init__(text)
        self.folder = folder

    def __reduce__(self):
        return type(self), (str(self), self.folder)


def spec_error(text: str, mistakes: str, mapping: bool) -> SpecError:
    """From the program's text and JSON; a mapping has no lines."""
    found = []
    for m in json.loads(mistakes):
        place = {} if mapping else {"file": m["file"], "line": m["line"], "column": m["column"]}
        found.append(Mistake(m["text"], m["path"], part=m["part"], set=m["set"], **place))
    if mapping:
        text = "\n".join(map(str, found)) or re.sub(r"^spec:\d+:\d+  ", "", text)
    return SpecError(text, tuple(found))
