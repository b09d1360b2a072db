"""Classifiers of scikit-learn in FedKT."""

import fl
import fl.testing
import numpy as np
import pytest
from conftest import QUICK

pytest.importorskip("sklearn")
from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
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


def binary(n, seed):
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, 2, n)
    return draws.normal(size=(n, 3)) + labels[:, None], labels


def test_without_probabilities_scores_are_what_it_decides_by():
    from sklearn.metrics import roc_auc_score
    from sklearn.svm import LinearSVC

    @fl.trainer("linear-svc")
    class Svc(fl.sklearn.Trainer):
        """A support vector machine, which has no probabilities."""

        def estimator(self):
            return LinearSVC()

    spec = fl.check(QUICK / "fedkt.yaml", {"parts.final": {"use": "linear-svc"}})
    spec["data"] = {}
    inputs, labels = binary(200, 9)
    results = fl.run(spec, data={"train": [binary(80, seed) for seed in range(5)], "test": (inputs, labels), "public": binary(100, 7)[0]}, quiet=True)
    decides = results.model().part()._fitted.decision_function(inputs)
    assert results.metrics["auc"] == pytest.approx(roc_auc_score(labels, decides))
    assert results.metrics["auc"] > results.metrics["accuracy"]  # that of votes would be about the accuracy


class Votes(ClassifierMixin, BaseEstimator):
    """Votes by the sign of the first number."""

    def fit(self, x, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, x):
        return self.classes_[(x[:, 0] > 0.5).astype(int)]


def test_votes_alone_are_refused_unless_the_class_says_so():
    @fl.trainer("votes-refused")
    class Refused(fl.sklearn.Trainer):
        """Does not say so."""

        def estimator(self):
            return Votes()

    @fl.trainer("votes-taken")
    class Taken(Refused):
        """Says so."""

        votes = True

    spec = fl.check(QUICK / "fedkt.yaml", {"parts.final": {"use": "votes-refused"}})
    spec["data"] = {}
    data = {"train": [binary(80, seed) for seed in range(5)], "test": binary(200, 9), "public": binary(100, 7)[0]}
    with pytest.raises(fl.RunError, match="Votes has neither predict_proba nor a decision_function .* `votes = True` in the class"):
        fl.run(spec, data=data, quiet=True)
    spec["parts"]["final"] = {"use": "votes-taken"}
    assert fl.run(spec, data=data, quiet=True).metrics["accuracy"] > 0.5
