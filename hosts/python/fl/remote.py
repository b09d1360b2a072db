"""Clients elsewhere: a run that leads them through an engine, and the node at the other end.
`fl.flower` is one engine.

An engine is a courier: it carries packets, of a head and a body, and knows nothing of what is in
them. The same request may be carried twice; it is answered once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from . import _fl
from ._errors import RunError, SpecError, spec_error
from ._results import Results
from ._run import begin
from ._spec import overrides, source

__all__ = ["Courier", "Node", "lead"]


class Courier(Protocol):
    """Whoever carries packets between a leader and nodes. It is called from one thread, which is
    not the one that began the run."""

    def send(self, client: int, head: bytes, body: bytes) -> None:
        """Takes a request. A body to many clients is the same object. `receive` reports later
        failures."""

    def receive(self) -> tuple[int, tuple[bytes, bytes] | None, str]:
        """Waits for the next reply: whose it is, and its head and body, or `None` and why there is
        none, which `faults` decides about.

        An exception ends the run, which can go on later.
        """

    def end(self, keep: bool) -> None:
        """The run has ended; with `keep` it may be resumed."""


def lead(spec, courier: Courier, *, clients: Sequence[int] = (), window: int = 1, **how) -> Results:
    """As `fl.run`, with clients that `courier` reaches.

    `clients` says who there is; if not given, whoever the spec knows, which does not know those
    with data of their own (`split: own`). `window` is how many requests may be on their way at
    once. `how` is as for `fl.run`.
    """
    return begin(spec, courier=(courier, list(clients), window), **how)


class Refused(SpecError):
    """What a node refuses a leader, who may read the text: it has nothing of the node's files."""


class Node:
    """Answers for the clients of a spec, with the settings `set` of a leader, and keeps what lasts
    of them in the folder `home`, which must stay as long as the run goes on.

    `own` is the file of a node with data of its own: what it owns, what it allows, and where its
    home is. Several nodes may share a home, also in several processes. `set` may change numbers,
    and names of parts, sets and options; `Refused` is raised for what can name a file, a library or
    a module of the node. Raises `SpecError` if the spec is wrong, and `RunError` if data or folders
    are.
    """

    def __init__(self, spec, set=None, *, home, own=None, data_dir=None):
        name, text, mapping = source(spec)
        path = lambda p: None if p is None else os.fspath(p)  # noqa: E731
        node, wrong = _fl.Node.make(name, text, overrides(set), home=path(home), own=path(own), data_dir=path(data_dir))
        if wrong is not None:
            if wrong[0] == "set":
                raise Refused(wrong[1])
            raise spec_error(wrong[1], wrong[2], mapping) if wrong[0] == "spec" else RunError(wrong[1])
        self._node = node

    @property
    def clients(self) -> list[int]:
        """Whom it can answer for: every client that has data by the spec, or the one whose data it
        owns."""
        return self._node.clients()

    def answer(self, head: bytes, body: bytes) -> tuple[bytes, bytes]:
        """The reply to a request. An error is a reply too; raises `RunError` for bytes that are no
        request, or one of another version."""
        try:
            return self._node.answer(head, body)
        except RuntimeError as error:
            raise RunError(str(error)) from None
