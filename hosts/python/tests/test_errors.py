"""What is wrong is said by the program's own words, in Python's exceptions."""

import pickle
import types
from pathlib import Path

import fl
import numpy as np
import pytest
from conftest import QUICK, with_part

import my_parts  # noqa: F401


def test_every_mistake_has_its_line_and_column():
    Path("mine.yaml").write_text(
        "name: mine\nprotocol:\n  use: fedavg\n  rounds: -1\ndata:\n  set: blobs\n  clients: many\n"
        "parts:\n  model: { use: linear }\n  aggregator: { use: meen }\n"
    )
    with pytest.raises(fl.SpecError) as told:
        fl.run("mine.yaml")
    error = told.value
    places = [(m.line, m.column, m.path) for m in error.mistakes]
    assert (4, 11, "protocol.rounds") in places and (7, 12, "data.clients") in places and len(places) >= 3
    assert (error.line, error.column) == places[0][:2]
    assert "mine.yaml:4:11  protocol `fedavg`: rounds: must be in 1..=1000000, got -1" in str(error)
    assert not Path("runs").exists()
    assert pickle.loads(pickle.dumps(error)).mistakes == error.mistakes


def test_a_mapping_has_paths_instead_of_lines(fedavg):
    fedavg["protocol"]["rounds"] = "many"
    with pytest.raises(fl.SpecError) as told:
        fl.check(fedavg)
    assert str(told.value) == "protocol.rounds: must be a whole number, got `many`"
    assert told.value.line is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (object(), "protocol.rounds: must be a mapping, a list, text"),
        ({1: 2}, "protocol.rounds: a name must be text, got 1 (int)"),
        (b"5", "protocol.rounds: must be a mapping, a list, text"),
        (float("nan"), "protocol.rounds: must be"),
        (-(10**30), "protocol.rounds: must be"),
        (True, "protocol.rounds: must be a whole number, got true"),
        ([5], "protocol.rounds: must be a whole number, got a list of 1"),
        ("\ud800", "protocol.rounds"),
    ],
)
def test_wrong_types_in_a_mapping_are_found(fedavg, value, text):
    fedavg["protocol"]["rounds"] = value
    with pytest.raises(fl.SpecError) as told:
        fl.check(fedavg)
    assert text in str(told.value)


def test_what_numpy_and_pathlib_give_may_stand_in_a_mapping(fedavg):
    same = fl.check(fedavg)
    fedavg["protocol"]["rounds"], fedavg["seed"] = np.int64(5), np.uint8(1)
    fedavg["parts"]["model"]["lr"] = np.float64(0.1)
    fedavg["parts"] = types.MappingProxyType(fedavg["parts"])
    assert fl.check(fedavg) == same


def test_a_mapping_in_itself_ends(fedavg):
    fedavg["parts"]["model"] = fedavg
    with pytest.raises(fl.SpecError, match="more than 100 levels"):
        fl.check(fedavg)


