"""Classifiers of scikit-learn in FedKT, and regressors where the task is a number."""

import time
import warnings

import fl
import fl.testing
import numpy as np
import pytest
from conftest import QUICK

pytest.importorskip("sklearn")
from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, VotingClassifier  # noqa: E402
from sklearn.linear_model import LinearRegression, LogisticRegression, QuantileRegressor  # noqa: E402
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer, StandardScaler  # noqa: E402
from sklearn.svm import SVC  # noqa: E402

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


@pytest.mark.parametrize(("spec", "slot"), [("ds-fl", "student"), ("fkd", "model")])
def test_class_probabilities_are_refused_before_a_run(spec, slot):
    why = rf"parts.{slot} .trainer `scaled-logistic`.: it learns no class probabilities .*a classifier of scikit-learn learns classes, and the target is soft.*`fedkt`"
    with pytest.raises(fl.SpecError, match=why):
        fl.check(QUICK / f"{spec}.yaml", {f"parts.{slot}": {"use": "scaled-logistic"}})


def test_a_model_that_starts_again_is_refused_where_it_must_go_on():
    with pytest.raises(fl.SpecError, match="each of its trainings starts again"):
        fl.check(QUICK / "selective-fd.yaml", {"parts.model": {"use": "extra-trees"}, "protocol.reply": "hard"})


def test_an_estimator_is_made_once_for_the_check_and_once_for_each_training():
    made = []

    def estimator(self):
        made.append(1)
        return LogisticRegression()

    fl.trainer("sklearn-counted")(type("Counted", (fl.sklearn.Trainer,), {"estimator": estimator, "__doc__": "Counts itself."}))
    spec = fl.check(QUICK / "solo.yaml", {"parts.model": {"use": "sklearn-counted"}, "data.clients": 3})
    fl.run(spec, quiet=True, threads=1)
    # the check, and the training of each client
    assert len(made) == 1 + 3


def test_a_seed_that_an_estimator_sets_is_replaced_with_a_warning():
    estimators = {
        "sklearn-own-seed": lambda self: make_pipeline(StandardScaler(), ExtraTreesClassifier(3, random_state=5)),
        "sklearn-runs-seed": lambda self: ExtraTreesClassifier(3),
    }
    said = {}
    for name, estimator in estimators.items():
        fl.trainer(name)(type("Seeded", (fl.sklearn.Trainer,), {"estimator": estimator, "__doc__": "Draws."}))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fl.run(QUICK / "solo.yaml", {"parts.model": {"use": name}, "data.clients": 3}, quiet=True)
        said[name] = [str(one.message) for one in caught if "random_state" in str(one.message)]
    due = "estimator() of Seeded sets `extratreesclassifier__random_state=5`, and what it draws follows the run's seed instead: leave it out"
    assert said == {"sklearn-own-seed": [due], "sklearn-runs-seed": []}


def test_a_class_without_a_sample_has_an_even_share_and_is_no_veto():
    rows = np.arange(90) % 3
    x = np.eye(3, dtype=np.float32)[rows]
    train = [(x[rows != less], rows[rows != less]) for less in (2, 0)]
    parts = {"teacher": {"use": "extra-trees"}, "student": {"use": "linear", "lr": 1}, "ensemble": {"use": "mean-logits"}}
    spec = {"name": "veto", "seed": 1, "protocol": {"use": "fedkd", "student": {"epochs": 300, "batch": 30}, "keep-clients": True}, "parts": parts}
    results = fl.run(spec, data={"train": train, "test": (x, rows), "public": x}, quiet=True)
    scores = [results.model("teacher", client=client).predict(x) for client in (0, 1)]
    for of, less in zip(scores, (2, 0)):
        assert np.allclose(of[:, less], -np.log(3), atol=1e-5)
    assert (np.mean(scores, axis=0).argmax(axis=1) == rows).all()
    assert results.metrics["accuracy"] > 0.9


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
    # that of votes would be about the accuracy
    assert results.metrics["auc"] > results.metrics["accuracy"]


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

    spec = fl.check(QUICK / "fedkt.yaml")
    spec["data"], spec["parts"]["final"] = {}, {"use": "votes-refused"}
    data = {"train": [binary(80, seed) for seed in range(5)], "test": binary(200, 9), "public": binary(100, 7)[0]}
    with pytest.raises(fl.SpecError, match="Votes has neither predict_proba nor a decision_function .* `votes = True` in the class"):
        fl.run(spec, data=data, quiet=True)
    spec["parts"]["final"] = {"use": "votes-taken"}
    assert fl.run(spec, data=data, quiet=True).metrics["accuracy"] > 0.5


