"""Processes of libraries: a Python that loads the native half of this package alone, so that it has
one thread when it enters its sandbox."""

import sys

from . import _fl

SERVE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("_fl", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
sys.exit(native.library_process(sys.argv[2:]))
"""


def begin() -> None:
    """Says how the program begins such a process. Where Python does not know its own program,
    libraries are loaded here."""
    if sys.executable:
        _fl.isolate_with([sys.executable, "-I", "-S", "-c", SERVE, _fl.__file__])
