"""Rows in memory as the data of a run: arrays, frames, data sets of PyTorch and of Hugging Face.

They are written once beside the run folder, in files that are named by a hash with a key of the
user, and the spec names these files. So a run on them is a run on files: with the same digest,
resumed without them, in processes and on Flower.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from .. import _fl
from .._errors import Mistake, SpecError
from .._parts.arrays import not_masked
from .._spec import flow

_ROWS = ("train", "test", "public")
_OPTIONS = ("label", "inputs", "classes", "findings", "columns", "holdout", "missing", "channels")
_MAX_BYTES = (1 << 32) - 1
_KINDS = (
    "(inputs, labels), an array, a frame of pandas or polars, a Dataset of PyTorch or of Hugging Face, or a partitioner of flwr-datasets; "
    "for clients with rows of their own a list of these, or a mapping from names to these"
)


def _wrong(where: str, text: str) -> SpecError:
    said = f"{where}: {text}"
    return SpecError(f"data: {said}", (Mistake(said, "data"),))


@dataclass
class _Arrays:
    inputs: np.ndarray
    labels: np.ndarray | None


@dataclass
class _Table:
    columns: dict[str, Any]
    label: str | None


@dataclass
class _Options:
    """What goes with the rows."""

    label: str | None
    inputs: str | None
    classes: list[str] | None = None
    findings: list[str] | None = None
    """The labels of which a row can have several."""
    kind: Any = "class"
    """What a label is: `class`, `number`, or `{"number": ..}` with its scale and loss."""
    joined: dict[str, int] = field(default_factory=dict)
    """Where several inputs have names: their widths in a row, in the order of the first rows."""

    @property
    def numbers(self) -> bool:
        return self.kind == "number" or isinstance(self.kind, Mapping) and "number" in self.kind


@dataclass
class Written:
    """The data of a run in files: the overrides of the spec that name them, and each file by what
    it holds, such as `train.alice.inputs`."""

    overrides: list[str] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    new: list[Path] = field(default_factory=list)
    """Files that were not there before."""

    def discard(self):
        """Removes what was not there before: nothing is run."""
        for path in self.new:
            path.unlink(missing_ok=True)
        for folder in {path.parent for path in self.new}:
            for empty in [folder, *([folder.parent] if folder.parent.name == "runs" else [])]:
                try:
                    empty.rmdir()
                except OSError:
                    break  # it is not empty


# ---- one source of rows


_TRAIN, _OTHERS = re.compile(r"train.*", re.I), re.compile(r"(test|val|valid|validation|dev|eval|evaluation|holdout|unsupervised)([_-].*|\d*)", re.I)


def _refuse_splits(source, where: str):
    """Splits of a data set are no clients: one would train on the rows that the others are tested
    with."""
    if not isinstance(source, Mapping):
        return
    names, hugging_face = [str(name) for name in source], hasattr(source, "column_names")
    others = [name for name in names if _OTHERS.fullmatch(name)]
    trains = [name for name in names if _TRAIN.fullmatch(name)]
    if hugging_face or others and len(others) + len(trains) == len(names):
        more = "; if they are clients, give `dict(..)` of it" if hugging_face and not others else ""
        one = (trains or names or ["train"])[0]
        raise _wrong(where, f"it has the splits {', '.join(names) or 'of no name'}; give one of them, such as `data[{one!r}]`{more}")


def _rows(source, where: str, options: _Options) -> _Arrays | _Table:
    _refuse_splits(source, where)
    if isinstance(source, Mapping):
        raise _wrong(where, "a mapping is no rows; give (inputs, labels), or a frame, such as `pandas.DataFrame(rows)`")
    if type(source).__name__ == "LazyFrame":
        raise _wrong(where, "a lazy frame has no rows yet; give `frame.collect()`")
    if type(source).__name__.endswith("GroupBy"):
        raise _wrong(where, "groups are no rows; give each client its own by `dict(list(groups))`")
    _refuse_sparse(source, where)
    if isinstance(source, tuple):
        if len(source) != 2:
            raise _wrong(where, f"rows are (inputs, labels), got {len(source)} things; a list gives each client its own rows")
        inputs, labels = source
        if isinstance(inputs, Mapping):
            inputs = _side_by_side(inputs, where, options)
        if _is_frame(inputs):
            return _labelled_frame(inputs, labels, where, options)
        return _checked(_numbers(inputs, where), None if labels is None else _labels(labels, where, options), where)
    if isinstance(source, np.ndarray) or _is_tensor(source):
        return _checked(_numbers(source, where), None, where)
    if hasattr(source, "column_names") and hasattr(source, "features"):
        return _hugging_face(source, where, options)
    if _is_frame(source):
        return _Table(_columns(source, where), options.label)
    if hasattr(source, "__getitem__") or hasattr(source, "__iter__"):
        return _items(source, where, options)
    raise _wrong(where, f"rows are {_KINDS}; got {type(source).__name__}")


def _refuse_sparse(source, where: str):
    if hasattr(source, "tocsr"):
        raise _wrong(where, "sparse matrices are not read; give `matrix.toarray()`, or a file of libsvm")
    if _is_tensor(source) and hasattr(source, "to_dense") and str(getattr(source, "layout", "torch.strided")) != "torch.strided":
        raise _wrong(where, "sparse tensors are not read; give `tensor.to_dense()`, or a file of libsvm")


def _is_tensor(value) -> bool:
    return hasattr(value, "detach") and hasattr(value, "cpu")


def _is_frame(value) -> bool:
    return (hasattr(value, "columns") or hasattr(value, "column_names")) and hasattr(value, "__getitem__") and not isinstance(value, Mapping)


def _plain(value, where: str) -> np.ndarray:
    """A tensor, a picture, a list as an array."""
    _refuse_sparse(value, where)
    try:
        not_masked(value)
    except ValueError as error:
        raise _wrong(where, str(error)) from None
    if _is_tensor(value):
        value = value.detach().cpu()
        if value.dtype.is_floating_point and value.dtype.itemsize < 4:
            value = value.float()  # numpy has no bfloat16
        return value.numpy()
    return np.asarray(value)


def _numbers(value, where: str) -> np.ndarray:
    try:
        array = _plain(value, where)
    except SpecError:
        raise
    except ValueError as error:
        raise _wrong(where, f"the inputs, of type {type(value).__name__}, make no array: {error}; a list gives each client its own rows") from None
    if array.ndim < 2:
        raise _wrong(where, f"inputs of shape {list(array.shape)}; the first dimension is the rows, so there must be two at least")
    if array.dtype.kind not in "biuf":
        row = next((at for at, one in enumerate(array) if np.asarray(one.tolist()).dtype.kind not in "biuf"), 0) if array.dtype == object else 0
        raise _wrong(f"{where}, row {row}", f"inputs must be numbers, got {'texts' if array.dtype.kind in 'SU' else array.dtype}; give a frame for a table with texts")
    if array.dtype.kind == "f":
        array = array.astype(np.float32 if array.dtype.itemsize < 4 else np.float64, copy=False) if array.dtype.itemsize not in (4, 8) else array
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            row = int(bad[0][0])
            value = array[row][~np.isfinite(array[row])].flat[0]
            raise _wrong(f"{where}, row {row}", f"an input is {value}; every input must be a finite number")
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<") if array.dtype.byteorder == ">" else array.dtype)


def _side_by_side(inputs: Mapping, where: str, options: _Options) -> np.ndarray:
    """Several inputs of each row in one row, in the order of the first rows' names."""
    arrays = {str(name): _plain(value, f"{where}, input `{name}`") for name, value in inputs.items()}
    if not arrays:
        raise _wrong(where, "the mapping of inputs is empty")
    first = next(iter(arrays))
    for name, array in arrays.items():
        if array.ndim == 0 or len(array) != len(arrays[first]):
            raise _wrong(where, f"the input `{name}` has shape {list(array.shape)}, and `{first}` {list(arrays[first].shape)}; the first dimension is the rows")
    flat = {name: _numbers(array.reshape(len(array), -1), f"{where}, input `{name}`") for name, array in arrays.items()}
    due = options.joined
    if not due:
        due.update({name: array.shape[1] for name, array in flat.items()})
    if flat.keys() != due.keys():
        raise _wrong(where, f"its inputs are {', '.join(flat)}, and those of the first rows {', '.join(due)}; give all rows the same names")
    for name, array in flat.items():
        if array.shape[1] != due[name]:
            raise _wrong(where, f"the input `{name}` has {array.shape[1]} numbers a row, and that of the first rows {due[name]}")
    return np.concatenate([flat[name] for name in due], axis=1)


