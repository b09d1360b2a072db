"""The source of a class that is in no file, with the names that it uses of its notebook."""

from __future__ import annotations

import functools
import hashlib
import sys
import types

from .._protocol import declarations
from . import state as _state

_CODE = ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_names", "co_varnames", "co_freevars", "co_cellvars")
_NOT = {"__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__", "__qualname__", "_fl"}
#: Of names that Python or its library may write (`__slotnames__`) what is no code does not count.
_CODE_OF = (type, types.FunctionType, staticmethod, classmethod, property)


def hash_of(of: type | types.FunctionType) -> str:
    """SHA-256 of the bytecode and constants of a function, or of the methods of a class, and of the
    functions, classes and values of the notebook that they name. Comments, line numbers and spaces
    do not count; lists and sets of the notebook, which runs may fill, do not either."""
    walk = _Walk()
    walk.add(of)
    return walk.sha256.hexdigest()


def _in_notebook(module: str | None) -> bool:
    """Does a module have no file? Those in files are named in a spec, and hashed there."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return module == "__main__" or (file is None and module not in sys.builtin_module_names)


class _Walk:
    def __init__(self):
        self.sha256, self.seen = hashlib.sha256(), {}

    def say(self, *texts):
        for text in texts:
            data = text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogatepass")
            self.sha256.update(len(data).to_bytes(8, "little") + data)

    def add(self, value, named: bool = False):
        """`named`: a method names it, as a global of the notebook."""
        if id(value) in self.seen:
            return self.say("again", self.seen[id(value)][0])
        if isinstance(value, (type, types.FunctionType, types.CodeType)) or not _plain(value):
            # held, so that its address stays its own
            self.seen[id(value)] = (len(self.seen), value)
        match value:
            case types.CodeType():
                self.code(value)
            case types.FunctionType():
                self.function(value)
            case type():
                self.cls(value)
            case staticmethod() | classmethod() | types.MethodType():
                self.say(type(value).__name__)
                self.add(value.__func__)
            case property():
                self.say("property")
                [self.add(one) for one in (value.fget, value.fset, value.fdel)]
            case functools.partial():
                self.say("partial")
                [self.add(one) for one in (value.func, value.args, value.keywords)]
            case functools.cached_property():
                self.say("cached_property")
                self.add(value.func)
            case types.ModuleType():
                self.say("module", value.__name__)
            case list() | set() if named:
                self.say(type(value).__name__)
            case tuple() | frozenset() | dict() | list() | set() if not _plain(value):
                self.say(type(value).__name__, len(value))
                inner = value.items() if isinstance(value, dict) else value
                [self.add(one) for one in (sorted(inner, key=repr) if isinstance(value, (set, frozenset)) else inner)]
            case declarations.Slot() | declarations.Exchange() | declarations.Release():
                self.say(type(value).__name__)
                self.add(vars(value))
            case _ if _plain(value):
                self.say("value", _state.save({"": value}))
            case _:
                self.object(value)

    def code(self, code: types.CodeType):
        self.say("code", code.co_name, code.co_code, getattr(code, "co_exceptiontable", b""))
        self.say(*(getattr(code, name) for name in _CODE))
        [self.add(one) for one in code.co_consts]

    def function(self, function: types.FunctionType):
        self.say("function", function.__name__)
        if hasattr(function, "__wrapped__"):
            self.add(function.__wrapped__)
        if not _in_notebook(function.__globals__.get("__name__", "__main__")):
            return self.say(function.__module__, function.__qualname__)
        self.add(function.__code__)
        [self.add(one) for one in (function.__defaults__, function.__kwdefaults__)]
        for cell in function.__closure__ or ():
            try:
                self.add(cell.cell_contents)
            except ValueError:
                self.say("an empty cell")
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                self.say("global", name)
                self.add(function.__globals__[name], named=True)

    def cls(self, cls: type):
        self.say("class", cls.__module__, cls.__qualname__)
        if not _in_notebook(cls.__module__):
            return
        [self.add(base) for base in cls.__bases__]
        for name, value in sorted(vars(cls).items()):
            if name == "__annotations__":
                self.say(name, *sorted(f"{key}: {hint!r}" for key, hint in value.items()))
            elif name not in _NOT and not name.startswith(("_abc_", "__annotat")) and (isinstance(value, _CODE_OF) or not name.startswith("__")):
                self.say(name)
                self.add(value)

    def object(self, value):
        """Of an object of a class of the notebook, what it holds; of another, which class it is
        of."""
        self.say("object")
        self.add(type(value))
        if _in_notebook(type(value).__module__):
            self.add({name: one for name, one in getattr(value, "__dict__", {}).items()})


def _plain(value) -> bool:
    try:
        _state.check(value)
    except _state.Unsavable:
        return False
    return True


def _names(code: types.CodeType) -> set[str]:
    """What the code, and any code in it, names."""
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    return {*code.co_names}.union(*map(_names, inner))
