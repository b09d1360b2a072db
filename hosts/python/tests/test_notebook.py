"""The notebook of the examples runs, from the first cell to the last, and its exercises have
answers."""

import json
import re
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "hospitals.ipynb"
ANSWERS = (
    '"aggregator": {"use": "median"},',
    "rounds, rate, clip, noise = 10, 0.5, 0.5, 3.0",
    "return {name: np.median([mail[name] for mail in inbox], axis=0) for name in inbox[0]}",
)


@pytest.mark.parametrize(("answered", "said"), [(False, "not yet"), (True, "right")])
def test_the_exercises_have_answers(tmp_path, monkeypatch, capfd, answered, said):
    """They need no PyTorch: only the cell with the rows, and their own."""
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    cells = [cell for cell in cells if cell["cell_type"] == "code"]
    code = ["".join(cell["source"]) for cell in cells]
    [rows] = (cell for cell in code if "load_digits" in cell)
    [first] = (at for at, cell in enumerate(code) if "def check" in cell)
    answers, shown = iter(ANSWERS), {}
    for cell in [rows, *code[first:]]:
        if answered:
            cell = re.sub(r"(# -- your answer\n *).*", lambda mark: mark[1] + next(answers), cell)
        exec(cell, shown)
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("exercise")]
    assert lines == [f"exercise {number}: {said}" for number in (1, 2, 3)]


# without PyTorch, networks of fl stand in for the three of the notebook
NETWORKS = {
    '"use": "small"': '"use": "dfdx", "net": "logistic"',
    '"use": "wide"': '"use": "dfdx", "net": [{"linear": 128}, "relu", "outputs"]',
    '"use": "convolutional"': '"use": "dfdx", "net": [{"linear": 32}, "relu", "outputs"]',
}


@pytest.mark.parametrize("networks", ["fl", "torch"])
def test_the_notebook_runs(tmp_path, networks):
    for needed in (networks, "sklearn", "matplotlib", "nbformat", "ipykernel", "nbclient"):
        pytest.importorskip(needed)
    import nbclient
    import nbformat

    book = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells)  # what it prints is made here
    if networks == "fl":
        for cell in book.cells:
            if cell.cell_type == "code" and "torch." in cell.source:
                cell.source = "import fl"
            for theirs, ours in NETWORKS.items():
                cell.source = cell.source.replace(theirs, ours)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=None, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    results = [output for output in outputs if output.output_type == "execute_result"]
    distilled, ratio = (float(output.data["text/plain"]) for output in results)
    assert distilled > 0.85 and ratio > 1
    # one curve, which grew
    assert sum("image/png" in output.get("data", ()) for output in outputs) == 1
    printed = [output for output in outputs if output.output_type == "stream"]
    text = "".join(output.text for output in printed if output.name == "stdout")
    assert text.count("not yet") == 3  # the exercises run, and have no answer
    if networks == "torch":
        predicted, true = (eval(one) for one in re.findall(r"\[[\d, ]+\]", text)[-2:])
        assert len(predicted) == 5 and sum(a == b for a, b in zip(predicted, true)) >= 3
