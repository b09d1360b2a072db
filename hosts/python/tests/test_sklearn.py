"""Classifiers of scikit-learn in FedKT."""

import fl
import fl.testing
import pytest
from conftest import QUICK

pytest.importorskip("sklearn")
from sklearn.ensemble import ExtraTreesClassifier  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

import fl.sklearn  # noqa: E402


@fl.trainer("extra-trees")
class ExtraTrees(fl.sklearn.Trainer):
    """Extremely randomised trees."""

    trees: int = 10

    def estimator(self):
        return ExtraTreesClassifier(self.trees, n_jobs=-1)


@fl.trainer("scaled-logistic")
class Scaled(fl.sklearn.Trainer):
    """Logistic regression on standardised inputs."""

    def estimator(self):
        return make_pipeline(StandardScaler(), LogisticRegression())


@pytest.mark.parametrize("part", [ExtraTrees, Scaled])
def test_a_classifier_is_held_to_what_trainers_promise(part):
    fl.testing.conformance(part)


def test_exact_fedkt_with_classifiers_is_the_same_on_any_number_of_threads():
    use = {"parts.teacher": {"use": "extra-trees"}, "parts.student": {"use": "extra-trees"}, "parts.final": {"use": "scaled-logistic"}}
    one, two = (fl.run(QUICK / "fedkt.yaml", use, threads=n, quiet=True) for n in (1, 3))
    assert one.digest == two.digest and one.metrics["accuracy"] > 0.8


def test_what_needs_parameters_does_not_take_one():
    with pytest.raises(fl.SpecError, match="param"):
        fl.check(QUICK / "fedavg.yaml", {"parts.model": {"use": "extra-trees"}})
