"""Runs with parts in Python are verified like others."""

import json
import subprocess
import sys
from pathlib import Path

import fl
import numpy as np

HERE = Path(__file__).parent


def verify(*args):
    return subprocess.run([sys.executable, "-m", "fl", "verify", *map(str, args)], capture_output=True, text=True)


def test_a_run_with_a_part_of_the_session_verifies(fedavg):
    @fl.aggregator("py-first-of-session")
    class First:
        def aggregate(self, round, inbox):
            return {name: np.mean([mail[name] for mail in inbox], axis=0) for name in inbox[0]}

    fedavg["parts"]["aggregator"] = {"use": "py-first-of-session"}
    fl.run(fedavg, out="session", quiet=True)
    done = verify("session")
    assert done.returncode == 0, done.stderr


def test_an_aggregation_in_python_is_repeated(fedavg, tmp_path, monkeypatch):
    key = verify("--new-key", tmp_path / "k").stdout.split()[-1]
    monkeypatch.setenv("FL_SIGN_KEY", str(tmp_path / "k"))
    fedavg["plugins"] = [{"module": "my_parts", "path": str(HERE)}]
    fedavg["parts"]["aggregator"] = {"use": "py-folds"}
    fedavg["keep"] = "messages"
    results = fl.run(fedavg, out="r", quiet=True)
    done = verify("r", "--json", "--key", key)
    found = json.loads(done.stdout)
    assert (found["digest"], found["repeated"], found["not_repeated"]) == (results.digest, 5, 0), done.stderr
    # the code of a folder runs on the word of a key that the verifier knows, or of the verifier
    done = verify("r")
    assert done.returncode != 0 and "modules of Python only with --key" in " ".join(done.stderr.split())
    assert verify("r", "--isolate=false").returncode == 0
    path = Path("r/journal.jsonl")
    path.write_bytes(path.read_bytes().replace(b"round 4", b"round 5"))
    done = verify("r")
    assert done.returncode == 1 and "journal.jsonl: found" in done.stderr