SEARCHES = {
    "search": lambda: GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, cv=2),
    "shuffled": lambda: RandomizedSearchCV(LogisticRegression(), {"C": [0.1, 1, 10]}, n_iter=2, cv=KFold(2, shuffle=True)),
    "nested": lambda: make_pipeline(StandardScaler(), VotingClassifier([("a", GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, cv=2)), ("b", LogisticRegression())], voting="soft")),
    "noise": lambda: make_pipeline(FunctionTransformer(noisy), LogisticRegression()),
}


def noisy(x):
    return x + np.random.normal(0, 0.1, x.shape)


@pytest.mark.parametrize("which", SEARCHES)
def test_exact_a_search_or_a_draw_inside_a_classifier_gives_one_digest(which):
    fl.trainer(f"sklearn-{which}")(type(which.title(), (fl.sklearn.Trainer,), {"estimator": lambda self: SEARCHES[which](), "__doc__": "A classifier."}))
    use = {f"parts.{slot}": {"use": f"sklearn-{which}"} for slot in ("student", "final")}
    spec = {**fl.check(QUICK / "fedkt.yaml", use), "data": {"set": {"blobs": {"train": 400}}, "clients": 3, "public": {"from": {"share": 0.3}}}}
    found = {fl.run(spec, quiet=True, threads=n, wire=n == 4).digest for n in (1, 4, 4)}
    assert len(found) == 1


class Clock(ClassifierMixin, BaseEstimator):
    """Keeps the time."""

    def fit(self, x, y):
        self.classes_, self.at_ = np.unique(y), time.perf_counter()
        return self

    def predict_proba(self, x):
        return np.ones((len(x), len(self.classes_))) / len(self.classes_)


def test_a_classifier_that_keeps_the_time_is_an_error():
    fl.trainer("sklearn-clock")(type("Keeps", (fl.sklearn.Trainer,), {"estimator": lambda self: Clock(), "__doc__": "Keeps the time."}))
    with pytest.raises(fl.RunError, match="two models that learnt the same from the same rows have other pickles"):
        fl.run(QUICK / "fedkt.yaml", {"parts.final": {"use": "sklearn-clock"}}, quiet=True)


class Strict(ClassifierMixin, BaseEstimator):
    """Takes classes from 0 on without a gap, as XGBoost."""

    def __init__(self, class_weight=None):
        self.class_weight = class_weight

    def fit(self, x, y):
        if not np.array_equal(np.unique(y), np.arange(len(np.unique(y)))):
            raise ValueError(f"Invalid classes inferred from unique values of `y`, got {np.unique(y)}")
        self.inner_ = LogisticRegression(class_weight=self.class_weight).fit(x, y)
        self.classes_ = self.inner_.classes_
        return self

    def predict_proba(self, x):
        return self.inner_.predict_proba(x)


def trained(estimator, labels):
    """A trainer that has learnt rows with these labels, whose class they tell."""
    cls = fl.trainer(f"sklearn-{id(estimator)}")(type("Of", (fl.sklearn.Trainer,), {"estimator": lambda self: estimator, "__doc__": "A classifier."}))
    from fl._parts import calls
    from fl._parts.arguments import Pass, Stream

    part = calls.create(calls.CLASSES.index(cls), "{}", '{"input": [2], "kind": {"Classes": 4}}', bytes(32))
    labels = np.array(labels)
    x = np.stack([labels, -labels], 1).astype("float32")
    part.fit(x, labels.astype("uint32"), Pass("classes", "cross-entropy", batch=8, epochs=1), Stream(bytes(32)))
    return part, part.predict(x)


