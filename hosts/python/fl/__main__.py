"""The program `fl`: `fl run spec.yaml`, or `python -m fl run spec.yaml`."""

import os
import signal
import sys

from . import _fl, _forks


def main() -> None:
    if sys.argv[1:2] == ["client-process"] and (code := _forks.elsewhere()) is not None:
        sys.exit(code)
    # before the program listens, and after it is done, Ctrl-C ends it as it ends other programs,
    # without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout.flush()
    name = os.path.basename(sys.argv[0])
    code = _fl.program(["fl" if name == "__main__.py" else name, *sys.argv[1:]])
    sys.exit(code)


if __name__ == "__main__":
    main()