@pytest.mark.parametrize("spec", [3, None, ["a"], b"name: x\n"])
def test_what_is_no_spec_is_refused(spec):
    with pytest.raises(fl.SpecError):
        fl.run(spec)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path in ("nowhere.yaml", tmp_path):
        with pytest.raises(fl.SpecError, match=Path(path).name):
            fl.run(path)
    Path("bytes.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(fl.SpecError, match="bytes.yaml"):
        fl.check("bytes.yaml")


@pytest.mark.parametrize("value", [0, -1, 1.5, "1GiB", True])
@pytest.mark.parametrize("option", ["threads", "memory"])
def test_options_are_checked(fedavg, option, value):
    with pytest.raises(fl.SpecError, match=f"{option}: must be a whole number, at least 1"):
        fl.run(fedavg, **{option: value})


def test_settings_out_of_range_are_found_before_a_run(fedavg):
    for settings, text in [
        ({"scale": -1}, "scale: must be above 0 and at most 10, got -1"),
        ({"scale": 11}, "scale: must be above 0 and at most 10, got 11"),
        ({"scal": 1}, "scal: no such setting; did you mean `scale`?"),
        ({"how": "nunpy"}, "how: must be one of numpy, kernel; got `nunpy`; did you mean `numpy`?"),
        ({"trim-these": [1, "x"]}, "trim-these[1]: must be a number, got `x`"),
    ]:
        with pytest.raises(fl.SpecError) as told:
            fl.run(fedavg, with_part("aggregator", "py-mean", **settings))
        assert text in str(told.value)
    fl.check(fedavg, with_part("aggregator", "py-mean", most=None, **{"trim-these": [1, 2.5]}))


def test_a_run_that_fails_says_where_and_keeps_its_folder(fedavg):
    with pytest.raises(fl.RunError, match="is not empty") as told:
        Path("full").mkdir()
        Path("full/file").write_text("mine")
        fl.run(fedavg, out="full")
    assert told.value.folder is None
    with pytest.raises(fl.SpecError):
        fl.inspect("meen")
    with pytest.raises(fl.SpecError, match="--sigma"):
        fl.account("gaussian")


def test_tools_say_what_the_program_says():
    assert fl.inspect("mean")["parts"][0]["role"] == "aggregator"
    assert fl.inspect(my_parts.PyMean)["parts"][0]["settings"][0]["name"] == "scale"
    # the columns wrap at the width of the terminal
    assert {"above", "and", "most", "10"} <= set(repr(fl.inspect(my_parts.PyMean)).split())
    assert "py-mean" in {part["name"] for part in fl.parts("aggregator")}
    assert fl.schema()["type"] == "object"
    assert fl.account("laplace", scale=2.0, times=3)["epsilon"] == pytest.approx(1.5)
    assert fl.check(QUICK / "fedavg.yaml")["protocol"]["use"] == "fedavg"


def test_a_study_is_done_and_its_tables_are_there():
    Path("spec.yaml").write_text((QUICK / "fedavg.yaml").read_text())
    Path("study.yaml").write_text(
        "name: mine\ndefaults: { measure: accuracy }\ntables:\n  - name: rounds\n    title: Rounds\n    base: spec.yaml\n    seeds: 1-2\n"
        "    columns: [mean]\n    rows:\n      - { name: one, set: { protocol.rounds: 1 } }\n      - { name: two, set: { protocol.rounds: 2 } }\n"
    )
    study = fl.study("study.yaml", threads=1, quiet=True, out="all, mine")
    assert {(row["row"], row["seed"]) for row in study.rows} == {(r, s) for r in ("one", "two") for s in (1, 2)}
    assert {type(row["value"]) for row in study.rows} == {float}
    assert "| one | 0.9260" in str(study)


def test_an_aggregator_of_single_answers_is_refused_where_the_server_adds_them_up():
    private = QUICK / "dp-fedavg.yaml"
    for part in ("median", "norm-bounding"):
        with pytest.raises(fl.SpecError, match="it combines single answers, and protocol `dp-fedavg`"):
            fl.check(private, {"parts.aggregator": {"use": part}})
    fl.check(private, {"parts.aggregator": {"use": "fed-adam"}})

    @fl.aggregator("first-of-all")
    class First:
        claims = ["weight_free"]

        def aggregate(self, round, inbox):
            return dict(inbox[0])

    with pytest.raises(fl.SpecError, match="use a part that claims `of_mean`"):
        fl.check(private, {"parts.aggregator": {"use": "first-of-all"}})
    First.claims = ["of_mean"]
    fl.check(private, {"parts.aggregator": {"use": "first-of-all"}})


def test_what_the_program_notes_of_a_spec_is_a_warning():
    few = {"parts.aggregator": {"use": "trimmed-mean", "trim": 0.2}}
    with pytest.warns(UserWarning, match="with 4 answers it withstands no bad client"):
        fl.check(QUICK / "robust.yaml", few)


def test_cards_that_this_machine_lacks_are_warned_of():
    with pytest.warns(UserWarning, match="so far this machine cannot do the run"):
        fl.check(QUICK / "fedkd.yaml", {"parts.student.device": "cuda:63"})
