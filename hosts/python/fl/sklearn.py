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

import io
import math
import pickle
import warnings

import numpy as np

from ._given import Lacks, Pass, Shape, Stream

_LEAST = 1e-7  # a probability of 0 has no logarithm


class Trainer:
    """A classifier: override `estimator`. Each fit starts again, whatever length of training a protocol asks for."""

    learns = ("cross-entropy",)
    remembers = True  # what a subclass sets on itself outlasts a model that is made anew
    _holds = ("_fitted", "_classes")  # save() holds these

    def estimator(self):
        """A classifier that has not been fitted."""
        raise NotImplementedError(f"{type(self).__name__} has no estimator()")

    # ---- what the program calls

    def setup(self, _stream: Stream):
        if self.task.multi_label:
            raise Lacks("classifiers of scikit-learn learn one class for each sample here, and the task has several labels")
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
        found, fitted = np.unique(classes), None
        if len(found) > 1:  # with one class there is nothing to learn
            fitted = self.estimator()
            known = fitted.get_params()
            own = {name: stream.seed % 2**32 for name in known if name.rpartition("__")[2] == "random_state"}
            own |= {name: 1 for name in known if name.rpartition("__")[2] == "n_jobs"}
            fitted.set_params(**own)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it did not converge is in its predictions
                fitted.fit(rows, classes)
            found = np.asarray(fitted.classes_, np.int64)
        self._fitted, self._classes = fitted, found
        return 1, float(-self.predict(x)[np.arange(len(x)), classes].mean())

    def predict(self, x: np.ndarray) -> np.ndarray:
        rows = self._rows(x)
        out = np.zeros((len(x), self.task.outputs), np.float32)
        if len(x) == 0 or len(self._classes) == 0:
            return out
        chances = np.ones((len(x), 1)) if self._fitted is None else self._chances(rows)
        out[:] = np.log(_LEAST)
        out[:, self._classes] = np.log(np.maximum(chances, _LEAST))
        return out

    def _chances(self, rows) -> np.ndarray:
        if hasattr(self._fitted, "predict_proba"):
            return self._fitted.predict_proba(rows)
        return (self._fitted.predict(rows)[:, None] == self._classes).astype(np.float64)

    def _rows(self, x: np.ndarray) -> np.ndarray:
        if tuple(x.shape[1:]) != self.task.input:
            raise Shape(f"samples of shape {list(x.shape[1:])}, and the task has {list(self.task.input)}")
        return np.array(x).reshape(len(x), math.prod(self.task.input))  # a copy: what is lent ends with the call

    def save(self) -> bytes:
        out = io.BytesIO()
        pickle.dump((self._fitted, self._classes, self.task.input, self.task.outputs), out, protocol=5)
        return out.getvalue()

    def load(self, state: bytes):
        try:
            fitted, classes, shape, outputs = pickle.loads(state)
        except Exception as error:
            raise Shape(f"this is no model of a classifier ({error})") from None
        if (shape, outputs) != (self.task.input, self.task.outputs):
            raise Shape("this is a model for another task")
        self._fitted, self._classes = fitted, classes
