"""Processes of clients share what they import."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import sleep

import fl
import pytest

pytest.importorskip("torch")
if sys.platform != "linux":
    pytest.skip("only Linux forks safely", allow_module_level=True)

PART = """
import os, signal, sys
import fl, fl.torch
from torch import nn

@fl.trainer("{name}")
class Heavy(fl.torch.Trainer):
    "A network that says where it lives."
    folder: str = ""
    what: str = ""

    def net(self):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(self.task.outputs))

    def fit(self, x, target, how, stream):
        if "client-process" in sys.argv:
            first = os.path.join(self.folder, "first")
            with open(os.path.join(self.folder, "log"), "a") as log:
                print(os.getpid(), os.getppid(), file=log)
            if self.what and not os.path.exists(first):
                open(first, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(x, target, how, stream)
"""


def spec(tmp_path, name, what=""):
    (tmp_path / f"{name}.py").write_text(PART.format(name=name.replace("_", "-")))
    return {
        "name": "heavy",
        "plugins": [{"module": name, "path": str(tmp_path)}],
        "data": {"set": "blobs", "clients": 4, "split": "iid"},
        "protocol": {"use": "fedavg", "rounds": 2, "local": {"epochs": 1, "batch": 64}},
        "parts": {"model": {"use": name.replace("_", "-"), "folder": str(tmp_path), "what": what}, "aggregator": {"use": "mean"}},
    }


def lived(tmp_path) -> list[tuple[int, int]]:
    """Processes that trained, and their parents."""
    return [tuple(map(int, line.split())) for line in (tmp_path / "log").read_text().splitlines()]


def children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def ended(pid: int) -> bool:
    """Is there no such process, or only what is left of one?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_exact_processes_are_forks_of_one(tmp_path):
    given = spec(tmp_path, "heavy_one")
    alone = fl.run(given, quiet=True)
    beside = fl.run(given, quiet=True, processes=2)
    assert beside.digest == alone.digest
    pids, parents = ({*column} for column in zip(*lived(tmp_path)))
    assert len(pids) == 2 and len(parents) == 1 and os.getpid() not in parents
    # nothing is left
    assert fl._forks.VARIABLE not in os.environ and all(map(ended, [*parents]))


def test_exact_a_fork_that_is_killed_is_begun_again(tmp_path):
    given = spec(tmp_path, "heavy_killed", "killed")
    alone = fl.run(given, quiet=True)
    beside = fl.run(given, quiet=True, processes=2)
    assert beside.digest == alone.digest and len({pid for pid, _ in lived(tmp_path)}) == 3


def test_a_fork_ends_with_the_process_that_it_is_for(tmp_path):
    # imports PyTorch here, and resolves the spec
    fl.run(spec(tmp_path, "heavy_slow"), quiet=True, out="run")
    with fl._forks._SERVER:
        server = fl._forks._SERVER.process.pid

        def begun():
            """A process that waits for requests, its socket, and its fork."""
            ours, theirs = socket.socketpair()
            args = [sys.executable, "-m", "fl", "client-process", "run/spec.yaml", "home", "--data-dir", "."]
            process = subprocess.Popen(args, stdin=theirs)
            theirs.close()
            while not (forks := children(server)):
                assert process.poll() is None
                sleep(0.05)
            return process, ours, forks[0]

        process, socket_of_it, fork = begun()
        process.kill()  # as the program does with one that is too slow; the socket is open still
        process.wait()
        while not ended(fork):
            sleep(0.05)
        socket_of_it.close()
        while children(server):
            sleep(0.05)
        process, socket_of_it, fork = begun()
        socket_of_it.close()  # no more requests
        assert process.wait() == 0 and ended(fork)
        process, socket_of_it, fork = begun()
        os.kill(fork, signal.SIGSEGV)
        assert process.wait() == -signal.SIGSEGV
        socket_of_it.close()


def test_without_a_server_a_process_imports_by_itself(tmp_path, monkeypatch):
    given = spec(tmp_path, "heavy_alone")
    alone = fl.run(given, quiet=True)
    monkeypatch.setenv(fl._forks.VARIABLE, str(tmp_path / "nobody"))
    monkeypatch.setattr(fl._forks, "HEAVY", {})
    assert fl.run(given, quiet=True, processes=2).digest == alone.digest
    assert {parent for _, parent in lived(tmp_path)} == {os.getpid()}
