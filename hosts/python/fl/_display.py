"""The progress of a run, in a terminal or a notebook."""

from __future__ import annotations

import html
import logging
import sys

#: Takes notes as INFO and steps as DEBUG, also of a run with `quiet`. Nothing is shown unless a
#: program sets logging up.
_LOG = logging.getLogger("fl")


def notebook() -> bool:
    """Is this a notebook?"""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and shell.has_trait("kernel") if hasattr(shell, "has_trait") else False


def terminal() -> bool:
    """Is standard error a terminal?"""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # it is closed
        return False


def _size(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"


class Display:
    """Notes as they come; in a notebook also a bar, which becomes the results. The terminal's bar
    is the program's own."""

    def __init__(self, quiet: bool):
        self.quiet, self.handle = quiet, None
        if not quiet and notebook():
            from IPython.display import HTML, display

            self.html = HTML
            self.handle = display(HTML(""), display_id=True)

    def step(self, name: str, number: int, of: int, score: tuple[str, float] | None, crossed: int):
        if self.handle is None and not _LOG.isEnabledFor(logging.DEBUG):
            return
        words = [f"{number} of {of} rounds" if of else name]
        if score is not None:
            words.append("{} {:.4f}".format(*score))
        if crossed:
            words.append(_size(crossed))
        _LOG.debug("%s", ", ".join(words))
        if self.handle is None:
            return
        bar = f'<progress value="{number}" max="{of}"></progress> ' if of else ""
        self.handle.update(self.html(bar + html.escape(", ".join(words))))

    def note(self, text: str):
        _LOG.info("%s", text)
        if not self.quiet and sys.stderr is not None:
            print(f"note: {text}", file=sys.stderr)

    def end(self, text: str = ""):
        if self.handle is not None:
            self.handle.update(self.html(html.escape(text)))
