"""What the pages show in Python runs."""

import re
from pathlib import Path

import fl
import fl.testing
import pytest

ROOT = Path(__file__).resolve().parents[3]


def blocks(page):
    """The code of a page, without what an interpreter printed and what a source file holds."""
    found = re.findall(r"(<!-- code: [^\n]*-->\n)?```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    return [block for copied, block in found if not copied and not block.startswith(">>>")]


def test_the_package_page_runs(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    rows, run, watch, measure, part, protocol, alone, labels, *_ = blocks("hosts/python/README.md")
    shown = {}
    exec(compile(rows, "README.md, rows in memory", "exec"), shown)
    assert shown["results"].clients == ["alice", "bob"] and shown["results"].metrics["accuracy"] > 0.7
    assert shown["model"].predict(shown["rows"](3)[0]).shape == (3, 2)
    exec(compile(run, "README.md, a run", "exec"), shown)
    # what it drew is not for the next test
    pytest.importorskip("matplotlib.pyplot").close("all")
    assert shown["results"].metrics["accuracy"] > 0.5
    exec(compile(watch, "README.md, watching", "exec"), shown)
    exec(compile(measure, "README.md, a measure", "exec"), shown)
    fl._parts.metric._METRICS.pop("worst-class")
    exec(compile(part, "README.md, a part", "exec"), shown)
    fl.testing.conformance("aggregator my-trimmed-mean")
    exec(compile(protocol, "README.md, a protocol", "exec"), shown)
    exec(compile(alone, "README.md, a part alone", "exec"), shown)
    exec(compile(labels, "README.md, labels", "exec"), shown)
    assert shown["mean"].shape == (20, 3)


def test_the_front_page_runs(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hello.yaml").write_text((ROOT / "specs/book/src/files/hello.yaml").read_text())
    trainer, method = blocks("README.md")
    shown = {}
    for code in (trainer, method):
        exec(compile(code.replace("fl.run(", "results = fl.run("), "README.md", "exec"), shown)
        assert shown["results"].metrics["accuracy"] > 0.5


def test_the_tutorial_of_an_aggregator_runs(tmp_path, monkeypatch):
    (tmp_path / "my_mean.py").write_text(blocks("specs/book/src/tutorials/aggregator.md")[0])
    monkeypatch.syspath_prepend(tmp_path)
    import my_mean

    fl.testing.conformance(my_mean.MyMean)
