"""One part on arrays, in a loop of one's own."""

import copy
import os
import shutil
import subprocess
from pathlib import Path

import fl
import numpy as np
import pytest

ROOT = Path(__file__).parents[3]


def messages(n, seed=0):
    draws = np.random.default_rng(seed)
    return [{"w": draws.normal(size=(3, 2)).astype(np.float32), "b": draws.normal(size=2).astype(np.float32)} for _ in range(n)]


def test_an_aggregator_is_numpys():
    all = messages(5)
    mean = fl.make("mean")(all, weights=[1, 2, 3, 4, 5])
    assert list(mean) == ["w", "b"] and mean["w"].dtype == np.float32
    due = np.average([m["w"] for m in all], axis=0, weights=[1, 2, 3, 4, 5])
    assert np.abs(mean["w"] - due).max() < 1e-6
    median = fl.make("median")([list(m.values()) for m in all])
    assert np.array_equal(median[1], np.median([m["b"] for m in all], axis=0))


def test_other_types_come_back_as_they_went():
    all = [{"w": m["w"].astype(np.float64), "one": np.float32(k)} for k, m in enumerate(messages(3))]
    mean = fl.make("mean")(all)
    assert mean["w"].dtype == np.float64 and mean["one"].shape == () and mean["one"] == 1
    torch = pytest.importorskip("torch")
    tensors = [{"w": torch.from_numpy(m["w"]).to(torch.bfloat16).requires_grad_()} for m in messages(3)]
    back = fl.make("mean")(tensors)["w"]
    assert back.dtype == torch.bfloat16 and back.shape == (3, 2)


def test_state_stays_between_calls_and_goes_along():
    sent, answers = messages(1)[0], messages(4, 1)
    adam = fl.make("fed-adam", lr=0.1)
    first = adam(answers, sent=sent)
    kept = adam.save()
    second = adam(answers, sent=first)
    other = fl.make("fed-adam", lr=0.1)
    assert not np.array_equal(other(answers, sent=first)["w"], second["w"]), "it has a state"
    other.load(kept)
    assert np.array_equal(other(answers, sent=first)["w"], second["w"])


def test_a_part_says_how_it_is_copied():
    with pytest.raises(TypeError, match="aggregator `mean` cannot be copied: make another one, and let it `load` what `save` gives"):
        copy.deepcopy(fl.make("mean"))


def test_a_mechanism_and_its_accountant():
    noise = fl.make("gaussian-update", clip=1.0, noise_multiplier=2.0, seed=3)
    one = messages(1)[0]
    seen = noise(one, clients=1)
    assert np.array_equal(fl.make("gaussian-update", clip=1.0, noise_multiplier=2.0, seed=3)(one)["w"], seen["w"])
    drawn = [fl.make("gaussian-update", clip=1.0, noise_multiplier=2.0)(one)["w"] for _ in range(2)]
    assert not np.array_equal(*drawn), "without a seed the noise is the system's"
    zero = {"w": np.zeros(20000, np.float32)}
    spread = fl.make("gaussian-update", clip=1.0, noise_multiplier=2.0, seed=1)(zero)["w"].std()
    assert 1.9 < spread < 2.1
    book = fl.make("pld", delta=1e-5)
    safe = fl.make("gaussian-update", clip=1.0, noise_multiplier=2.0)
    safe(one)
    once, twice = book([safe.spent]), book([safe.spent])
    text = str(once)
    assert text != str(twice)
    assert "noise" not in once, "an event says where noise came from only if it was seeded"


def test_an_accountant_says_that_seeded_noise_is_no_guarantee():
    one, book = {"w": np.zeros(3, np.float32)}, fl.make("pld", delta=1e-5)
    seeded, safe = (fl.make("gaussian-update", clip=1.0, noise_multiplier=2.0, seed=seed) for seed in (0, None))
    for noise in (seeded, safe):
        noise(one)
    with pytest.warns(UserWarning, match="accountant `pld`: an estimate, and no guarantee: who knows the seed can remove the noise"):
        assert book([seeded.spent])["noise"] == "seeded"
        assert book([safe.spent])["noise"] == "seeded", "what all of them so far cost"


