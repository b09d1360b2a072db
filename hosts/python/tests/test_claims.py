"""A guarantee that rests on a part in Python is printed as its claim, whatever its role."""

import fl
import numpy as np
import pytest
import state_parts
from conftest import QUICK


@fl.aggregator("loud-vote", "votes", "counts")
class LoudVote:
    """Counts each vote, perhaps many times."""

    times: float = 1.0

    def aggregate(self, round, inbox):
        classes = int(inbox[0][".classes"][0])
        counts = sum(np.eye(classes)[mail["labels"]].sum(axis=1) for mail in inbox)
        return {"rows": inbox[0]["rows"], "values": self.times * counts, ".about": np.array([1, 2, 2, 1], np.uint32)}


@fl.trainer("remembers-all")
class RemembersAll(state_parts.Stateless):
    """A teacher whose copies could share what they have seen."""

    remembers = ("previous", "seen", "_turns", "_velocity")


@fl.selector("says-poisson")
class SaysPoisson:
    """Takes all clients, and says that each was drawn by chance."""

    draw = {"poisson": {"rate": 0.01}}

    def select(self, round, pool):
        return np.arange(len(pool.clients))


@fl.privacy("draws-in-vain")
class DrawsInVain:
    """Draws noise and throws it away."""

    def clip(self, message):
        return dict(message)

    def price(self, message, cohort):
        return {"Gaussian": {"sensitivity": 1e-3, "sigma": 1.0, "unit": "party"}}

    def perturb(self, message, cohort, noise):
        for array in message.values():
            noise.gaussian(array, 1.0)
        return dict(message)


@fl.aggregator("the-first-scores", "logits")
class TheFirstScores:
    """The answer of one client."""

    def aggregate(self, round, inbox):
        return {name: inbox[0][name] for name in inbox[0]}


@fl.aggregator("the-first-params", "params")
class TheFirstParams(TheFirstScores):
    """The answer of one client; the released sum is the only one that it gets."""

    claims = ["of_mean"]


CASES = {
    "a vote counter": ("fedkt-l1", {"parts.tier2": {"use": "loud-vote"}}),
    "a vote counter of parties": ("fedkt-l1", {"protocol.noise": "party", "parts.tier1": {"use": "loud-vote"}}),
    "a teacher": ("fedkt-l1", {"parts.teacher": {"use": "remembers-all"}}),
    # clients share the memory of the process
    "a trainer": ("dp-fedavg", {"parts.model": {"use": "remembers-all"}}),
    "an aggregator beside the clients": ("dp-fedavg", {"parts.aggregator": {"use": "the-first-params"}}),
    "a selector of clients": ("dp-fedavg", {"parts.cohort": {"use": "says-poisson"}}),
    "a mechanism": ("fedavg-private", {"parts.privacy": {"use": "draws-in-vain"}}),
    "an aggregator whose result the server releases": ("fedkd-priced", {"parts.ensemble": {"use": "the-first-scores"}}),
}


def claims(spec, settings):
    """Who claims the guarantees of a run with system noise, by observer; not those that are
    nothing."""
    spec = fl.check(QUICK / f"{spec}.yaml", {"noise": "system"} | settings)
    told = fl.run(spec, quiet=True).guarantees
    return {observer: one.get("claimed_by", []) for observer, one in told.items() if "epsilon" in one}


@pytest.mark.parametrize("case", CASES)
def test_a_guarantee_that_rests_on_a_part_in_python_is_its_claim(case):
    spec, settings = CASES[case]
    found = claims(spec, settings)
    assert found, "a guarantee"
    for observer, by in found.items():
        assert len(by) == 1 and "test_claims" in by[0], (observer, by)


@pytest.mark.parametrize("spec", sorted({spec for spec, _ in CASES.values()}))
def test_linked_parts_claim_nothing(spec):
    found = claims(spec, {})
    assert found and not any(found.values()), found
