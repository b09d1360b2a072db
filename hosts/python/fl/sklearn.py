"""Classifiers and regressors of scikit-learn as trainers, for protocols that need no parameters,
such as FedKT and FedKD.

    import fl, fl.sklearn
    from sklearn.ensemble import ExtraTreesClassifier

    @fl.trainer("extra-trees")
    class ExtraTrees(fl.sklearn.Trainer):
        "Extremely randomised trees."
        trees: int = 100

        def estimator(self):
            return ExtraTreesClassifier(self.trees)

A regressor learns a number to predict (`label: {kind: number}`), on the scale of the label. What an
estimator draws at random follows the run's seed, through `random_state`; one that it sets itself is
replaced, with a warning. Classes are positions in the order of the run's classes, also as keys of a
`class_weight`. Models are written with pickle: open run folders only from those whom you trust.
"""

from __future__ import annotations

import math
import pickle
import types
import warnings
import weakref

import numpy as np

from ._parts.arguments import Lacks, Pass, Shape, Stream

_LEAST = 1e-7  # a probability of 0 has no logarithm
#: Settings and task, as text, of which a class has given an estimator that suits.
_SUITS: weakref.WeakKeyDictionary[type, set[str]] = weakref.WeakKeyDictionary()
#: Classes that set a seed of their own, which has been said.
_TOLD: weakref.WeakSet[type] = weakref.WeakSet()


