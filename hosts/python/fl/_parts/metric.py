"""Measures in Python, beside those of the program: in its tables, reports, studies and rules."""

from __future__ import annotations

import hashlib
import inspect
import threading
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .. import _fl
from .._errors import own_lines
from . import generators, names as names_of
from .arguments import Stream

_LOCK = threading.Lock()
_KINDS = ("classes", "multi-label", "masks", "images", "numbers")

Measure = Callable[..., "float | None"]
F = typing.TypeVar("F", bound=Measure)


@dataclass(frozen=True)
class _Metric:
    name: str
    function: Measure
    task: str

    @property
    def module(self) -> str:
        """Where it is from; code that was compiled from a text has no module."""
        return self.function.__module__ or "__main__"


_METRICS: dict[str, _Metric] = {}


def metric(name: str, task: str = "classes") -> Callable[[F], F]:
    """Declares a measure: a function before which it stands,

    `f(scores, labels) -> number`, or `None` where it is not defined. It is measured of the server's
    model on the test rows under its name, and of the clients' models under `clients.NAME`, as a
    mean with its deviation; not of the server's model on clients' own test rows. So it is in
    `results.metrics`, in `on_step`, in tables, reports and studies, and
    `stop-when: {metric: NAME, ..}` can name it. Digests do not depend on it.

    `scores` is `rows x outputs` (logits). `labels` has the classes of the rows if `task` is
    `classes`; `rows x labels` of 1, 0 and -1 for unknown if it is `multi-label`; `rows x pixels` of
    classes if it is `masks`, and of values if it is `images`; `rows x numbers` on the label's scale
    if it is `numbers`. With another task nothing is measured. A measure of a notebook counts in all
    runs of the session, one of a module in those whose spec names the module under `plugins`, and
    in other runs of a process that imports it.
    """
    names_of.check(name)
    if task not in _KINDS:
        raise ValueError(f"task must be one of {', '.join(_KINDS)}, got {task!r}")

    def declare(function: F) -> F:
        if not inspect.isfunction(function):
            raise TypeError(f"@fl.metric stands before a function, not before {function!r}")
        with _LOCK:
            _METRICS[name] = _Metric(name, function, task)
        _fl.metric_declared()
        return function

    return declare


def names(kind: str) -> list[str]:
    """For the program: the measures of tasks of this kind."""
    return [one.name for one in [*_METRICS.values()] if one.task == kind]


def measured(given: tuple[bytes, int], truth: tuple[str, int, bytes]) -> list[tuple[str, float]]:
    """For the program: every measure of these scores that has a number."""
    scores = np.frombuffer(given[0], np.float32).reshape(-1, given[1])
    kind, width, raw = truth
    dtype = {"classes": np.uint32, "multi-label": np.int8, "masks": np.uint8, "images": np.float32, "numbers": np.float32}[kind]
    labels = np.frombuffer(raw, dtype)
    labels = labels.astype(np.int64) if kind == "classes" else labels.reshape(-1, width)
    found = []
    for one in [*_METRICS.values()]:
        if one.task == kind and (value := _value(one, scores, labels)) is not None:
            found.append((one.name, value))
    return found


def _value(one: _Metric, scores: np.ndarray, labels: np.ndarray) -> float | None:
    try:
        with generators.Section(Stream(hashlib.sha256(one.name.encode()).digest()).seed):
            value = one.function(scores, labels)
        return None if value is None else float(value)
    except Exception as error:
        raise RuntimeError(f"metric `{one.name}`: {type(error).__name__}: {error}{own_lines(error.__traceback__)}") from None


def are_in(module: types.ModuleType) -> bool:
    """Has a module, or one below it, measures?"""
    name = module.__name__
    return any(f"{one.module}.".startswith(f"{name}.") for one in _METRICS.values())
