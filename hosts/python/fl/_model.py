"""Models that a run has kept."""

from __future__ import annotations

import csv
import json
import os
import tempfile
import warnings
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from . import _fl
from ._data import rows as _data, tensors as _tensors
from ._errors import RunError


class KeptModel:
    """A model that a run has kept: `arrays()`, `predict(rows)`, and for PyTorch `state_dict()` and
    `module()`."""

    def __init__(self, folder: Path, file: str, data_dir=None, lasts=None):
        self._lasts = lasts  # a run folder that is there as long as anyone needs it
        self._folder, self.name, self._data_dir = Path(folder), file, None if data_dir is None else os.path.abspath(data_dir)
        self._opened: tuple[Any, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_opened": None}  # it is opened again

    @property
    def path(self) -> Path:
        """The file in the run folder."""
        return self._folder / "models" / self.name

    def _native(self):
        if self._opened is None:
            try:
                self._opened = _fl.Model.open(str(self._folder), self.name, self._data_dir)
            except ValueError as error:
                raise RunError(f"{self.path}: {error}", str(self._folder)) from None
        return self._opened

    @cached_property
    def _of_run(self) -> _Run:
        return _Run(self.path, self._folder)

    def arrays(self) -> dict[str, np.ndarray]:
        """Its parameters, and running statistics, by name."""
        if (held := _tensors.unpack(self.path.read_bytes())) is not None:
            return held
        params = self._native()[0].params()
        if params is None:
            raise RunError(f"{self.path}: a model of this kind has no parameters; `predict(rows)` works", str(self._folder))
        return {name: np.array(buffer) for name, buffer in params}

    def state_dict(self) -> dict[str, Any]:
        """The same as tensors of PyTorch, in their own types: what `load_state_dict` takes. A
        tensor that layers share is there by each of its names."""
        import torch

        held = _tensors.unpack_tensors(self.path.read_bytes())
        if held is None:
            return {name: torch.from_numpy(value) for name, value in self.arrays().items()}
        names = getattr(_fl_model(self)[1], "_names", dict)()
        return held | {name: held[first] for name, first in names.items() if name not in held}

    def module(self):
        """The network of an `fl.torch.Trainer`, a `torch.nn.Module` with these parameters, in
        evaluation mode. It is the caller's: what is done to it changes nothing here."""
        _, part = _fl_model(self)
        network = getattr(part, "_model", None)
        if network is None or not hasattr(network, "state_dict"):
            kind = "a linked part" if part is None else type(part).__name__
            raise RunError(f"{self.path}: it is no network of PyTorch ({kind}); use `arrays()`, `state_dict()` or `predict(rows)`", str(self._folder))
        return network.eval()

    def part(self):
        """The trainer in Python that it is of, such as one of `fl.sklearn`, with the model
        loaded."""
        _, part = _fl_model(self)
        if part is None:
            raise RunError(f"{self.path}: it is of a linked part; use `arrays()` or `predict(rows)`", str(self._folder))
        return part

    def predict(self, rows) -> np.ndarray:
        """What the model says of rows, `rows x outputs`: scores (logits) of each class or label in
        the order of the run's classes, as floats; where the label is a number, that number in its
        own unit (`centre + spread * output`), as doubles.

        `rows` are rows as `data=` of a run takes them; labels need not be there, and are not read.
        Several inputs in a mapping stand in the order that they had in the run. A list is an array.
        Of a run on a table (csv, jsonl) a frame has its columns, and its training files must be as
        they were. Arrays are scaled here as the run's own rows were, by `normalise` of the spec or
        what its set says (pictures of bytes once they are divided by 255), and put through its
        `features`, which takes the data of the run, with the channels of pictures where the run's
        rows have them or in front."""
        native, _ = self._native()
        run = self._of_run
        read = run.rows(rows)
        if isinstance(read, _data._Table):
            return run.in_unit(self._of_table(native, run, read.columns))
        inputs = read.inputs
        run.compare(inputs)
        if inputs.ndim == 3 and inputs.dtype != np.uint8 and run.input_type() == np.uint8:
            inputs = inputs[:, None]  # grey pictures of bytes have one channel
        return run.in_unit(native.predict(_floats_or_bytes(inputs)))

    def _of_table(self, native, run: _Run, columns: dict[str, Any]):
        columns = run.with_labels(columns)
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / f"rows.{run.format}")
            with open(path, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
                run.write(file, columns)
            given = [f"data.set.files.test={json.dumps(path)}", "data.set.files.holdout=null"]
            found, notes = native.predict_tests(str(self._folder), given, self._data_dir)
        for note in notes:
            if note.startswith("test rows have categories"):
                warnings.warn(note.removeprefix("test "), stacklevel=3)
        return found

    def save(self, file) -> Path:
        """Writes its parameters as a file of safetensors."""
        file = Path(file)
        data = self.path.read_bytes()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data if _tensors._views(data) is not None else _tensors.pack(self.arrays()))
        return file

    def __repr__(self) -> str:
        return f"<fl.KeptModel {self.name} of {self._folder}>"


