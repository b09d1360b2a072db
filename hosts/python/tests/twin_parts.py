"""Networks of PyTorch that draw past their stream, or keep something beside parameters and
moments."""

import itertools
import math
import random

import fl
import numpy as np
import torch
from torch import nn
from torch.optim import swa_utils

import fl.torch


class Net(fl.torch.Trainer):
    """One hidden layer."""

    lr: float = 0.05

    def net(self):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(16), nn.Tanh(), nn.Linear(16, self.task.outputs))


# ---- what draws


@fl.trainer("draws-augment")
class Augment(Net):
    """As torchvision's transforms, which take no generator."""

    def augment(self, inputs, generator):
        return torch.roll(inputs, int(torch.randint(-2, 3, ())), -1)


@fl.trainer("draws-seldom")
class Seldom(Net):
    """Flips a coin of each library."""

    def augment(self, inputs, generator):
        return inputs * (1 + (random.random() < 0.5)) + np.float32(np.random.normal())


@fl.trainer("draws-net")
class InNet(Net):
    """Its first weights are numpy's and Python's."""

    def net(self):
        made = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(self.task.input), self.task.outputs))
        with torch.no_grad():
            made[1].weight.copy_(torch.from_numpy(np.random.normal(size=made[1].weight.shape)))
            made[1].bias.fill_(random.gauss(0, 1))
        return made


@fl.trainer("draws-late")
class Late(Net):
    """Draws from its fifth step on."""

    def augment(self, inputs, generator):
        self.steps = getattr(self, "steps", 0) + 1
        return inputs + torch.randn(()) if self.steps > 4 else inputs


@fl.trainer("draws-late-said")
class LateSaid(Late):
    """Says so."""

    draws = True


class Langevin(torch.optim.SGD):
    """Gradient descent with noise."""

    def step(self, closure=None):
        super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(torch.randn_like(p), alpha=0.01 * group["lr"])


@fl.trainer("draws-optimiser")
class InOptimiser(Net):
    """Its optimiser draws."""

    def optimiser(self, parameters):
        return Langevin(parameters, self.lr)


@fl.trainer("draws-schedule")
class InSchedule(Net):
    """Its rate is drawn."""

    schedule_by = "batch"

    def schedule(self, optimiser):
        return torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: np.random.uniform(0.5, 1.5))


@fl.trainer("draws-entropy")
class Entropy(Net):
    """Draws from a generator that no seed reaches."""

    def augment(self, inputs, generator):
        return inputs + np.random.default_rng().normal(size=inputs.shape).astype(np.float32)


@fl.trainer("draws-entropy-net")
class EntropyNet(Net):
    """So does its network."""

    def net(self):
        made = super().net()
        made.add_module("scale", Scale(np.random.default_rng().uniform(0.5, 1.5)))
        return made


