"""One part on arrays, in a loop of one's own."""

import fl
import numpy as np
import pytest


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
    once, twice = book([noise.spent]), book([noise.spent])
    text = str(once)
    assert text != str(twice)


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


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: fl.make("trimmed-means"), "no aggregator, attack, mechanism, selector or accountant is called `trimmed-means`"),
        (lambda: fl.make("trimmed-mean", trim=0.7), "trim"),
        (lambda: fl.make("mean-labels"), "only parts on params take arrays"),
        (lambda: fl.make("mean")([]), "there are no messages"),
        (lambda: fl.make("mean")([{"w": np.ones(2, np.float32)}, {"v": np.ones(2, np.float32)}]), "message 1 has other names"),
        (lambda: fl.make("mean")([{"w": np.ones(2, np.int64)}]), "`w` is of int64; leave it out"),
        (lambda: fl.make("mean")([{"w": np.full(2, np.nan)}]), "finite"),
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