def _findings(value, where: str, names: list[str]) -> np.ndarray:
    """Labels of which a row can have several: 1 present, 0 absent, -1 unknown."""
    if _is_frame(value):
        columns = _columns(value, where)
        if missing := [name for name in names if name not in columns]:
            raise _wrong(where, f"the labels have no column `{missing[0]}`; they have {', '.join(columns)}")
        value = np.array([_plain(columns[name], where) for name in names]).T
    array = _plain(value, where)
    if array.ndim != 2 or array.shape[1] != len(names):
        raise _wrong(where, f"labels of shape {list(array.shape)}; with the {len(names)} `findings` it must be [{len(array) if array.ndim else 'rows'}, {len(names)}]")
    if array.dtype.kind not in "biuf":
        raise _wrong(where, f"labels of which a row can have several must be 0, 1 or -1, got {array.dtype}")
    unknown = np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)
    bad = np.argwhere(~unknown & ~np.isin(array, (0, 1, -1)))
    if len(bad):
        row, at = bad[0]
        raise _wrong(f"{where}, row {row}", f"the label `{names[at]}` is {array[row, at]}; it must be 1, 0, or -1 or NaN where it is unknown")
    return np.where(unknown, -1, array).astype(np.int8)


def _labels(value, where: str, options: _Options) -> np.ndarray:
    if options.findings is not None:
        return _findings(value, where, options.findings)
    array = np.array([*value], object) if isinstance(value, (list, tuple)) and any(isinstance(one, str) for one in value) else _plain(value, f"{where}, labels")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        more = "; of one-hot rows give `labels.argmax(1)`; if a row can have several labels, name them: data={.., 'findings': [..]}" if array.ndim == 2 else ""
        raise _wrong(where, f"labels of shape {list(array.shape)}; there must be one class for each row{more}")
    if array.dtype.kind in "OT":
        for row, one in enumerate(array):
            if not isinstance(one, str):
                raise _wrong(f"{where}, row {row}", f"the label is {one!r} ({type(one).__name__}); labels are whole numbers or texts")
        array = array.astype(str)
    if options.numbers:
        if array.dtype.kind not in "biuf":
            raise _wrong(where, f"numbers to predict must be numbers, got {array.dtype}")
        bad = np.flatnonzero(~np.isfinite(array))
        if len(bad):
            raise _wrong(f"{where}, row {bad[0]}", f"the number to predict is {array[bad[0]]}")
        return np.ascontiguousarray(array, np.float64)
    if array.dtype.kind == "f":
        bad = np.flatnonzero(~(np.isfinite(array) & (np.floor(array) == array)))
        if len(bad):
            raise _wrong(f"{where}, row {bad[0]}", f"the label is {array[bad[0]]}; a label is the number or the name of a class, or say `'label': {{'kind': 'number'}}` for a number to predict")
        bad = np.flatnonzero(np.abs(array) >= 2.0**63)
        if len(bad):
            raise _wrong(f"{where}, row {bad[0]}", f"the label is {array[bad[0]]}; a label is the number of a class, counted from 0")
        array = array.astype(np.int64)
    if array.dtype.kind not in "biuU":
        raise _wrong(where, f"labels must be whole numbers or texts, got {array.dtype}")
    return np.ascontiguousarray(array)


