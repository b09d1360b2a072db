"""What networks of PyTorch keep: schedules, and a client's memory."""

import copy
from pathlib import Path

import fl
import fl.testing
import numpy as np
import pytest
from conftest import QUICK, with_part
from test_state import WAYS

torch = pytest.importorskip("torch")

import torch_parts  # noqa: E402

HERE = str(Path(__file__).parent)


def named(spec, use, fresh, **settings):
    spec = fl.check(spec, {**with_part("model", use, **settings), "protocol.fresh": fresh})
    spec["plugins"] = [{"module": "torch_parts", "path": HERE}]
    return spec


KEEPS = {
    "AdamW with a schedule": ("torch-adamw", False, {"falls": False}),
    "MOON, fresh": ("torch-moon", True, {"mu": 0}),
}


@pytest.mark.parametrize("what", KEEPS)
def test_exact_a_network_with_state_has_one_digest_in_five_ways(fedavg, what):
    use, fresh, without = KEEPS[what]
    found = fl.testing.ways(named(fedavg, use, fresh))
    print(f"| PyTorch | {what} | {' | '.join(d[:8] for d in found.values())} |")
    assert len(found) == 5 and len(set(found.values())) == 1, found
    assert fl.run(named(fedavg, use, fresh, **without), quiet=True).digest != found["plain"]


def test_moon_is_not_fedavg_and_its_memory_counts(fedavg):
    """Without the model of the round before, MOON's contrast is that of two equal models, and the
    run is another."""

    def forgets(self, x, target, how, stream):
        vars(self).pop("previous", None)
        return torch_parts.Moon.fit(self, x, target, how, stream)

    fl.trainer("torch-forgetful-moon")(type("Forgets", (torch_parts.Moon,), {"fit": forgets, "__doc__": "Forgets."}))
    digest = {use: fl.run(fedavg, with_part("model", use), quiet=True).digest for use in ("torch-moon", "torch-plain", "torch-forgetful-moon")}
    assert len(set(digest.values())) == 3, digest


def test_exact_features_of_a_kept_network_have_one_digest_in_five_ways(fedavg):
    spec = named(fedavg, "torch-plain", True)
    body = fl.run(spec, out="body", quiet=True)
    kept = {"kept-model": {"file": str(Path("body/models/model").absolute())}}
    # `plugins` still names the module of the kept network
    head = fl.check(spec, {**with_part("model", "linear"), "data.features": kept})
    found = fl.testing.ways(head)
    assert len(found) == 5 and len(set(found.values())) == 1, found
    results = fl.run(head, quiet=True)
    assert results.metrics["accuracy"] > body.metrics["accuracy"] - 0.1
    # scores are a last layer on what the network computes
    rows = torch.randn(7, 8)
    features = body.model().module()[:3](rows).detach().numpy()
    last = {value.ndim: value for value in results.model().arrays().values()}
    weight = last[2] if last[2].shape[0] == 16 else last[2].T
    np.testing.assert_allclose(results.model().predict(rows.numpy()), features @ weight + last[1], atol=1e-5)


@pytest.mark.filterwarnings("ignore:schedule")
def test_the_kit_holds_a_network_to_its_state():
    fl.testing.conformance(torch_parts.AdamW)


def test_a_schedule_that_begins_anew_in_each_round_is_told(fedavg):
    with pytest.warns(UserWarning, match="schedule\\(\\) of AdamW begins anew in each round.*`protocol.fresh: false`"):
        fl.run(fedavg, with_part("model", "torch-adamw"), quiet=True)


@pytest.mark.parametrize("threads", [1, 4])
def test_exact_a_fit_of_ones_own_is_on_one_thread_and_draws_by_the_seed(fedavg, threads):
    before = torch.get_rng_state()
    torch_parts.Noise.seen.clear()
    found = fl.run(fedavg, with_part("model", "torch-noise"), threads=threads, quiet=True).digest
    torch.manual_seed(threads)
    assert fl.run(fedavg, with_part("model", "torch-noise"), threads=5 - threads, quiet=True).digest == found
    assert set(torch_parts.Noise.seen) == {1}
    torch.set_rng_state(before)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_network_that_is_kept_after_setup_is_an_error_with_its_name(fedavg, way):
    def fit(self, x, target, how, stream):
        self._before = copy.deepcopy(self._model)
        return torch_parts.Net.fit(self, x, target, how, stream)

    fl.trainer("torch-deep")(type("Deep", (torch_parts.Net,), {"fit": fit, "__doc__": "Keeps a network."}))
    with pytest.raises(fl.RunError, match="what it keeps as `_before` \\(Sequential\\) cannot be saved.*its state_dict"):
        fl.run(fedavg, with_part("model", "torch-deep"), quiet=True, **way)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_exact_a_network_beside_the_model_that_setup_makes_is_kept(fedavg, way):
    def setup(self, stream):
        torch_parts.Net.setup(self, stream)
        self.before = copy.deepcopy(self._model)
        self.turns = 0

    def fit(self, x, target, how, stream):
        self.turns += 1
        if self.turns > 1:
            with torch.no_grad():
                for own, old in zip(self._model.parameters(), self.before.parameters()):
                    own.add_(old, alpha=0.1)
        done = torch_parts.Net.fit(self, x, target, how, stream)
        self.before.load_state_dict(self._model.state_dict())
        return done

    fl.trainer("torch-beside")(type("Beside", (torch_parts.Net,), {"fit": fit, "setup": setup, "__doc__": "Two networks."}))
    plain = fl.run(fedavg, with_part("model", "torch-beside"), quiet=True).digest
    assert plain != fl.run(fedavg, with_part("model", "torch-plain"), quiet=True).digest
    assert plain == fl.run(fedavg, with_part("model", "torch-beside"), quiet=True, **way).digest


def test_steps_of_unlike_length_are_refused_where_equal_ones_are_needed():
    assert fl.check(QUICK / "scaffold.yaml", {"parts.model": {"use": "torch-plain"}})
    for part in [{"use": "torch-adamw"}, {"use": "torch-plain", "momentum": 0.5}]:
        with pytest.raises(fl.SpecError, match="its steps are not all one learning rate times the gradient"):
            fl.check(QUICK / "scaffold.yaml", {"parts.model": part})
