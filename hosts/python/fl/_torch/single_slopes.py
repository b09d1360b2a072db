"""The gradients of single samples, for DP-SGD in `fl.torch`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import torch

from .._parts.arguments import Pass
from .joint_steps import _arguments, _scores

#: A `fl.torch.Trainer`, which stands on this file.
Trainer: TypeAlias = Any
Slopes = dict[str, torch.Tensor]

#: The number of samples that `vmap` takes at a time. It is always this: kernels may depend on it.
AT_ONCE = 32
#: Networks, by class, shapes and loss: does a sample have the same gradient wherever it stands?
_ALIKE: dict[Any, bool] = {}


def _dense(slope: Any) -> Any:
    """A gradient with all its rows: that of `nn.Embedding(sparse=True)` has those of a batch."""
    return slope.to_dense() if slope is not None and slope.is_sparse else slope


def _single_slopes(trainer: Trainer, inputs: torch.Tensor, wanted: torch.Tensor, how: Pass) -> Iterator[Slopes]:
    """The gradient of each sample, in order. It does not depend on the other samples, not even in
    its last bits: `torch.func.vmap` computes several at a time only where copies of one sample have
    equal bits at all places."""
    named = {name: p for name, p in trainer._model.named_parameters() if p.requires_grad}

    def alone(at: int) -> Slopes:
        loss = trainer.loss(trainer._scores(inputs[at : at + 1].clone()), wanted[at : at + 1].clone(), how)
        slopes = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        return {name: _dense(slope) for name, slope in zip(named, slopes) if slope is not None}

    def loss(parameters: Slopes, sample: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        given, words = _arguments(trainer.collate(sample[None]))
        return trainer.loss(_scores(torch.func.functional_call(trainer._model, parameters, given, words), trainer.task), target[None], how)

    def joint(at: torch.Tensor) -> Slopes:
        parameters = {name: p.detach() for name, p in named.items()}
        return torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(parameters, inputs[at], wanted[at])

    def alike() -> bool:
        try:
            found = joint(torch.zeros(AT_ONCE, dtype=torch.int64))
        # vmap does not know something that the network does
        except (RuntimeError, ValueError, TypeError, NotImplementedError):
            return False
        # NaN counts as equal to NaN
        return all(torch.allclose(slope, slope[:1].expand_as(slope), rtol=0, atol=0, equal_nan=True) for slope in found.values())

    if len(inputs) == 0:
        return
    shapes = tuple((name, tuple(p.shape)) for name, p in named.items())
    key = (trainer._fl_made.arguments[:3], shapes, inputs.shape[1:], str(inputs.device), how.loss, how.target)
    if key not in _ALIKE:
        _ALIKE[key] = alike()
    if not _ALIKE[key]:
        yield from map(alone, range(len(inputs)))
        return
    for at in range(0, len(inputs), AT_ONCE):
        positions = torch.arange(at, at + AT_ONCE).clamp(max=len(inputs) - 1)
        slopes = joint(positions)
        for row in range(min(AT_ONCE, len(inputs) - at)):
            yield {name: slope[row] for name, slope in slopes.items()}