def _checked(inputs: np.ndarray, labels: np.ndarray | None, where: str) -> _Arrays:
    if labels is not None and len(labels) != len(inputs):
        raise _wrong(where, f"{len(inputs)} rows and {len(labels)} labels; there must be one for each row")
    return _Arrays(inputs, labels)


def _items(source, where: str, options: _Options) -> _Arrays:
    """A `Dataset` of PyTorch, or anything with rows in turn: each is `(input, label)`, or an
    input."""
    inputs, labels = [], []
    rows: Iterable = (source[at] for at in range(len(source))) if hasattr(source, "__len__") and hasattr(source, "__getitem__") else source
    for row, item in enumerate(rows):
        here = f"{where}, row {row}"
        labelled = isinstance(item, (tuple, list))
        if labelled:
            if len(item) != 2:
                raise _wrong(here, f"an item is (input, label), got {len(item)} things")
            item, label = item
            label = _plain(label, f"{here}, label")
            if label.ndim != 0 and options.findings is None:
                raise _wrong(here, f"a label of shape {list(label.shape)}; there must be one class for each row, or `findings` must name the labels")
            if labels and label.shape != labels[0].shape:
                raise _wrong(here, f"a label of shape {list(label.shape)}, and that of the first row has {list(labels[0].shape)}")
            labels.append(label)
        elif labels:
            raise _wrong(here, "it has no label, and the rows before have one")
        several = labelled and isinstance(item, Mapping)
        one = _side_by_side({name: _plain(value, f"{here}, input `{name}`")[None] for name, value in item.items()}, here, options)[0] if several else _plain(item, here)
        if one.dtype.kind not in "biuf":
            raise _wrong(here, f"an input must be numbers, got {type(item).__name__}; let the data set's transform make a tensor of it")
        if inputs and one.shape != inputs[0].shape:
            raise _wrong(here, f"an input of shape {list(one.shape)}, and that of row 0 has {list(inputs[0].shape)}")
        inputs.append(one)
    if not inputs:
        raise _wrong(where, "there are no rows")
    if labels and len(labels) != len(inputs):
        raise _wrong(where, "some rows have a label and others have none")
    stacked = np.stack(inputs)
    stacked = stacked.reshape(len(stacked), -1) if stacked.ndim == 1 else stacked
    return _checked(_numbers(stacked, where), _labels([one.tolist() for one in labels], where, options) if labels else None, where)