@pytest.mark.parametrize(("weights", "key"), [({"ill": 20.0, "well": 1.0}, "'ill'"), ({1: 1.0, 2: 1.0, 4: 50.0}, "4"), ({-1: 2.0}, "-1")])
def test_weights_of_what_is_no_position_of_a_class_are_refused(weights, key):
    with pytest.raises(fl.Lacks, match=f"class_weight of .* has the key {key}: keys are positions .*, here 0 to 3"):
        trained(make_pipeline(StandardScaler(), LogisticRegression(class_weight=weights)), [1, 3] * 20)


@pytest.mark.parametrize("weights", [None, "balanced", {0: 1.0, 1: 9.0, 3: 1.0}], ids=str)
def test_a_client_may_lack_any_class(weights):
    labels = [1, 3] * 20
    part, scores = trained(Strict(weights), labels)
    assert part._classes.tolist() == [1, 3] and scores.argmax(1).tolist() == labels
    # an even share of the probability: no veto in a mean of scores, and no vote
    assert np.allclose(scores[:, [0, 2]], np.log(1 / 4)) and (scores[:, [0, 2]].max(1) < scores.max(1)).all()


def test_votes_are_of_the_classes_that_a_client_has():
    fl.sklearn.Trainer.votes, labels = True, [2, 3] * 10
    try:
        assert trained(KNeighborsClassifier(1).fit([[0, 0]], [0]), labels)[1].argmax(1).tolist() == labels
        assert trained(Votes(), labels)[0]._classes.tolist() == [2, 3]
    finally:
        fl.sklearn.Trainer.votes = False


class Told(Strict):
    """Gives a share to each of four classes, of which it may have seen fewer."""

    def predict_proba(self, x):
        shares = super().predict_proba(x)
        return np.hstack([0.9 * shares, np.full((len(x), 4 - shares.shape[1]), 0.1 / (4 - shares.shape[1]))])


def test_a_classifier_may_give_shares_of_classes_that_it_has_not_seen():
    labels = [1, 3] * 20
    assert np.allclose(trained(Told(None), labels)[1], trained(Strict(None), labels)[1], atol=1e-5)


def test_three_classes_of_pairwise_votes_have_scores_of_their_own():
    x = np.random.default_rng(0).normal(size=(150, 4)).astype("float32")
    y = (x @ np.random.default_rng(1).normal(size=(4, 3))).argmax(1)
    fl.trainer("sklearn-pairs")(type("Pairs", (fl.sklearn.Trainer,), {"estimator": lambda self: SVC(decision_function_shape="ovo"), "__doc__": "Pairs."}))
    spec = {"name": "pairs", "protocol": {"use": "solo", "keep-clients": True}, "parts": {"model": {"use": "sklearn-pairs"}}}
    results = fl.run(spec, data={"train": [(x[:100], y[:100])], "test": (x[100:], y[100:])}, quiet=True)
    assert results.metrics["clients.accuracy"] > 0.8


def test_xgboost_learns_where_clients_lack_classes():
    xgboost = pytest.importorskip("xgboost")
    fl.trainer("sklearn-xgboost")(type("Xgb", (fl.sklearn.Trainer,), {"estimator": lambda self: xgboost.XGBClassifier(n_estimators=5), "__doc__": "XGBoost."}))
    spec = fl.check(QUICK / "fedkt.yaml", {f"parts.{slot}": {"use": "sklearn-xgboost"} for slot in ("teacher", "student", "final")})
    spec["data"] |= {"split": {"classes": 2}}
    found = {fl.run(spec, {"protocol.partitions": 1}, quiet=True, threads=n).digest for n in (1, 4)}
    assert len(found) == 1


@fl.trainer("extra-trees-of-numbers")
class ExtraTreesOfNumbers(fl.sklearn.Trainer):
    """Extremely randomised trees that learn a number."""

    trees: int = 10

    def estimator(self):
        return ExtraTreesRegressor(self.trees, n_jobs=-1)


