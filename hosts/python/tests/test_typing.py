"""Type checkers accept what the page and the examples show."""

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAD = """from collections.abc import Iterable
import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
"""
CHECKERS = {"mypy": ["--strict", "--follow-imports=silent", f"--cache-dir={os.devnull}"], "pyright": ["--level", "error", "--pythonpath", sys.executable]}


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


def part(folder: Path) -> Path:
    """The page's aggregator, and parts made with settings."""
    text = next(block for block in blocks() if "class MyTrimmedMean" in block)
    text = re.sub(r"fl\.run\(spec, .*", 'fl.run("spec.yaml", {"parts.aggregator": MyTrimmedMean(trim=0.3)})', text)
    assert "inbox[0]" in text and "trim=0.3" in text
    module = folder / "part.py"
    module.write_text(text + "\ndef first(inbox: fl.Inbox) -> fl.Mail:\n    return inbox[0]\n")
    return module


def page(folder: Path) -> Path:
    """The page's trainer with all its methods, as a module."""
    all = blocks()
    start = next(at for at, block in enumerate(all) if "fl.torch.Trainer" in block)
    methods = [block for block in all[start + 1 :] if block.startswith("    def ")]
    assert len(methods) >= 2
    module = folder / "page.py"
    made = "\nfl.run('spec.yaml', {'parts.model': PaperCnn(width=16, lr=0.1)})\n"
    module.write_text(HEAD + all[start] + "\n" + "\n".join(methods) + made)
    return module


def roles(folder: Path) -> Path:
    """The protocols of trainers, and a class that has one of them."""
    module = folder / "roles.py"
    module.write_text(textwrap.dedent(
        """
        from collections.abc import Mapping
        import numpy as np
        import fl

        class Own:
            def fit(
                self, x: np.ndarray, target: np.ndarray, how: fl.Pass, stream: fl.Stream
            ) -> tuple[int, float]:
                return 0, 0.0

            def predict(self, x: np.ndarray) -> np.ndarray:
                return x

            def save(self) -> bytes:
                return b""

            def load(self, state: bytes) -> None:
                return None

            def params(self) -> dict[str, np.ndarray]:
                return {}

            def set_params(self, params: Mapping[str, np.ndarray]) -> None:
                return None

        own: type[fl.roles.Parametric] = Own
        """
    ))  # fmt: skip
    return module


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_page_and_the_examples_are_typed(checker, tmp_path):
    pytest.importorskip("torch")
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    files = [page(tmp_path), part(tmp_path), roles(tmp_path), *(path for path in sorted((*ROOT.glob("examples/*.py"), *ROOT.glob("examples/ports/*.py"))) if "transformers" not in path.read_text() or importlib.util.find_spec("transformers"))]
    wrong = tmp_path / "wrong.py"
    wrong.write_text(textwrap.dedent(
        """
        import fl
        import fl.torch
        from torch import nn

        class Wrong(fl.torch.Trainer):
            def net(self) -> nn.Module:
                return self.task.outputs

        fl.run("spec.yaml", quiet="yes")

        @fl.aggregator("wrong")
        class Aggregator:
            trim: float = 0.1

            def aggregate(self, round: fl.Round, inbox: fl.Inbox) -> object:
                return inbox[0].nothing

        Aggregator(trum=0.3)

        lacks: type[fl.roles.Parametric] = Aggregator
        """
    ))  # fmt: skip

    def check(*given):
        args = [sys.executable, "-m", checker, *CHECKERS[checker], *map(str, given)]
        return subprocess.run(args, cwd=ROOT, capture_output=True, text=True)

    done = check(*files, wrong)
    if "Error: " in done.stderr and "node" in done.stderr.lower():
        pytest.skip(f"{checker} cannot be set up here: {done.stderr[-200:]}")
    # what is wrong is found, so the packages' types are seen; nothing else is
    found = [line for line in (done.stdout + done.stderr).splitlines() if re.search(r"\berror\b:|: error:| - error", line)]
    assert len(found) >= 5 and all("wrong.py" in line for line in found), done.stdout + done.stderr
