"""Classifiers of scikit-learn as trainers, for protocols that need no parameters, such as FedKT.

    import fl, fl.sklearn
    from sklearn.ensemble import ExtraTreesClassifier

    @fl.trainer("extra-trees")
    class ExtraTrees(fl.sklearn.Trainer):
        "Extremely randomised trees."
        trees: int = 100

        def estimator(self):
            return ExtraTreesClassifier(self.trees)

What the classifier draws at random follows the run's seed, through `random_state`. Models are written with pickle: open run folders
only from those whom you trust.
"""

from __future__ import annotations

import math
import pickle
import types
import warnings

import numpy as np

from ._parts.arguments import Lacks, Pass, Shape, Stream

_LEAST = 1e-7  # a probability of 0 has no logarithm


class Trainer:
    """A classifier: override `estimator`. Each fit starts again, whatever length of training a protocol asks for."""

    learns = ("cross-entropy",)
    remembers = True  # what a subclass sets on itself outlasts a model that is made anew
    votes = False
    """Do votes do for scores, where a classifier has neither `predict_proba` nor a `decision_function`? Their AUC is that of votes."""
    _holds = ("_fitted", "_classes")  # save() holds these
    pickled = True

    def estimator(self):
        """A classifier that has not been fitted."""
        raise NotImplementedError(f"{type(self).__name__} has no estimator()")

    # ---- what the program calls

    def setup(self, _stream: Stream):
        if self.task.numbers:
            raise Lacks("classifiers of scikit-learn learn classes here, and the task is a number to predict; use `boosting`, `forest` or a network")
        if self.task.multi_label:
            raise Lacks("classifiers of scikit-learn learn one class for each sample here, and the task has several labels")
        kind = type(self.estimator())
        if not (self.votes or hasattr(kind, "predict_proba") or hasattr(kind, "decision_function")):
            raise self._only_votes(kind)
        self._fitted, self._classes = None, np.zeros(0, np.int64)

    def fit(self, x: np.ndarray, target: np.ndarray, how: Pass, stream: Stream) -> tuple[int, float]:
        if how.target != "classes":
            raise Lacks(f"a classifier of scikit-learn learns classes, and the target is {how.target}")
        if how.loss not in self.learns or how.proximal or how.gradient_offset or how.clip is not None:
            raise Lacks("a classifier of scikit-learn learns by its own loss, without a proximal term, a gradient offset or clipping")
        if len(x) == 0 or how.epochs == 0 or how.steps == 0:
            return 0, 0.0
        rows, classes = self._rows(x), target.astype(np.int64)
        if classes.max() >= self.task.outputs:
            raise Shape(f"class {classes.max()}, and there are {self.task.outputs}")
        self._fitted, self._classes = self._learnt(rows, classes, stream)
        return 1, float(-self.predict(x)[np.arange(len(x)), classes].mean())

    def _learnt(self, rows: np.ndarray, classes: np.ndarray, stream: Stream):
        """A fitted classifier, and the classes that it knows; `None` for one, of which there is nothing to learn."""
        found, positions = np.unique(classes, return_inverse=True)
        if len(found) == 1:
            return None, found
        # some classifiers take classes from 0 on without a gap, and a client may lack some
        fitted = self.estimator()
        own = {}
        for name, value in fitted.get_params().items():
            match name.rpartition("__")[2]:
                case "random_state":
                    own[name] = stream.seed % 2**32
                case "n_jobs":
                    own[name] = 1
                case "class_weight" if isinstance(value, dict):
                    own[name] = {at: value[of] for at, of in enumerate(found.tolist()) if of in value}
        fitted.set_params(**own)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it did not converge is in its predictions
            fitted.fit(rows, positions)
        return _without_searches(fitted, {}), found[np.asarray(fitted.classes_, np.int64)]

    def predict(self, x: np.ndarray) -> np.ndarray:
        rows = self._rows(x)
        out = np.zeros((len(x), self.task.outputs), np.float32)
        if len(x) == 0 or len(self._classes) == 0:
            return out
        found = np.zeros((len(x), 1)) if self._fitted is None else self._found_scores(rows)
        # a class that it has not seen gets an even share of the probability, so that its score is no veto in a mean over teachers
        out[:] = np.logaddexp.reduce(found, axis=1, keepdims=True) - np.log(self.task.outputs)
        out[:, self._classes] = found
        return out

    def _found_scores(self, rows) -> np.ndarray:
        """Scores of the classes that it has seen: logarithms of probabilities, or what it decides by."""
        if hasattr(self._fitted, "predict_proba"):
            return np.log(np.maximum(self._fitted.predict_proba(rows), _LEAST))
        if hasattr(self._fitted, "decision_function"):
            decides = np.asarray(self._fitted.decision_function(rows), np.float64)
            if decides.ndim == 1:  # of two classes: above 0 is the second
                decides = np.stack([-decides / 2, decides / 2], axis=1)
            if decides.shape[1] == len(self._classes):
                return decides - np.logaddexp.reduce(decides, axis=1, keepdims=True)
        if self.votes:
            return np.log(np.maximum(self._fitted.predict(rows)[:, None] == self._fitted.classes_, _LEAST))
        raise self._only_votes(type(self._fitted))

    @staticmethod
    def _only_votes(kind: type) -> Lacks:
        return Lacks(
            f"{kind.__name__} has neither predict_proba nor a decision_function with a number for each class, so its votes "
            "have no AUC and teach nothing but hard labels; take `CalibratedClassifierCV` of it, or `votes = True` in the class for the votes alone"
        )

    def _rows(self, x: np.ndarray) -> np.ndarray:
        if tuple(x.shape[1:]) != self.task.input:
            raise Shape(f"samples of shape {list(x.shape[1:])}, and the task has {list(self.task.input)}")
        return np.array(x).reshape(len(x), math.prod(self.task.input))  # a copy: what is lent ends with the call

    def save(self) -> bytes:
        once = pickle.dumps((self._fitted, self._classes, self.task.input, self.task.outputs), protocol=5)
        # which equal texts are one object differs between a model that was read and one that was not
        return pickle.dumps(pickle.loads(once), protocol=5)

    def load(self, state: bytes):
        try:
            fitted, classes, shape, outputs = pickle.loads(state)
        except Exception as error:
            raise Shape(f"this is no model of a classifier ({error})") from None
        if (shape, outputs) != (self.task.input, self.task.outputs):
            raise Shape("this is a model for another task")
        self._fitted, self._classes = fitted, classes


def _without_searches(value, seen: dict):
    """Each search over settings gives way to the best classifier that it has found, which predicts the same: a search also holds the
    seconds that it took, so no two pickles of it would be equal."""
    if id(value) in seen:
        return seen[id(value)]
    if hasattr(value, "best_estimator_") and hasattr(value, "cv_results_"):
        seen[id(value)] = best = _without_searches(value.best_estimator_, seen)
        return best
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_without_searches(one, seen) for one in value)
    seen[id(value)] = value
    if isinstance(value, list) or isinstance(value, np.ndarray) and value.dtype == object:
        for at, one in enumerate(value.flat if isinstance(value, np.ndarray) else value):
            (value.flat if isinstance(value, np.ndarray) else value)[at] = _without_searches(one, seen)
    elif isinstance(value, dict):
        for name, one in value.items():
            value[name] = _without_searches(one, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, (type, types.ModuleType, types.FunctionType)):
        for name, one in vars(value).items():
            new = _without_searches(one, seen)
            if new is not one:
                vars(value)[name] = new
    return value
