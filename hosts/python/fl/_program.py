"""The program, in this process."""

import os
import signal
import sys
from typing import NoReturn

from . import _fl


def program() -> NoReturn:
    """Does what the command line says."""
    # before the program listens, and after it is done, Ctrl-C ends it as it ends other programs,
    # without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout.flush()
    name = os.path.basename(sys.argv[0])
    sys.exit(_fl.program(["fl" if name == "__main__.py" else name, *sys.argv[1:]]))