def _columns(frame, where: str) -> dict[str, Any]:
    names = [*(frame.column_names if hasattr(frame, "column_names") else frame.columns)]
    for name in names:
        if not isinstance(name, (str, int)):
            raise _wrong(where, f"a column's name must be text, got {name!r}")
    if len({str(name) for name in names}) < len(names):
        raise _wrong(where, f"two columns have one name: {', '.join(map(str, names))}")
    return {str(name): frame[name] for name in names}


def _labelled_frame(frame, labels, where: str, options: _Options) -> _Table:
    columns = _columns(frame, where)
    if isinstance(labels, str):
        return _Table(columns, labels)
    if labels is None:
        return _Table(columns, None)
    if options.findings is not None:
        if twice := [name for name in options.findings if name in columns]:
            raise _wrong(where, f"the inputs have the column `{twice[0]}` of the labels too; drop it, or give the frame alone")
        found = _findings(labels, where, options.findings)
        if len(found) != len(frame):
            raise _wrong(where, f"{len(frame)} rows and {len(found)} rows of labels; there must be one for each row")
        return _Table(columns | dict(zip(options.findings, found.T)), None)
    name = str(getattr(labels, "name", None) or "label")
    if name in columns:
        raise _wrong(where, f"the inputs have the column `{name}` of the labels too; drop it, or give the frame and the name")
    labels = _labels(labels, where, options)
    if len(labels) != len(frame):
        raise _wrong(where, f"{len(frame)} rows and {len(labels)} labels; there must be one for each row")
    return _Table(columns | {name: labels}, name)