@fl.trainer("least-squares")
class LeastSquares(fl.sklearn.Trainer):
    """Linear regression on standardised inputs."""

    def estimator(self):
        return make_pipeline(StandardScaler(), LinearRegression())


@fl.trainer("least-absolute")
class LeastAbsolute(fl.sklearn.Trainer):
    """Linear regression by the absolute error."""

    learns = ("mae",)

    def estimator(self):
        return QuantileRegressor(alpha=0)


def of_numbers(n, seed):
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(n, 3))
    return x.astype("float32"), 50 + 8 * x @ [1.0, -2.0, 0.5] + draws.normal(size=n)


def learnt(protocol, parts, loss="mse", data=None, **more):
    spec = {"name": "numbers", "seed": 1, "protocol": {"use": protocol}, "parts": parts}
    label = {"kind": {"number": {"centre": 50.0, "spread": 20.0, "loss": loss}}}
    train = {f"client {k}": of_numbers(60, k) for k in range(3)}
    return fl.run(spec, data={"train": train, "test": of_numbers(200, 9), "public": of_numbers(120, 8)[0], "label": label} | (data or {}), quiet=True, **more)


def rmse_of(estimator, train):
    x, y = of_numbers(200, 9)
    return np.sqrt(np.mean((estimator.fit(*train).predict(x) - y) ** 2))


def test_close_a_regressor_alone_has_scikit_learns_error():
    found = learnt("solo", {"model": {"use": "least-squares"}}).metrics
    errors = [rmse_of(LinearRegression(), of_numbers(60, k)) for k in range(3)]
    assert found["clients.rmse"] == pytest.approx(np.mean(errors), rel=1e-5)
    pooled = [np.concatenate(one) for one in zip(*(of_numbers(60, k) for k in range(3)), strict=True)]
    found = learnt("centralised", {"model": {"use": "least-squares"}}).metrics
    assert found["clients.rmse"] == pytest.approx(rmse_of(LinearRegression(), pooled), rel=1e-5)


def test_exact_regressors_teach_a_regressor_in_every_way_of_running():
    parts = {"teacher": {"use": "extra-trees-of-numbers", "trees": 5}, "student": {"use": "extra-trees-of-numbers"}, "ensemble": {"use": "mean-logits"}}
    spec = {"name": "numbers", "seed": 1, "data": {"set": {"friedman": {"train": 200, "test": 100}}, "clients": 3, "public": {"from": {"share": 0.3}}}, "protocol": {"use": "fedkd", "loss": "mse"}, "parts": parts}
    assert len(set(fl.testing.ways(spec).values())) == 1
    found = fl.run(spec, quiet=True)
    assert found.metrics["r2"] > 0.4 and len(found.model("student").predict(np.zeros((2, 10), np.float32))) == 2


def test_close_a_regressor_learns_by_the_loss_that_it_names():
    found = learnt("solo", {"model": {"use": "least-absolute"}}, loss="mae").metrics
    errors = [rmse_of(QuantileRegressor(alpha=0), of_numbers(60, k)) for k in range(3)]
    assert found["clients.rmse"] == pytest.approx(np.mean(errors), rel=1e-4)


def test_an_estimator_of_another_task_is_refused():
    with pytest.raises(fl.Error, match="LogisticRegression is a classifier|Pipeline is a classifier"):
        learnt("solo", {"model": {"use": "scaled-logistic"}})
    with pytest.raises(fl.Error, match="ExtraTreesRegressor is a regressor, and the task has classes"):
        fl.run(QUICK / "fedkt.yaml", {"parts.final": {"use": "extra-trees-of-numbers"}}, quiet=True)
    with pytest.raises(fl.SpecError, match="it cannot minimise the loss of the labels, mae, .* name this loss in what it `learns`"):
        learnt("solo", {"model": {"use": "extra-trees-of-numbers"}}, loss="mae")
    with pytest.raises(fl.SpecError, match="param"):
        learnt("fedavg", {"model": {"use": "least-squares"}, "aggregator": {"use": "mean"}})