class Trainer:
    """A classifier, or a regressor where the task is a number to predict: override `estimator`.
    Each fit starts again, whatever length of training a protocol asks for; a class whose estimator
    goes on (`warm_start`, or a `fit` of its own that calls `partial_fit`) sets `starts_again =
    False`.

    `learns` names the loss that the estimator minimises. A classifier has the cross-entropy. A
    regressor has the squared error: for another loss of the label, such as `mae`, give an estimator
    of that loss, and say `learns = ("mae",)` in the class."""

    remembers = True  # what a subclass sets on itself outlasts a model that is made anew
    starts_again = True
    votes = False
    """Do votes do for scores, where a classifier has neither `predict_proba` nor a
    `decision_function`? Their AUC is that of votes."""
    _holds = ("_fitted", "_classes")  # save() holds these
    pickled = True

    @property
    def learns(self) -> tuple[str, ...]:
        return ("mse",) if self.task.numbers else ("cross-entropy",)

    def estimator(self):
        """A classifier that has not been fitted, or a regressor (`self.task.numbers` tells what is
        due)."""
        raise NotImplementedError(f"{type(self).__name__} has no estimator()")

    # ---- what the program calls

    def setup(self, _stream: Stream):
        # `multi_label` is all that is not one class
        if self.task.multi_label and not self.task.numbers:
            raise Lacks("estimators of scikit-learn learn one class or one number for each sample here, and the task has several labels")
        # an estimator that is only looked at is made once for a class with its settings and task
        suits, about = _SUITS.setdefault(type(self), set()), repr(vars(self))
        if about not in suits:
            self._check(self.estimator())
            if repr(vars(self)) == about:
                suits.add(about)
        self._fitted, self._classes = None, np.zeros(0, np.int64)

    def _check(self, estimator):
        """Is it one for the task?"""
        kind = type(estimator)
        if self.task.numbers:
            if _is(estimator, "classifier"):
                raise Lacks(f"{kind.__name__} is a classifier, and the task is a number to predict: let estimator() give a regressor")
        elif _is(estimator, "regressor"):
            raise Lacks(f"{kind.__name__} is a regressor, and the task has classes: let estimator() give a classifier")
        elif not (self.votes or hasattr(kind, "predict_proba") or hasattr(kind, "decision_function")):
            raise self._only_votes(kind)
        for name, value in estimator.get_params().items() if hasattr(estimator, "get_params") else ():
            if name.rpartition("__")[2] == "class_weight" and isinstance(value, dict) and (off := [key for key in value if key not in range(self.task.outputs)]):
                raise Lacks(f"the class_weight of {kind.__name__} has the key {off[0]!r}: keys are positions in the order of the run's classes, here 0 to {self.task.outputs - 1}")

    def fit(self, x: np.ndarray, target: np.ndarray, how: Pass, stream: Stream) -> tuple[int, float]:
        due, what = ("scores", "a regressor of scikit-learn learns numbers") if self.task.numbers else ("classes", "a classifier of scikit-learn learns classes")
        if how.target != due:
            raise Lacks(f"{what}, and the target is {how.target}")
        if how.loss not in self.learns:
            raise Lacks(f"it learns by {' or '.join(self.learns)}, and not by {how.loss}: if its estimator does, say `learns = ({how.loss!r},)` in the class")
        if how.proximal or how.gradient_offset or how.clip is not None:
            raise Lacks("an estimator of scikit-learn learns without a proximal term, a gradient offset or clipping")
        if len(x) == 0 or how.epochs == 0 or how.steps == 0:
            return 0, 0.0
        if self.task.numbers:
            return self._fit_numbers(x, target, how, stream)
        rows, classes = self._rows(x), target.astype(np.int64)
        if classes.max() >= self.task.outputs:
            raise Shape(f"class {classes.max()}, and there are {self.task.outputs}")
        self._fitted, self._classes = self._learnt(rows, classes, stream)
        return 1, float(-self.predict(x)[np.arange(len(x)), classes].mean())

    def _fit_numbers(self, x: np.ndarray, target: np.ndarray, how: Pass, stream: Stream) -> tuple[int, float]:
        if target.shape != (len(x), self.task.outputs):
            raise Shape(f"targets of shape {list(target.shape)}, and {len(x)} samples have {self.task.outputs}")
        fitted = self.estimator()
        numbers = np.array(target, np.float64)
        self._fitted = self._fit(fitted, self._rows(x), numbers[:, 0] if self.task.outputs == 1 else numbers, stream, {})
        off = np.abs(self.predict(x) - numbers)
        each = {"mse": off**2, "mae": off, "huber": np.where(off <= how.delta, off**2 / 2, how.delta * (off - how.delta / 2))}
        return 1, float(each[how.loss].mean())

    def _learnt(self, rows: np.ndarray, classes: np.ndarray, stream: Stream):
        """A fitted classifier, and the classes that it knows; `None` for one, of which there is
        nothing to learn."""
        found, positions = np.unique(classes, return_inverse=True)
        if len(found) == 1:
            return None, found
        # some classifiers take classes from 0 on without a gap, and a client may lack some
        fitted = self.estimator()
        fitted = self._fit(fitted, rows, positions, stream, dict(enumerate(found.tolist())))
        return fitted, found[np.asarray(fitted.classes_, np.int64)]

    def _fit(self, fitted, rows: np.ndarray, target: np.ndarray, stream: Stream, classes: dict[int, int]):
        """The estimator after it has learnt, by the run's seed and in one thread; `classes` has the
        class of each position."""
        own = {}
        for name, value in fitted.get_params().items():
            match name.rpartition("__")[2]:
                case "random_state":
                    if value is not None and type(self) not in _TOLD:
                        _TOLD.add(type(self))
                        warnings.warn(
                            f"estimator() of {type(self).__name__} sets `{name}={value!r}`, and what it draws follows the run's seed instead: leave it out",
                            stacklevel=2,
                        )
                    own[name] = stream.seed % 2**32
                case "n_jobs":
                    own[name] = 1
                case "decision_function_shape":
                    own[name] = "ovr"  # the votes of pairs of three classes look like their scores
                case "class_weight" if isinstance(value, dict):
                    own[name] = {at: value[of] for at, of in classes.items() if of in value}
        fitted.set_params(**own)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it did not converge is in its predictions
            fitted.fit(rows, target)
        return _without_searches(fitted, {})

    def predict(self, x: np.ndarray) -> np.ndarray:
        rows = self._rows(x)
        out = np.zeros((len(x), self.task.outputs), np.float32)
        if self.task.numbers:
            # before it has learnt, the centre of the label's scale
            if self._fitted is not None and len(x):
                out[:] = np.reshape(self._fitted.predict(rows), out.shape)
            return out
        if len(x) == 0 or len(self._classes) == 0:
            return out
        found = np.zeros((len(x), 1)) if self._fitted is None else self._found_scores(rows)
        # a class that it has not seen gets an even share of the probability, so that its score is
        # no veto in a mean over teachers
        out[:] = np.logaddexp.reduce(found, axis=1, keepdims=True) - np.log(self.task.outputs)
        out[:, self._classes] = found
        return out

    def _found_scores(self, rows) -> np.ndarray:
        """Scores of the classes that it has seen: logarithms of probabilities, or what it decides
        by."""
        if hasattr(self._fitted, "predict_proba"):
            shares = np.asarray(self._fitted.predict_proba(rows), np.float64)
            # of classes that it was told of and has not seen, too
            if shares.shape[1] > len(self._classes):
                shares = shares[:, np.asarray(self._fitted.classes_, np.int64)]
                shares /= np.maximum(shares.sum(axis=1, keepdims=True), _LEAST)
            return np.log(np.maximum(shares, _LEAST))
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
        # a copy: what is lent ends with the call
        return np.array(x).reshape(len(x), math.prod(self.task.input))

    def save(self) -> bytes:
        once = pickle.dumps((self._fitted, self._classes, self.task.input, self.task.outputs), protocol=5)
        # which equal texts are one object differs between a model that was read and one that was
        # not
        return pickle.dumps(pickle.loads(once), protocol=5)

    def load(self, state: bytes):
        try:
            fitted, classes, shape, outputs = pickle.loads(state)
        except Exception as error:
            raise Shape(f"this is no model of scikit-learn ({error})") from None
        if (shape, outputs) != (self.task.input, self.task.outputs):
            raise Shape("this is a model for another task")
        self._fitted, self._classes = fitted, classes


def _is(estimator, kind: str) -> bool:
    """Does scikit-learn know this estimator as a `classifier` or a `regressor`? An object of
    another library may say nothing."""
    from sklearn import base

    try:
        return bool(getattr(base, f"is_{kind}")(estimator))
    except (AttributeError, TypeError):
        return False


def _without_searches(value, seen: dict):
    """Each search over settings gives way to the best estimator that it has found, which predicts
    the same: a search also holds the seconds that it took, so no two pickles of it would be
    equal."""
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