def test_a_selector_picks_clients():
    pool = [{"id": at, "samples": 10 + at, "loss": float(at)} for at in range(10)]
    picked = fl.make("uniform", role="selector", share=0.4, seed=1)(pool)
    assert len(set(picked)) == 4 and all(0 <= at < 10 for at in picked)


def test_parts_of_python_stand_alone_too():
    @fl.aggregator("twice-the-mean")
    class TwiceTheMean:
        """Twice the mean."""

        def aggregate(self, round, inbox):
            return {name: 2 * sum(message[name] for message in inbox) / len(inbox) for name in inbox[0]}

    all = messages(3)
    assert np.allclose(fl.make("twice-the-mean")(all)["b"], 2 * np.mean([m["b"] for m in all], axis=0), atol=1e-6)


def test_messages_of_other_kinds_are_arrays_too():
    labels = [np.array([[0.8, 0.2], [0.5, 0.5]]), np.array([[0.4, 0.6], [0.1, 0.9]])]
    mean = fl.make("mean-labels")
    assert mean.kind == "soft-labels"
    due = np.mean(labels, axis=0)
    assert np.allclose(mean([{"values": one} for one in labels])["values"], due, atol=1e-6)
    # other rows of each client: a row's mean is over the clients that have it
    apart = mean([{"rows": [4, 7], "values": labels[0]}, {"rows": [7, 9], "values": labels[1]}])
    assert list(apart["rows"]) == [4, 7, 9]
    assert np.allclose(apart["values"], [labels[0][0], (labels[0][1] + labels[1][0]) / 2, labels[1][1]], atol=1e-6)
    assert np.allclose(fl.make("mean-logits")([{"values": one} for one in labels])["values"], due, atol=1e-6)
    # votes become counts, whose mechanism has a price
    ballots = [{"labels": np.array([[0], [2]]), ".classes": [3]}, {"labels": np.array([[0], [1]]), ".classes": [3]}]
    counts = fl.make("majority-vote")(ballots)
    assert counts["values"].dtype == np.float64 and counts["values"].tolist() == [[2, 0, 0], [0, 1, 1]]
    noise = fl.make("laplace-votes", gamma=0.1, seed=1)
    assert not np.array_equal(noise(counts)["values"], counts["values"]) and noise.spent
    noisy = fl.make("laplace-logits", gamma=1.0, seed=2)({"values": labels[0].astype(np.float32)})
    assert noisy["values"].dtype == np.float32 and not np.array_equal(noisy["values"], labels[0])
    # a step before an aggregator gives a list of parameters
    clipped = fl.make("update-clipping", radius=1.0)(messages(3), sent=messages(1, 9)[0])
    assert clipped["weights"].tolist() == [1, 1, 1] and clipped["params.w"].shape == (3, 3, 2)
    torch = pytest.importorskip("torch")
    back = mean([{"values": torch.from_numpy(one)} for one in labels])["values"]
    assert back.dtype == torch.float64 and np.allclose(back, due, atol=1e-6)


def test_exact_strides_and_widths_change_no_bit():
    wide = [np.random.default_rng(k).normal(size=(8, 6)) for k in range(4)]
    plain = fl.make("mean")([[one.astype(np.float32)] for one in wide])[0]
    doubles = fl.make("mean")([[one] for one in wide])[0]
    turned = fl.make("mean")([[np.asfortranarray(one.astype(np.float32))] for one in wide])[0]
    backwards = fl.make("mean")([[one.astype(np.float32)[::-1][::-1]] for one in wide])[0]
    swapped = fl.make("mean")([[one.astype(">f4")] for one in wide])[0]
    assert doubles.dtype == np.float64 and np.array_equal(doubles.astype(np.float32), plain)
    for other in (turned, backwards, swapped):
        assert np.array_equal(other, plain)


