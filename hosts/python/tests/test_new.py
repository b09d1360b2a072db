"""`fl new --lang python`: what it writes passes its own tests at once."""

import subprocess
import sys
from pathlib import Path

import fl
import pytest


WRITTEN = [
    *([role] for role in ("aggregator", "selector", "privacy", "attack", "trainer", "protocol")),
    *([role, "--stateful"] for role in ("aggregator", "selector", "privacy")),
    ["trainer", "--numpy"],
]


@pytest.mark.parametrize("written", WRITTEN, ids="".join)
def test_what_is_written_passes_its_tests(written, tmp_path):
    role, *option = written
    if written == ["trainer"]:
        pytest.importorskip("torch")
    name = f"my-{role}"
    fl._tools.command("new", role, name, "--lang", "python", *option)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=tmp_path / name, capture_output=True, text=True)
    passed = "6 passed" if written == ["aggregator"] else "2 passed"  # with four cases of a file
    assert done.returncode == 0 and passed in done.stdout, done.stdout + done.stderr
    if written == ["aggregator"]:
        args = [sys.executable, "-m", "fl", "test", "."]
        done = subprocess.run(args, cwd=tmp_path / name, capture_output=True, text=True)
        assert "4 fine, 0 different" in done.stdout, done.stdout + done.stderr


def test_names_that_a_module_cannot_have_are_refused():
    for name, why in [("lambda", "cannot be called `lambda`; try my-lambda"), ("mean", "there is an aggregator `mean` already")]:
        with pytest.raises(fl.SpecError, match=why):
            fl._tools.command("new", "aggregator", name, "--lang", "python")
    with pytest.raises(fl.SpecError, match="is written in Rust"):
        fl._tools.command("new", "generator", "mine", "--lang", "python")
    assert not Path("mine").exists()
