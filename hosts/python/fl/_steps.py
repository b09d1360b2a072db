"""What is said of a step of a run."""

from __future__ import annotations

import math
from typing import Any


def _number(value: float | None) -> float:
    """JSON has no NaN: it stands there as null."""
    return math.nan if value is None else value


def step_report(report: dict[str, Any]) -> dict[str, Any]:
    """What `on_step` and sinks are given."""
    metrics, each = {}, {}
    for one in report["metrics"]:
        metrics[one["name"]] = _number(one["value"])
        if one["std"] is not None:
            metrics[f"{one['name']}.std"] = one["std"]
        if one.get("each"):
            each[one["name"]] = dict(zip(one["clients"], map(_number, one["each"]), strict=True))
    crossed = report["bytes_up"] + report["bytes_down"]
    return report | {"metrics": metrics, "each": each, "bytes": crossed}
