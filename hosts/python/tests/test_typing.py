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


def page(folder: Path) -> Path:
    """The page's trainer with all its methods, as a module."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    start = next(at for at, block in enumerate(blocks) if "fl.torch.Trainer" in block)
    methods = [block for block in blocks[start + 1 :] if block.startswith("    def ")]
    assert len(methods) >= 2
    module = folder / "page.py"
    module.write_text(HEAD + blocks[start] + "\n" + "\n".join(methods))
    return module


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_page_and_the_examples_are_typed(checker, tmp_path):
    pytest.importorskip("torch")
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    files = [page(tmp_path), *(path for path in sorted(ROOT.glob("examples/*.py")) if "transformers" not in path.read_text() or importlib.util.find_spec("transformers"))]
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
    assert len(found) >= 2 and all("wrong.py" in line for line in found), done.stdout + done.stderr
