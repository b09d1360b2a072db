"""Packages that a spec names: Python runs the files that fl has hashed, and nothing else in their
place.

Python would run bytecode without a look at its source, and a compiled module that lies beside a
source.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
import typing

MODULES = ("py", "pyc", "so", "pyd")


def _checked(path: str, sha256: str) -> bytes:
    with open(path, "rb") as file:
        data = file.read()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ImportError(f"{path} was changed after fl hashed it", path=path)
    return data


class _Source(importlib.machinery.SourceFileLoader):
    """Compiles a source; reads and writes no bytecode."""

    def __init__(self, name: str, path: str, sha256: str):
        super().__init__(name, path)
        self.sha256 = sha256

    def get_code(self, fullname: str) -> types.CodeType:
        return self.source_to_code(_checked(self.path, self.sha256), self.path)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self):
        # by the name of a module that no other distribution shares: the folder that it is in, and
        # the hashes of files by path
        self.modules: dict[str, tuple[str, dict[str, str]]] = {}

    def find_spec(self, name: str, path: typing.Sequence[str] | None = None, target: types.ModuleType | None = None):
        words = name.split(".")
        root = next((root for at in range(len(words)) if (root := ".".join(words[: at + 1])) in self.modules), None)
        if root is None:
            return None
        folder, files = self.modules[root]
        spec = importlib.machinery.PathFinder.find_spec(name, [os.path.join(folder, *words[:-1])] if name == root else path)
        if spec is None or spec.origin is None:
            return None
        if (sha256 := files.get(spec.origin)) is None:
            raise ImportError(f"{spec.origin} is no file of the package, as fl has hashed it", name=name)
        if isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Source(name, spec.origin, sha256)
        else:
            _checked(spec.origin, sha256)
        return spec


_FINDER = _Finder()


def _roots(files: typing.Mapping[str, str]) -> set[str]:
    """The modules of a package, without those inside them."""
    whole = {os.path.dirname(name) for name in files if os.path.basename(name).partition(".")[0] == "__init__"}
    roots = set()
    for name in files:
        *folders, file = name.split("/")
        inside = next(("/".join(folders[: at + 1]) for at in range(len(folders)) if "/".join(folders[: at + 1]) in whole), None)
        stem, _, ending = file.partition(".")
        if inside is None and ending.rpartition(".")[2] in MODULES:
            inside = "/".join([*folders, stem])
        if inside is not None:
            roots.add(inside.replace("/", "."))
    return roots


def use(folder: str, files: typing.Mapping[str, str]) -> set[str]:
    """From now on Python runs these files, each with its hash, for the modules of the package in
    `folder`. Gives the modules that may be loaded from others."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    by_path = {os.path.join(folder, *name.split("/")): sha256 for name, sha256 in files.items()}
    new = dict.fromkeys(_roots(files), (folder, by_path))
    other = {name for name, files in new.items() if _FINDER.modules.get(name) != files}
    _FINDER.modules.update(new)
    return other


def release(name: str) -> None:
    """A spec names this module, and no package of it."""
    for root in [root for root in _FINDER.modules if f"{name}.".startswith(f"{root}.")]:
        del _FINDER.modules[root]
