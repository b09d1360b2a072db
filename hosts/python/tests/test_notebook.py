"""The notebook of the examples runs, from the first cell to the last."""

import re
from pathlib import Path

import pytest

for needed in ("torch", "sklearn", "matplotlib", "nbformat", "ipykernel", "nbclient"):
    pytest.importorskip(needed)
import nbclient  # noqa: E402
import nbformat  # noqa: E402

NOTEBOOK = Path(__file__).parents[1] / "examples" / "hospitals.ipynb"


def test_the_notebook_runs(tmp_path):
    book = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells)  # what it prints is made here
    nbclient.NotebookClient(book, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    results = [float(output.data["text/plain"]) for output in outputs if output.output_type == "execute_result"]
    distilled, ratio = results
    assert distilled > 0.85 and ratio > 1
    assert sum("image/png" in output.get("data", ()) for output in outputs) == 1  # one curve, which grew
    text = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    predicted, true = (eval(one) for one in re.findall(r"\[[\d, ]+\]", text)[-2:])
    assert len(predicted) == 5 and sum(a == b for a, b in zip(predicted, true)) >= 3
