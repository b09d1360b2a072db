"""Answers held to accepted ones: by the plugin of pytest, and by the program on a terminal."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import fl
import fl.testing
import numpy as np
import pytest
from conftest import QUICK

MODULE = '''
from typing import Annotated
import fl

@fl.aggregator("kept-mean")
class KeptMean:
    """A mean that moves slowly."""

    beta: Annotated[float, "Share of the last one.", fl.between(ge=0, lt=1)] = 0.5
    rounds_of: int = 1
    needs = []

    def setup(self, stream):
        self.last = None

    def aggregate(self, round, inbox):
        mean = inbox.mean([1.0] * len(inbox))
        at = {name: mean[name] if self.last is None else self.beta * self.last[name] + (1 - self.beta) * mean[name] for name in mean}
        self.last = at
        return at
'''
CASES = """
plugins: [{ module: kept }]
cases:
- name: two rounds
  part: aggregator kept-mean
  rounds: [&r { messages: [{ from: 0, tensors: { w: [1, 2] } }] }, { messages: [{ from: 0, tensors: { w: [3, 2] } }] }]
- name: one round
  part: aggregator kept-mean
  input: *r
"""
TESTS = '''
import fl
import numpy as np
import pytest
from kept import KeptMean

ROUNDS = [{"messages": [{"from": 0, "tensors": {"w": [float(at), 1.0]}}]} for at in range(5)]

def test_state(fl_snapshot):
    fl_snapshot(KeptMean(beta=BETA), rounds=ROUNDS)

def test_values(fl_snapshot):
    fl_snapshot({"small": np.array([[0.1, BETA]], dtype=np.float32), "n": 3, "odd": [float("nan"), float("inf")]}, close=1e-6)
    fl_snapshot("aggregator mean", ROUNDS[2], within={"tensors.w": [1, 2]})
    fl_snapshot([True, "text"], name="texts")

@pytest.mark.parametrize("at", [1, 2])
def test_each(fl_snapshot, at):
    fl_snapshot({"at": at})
'''


def kept():
    """The part that the tests above are about."""
    if not hasattr(kept, "module"):
        Path("kept.py").write_text(MODULE)
        kept.module = {"__name__": "kept_here"}
        exec(MODULE, kept.module)
    return kept.module["KeptMean"]


def run_pytest(*args) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_parts_take_settings_by_keyword():
    part = kept()
    assert part().beta == 0.5 and part(beta=0.25).beta == 0.25 and part(rounds_of=3).rounds_of == 3
    with pytest.raises(ValueError, match=r"KeptMean: beta: must be in 0..1, got 1.5"):
        part(beta=1.5)
    with pytest.raises(TypeError, match=r"KeptMean has no setting `gamma`; known: beta, rounds_of"):
        part(gamma=1)
    with pytest.raises(TypeError, match=r"KeptMean takes settings by name, such as KeptMean\(beta=0.25\)"):
        part(0.25)
    messages = [{"messages": [{"from": 0, "tensors": {"w": [w]}}]} for w in (1.0, 3.0)]
    for beta, last in ((0.5, 2), (0.25, 2.5)):
        answer = fl.testing.answer(part(beta=beta), rounds=messages)
        assert answer["rounds"][1]["tensors"]["w"] == [last]
    spec = {"parts.aggregator": part(beta=0.25), "protocol.rounds": 2}
    one = fl.run(QUICK / "fedavg.yaml", spec, quiet=True)
    two = fl.run(QUICK / "fedavg.yaml", spec | {"parts.aggregator": {"use": "kept-mean", "beta": 0.25}}, quiet=True)
    assert one.digest == two.digest


def test_a_part_with_an_init_of_its_own_still_takes_settings():
    @fl.aggregator("init-mean")
    class InitMean:
        factor: float
        needs = []

        def __init__(self):
            self.twice = 2 * self.factor

        def aggregate(self, round, inbox):
            return {name: self.twice * array for name, array in inbox[0].items()}

    assert InitMean(factor=2).twice == 4.0
    with pytest.raises(TypeError, match="settings are missing: factor"):
        InitMean()
    answer = fl.testing.answer(InitMean(factor=1.5), {"messages": [{"from": 0, "tensors": {"w": [1]}}]})
    assert answer["tensors"]["w"] == [3]


def test_each_case_of_a_file_is_a_test():
    Path("kept.py").write_text(MODULE)
    Path("kept.cases.yaml").write_text(CASES)
    code, said = run_pytest("-q")
    assert code == 1 and "2 failed" in said and "new; `--fl-accept` accepts it" in said, said
    code, said = run_pytest("-q", "-k", "two", "--fl-accept")
    assert code == 0 and "1 passed, 1 deselected" in said, said
    held = json.loads(Path("kept.cases.answers.json").read_text())
    assert [*held] == ["two rounds"], held
    assert run_pytest("-q", "--fl-accept")[0] == 0
    code, said = run_pytest("-v")
    assert code == 0 and "kept.cases.yaml::two rounds PASSED" in said, said

    Path("kept.cases.actual.json").write_text("{}")  # of an earlier change
    Path("kept.py").write_text(MODULE.replace("(1 - self.beta)", "self.beta * 0.5"))
    code, said = run_pytest("-q", "--fl-actual")
    assert code == 1 and "1 failed, 1 passed" in said, said
    assert "kept.cases.yaml:4: two rounds: different" in said, said
    assert "round 2, tensors.w: 2 of 2 numbers differ; worst at [0]: expected 2, found 1.25, 0.75 apart" in said, said
    actual = json.loads(Path("kept.cases.actual.json").read_text())
    assert [*actual] == ["one round", "two rounds"]

    Path("kept.cases.yaml").write_text(CASES.replace("rounds: [&r", "ruonds: [&r"))
    code, said = run_pytest("-q")
    assert code == 2 and "kept.cases.yaml:6:3  cases[0].ruonds: no such setting; did you mean `rounds`?" in said, said


def test_the_fixture_holds_parts_and_values_to_accepted_answers():
    Path("kept.py").write_text(MODULE)
    file, answers = Path("test_it.py"), Path("test_it.answers.json")

    def written(beta):
        file.write_text(TESTS.replace("BETA", str(beta)))

    written(0.5)
    code, said = run_pytest("-q")
    assert code == 1 and "4 failed" in said and not answers.exists(), said
    assert run_pytest("-q", "--fl-accept")[0] == 0
    assert [*json.loads(answers.read_text())] == ["test_each[1]", "test_each[2]", "test_state", "test_values", "test_values texts"]
    assert run_pytest("-q")[0] == 0
    written(0.25)
    code, said = run_pytest("-q")
    assert code == 1 and "2 failed, 2 passed" in said, said
    assert "test_state: different" in said and "round 5, tensors.w: 1 of 2 numbers differ" in said, said
    assert "test_values: different" in said and "small: 1 of 2 numbers differs; worst at [0, 1]: expected 0.5, found 0.25" in said, said
    # a chosen test accepts its own
    assert run_pytest("-q", "-k", "values", "--fl-accept")[0] == 0
    code, said = run_pytest("-q")
    assert code == 1 and "1 failed, 3 passed" in said, said
    # what no test asks for
    file.write_text(file.read_text().replace("test_state", "test_course"))
    code, said = run_pytest("-q", "-k", "each")
    assert "no test asked" not in said, said
    code, said = run_pytest("-q", "--fl-accept")
    assert code == 0 and "no test asked for the answer `test_state`; removed" in said, said
    assert "test_state" not in json.loads(answers.read_text())


def test_the_results_of_a_run_are_held(tmp_path):
    Path("test_run.py").write_text(
        f"import fl\ndef test_run(fl_snapshot):\n    fl_snapshot(fl.run({str(QUICK / 'fedavg.yaml')!r}, {{'protocol.rounds': 2}}, quiet=True))\n"
    )
    assert run_pytest("-q", "--fl-accept")[0] == 0
    assert run_pytest("-q")[0] == 0
    held = json.loads(Path("test_run.answers.json").read_text())["test_run"]["answer"]
    assert len(held["digest"]) == 64 and held["metrics"]["accuracy"] > 0.1


def test_the_fixture_says_what_it_cannot_take(fl_snapshot):
    with pytest.raises(TypeError, match="only a part has an input"):
        fl_snapshot({"a": 1}, {"messages": []})
    with pytest.raises(TypeError, match="not object"):
        fl_snapshot({"a": object()})
    with pytest.raises(ValueError, match=r"tolerance\.a: must have `abs`, `rel` or `ulp`"):
        fl_snapshot({"a": np.zeros(2)}, tolerance={"a": {}})


def test_cases_are_chosen_and_accepted_by_name():
    Path("kept.py").write_text(MODULE)
    Path("kept.cases.yaml").write_text(CASES)
    with pytest.raises(AssertionError, match="0 fine, 0 different, 2 new"):
        fl.testing.cases("kept.cases.yaml")
    with pytest.raises(AssertionError, match="0 fine, 0 different, 1 new, 1 accepted"):
        fl.testing.cases("kept.cases.yaml", accept="two rounds")
    assert "1 fine, 0 different" in fl.testing.cases("kept.cases.yaml", only="two rounds")
    assert "1 fine, 0 different, 1 accepted" in fl.testing.cases("kept.cases.yaml", accept=True)


def test_a_review_accepts_rejects_and_skips_on_a_terminal():
    Path("kept.py").write_text(MODULE)
    Path("kept.cases.yaml").write_text(CASES)
    # a terminal, on which `a` is pressed for the first and `s` for the second
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "fl", "test", "kept.cases.yaml", "--review"])
    said, keys = b"", [b"a", b"s"]
    while True:
        try:
            said += os.read(terminal, 4096)
        except OSError:
            break  # it has ended
        if keys and said.count(b"q quit") == 3 - len(keys):
            os.write(terminal, keys.pop(0))
    _, status = os.waitpid(child, 0)
    text = said.decode()
    assert os.waitstatus_to_exitcode(status) == 1, text
    assert "a accept, r reject, s skip" in text and "0 fine, 0 different, 1 new, 1 accepted" in text, text
    assert [*json.loads(Path("kept.cases.answers.json").read_text())] == ["two rounds"]
