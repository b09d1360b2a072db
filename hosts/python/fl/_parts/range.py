"""Ranges of settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class between:  # noqa: N801
    """A range of a setting, for `Annotated`: `fl.between(ge=0, lt=1)`. Those of `annotated_types`
    do as well."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
