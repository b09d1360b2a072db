"""Libraries in processes of their own, which Python begins."""

import os
import shutil
import subprocess
from pathlib import Path

import fl
import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def hostile(tmp_path):
    """A library whose part does what its setting says."""
    if not shutil.which("cc"):
        pytest.skip("cc is needed")
    source, library = ROOT / "hosts/cli/tests/program/hostile.c", tmp_path / "h.so"
    flags = ["-std=c11", "-O1", "-w", "-fPIC", "-shared", "-pthread", "-DREACHES", "-I", str(ROOT / "fl-core/include")]
    subprocess.run(["cc", *flags, "-o", str(library), str(source), "-lm"], check=True)

    def spec(mode, isolate=None):
        plugin = {"path": str(library)} | ({} if isolate is None else {"isolate": isolate})
        return {
            "name": "h",
            "plugins": [plugin],
            "data": {"set": "blobs", "clients": 3},
            "protocol": {"use": "fedavg", "rounds": 3},
            "parts": {"model": {"use": "linear"}, "aggregator": {"use": "hostile", "mode": mode}},
        }

    return spec


@pytest.mark.parametrize("mode, why", [
    ("leaves", "it ended its process with exit code 0, in the middle of a call"),
    ("crashes", "its process was ended by signal 11"),
    ("lists", "lists: Permission denied"),
    ("executes", "executes: Operation not permitted"),
    ("connects", "connects: Operation not permitted"),
    ("begins-a-thread", "begins-a-thread: done"),
])
def test_what_a_library_does_is_an_error_of_its_part(hostile, mode, why):
    with pytest.raises(fl.RunError, match=why):
        fl.run(hostile(mode), quiet=True)


def test_a_run_has_one_digest_wherever_its_library_is(hostile):
    apart = fl.run(hostile("as-it-is"), quiet=True)
    assert fl.run(hostile("as-it-is", isolate=False), quiet=True).digest == apart.digest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_leaves_the_processes_of_its_parent_alone(hostile):
    before = fl.run(hostile("as-it-is"), quiet=True).digest
    ends, begins = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(begins, fl.run(hostile("as-it-is"), quiet=True).digest.encode())
        finally:
            os._exit(0)
    os.close(begins)
    # both at once
    beside = fl.run(hostile("as-it-is"), quiet=True).digest
    with os.fdopen(ends) as told:
        assert told.read() == beside == before
    os.waitpid(child, 0)
    assert fl.run(hostile("as-it-is"), quiet=True).digest == before
