"""The program `fl`: `fl run spec.yaml`, or `python -m fl run spec.yaml`."""

import sys

from . import _forks
from ._program import program


def main() -> None:
    if sys.argv[1:2] == ["client-process"] and (code := _forks.elsewhere()) is not None:
        sys.exit(code)
    program()


if __name__ == "__main__":
    main()