class Scale(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        return self.by * x


# ---- what keeps something


class Counting(nn.Module):
    """A warm-up by the steps that it counts itself."""

    def __init__(self, n, outputs, how):
        super().__init__()
        self.out, self.how, self.step = nn.Linear(n, outputs), how, 0
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.history = []

    def forward(self, x):
        if self.training:
            self.step += 1
            self.seen += 1
            self.history.append(self.step)
        steps = {"attribute": self.step, "buffer": self.seen.item(), "list": len(self.history)}[self.how]
        return self.out(x.flatten(1)) * min(1.0, steps / 40)


@fl.trainer("keeps-in-module")
class InModule(Net):
    """Its network counts steps."""

    how: str = "attribute"

    def net(self):
        return Counting(math.prod(self.task.input), self.task.outputs, self.how)


@fl.trainer("keeps-in-hook")
class InHook(Net):
    """AdamW, with a schedule or something like it that only a hook of the optimiser knows."""

    how: str = "schedule"

    def optimiser(self, parameters):
        o = torch.optim.AdamW(parameters, self.lr)
        if self.how == "schedule":
            s = torch.optim.lr_scheduler.StepLR(o, 5, 0.5)
            o.register_step_post_hook(lambda *_: s.step())
        elif self.how == "closure":
            steps = 0

            def halve(*_):
                nonlocal steps
                steps += 1
                o.param_groups[0]["lr"] = self.lr * 0.5 ** (steps // 5)

            o.register_step_post_hook(halve)
        elif self.how == "group":
            group, steps = o.param_groups[0], [0]

            def slower(*_):
                steps[0] += 1
                group["lr"] *= 0.5 if steps[0] % 5 == 0 else 1

            o.register_step_pre_hook(slower)
        elif self.how == "object":
            o.register_step_post_hook(Halves())
        elif self.how == "average":
            body = torch.nn.Linear(1, 1)
            average = swa_utils.AveragedModel(body)
            seen = [0]

            def pull(*_):
                seen[0] += 1
                with torch.no_grad():
                    body.weight.fill_(seen[0])
                average.update_parameters(body)
                o.param_groups[0]["lr"] = self.lr / (1 + average.module.weight.item())

            o.register_step_post_hook(pull)
        elif self.how == "random":
            draws = np.random.default_rng(3)
            o.register_step_post_hook(lambda *_: o.param_groups[0].update(lr=self.lr * draws.uniform()))
        elif self.how == "step":
            plain, steps = o.step, [0]

            def step(closure=None):
                steps[0] += 1
                o.param_groups[0]["lr"] = self.lr / steps[0]
                return plain(closure)

            o.step = step
        elif self.how == "iterator":
            rates = itertools.count(1)
            o.register_step_post_hook(lambda *_: o.param_groups[0].update(lr=self.lr / next(rates)))
        elif self.how == "generator":
            rates = (self.lr / k for k in range(1, 1000))
            o.register_step_post_hook(lambda *_: o.param_groups[0].update(lr=next(rates)))
        return o


class Halves:
    """Halves the rate every five steps."""

    def __init__(self):
        self.steps = 0

    def __call__(self, o, *_):
        self.steps += 1
        if self.steps % 5 == 0:
            o.param_groups[0]["lr"] /= 2


class Lookahead(torch.optim.Optimizer):
    """SGD that every second step goes half of the way from the parameters of before (Zhang et al.
    2019)."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.05})
        self.steps, self.slow = 0, [p.detach().clone() for p in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        self.steps += 1
        for p, slow in zip(self.param_groups[0]["params"], self.slow, strict=True):
            p.add_(p.grad, alpha=-self.param_groups[0]["lr"])
            if self.steps % 2 == 0:
                p.copy_(slow.add_(p - slow, alpha=0.5))


@fl.trainer("keeps-slow-weights")
class Slow(Net):
    """Its optimiser copies the parameters when it is made."""

    def optimiser(self, parameters):
        return Lookahead(parameters)


class Around(torch.optim.Optimizer):
    """Hands all on to another optimiser, and has only the properties that it needs."""

    def __init__(self, inner):
        self.inner = inner

    param_groups = property(lambda self: self.inner.param_groups)
    state = property(lambda self: self.inner.state)

    def step(self, closure=None):
        self.inner.step()

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad()

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, state):
        self.inner.load_state_dict(state)


@fl.trainer("keeps-around")
class InWrapper(Net):
    """Adam within another optimiser."""

    def optimiser(self, parameters):
        return Around(torch.optim.Adam(parameters, self.lr))


@fl.trainer("keeps-extra-state")
class Extra(Net):
    """A module's own way of keeping a count (`get_extra_state`)."""

    def net(self):
        class Counts(nn.Module):
            count = 0

            def forward(self, x):
                self.count += self.training
                return x / (1 + self.count)

            def get_extra_state(self):
                return {"count": self.count}

            def set_extra_state(self, state):
                self.count = state["count"]

        return nn.Sequential(*super().net(), Counts())


@fl.trainer("keeps-alone")
class Alone:
    """A linear network without the base class: fl keeps its optimiser by its state."""

    hook: bool = True
    learns = ("cross-entropy",)

    def setup(self, stream):
        self.net = nn.Linear(math.prod(self.task.input), self.task.outputs)
        self._steps = torch.optim.AdamW(self.net.parameters(), 0.05)
        if self.hook:
            s = torch.optim.lr_scheduler.StepLR(self._steps, 100, 0.5)
            self._steps.register_step_post_hook(lambda *_: s.step())

    def fit(self, x, target, how, stream):
        x, y, steps = torch.tensor(x).flatten(1), torch.tensor(target.astype("int64")), 0
        for at in map(torch.from_numpy, how.batches(len(x), stream)):
            self._steps.zero_grad()
            nn.functional.cross_entropy(self.net(x[at]), y[at]).backward()
            self._steps.step()
            steps += 1
        return steps, 0.0

    def predict(self, x):
        with torch.no_grad():
            return self.net(torch.tensor(x).flatten(1)).numpy()

    def params(self):
        return {name: value.numpy() for name, value in self.net.state_dict().items()}

    def set_params(self, params):
        self.net.load_state_dict({name: torch.tensor(value) for name, value in params.items()})

    def save(self):
        return nn.utils.parameters_to_vector(self.net.parameters()).detach().numpy().tobytes()

    def load(self, state):
        nn.utils.vector_to_parameters(torch.tensor(np.frombuffer(state, np.float32)), self.net.parameters())
