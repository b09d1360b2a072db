"""Low-rank adapters (LoRA, Hu et al. 2021) on a small transformer, beside full fine-tuning.

    pip install torch transformers
    python examples/lora.py

The factors of an adapter are averaged one by one (`mean`), or their products are (`lora-product`),
also where clients have adapters of unequal ranks. The transformer is one of Hugging Face with
random weights, so nothing is downloaded: the first run trains its body. For real work
`from_pretrained` takes its place.
"""

from __future__ import annotations

import math
import statistics
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
    """A linear layer that stays as it is, plus a product of two small matrices, of which the first
    `own` ranks learn."""

    def __init__(self, base: nn.Linear, rank: int, own: int):
        super().__init__()
        self.base, self.own = base, own
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:  # a client sends no rank that it has not
            with torch.no_grad():
                self.up[:, self.own :] = 0
        scores: torch.Tensor = self.base(x) + x @ self.down[: self.own].T @ self.up[:, : self.own].T
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
    """The same, with a frozen body: adapters of the queries and values learn and travel, and so
    does the classifier."""

    rank: Annotated[int, "Rank of the adapters that travel.", fl.between(ge=1)] = 4
    own: Annotated[int, "Rank of this client's adapters; the others that travel are 0.", fl.between(ge=1)] = 4

    def net(self) -> nn.Module:
        bert: Any = super().net()
        bert.requires_grad_(False)
        for layer in bert.bert.encoder.layer:
            attention = layer.attention.self
            attention.query = Adapter(attention.query, self.rank, self.own)
            attention.value = Adapter(attention.value, self.rank, self.own)
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


def run(name: str, rounds: int, rows: int, words: tuple[int, int], model: list[dict[str, object]], aggregator: dict[str, object], seed: int = 1) -> fl.Results:
    """A run of four hospitals."""
    data = {"train": {f"hospital {k}": texts(rows, 10 * seed + k, *words) for k in range(4)}, "test": texts(400, 10 * seed + 9, *words)}
    spec = {
        "name": name,
        "seed": seed,
        "protocol": {"use": "fedavg", "rounds": rounds, "local": {"epochs": 2, "batch": 20}},
        "parts": {"model": model, "aggregator": aggregator},
    }
    return fl.run(spec, data=data, quiet=True, keep="nothing")


MEAN: dict[str, object] = {"use": "mean"}
PRODUCT: dict[str, object] = {"use": "lora-product", "down": "down", "up": "up"}


def main(seeds: Iterable[int] = (1, 2, 3)) -> dict[str, list[fl.Results]]:
    """Trains a body on one question, and fine-tunes it to another in four ways, with each seed."""
    found: dict[str, list[fl.Results]] = {}
    with tempfile.TemporaryDirectory() as folder:
        start = str(run("bert", 8, 200, (32, 48), [{"use": "bert"}], MEAN).model().save(f"{folder}/body.safetensors"))
        whole: dict[str, object] = {"use": "bert", "start": start}
        lora: dict[str, object] = {"use": "bert-lora", "start": start, "lr": 0.01}
        ranks = [{"clients": "0", **lora, "own": 1}, {"clients": "1", **lora, "own": 2}, lora]
        ways = {
            "all of bert": ([whole], MEAN),
            "lora, mean": ([lora], MEAN),
            "lora, lora-product": ([lora], PRODUCT),
            "ranks 1, 2, 4, 4": (ranks, PRODUCT),
        }
        for name, (model, aggregator) in ways.items():
            found[name] = all = [run("bert", 6, 120, (34, 50), model, aggregator, seed) for seed in seeds]
            accuracies = [one.metrics["accuracy"] for one in all]
            spread = statistics.stdev(accuracies) if len(all) > 1 else 0.0
            print(f"{name:<18} accuracy {statistics.mean(accuracies):.3f} +- {spread:.3f}, {all[0].bytes['up']:>9,} bytes up", flush=True)
    return found


if __name__ == "__main__":
    main()
