"""Networks of PyTorch that keep something: a schedule, and MOON's model of the round before."""

from typing import Annotated

import fl
import torch
from torch import nn
from torch.nn import functional as F

import fl.torch


class Net(fl.torch.Trainer):
    """One hidden layer."""

    lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.05

    def net(self):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(16), nn.Tanh(), nn.LazyLinear(self.task.outputs))


@fl.trainer("torch-plain")
class Plain(Net):
    """FedAvg's."""


@fl.trainer("torch-adamw")
class AdamW(Net):
    """AdamW, with a rate that falls, or not."""

    falls: bool = True

    def optimiser(self, parameters):
        return torch.optim.AdamW(parameters, self.lr)

    def schedule(self, optimiser):
        if self.falls:
            return torch.optim.lr_scheduler.MultiStepLR(optimiser, [2, 4, 4, 5], 0.3)


@fl.trainer("torch-moon")
class Moon(Net):
    """MOON (Li et al. 2021): features like those of the server's model, and unlike those of its own
    of the round before."""

    mu: Annotated[float, "Weight of the contrast.", fl.between(ge=0)] = 1.0
    tau: Annotated[float, "Temperature of the contrast.", fl.between(gt=0)] = 0.5

    def fit(self, x, target, how, stream):
        *body, head = self._model
        features = nn.Sequential(*body)
        server = {name: value.clone() for name, value in features.state_dict().items()}
        before = getattr(self, "previous", server)
        inputs, wanted = torch.tensor(x), torch.tensor(target.astype("int64"))
        steps = self.optimiser(self._model.parameters())
        losses = []
        for at in how.batches(len(x), stream):
            at = torch.from_numpy(at)
            own = features(inputs[at])
            loss = F.cross_entropy(head(own), wanted[at])
            if self.mu:
                with torch.no_grad():
                    others = [torch.func.functional_call(features, held, (inputs[at],)) for held in (server, before)]
                near, far = (F.cosine_similarity(own, other, dim=1) / self.tau for other in others)
                loss = loss - self.mu * torch.log_softmax(torch.stack([near, far]), 0)[0].mean()
            steps.zero_grad()
            loss.backward()
            steps.step()
            losses.append(loss.item())
        self.previous = {name: value.clone() for name, value in features.state_dict().items()}
        return len(losses), losses[-1] if losses else 0.0


@fl.trainer("torch-noise")
class Noise(Net):
    """Draws from PyTorch's own generator while it trains, and counts the threads."""

    seen = []

    def fit(self, x, target, how, stream):
        type(self).seen.append(torch.get_num_threads())
        with torch.no_grad():
            for value in self._model.parameters():
                value.add_(0.01 * torch.randn_like(value))
        return super().fit(x, target, how, stream)


class Reader(nn.Module):
    """An LSTM that scores each position: `rows x positions x classes`."""

    def __init__(self, classes):
        super().__init__()
        self.words, self.read = nn.Embedding(6, 8), nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, classes)

    def forward(self, ids):
        return self.head(self.read(self.words(ids))[0])


class ClassesLast(fl.torch.Trainer):
    """A class for each position of a sequence, which is an image of height 1. Class 0 is that of
    the padding, which teaches nothing."""

    lr: Annotated[float, "Learning rate.", fl.between(gt=0)] = 0.05
    draws = False

    def net(self):
        return Reader(self.task.outputs // self.task.pixels)

    def collate(self, inputs):
        return (inputs[:, 0, 0] * 255).round().long()

    def optimiser(self, parameters):
        return torch.optim.Adam(parameters, self.lr)

    def loss(self, scores, target, how):
        return F.cross_entropy(scores.unflatten(1, (-1, self.task.pixels)), target, ignore_index=0)


@fl.trainer("torch-tagger")
class Tagger(ClassesLast):
    """Its scores have the classes before the positions, as the losses of PyTorch have them."""

    def net(self):
        class Scores(Reader):
            def forward(self, ids):
                return super().forward(ids).movedim(2, 1)

        return Scores(self.task.outputs // self.task.pixels)
