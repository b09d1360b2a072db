"""Tensors as arrays, and arrays as tensors."""

from __future__ import annotations

import numpy as np
import torch

from .single_slopes import _dense


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    return _dense(tensor.detach()).float().cpu().numpy()


def _plain(state):
    """Tensors as arrays, in whatever holds them; those of bfloat16, which numpy lacks, on the
    processor."""
    match state:
        case torch.Tensor():
            state = state.detach().cpu()
            return state.clone() if state.dtype == torch.bfloat16 else state.numpy().copy()
        case dict():
            return {key: _plain(value) for key, value in state.items()}
        case list() | tuple():
            return type(state)(map(_plain, state))
    return state


def _as_tensors(state):
    match state:
        case np.ndarray():
            return torch.tensor(state)
        case dict():
            return {key: _as_tensors(value) for key, value in state.items()}
        case list() | tuple():
            return type(state)(map(_as_tensors, state))
    return state
