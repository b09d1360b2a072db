#!/usr/bin/env python3
"""Ten clients with equal networks whose steps `fl.torch` takes together (`torch.func.vmap`), beside
one by one, and beside plain PyTorch: `pip install fl_federated-*.whl torch`, then

    tests/bench/together.py [DEVICE]

It prints milliseconds of processor time (with a card: of the clock) for a mini-batch of all ten,
the least of five in turn. The ten are called from ten threads, as a program with ten processors
calls them. Results are compared too.
"""

import sys
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import fl
import fl.torch
from fl._parts import calls
from fl._parts.arguments import Pass, Stream

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"
CLIENTS, STEPS = 10, 10
now = time.process_time if DEVICE == "cpu" else time.perf_counter


def lenet():
    body = nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*body, nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def perceptron():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


@fl.trainer("bench-alone")
class Alone(fl.torch.Trainer):
    """One by one."""

    device = DEVICE
    make = staticmethod(lenet)

    def net(self):
        return type(self).make()


@fl.trainer("bench-together")
class Together(Alone):
    """Ten at once."""

    together = CLIENTS


def made(cls):
    index = calls.CLASSES.index(cls)
    settings = f'{{"lr": 0.01, "momentum": 0.0, "weight-decay": 0.0, "device": "{DEVICE}"}}'
    return [calls.create(index, settings, '{"input": [1, 28, 28], "kind": {"Classes": 10}}', bytes([k] * 32)) for k in range(CLIENTS)]


def measure(batch):
    draws = np.random.default_rng(0)
    x = draws.normal(size=(CLIENTS, batch * STEPS, 1, 28, 28)).astype("float32")
    y = draws.integers(10, size=(CLIENTS, batch * STEPS)).astype("uint32")
    how = Pass(target="classes", loss="cross-entropy", batch=batch, epochs=1, steps=None, fresh=False)
    nets = {cls: made(cls) for cls in (Alone, Together)}
    plain = [type(net).make().to(DEVICE) for net in nets[Alone]]
    [net.load_state_dict(one._model.state_dict()) for net, one in zip(plain, nets[Alone])]
    steps = [torch.optim.SGD(net.parameters(), 0.01) for net in plain]

    def alone():
        [net.fit(x[k], y[k], how, Stream(bytes([k] * 32))) for k, net in enumerate(nets[Alone])]

    def together():
        each = lambda k: nets[Together][k].fit(x[k], y[k], how, Stream(bytes([k] * 32)))  # noqa: E731
        threads = [threading.Thread(target=each, args=(k,)) for k in range(CLIENTS)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]

    def loop():
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        for k, (net, step) in enumerate(zip(plain, steps)):
            inputs, wanted = torch.tensor(x[k], device=DEVICE), torch.tensor(y[k].astype("int64"), device=DEVICE)
            for at in how.batches(len(x[k]), Stream(bytes([k] * 32))):
                step.zero_grad()
                loss = F.cross_entropy(net(inputs[at]), wanted[at])
                loss.item()
                loss.backward()
                step.step()
        torch.set_num_threads(before)

    ways = {"plain PyTorch": loop, "one by one": alone, "together": together}
    found = {name: [] for name in ways}
    for turn in range(6):
        for name, way in ways.items():
            begin = now()
            way()
            if turn:
                found[name].append(1000 * (now() - begin) / STEPS)
    apart = max(np.abs(a.params()[n] - b.params()[n]).max() for a, b in zip(nets[Alone], nets[Together]) for n in a.params())
    print(f"{Alone.make.__name__}, batch {batch}: " + ", ".join(f"{name} {min(ms):.1f} ms" for name, ms in found.items()) + f"; apart {apart:.1e}", flush=True)


if __name__ == "__main__":
    fl.torch._TOGETHER.PAUSE = 60  # all ten come
    for make in (lenet, perceptron):
        Alone.make = staticmethod(make)
        for batch in (8, 32, 128):
            measure(batch)