def _hugging_face(data, where: str, options: _Options) -> _Arrays | _Table:
    names, features = [*data.column_names], data.features
    kinds = {name: type(feature).__name__ for name, feature in features.items()}
    label = options.label
    if label is None and options.findings is None:
        found = [name for name in names if kinds[name] == "ClassLabel"]
        label = found[0] if len(found) == 1 else next((name for name in names if name == "label"), None)
    for name in (label, options.inputs):
        if name is not None and name not in names:
            raise _wrong(where, f"it has no column `{name}`; it has {', '.join(names)}")
    data = data.with_format(None)
    labels = None if label is None else [*data[label]]
    if label is not None and kinds[label] == "ClassLabel":
        classes = [*features[label].names]
        bad = next((row for row, one in enumerate(labels) if one is None or one < 0), None)
        if bad is not None:
            raise _wrong(f"{where}, row {bad}", f"it has no class (`{label}` is {labels[bad]})")
        labels, options.classes = [classes[one] for one in labels], options.classes or classes
    if label is None and options.inputs is not None and options.findings is not None:
        for name in options.findings:
            if name not in names:
                raise _wrong(where, f"it has no column `{name}`; it has {', '.join(names)}")
        labels = [*zip(*(data[name] for name in options.findings))]
    others = [name for name in names if name != label]
    inputs = options.inputs
    if inputs is None and len(others) == 1 and kinds[others[0]] != "Value":
        inputs = others[0]
    if inputs is None:
        columns = {name: [*data[name]] for name in others}
        return _Table(columns | ({} if label is None else {label: labels}), label)
    rows = [*data[inputs]]
    if not rows:
        raise _wrong(where, "there are no rows")
    # a row may be a list
    made = _items([(row, 0) for row in rows], where, _Options(None, None, joined=options.joined))
    return _checked(made.inputs, None if labels is None else _labels(labels, where, options), where)


# ---- all rows of a run


def _clients(source) -> list[tuple[str, Any]] | None:
    """Rows for each client by name; `None`: all rows are one whole."""
    _refuse_splits(source, "train")
    if isinstance(source, Mapping):
        return [(str(name), rows) for name, rows in source.items()]
    if isinstance(source, list):
        return [(str(at), rows) for at, rows in enumerate(source)]
    if hasattr(source, "load_partition") and hasattr(source, "num_partitions"):
        return [(str(at), source.load_partition(at)) for at in range(source.num_partitions)]
    return None


def _sections(data) -> dict[str, Any]:
    # a FederatedDataset of flwr-datasets
    if hasattr(data, "load_split") and hasattr(data, "partitioners"):
        split = next(iter(data.partitioners))
        clients = range(data.partitioners[split].num_partitions)
        rows = {str(at): data.load_partition(at, split) for at in clients}
        return {"train": rows, "test": data.load_split("test")}
    if not isinstance(data, Mapping):
        return {"train": data}
    for key in data:
        if key not in _ROWS + _OPTIONS:
            raise _wrong(repr(key), f"no such key; known: {', '.join(_ROWS + _OPTIONS)}. Clients by name go below `train`")
    if "train" not in data:
        raise _wrong("train", f"it is missing: {_KINDS}")
    return dict(data)


def _named(name: str) -> str:
    """A client's name in the name of a file."""
    return quote(name, safe="").replace(".", "%2E")[:120] or "_"