def _fl_model(model: KeptModel):
    """A part of its own for each call, which the caller may change."""
    try:
        return _fl.Model.open(str(model._folder), model.name, model._data_dir)
    except ValueError as error:
        raise RunError(f"{model.path}: {error}", str(model._folder)) from None


class _Run:
    """What the folder of a run says of its rows."""

    def __init__(self, path: Path, folder: Path):
        self.path, self.folder, self.spec = path, folder, folder / "spec.yaml"
        self.text = _fl.run_text(self.spec)
        resolved, wrong = _fl.check(str(self.spec), self.text, [], False)
        if resolved is None:
            raise self.error(wrong[0])
        self.data = json.loads(resolved[0])["data"]
        self.meaning = json.loads(_fl.run_text(folder / "run.json")).get("meaning") or {}
        of = self.data["set"]
        self.files: dict[str, Any] = (of.get("files") if isinstance(of, dict) else None) or {}
        self.format, self.how = _named(self.files.get("format"))
        label = self.files.get("label")
        self.label = label.get("column") if isinstance(label, dict) else label
        """The column of the label."""
        self.numbers = "Numbers" in self.meaning.get("task", {}).get("kind", ())

    def error(self, text: str) -> RunError:
        return RunError(f"{self.path}: {text}", str(self.folder))

    @property
    def is_table(self) -> bool:
        return self.format in ("csv", "jsonl", "parquet")

    def rows(self, given) -> _data._Arrays | _data._Table:
        """Rows as those of a run are read."""
        if isinstance(given, list):
            given = _data._plain(given, "rows")
        if isinstance(given, Mapping):
            _data._refuse_splits(given, "rows")
            if self.is_table:
                raise self.error("the run's rows were a table; give a frame")
            given = given, None
        if isinstance(given, tuple) and len(given) == 2:
            given = given[0], None
        label = self.label if self.label in getattr(given, "column_names", ()) else None
        options = _data._Options(label, None, findings=self.files.get("findings"), kind="number" if self.numbers else "class")
        read = _data._rows(given, "rows", options)
        if isinstance(read, _data._Table) and not self.is_table:
            raise self.error("the run's rows were no table; give an array")
        return read

    def in_unit(self, outputs) -> np.ndarray:
        """Outputs of a model in the unit of the label."""
        found = np.array(outputs)
        if scales := self.meaning.get("label"):
            found = np.array([one["centre"] for one in scales]) + np.array([one["spread"] for one in scales]) * found
        return found

    # ---- arrays

    def input_type(self) -> np.dtype | None:
        """The type of the run's arrays, if the run's files say so."""
        if self.format in ("idx", "images", "masks", "pairs"):
            return np.dtype(np.uint8)
        if self.format not in ("npy", "npz"):
            return None
        first = self.files["train"]
        first = first[0] if isinstance(first, list) else first
        try:
            array = np.load(first["inputs"] if isinstance(first, dict) else first, mmap_mode="r", allow_pickle=False)
            return (array if self.format == "npy" else array[self.how["inputs"]]).dtype
        except (OSError, ValueError, KeyError, TypeError):
            return None  # they are gone, or packed

    def compare(self, inputs: np.ndarray):
        """Warns of pictures that are divided by 255 where the run's were not, or the other way."""
        if inputs.ndim < 3 or not inputs.size or (then := self.input_type()) is None:
            return
        if then == np.uint8 and inputs.dtype != np.uint8 and inputs.max() > 1:
            said = f"the run's pictures were bytes, which fl divides by 255, and these are {inputs.dtype} up to {inputs.max():g}; give bytes (`rows.astype('uint8')`), or divide by 255"
        elif then != np.uint8 and inputs.dtype == np.uint8:
            said = f"the run's pictures were {then}, and these are bytes, which fl divides by 255; give {then}"
        else:
            return
        warnings.warn(said, stacklevel=3)

    # ---- tables

    def with_labels(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Columns with a label that the run knows in each row, for labels need not be there, nor
        columns that the spec skips."""
        n = len(next(iter(columns.values()), ()))
        findings = [str(name) for name in self.files.get("findings") or ()]
        if self.label is not None and self.numbers:
            one = self.meaning["label"][0]["centre"]
        else:
            one = next(iter(self.meaning.get("classes") or self.files.get("classes") or ()), None)
        labels = dict.fromkeys(findings, "0") | ({} if self.label is None or findings else {str(self.label): one})
        skipped = {name: "" for name, how in (self.files.get("columns") or {}).items() if how == "skip" and name not in columns}
        return columns | {name: [value] * n for name, value in (skipped | labels).items()}

    def write(self, file, columns: dict[str, Any]):
        """Writes the columns in the format of the run's table."""
        texts = {name: _data._texts(name, column, "rows") for name, column in columns.items()}
        if self.format == "parquet":
            raise self.error("the run's table is parquet, which fl does not write; frames are for runs on csv, jsonl or rows in memory")
        if self.format == "jsonl":
            truths = {name: {at for at, value in enumerate(column) if isinstance(value, (bool, np.bool_))} for name, column in columns.items()}
            for at, row in enumerate(zip(*texts.values(), strict=True)):
                cells = {name: text == "True" if at in truths[name] else text for name, text in zip(texts, row, strict=True)}
                file.write(json.dumps(cells) + "\n")
            return
        names = [*texts]
        if not self.how["header"]:
            names = [str(at + 1) for at in range(len(texts))]
            if {*names} != {*texts}:
                raise self.error(f"the run's table has no names of columns; call those of the frame 1 to {len(names)}, by their places, with the label's")
        lines = csv.writer(file, delimiter=self.how["separator"] or ",", lineterminator="\n")
        lines.writerows([names] if self.how["header"] else [])
        lines.writerows(zip(*(texts[name] for name in names), strict=True))


def _named(value) -> tuple[str | None, dict[str, Any]]:
    """The name of a variant of a spec, and its settings."""
    if isinstance(value, dict):
        ((name, settings),) = value.items()
        return name, settings or {}
    return value, {}


def _floats_or_bytes(inputs: np.ndarray) -> np.ndarray:
    if inputs.dtype == np.uint8:
        return np.ascontiguousarray(inputs)
    with np.errstate(over="ignore"):
        floats = np.ascontiguousarray(inputs, np.float32)
    bad = np.argwhere(~np.isfinite(floats))
    if len(bad):
        raise _data._wrong(f"rows, row {bad[0][0]}", f"an input is {inputs[tuple(bad[0])]}; every input must be finite as a float of 32 bits")
    return floats


def names(folder: Path) -> list[str]:
    """The files of kept models: `SLOT`, and of clients' own `SLOT-CLIENT`."""
    kept = Path(folder) / "models"
    if not kept.parent.is_dir():
        raise RunError(f"the run folder {folder} is gone", str(folder))
    found = [path.name for path in kept.iterdir() if not path.name.startswith(".")] if kept.is_dir() else []

    def place(name: str):
        slot, _, client = name.rpartition("-")
        return (slot, 1, int(client)) if client.isdigit() and slot else (name, 0, 0)

    return sorted(found, key=place)


def find(folder: Path, name: str, client, clients: list[str]) -> str:
    """The file that `results.model(name, client)` means."""
    all = names(folder)
    if not all:
        raise RunError(f"the run in {folder} has kept no model: it did not come to its end, or its protocol keeps none", str(folder))
    shown = ", ".join(all[:20]) + (", .." if len(all) > 20 else "")
    if client is None and name in all:
        return name
    if client is not None:
        if isinstance(client, str) and client not in clients:
            known = f"; known: {', '.join(clients[:20])}" if clients else "; clients have numbers here"
            raise RunError(f"no client is called {client!r}{known}", str(folder))
        number = clients.index(client) if isinstance(client, str) else int(client)
        fits = [one for one in all if one == f"{name}-{number}"] if name != "final" else [one for one in all if one.endswith(f"-{number}")]
    elif name != "final":
        fits = []
    else:
        # of the server's models the one; else that of the run
        fits = [one for one in all if not one.rpartition("-")[2].isdigit()] or (all if len(all) == 1 else [])
    if len(fits) == 1:
        return fits[0]
    whose = "" if client is None else f" of client {client}"
    if fits:
        raise RunError(f"several models{whose} were kept; name one: {', '.join(fits)}", str(folder))
    if name == "final" and client is None:
        raise RunError(f"each client kept its own model; say whose: results.model(client=0). There are {shown}", str(folder))
    raise RunError(f"no model `{name}`{whose} was kept; there are {shown}", str(folder))