def test_a_library_brings_its_parts(tmp_path):
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    library = tmp_path / "c_mean.so"
    flags = ["-std=c11", "-O2", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden", "-shared"]
    subprocess.run(["cc", *flags, "-I", ROOT / "fl-core/include", "-o", library, ROOT / "plugins/example-c/c_mean.c"], check=True)
    with pytest.raises(fl.SpecError, match="no aggregator"):
        fl.make("c-mean")
    for plugins in (library, [str(library)], [{"path": str(library), "isolate": False}]):
        mean = fl.make("c-mean", plugins=plugins)([{"w": np.array([1, 2.0])}, {"w": np.array([3, 0.4])}], weights=[1, 3])
        assert np.allclose(mean["w"], [2.5, 0.8], atol=1e-6), plugins
    with pytest.raises(fl.SpecError, match="pinned"):
        fl.make("c-mean", plugins=[{"path": str(library), "sha256": "0" * 64}])


def test_a_library_keeps_its_state():
    program = os.environ.get("FL_PROGRAM") or shutil.which("fl")
    found = [Path(program).parent / folder / "libfl_plugin_example_dynamic.so" for folder in ("", "deps")] if program else []
    found = [path for path in found if path.exists()]
    if not found:
        pytest.skip("the example library is not built: cargo build -p fl-plugin-example-dynamic")
    theirs = fl.make("momentum-mean", beta=0.5, plugins=found[0])
    first = theirs(messages(3, 1))
    second = theirs(messages(3, 2), sent=first)
    kept, third = theirs.save(), theirs(messages(3, 3), sent=second)
    other = fl.make("momentum-mean", beta=0.5, plugins=found[0])
    other.load(kept)
    assert np.array_equal(other(messages(3, 3), sent=second)["w"], third["w"])
    assert not np.allclose(third["w"], fl.make("mean")(messages(3, 3))["w"]), "the calls before count"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: fl.make("trimmed-means"), "no aggregator, attack, mechanism, selector or accountant is called `trimmed-means`"),
        (lambda: fl.make("trimmed-mean", trim=0.7), "trim"),
        (lambda: fl.make("mean-labels")([[np.ones(2)]]), "a message is of soft-labels: a mapping with arrays rows, values"),
        (lambda: fl.make("mean-labels")([{"labels": np.ones((1, 2))}]), "has labels, and soft-labels have rows, values"),
        (lambda: fl.make("mean-labels")([{"rows": [0.5], "values": np.ones((1, 2))}]), "`rows` must be whole numbers of uint32, and has float64"),
        (lambda: fl.make("mean-labels")([{"rows": [-1], "values": np.ones((1, 2))}]), "`rows` must be whole numbers of uint32"),
        (lambda: fl.make("unambiguous", role="selector"), "only selectors of clients stand alone"),
        (lambda: fl.make("quantise")({"values": np.ones((2, 3))}), "agrees with all clients on a range"),
        (lambda: fl.make("mean", plugins="no/such.so"), r"plugins\[0\].path.*no/such.so"),
        (lambda: fl.make("mean", plugins=[{"file": "x"}]), "file"),
        (lambda: fl.make("mean")([]), "there are no messages"),
        (lambda: fl.make("mean")([{1: np.ones(2), "1": np.zeros(2)}] * 2), "two of the names are the same as text: 1, '1'"),
        (lambda: fl.make("mean")([{"w": np.ones(2, np.float32)}, {"v": np.ones(2, np.float32)}]), "message 1 has other names"),
        (lambda: fl.make("mean")([{"w": np.ones(2, np.int64)}]), "`w` is of int64; leave it out"),
        (lambda: fl.make("mean")([{"w": np.full(2, np.nan)}]), "finite"),
        (lambda: fl.make("mean")([{"w": np.ma.masked_equal(np.ones(2), 1)}]), "`w` has masked numbers, and fl would read what is below the mask"),
        (lambda: fl.make("mean")(messages(2), weights=[1]), "1 weights for 2 messages"),
        (lambda: fl.make("fed-adam")(messages(2)), "give `sent`"),
        (lambda: fl.make("mean")([{"w": np.ones(2, np.float32)}, {"w": np.ones(3, np.float32)}]), "w"),
    ],
)
def test_mistakes_say_what_to_give(call, text):
    with pytest.raises(fl.Error, match=text):
        call()


def test_a_thousand_messages_of_a_thousand_numbers_need_no_json():
    all = [{"w": np.full(1000, k, np.float32)} for k in range(1000)]
    assert fl.make("mean")(all)["w"][0] == np.float32(499.5)