class _Files:
    """Writes rows of one form, all alike."""

    def __init__(self, folder: Path):
        self.folder, self.written, self.bytes = folder, Written(), 0
        self.first: tuple[str, _Arrays | _Table] | None = None

    def add(self, role: str, name: str, where: str, rows: _Arrays | _Table):
        self.alike(where, rows)
        base = f"{role}.{_named(name)}"
        while any(key.startswith(f"{base}.") for key in self.written.files):
            base += "_"
        if isinstance(rows, _Table):
            return self.file(f"{base}.rows", "csv", lambda file: _write_table(file, rows, where))
        inputs = self.file(f"{base}.inputs", "npy", lambda file: np.save(file, rows.inputs, allow_pickle=False))
        if rows.labels is None:
            return inputs
        return {"inputs": inputs, "labels": self.file(f"{base}.labels", "npy", lambda file: np.save(file, rows.labels, allow_pickle=False))}

    def alike(self, where: str, rows: _Arrays | _Table):
        if self.first is None:
            self.first = where, rows
            return
        there, first = self.first
        if type(first) is not type(rows):
            raise _wrong(where, f"rows of {there} are {_form(first)}, these are {_form(rows)}; give both in one form")
        if isinstance(rows, _Arrays) and first.inputs.shape[1:] != rows.inputs.shape[1:]:
            raise _wrong(where, f"rows of shape {list(rows.inputs.shape[1:])}, and those of {there} have {list(first.inputs.shape[1:])}")
        if isinstance(rows, _Arrays) and (first.inputs.dtype == np.uint8) != (rows.inputs.dtype == np.uint8):
            raise _wrong(where, f"inputs of {rows.inputs.dtype}, and those of {there} are {first.inputs.dtype}; bytes are pictures, so give both as one")

    def file(self, what: str, ending: str, write) -> str:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".", delete=False) as file:
                hashed = _Hashed(file)
                try:
                    write(hashed)
                except BaseException:
                    os.unlink(file.name)
                    raise
            to = self.folder / f"{what}.{hashed.sha256.hexdigest()[:16]}.{ending}"
            os.chmod(file.name, 0o600)  # a client's rows are its own
            if not to.exists():
                self.written.new.append(to)
            os.replace(file.name, to)
        except OSError as error:
            raise _wrong(what, f"it cannot be written into {self.folder}: {error.strerror or error}") from None
        self.bytes += hashed.bytes
        self.written.files[what] = to
        return str(to.absolute())


class _Hashed:
    """A file that hashes what is written into it. Readers of a spec cannot check a guess of rows by
    the hash, for it has a key."""

    def __init__(self, file):
        self.file, self.sha256, self.bytes = file, hashlib.sha256(_fl.key_of_files()), 0

    def write(self, data):
        self.sha256.update(data)
        self.bytes += len(data)
        return self.file.write(data)


def _form(rows: _Arrays | _Table) -> str:
    return "a table" if isinstance(rows, _Table) else "arrays"


def _write_table(file, table: _Table, where: str):
    texts = [_texts(name, column, where) for name, column in table.columns.items()]
    if len({len(column) for column in texts}) > 1:
        raise _wrong(where, "its columns have different lengths")

    class Encoded:
        @staticmethod
        def write(text):
            file.write(text.encode("utf-8", "surrogatepass"))

    out = csv.writer(Encoded, lineterminator="\n")
    out.writerow(table.columns)
    out.writerows(zip(*texts, strict=True))


def _texts(name: str, column, where: str) -> list[str]:
    values = column.tolist() if hasattr(column, "tolist") else column.to_list() if hasattr(column, "to_list") else column.to_pylist() if hasattr(column, "to_pylist") else column
    return [_text(value, name, row, where) for row, value in enumerate(values)]


def _text(value, name: str, row: int, where: str) -> str:
    """A cell, as a CSV of the same rows has it."""
    match value:
        case str():
            return value
        case None:
            return ""
        case bool() | np.bool_():
            return str(bool(value))
        case int():
            return str(value)
        case float():
            if math.isnan(value):
                return ""
            if math.isinf(value):
                raise _wrong(f"{where}, row {row}", f"column `{name}` is {value}; every number must be finite")
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case np.generic():
            return _text(value.item(), name, row, where)
        case decimal.Decimal():
            return str(value)
        case datetime.date() | datetime.time():
            return "" if str(value) == "NaT" else value.isoformat()
    if type(value).__name__ in ("NAType", "NaTType"):
        return ""
    raise _wrong(f"{where}, row {row}", f"column `{name}` holds a value of type {type(value).__name__}; it must be a number, a text, true, false or None")


