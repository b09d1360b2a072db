"""Low-rank adapters (LoRA, Hu et al. 2021) on a small transformer, beside full fine-tuning.

    pip install torch transformers
    python examples/lora.py

The transformer is one of Hugging Face with random weights, so nothing is downloaded: the first run trains its body. For real work
`from_pretrained` takes its place.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable
from typing import Annotated, Any, cast

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

import fl
import fl.torch

WORDS, LENGTH = 64, 12  # word numbers, and words of a text


class Adapter(nn.Module):
    """A linear layer that stays as it is, plus a product of two small matrices that learns."""

    def __init__(self, base: nn.Linear, rank: int):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.base(x) + x @ self.down.T @ self.up.T
        return scores


@fl.trainer("bert")
class Bert(fl.torch.Trainer):
    """A small BERT that classifies texts of word numbers; all of it learns and travels."""

    lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.003
    start: Annotated[str, "A file of safetensors with weights to begin with; none if empty."] = ""

    def net(self) -> nn.Module:
        config = BertConfig(
            vocab_size=WORDS,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=LENGTH,
        )
        config.num_labels = self.task.outputs
        bert: nn.Module = BertForSequenceClassification(config)
        if self.start:
            bert.load_state_dict(load_file(self.start))
        return bert

    def optimiser(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, self.lr)


@fl.trainer("bert-lora")
class BertLora(Bert):
    """The same, with a frozen body: adapters of the queries and values learn and travel, and so does the classifier."""

    rank: Annotated[int, "Rank of the adapters.", fl.between(ge=1)] = 4

    def net(self) -> nn.Module:
        bert: Any = super().net()
        bert.requires_grad_(False)
        for layer in bert.bert.encoder.layer:
            attention = layer.attention.self
            attention.query = Adapter(attention.query, self.rank)
            attention.value = Adapter(attention.value, self.rank)
        bert.classifier.requires_grad_(True)
        return cast(nn.Module, bert)

    def travels(self, name: str) -> bool:
        return name.endswith((".down", ".up")) or name.startswith("classifier")


def texts(n: int, seed: int, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts of word numbers; those of the second class have more words from `low` to `high`."""
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, 2, n)
    these = draws.random((n, LENGTH)) < np.where(labels, 0.6, 0.2)[:, None]
    return np.where(these, draws.integers(low, high, (n, LENGTH)), draws.integers(1, WORDS, (n, LENGTH))), labels


def run(name: str, rounds: int, rows: int, words: tuple[int, int], **settings: object) -> fl.Results:
    """A run of four hospitals."""
    data = {"train": {f"hospital {k}": texts(rows, k, *words) for k in range(4)}, "test": texts(400, 99, *words)}
    spec = {
        "name": name,
        "protocol": {"use": "fedavg", "rounds": rounds, "local": {"epochs": 2, "batch": 20}},
        "parts": {"model": {"use": name, **settings}, "aggregator": {"use": "mean"}},
    }
    return fl.run(spec, data=data, quiet=True, keep="nothing")


def main() -> dict[str, fl.Results]:
    """Trains a body on one question, and fine-tunes it to another in both ways."""
    with tempfile.TemporaryDirectory() as folder:
        start = run("bert", 8, 200, (32, 48)).model().save(f"{folder}/body.safetensors")
        found = {
            "bert": run("bert", 6, 120, (34, 50), start=str(start)),
            "bert-lora": run("bert-lora", 6, 120, (34, 50), start=str(start), lr=0.01),
        }
    for name, results in found.items():
        print(f"{name:<10} accuracy {results.metrics['accuracy']:.3f}, {results.bytes['up']:>9,} bytes up")
    return found


if __name__ == "__main__":
    main()
