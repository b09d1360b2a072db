"""What a trainer without a base class may have, as protocols of `typing`.

`@fl.trainer` takes any class with the four methods of `Trainer`. Each further protocol here is an
ability: a class has it if it has these methods, and no base class is needed. A type checker tells
where a signature differs:

    check: type[fl.roles.Parametric] = MyNet

`fl.torch.Trainer` has all of them, and `fl.sklearn.Trainer` those of `Trainer`.

Arrays `x` are `samples x the task's input` of 32-bit floats, lent for the call. `target` goes with
`how.target`: class numbers; `samples x outputs` of 1, 0 and -1; probabilities; or scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from ._parts.arguments import Pass, Stream

__all__ = ["ClipsGradients", "ExampleGradients", "HasFeatures", "InputGradient", "Parametric", "Resumable", "TakesSteps", "Trainer"]


@runtime_checkable
class Trainer(Protocol):
    """A model that learns and predicts.

    Attributes that a class may also have: `learns`, names of the losses that it knows; `remembers`,
    names of the attributes that outlast a model; `draws`, whether its training draws from
    generators of the process; `scales_rate`, whether it multiplies its learning rate by `how.rate`;
    `takes_gradient_terms`, whether it follows `how.proximal`, `how.gradient_offset` and `how.clip`;
    `schedules_epoch`, whether its learning rate falls at the end of each epoch and training, and
    `schedules_pass`, along each training; `step_momentum`, the momentum of its optimiser, if each
    step is exactly `v = m v + g`, `w -= lr v`; `beside_gradient`, names of what its training does
    and `gradient` leaves out, such as `dropout`; `decays_weights`, whether its optimiser has weight
    decay; `starts_again`, whether each training starts again and knows nothing of earlier ones;
    `takes_feature_loss`, whether it calls `how.feature_loss`; `vocabulary`, how many words from 0
    it takes. `setup(stream)` is called once, before anything else, with `self.task` set.
    """

    def fit(self, x: np.ndarray, target: np.ndarray, how: Pass, stream: Stream) -> tuple[int, float]:
        """Trains as `how` says, with draws from `stream`; gives the number of steps and the mean
        loss of the last epoch, without what `how` adds. Raises `fl.Lacks` for what it cannot do."""
        ...

    def predict(self, x: np.ndarray) -> np.ndarray:
        """`samples x outputs` scores: logits of classes, or numbers to predict."""
        ...

    def save(self) -> bytes:
        """The model, without what only training needs."""
        ...

    def load(self, state: bytes) -> None:
        """Takes a model that `save` gave. Raises `fl.Shape` if it is another's."""
        ...


@runtime_checkable
class Parametric(Trainer, Protocol):
    """Its parameters travel: FedAvg and all methods that average models.

    `buffers`, if the class has it, names those that are statistics of data, such as running
    variances: they are averaged, and no server optimiser takes a step with them.
    """

    def params(self) -> Mapping[str, np.ndarray]:
        """All parameters by name, of 32-bit floats."""
        ...

    def set_params(self, params: Mapping[str, np.ndarray]) -> None:
        """Takes parameters of the same names and shapes. They are lent for the call."""
        ...


@runtime_checkable
class HasFeatures(Trainer, Protocol):
    """It shows what goes into its last layer: FedProto, FedGH, MOON."""

    def features(self, x: np.ndarray) -> np.ndarray | None:
        """`samples x features`; `None` if the model has no such layer."""
        ...


@runtime_checkable
class InputGradient(Trainer, Protocol):
    """Its scores have slopes by the inputs: generators that learn through it, such as FedIOD's."""

    def vjp(self, x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """For slopes of a loss by the scores, `samples x outputs`, those by the inputs, `samples x
        inputs`."""
        ...


@runtime_checkable
class ExampleGradients(Parametric, Protocol):
    """It gives gradients by its parameters: SCAFFOLD with `control: gradient`, and DP-SGD, which
    also needs `TakesSteps` or a `step_size()` that gives a number."""

    def gradient(self, x: np.ndarray, target: np.ndarray, how: Pass) -> Mapping[str, np.ndarray]:
        """The gradient of the mean loss over the samples, by the names of `params`, as in
        prediction: without dropout, and without a change of the model."""
        ...


@runtime_checkable
class ClipsGradients(ExampleGradients, Protocol):
    """It clips the gradients of many samples faster than one by one."""

    def clipped_gradients(self, x: np.ndarray, target: np.ndarray, how: Pass, clip: float) -> Mapping[str, np.ndarray] | None:
        """The sum of the samples' gradients, each shortened to the Euclidean norm `clip`. A
        sample's addend must not depend on the others, not even in its last bits. `None`: one by
        one."""
        ...


@runtime_checkable
class TakesSteps(Parametric, Protocol):
    """It takes steps along gradients that it is given, or says what its own steps are."""

    def descend(self, gradient: Mapping[str, np.ndarray], at: int, of: int, rate: float = 1.0) -> None:
        """A step of its optimiser, as after batch `at` of `of`, at `rate` times the learning
        rate."""
        ...

    def step_size(self) -> float | None:
        """The learning rate, if each step is that times the gradient and nothing else, as SCAFFOLD
        by steps and FedNova need; otherwise `None`."""
        ...


@runtime_checkable
class Resumable(Trainer, Protocol):
    """It goes on training where it was: an optimiser's moments, a schedule. Without these methods
    `save` and `load` do that."""

    def save_state(self) -> bytes:
        """The model, and all that its next step depends on."""
        ...

    def load_state(self, state: bytes) -> None:
        """Takes what `save_state` gave."""
        ...