def named(error: SpecError, written: Written) -> SpecError:
    """The same error with the user's clients and rows in place of fl's own files and lines."""

    def said(text: str) -> str:
        for what, path in written.files.items():
            def place(found: re.Match[str], what=what, path=path) -> str:
                row = _row(path, int(found[1])) if found[1] else -1
                return _place_of(what) + (f", row {row}" if row >= 0 else "")  # names have no row

            text = re.sub(rf"{re.escape(str(path.absolute()))}(?::(\d+))?", place, text)
        return text

    return SpecError(said(str(error)), tuple(replace(one, text=said(one.text)) for one in error.mistakes))


def _row(path: Path, line: int) -> int:
    """The row of a table that has this line, -1 for the names; a row with a text of several lines
    has several."""
    with path.open(encoding="utf-8", errors="surrogatepass", newline="") as file:
        lines = csv.reader(file)
        try:
            return sum(lines.line_num < line for _ in lines) - 1
        except csv.Error:  # a text of more than it reads
            return line - 2


def write(data, folder: Path) -> Written:
    """Writes rows into files of the folder, which stay."""
    given = _sections(data)
    label = given.get("label")
    column, kind = (label.get("column"), label.get("kind", "class")) if isinstance(label, Mapping) else (label, "class")
    column = None if column is None else str(column)  # a frame's columns may be whole numbers
    options = _Options(column, given.get("inputs"), *(None if given.get(key) is None else [str(one) for one in given[key]] for key in ("classes", "findings")), kind)
    files = _Files(Path(folder))
    try:
        return _write(given, options, files)
    except BaseException:
        files.written.discard()
        raise


def _write(given: dict[str, Any], options: _Options, files: _Files) -> Written:
    own = _clients(given["train"])
    if own is not None and not own:
        raise _wrong("train", "there are no clients")
    label = [options.label]

    def add(role: str, name: str, where: str, source) -> Any:
        rows = _rows(source, where, options)
        if isinstance(rows, _Table):
            if rows.label is not None and rows.label not in rows.columns and role != "public":
                raise _wrong(where, f"it has no column `{rows.label}`; it has {', '.join(rows.columns)}")
            if label[0] not in (None, rows.label) and rows.label is not None:
                raise _wrong(where, f"its labels are `{rows.label}`, those of the rows before `{label[0]}`; give them one name")
            label[0] = rows.label if rows.label in rows.columns else label[0]
            labelled = rows.label in rows.columns
            if options.findings is not None:
                missing = [name for name in options.findings if name not in rows.columns]
                if missing and role != "public":
                    raise _wrong(where, f"it has no column `{missing[0]}`; it has {', '.join(rows.columns)}")
                labelled = not missing
        else:
            labelled = rows.labels is not None
        if role != "public" and not labelled:
            how = "name the column: data={'train': frame, 'label': ..}" if isinstance(rows, _Table) else "give (inputs, labels)"
            raise _wrong(where, f"the rows have no labels; {how}")
        return files.add(role, name, where, rows), labelled

    if own is None:
        train: Any = add("train", "all", "train", given["train"])[0]
    else:
        train = [add("train", name, f"client `{name}`", rows)[0] for name, rows in own]
    tests = given.get("test")
    if tests is None and given.get("holdout") is None:
        raise _wrong("test", "there are no test rows; give `test`, or `holdout` (such as 0.2: that share of each client's rows)")
    about: dict[str, Any] = {"train": train}
    if tests is not None:
        each = _clients(tests)
        if isinstance(given["train"], Mapping) and isinstance(tests, Mapping):
            # the test rows of a client stand in its place
            clients, found = [name for name, _ in own or ()], dict(each or ())
            if odd := [name for name in [*clients, *found] if (name in clients) != (name in found)]:
                lacks = "there are none of this client of `train`" if odd[0] in clients else f"`train` has no such client; it has {', '.join(clients)}"
                raise _wrong(f"test rows `{odd[0]}`", f"{lacks}. Give a mapping with those of each client, or one whole")
            each = [(name, found[name]) for name in clients]
        one = lambda: add("test", "all", "test rows", tests)[0]  # noqa: E731
        about["test"] = one() if each is None else [add("test", name, f"test rows `{name}`", rows)[0] for name, rows in each]
    public = None
    if given.get("public") is not None:
        public = add("public", "all", "public rows", given["public"])
    if files.bytes > _MAX_BYTES:
        raise _wrong("train", f"the rows need {files.bytes} bytes, and at most {_MAX_BYTES} can be read")
    table = isinstance(files.first[1], _Table)
    channels = given.get("channels")
    if table and channels is not None:
        raise _wrong("channels", "the rows are a table; leave it out")
    common = {"format": "csv" if table else "npy" if channels is None else {"npy": {"channels": channels}}, "max-bytes": _MAX_BYTES}
    common |= {key: given[key] for key in ("columns", "missing") if given.get(key) is not None}
    classes = {key: found for key in ("classes", "findings") if (found := getattr(options, key)) is not None}
    of_label = {"label": label[0]} if table and label[0] is not None else {}
    if options.numbers:
        of_label = {"label": {("column" if key == "label" else key): one for key, one in of_label.items()} | {"kind": options.kind}}
    about |= common | classes | of_label
    if given.get("holdout") is not None:
        about["holdout"] = given["holdout"]
    overrides = [f"data.set={flow({'files': about})}"]
    if public is not None:
        path, labelled = public
        seen = common | ({**classes, **of_label} if labelled else {})
        overrides.append(f"data.public.from={flow({'set': {'files': {'train': path, **seen}}})}")
        overrides.append(f"data.public.labelled={json.dumps(labelled)}")
    files.written.overrides = overrides
    return files.written


