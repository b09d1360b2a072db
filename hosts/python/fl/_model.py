"""Models that a run has kept."""

from __future__ import annotations

import json
import os
import tempfile
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
        """The scores of rows (logits), `rows x outputs`. `rows` is an array, scaled here as
        `normalise` of the spec says (pictures of bytes as the run's own) and put through its
        `features`, which takes the data of the run, with the channels of pictures where the run's
        rows have them or in front, or, of a run on a table, a frame with its columns; labels need
        not be there."""
        native, _ = self._native()
        if _data._is_frame(rows):
            return self._of_frame(rows)
        array = _data._plain(rows, "rows")
        array = np.ascontiguousarray(array, np.uint8 if array.dtype == np.uint8 else np.float32)
        return np.array(native.predict(array))

    def _of_frame(self, frame) -> np.ndarray:
        native, _ = self._native()
        resolved = json.loads(_fl.check("spec", (self._folder / "spec.yaml").read_text(encoding="utf-8"), [], False)[0][0])
        files = resolved["data"]["set"].get("files") if isinstance(resolved["data"]["set"], dict) else None
        if files is None or next(iter(files["format"]), None) not in "csv" and "csv" not in str(files["format"]):
            raise RunError(f"{self.path}: the run's rows were no table; give an array", str(self._folder))
        columns = _data._columns(frame, "rows")
        label = files.get("label")
        if label is not None and label not in columns:
            first = (files.get("classes") or _first_label(files, label))[0]
            columns = columns | {label: [first] * len(frame)}
        with tempfile.TemporaryDirectory() as folder:
            made = _data._Files(Path(folder))
            path = made.add("test", "all", "rows", _data._Table(columns, label))
            given = [f"data.set.files.test={json.dumps(path)}", "data.set.files.holdout=null"]
            return np.array(native.predict_tests(str(self._folder), given, self._data_dir))

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


def _first_label(files: dict, label: str) -> list[str]:
    """A class of the training rows, for rows that have none."""
    import csv

    train = files["train"]
    with open(train[0] if isinstance(train, list) else train, encoding="utf-8", newline="") as lines:
        return [next(csv.DictReader(lines))[label]]


def names(folder: Path) -> list[str]:
    """The files of kept models: `SLOT`, and of clients' own `SLOT-CLIENT`."""
    kept = Path(folder) / "models"
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