# ---- runs that go on


def same_as(folder: Path, written: Written):
    """Refuses rows that are not those with which the run in the folder began, and says which; rows
    that are gone are put back."""
    try:
        recorded = json.loads((Path(folder) / "run.json").read_text(encoding="utf-8"))["data"]
    except (OSError, ValueError, KeyError):
        return  # the program says what is wrong with the folder
    then = {}
    for one in recorded:
        name = re.fullmatch(r"(.+)\.[0-9a-f]{16}\.(npy|csv)", Path(one["path"]).name)
        if name is None:
            raise SpecError(f"data: the run in {folder} was begun with files ({one['path']}), not with rows in memory; leave data out")
        then[name[1]] = Path(one["path"])
    for what in [*written.files, *(what for what in then if what not in written.files)]:
        if what not in then or what not in written.files:
            why = "the run was begun without them" if what not in then else "they are missing, and the run was begun with them"
            raise _wrong(_place_of(what), f"{why}; resume with the data that it was begun with, or without data")
        if then[what].name != written.files[what].name:
            raise _wrong(_place_of(what), f"they are not those that the run in {folder} was begun with; resume with these, or without data")
        if not then[what].exists():
            then[what].parent.mkdir(parents=True, exist_ok=True)
            os.replace(written.files[what], then[what])


def _place_of(what: str) -> str:
    role, name, part = what.split(".")
    name = unquote(name)
    whose = {"train": f"client `{name}`", "test": "test rows", "public": "public rows"}[role]
    return f"{whose}, {part}" if part != "rows" else whose


def client_names(run: dict[str, Any]) -> list[str]:
    """The names of the clients of a run, in order, if its rows were in memory and each client had
    its own."""
    found = []
    for one in run.get("data", ()):
        match = re.fullmatch(r"train\.(.+)\.(rows|inputs)\.[0-9a-f]{16}\.(npy|csv)", Path(one["path"]).name)
        if match:
            found.append(unquote(match[1]))
    return [] if found == ["all"] else found
