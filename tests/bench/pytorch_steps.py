"""The workloads of tests/bench/steps.rs in PyTorch, and how many times as fast ours are.

    pip install torch
    cargo bench -p fl-bench --bench steps
    python tests/bench/pytorch_steps.py target/criterion [cuda]

With `cuda` PyTorch's steps run on a card; measure ours there with `FL_BENCH_DEVICE=cuda` first.
Prints the median time of each workload; with criterion's folder (its `estimates.json` files), also
ours and the ratio. Medians of the same machine only: close everything else.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import time

import torch
from torch import nn


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
        nn.Linear(256, 10))


class Block(nn.Module):
    def __init__(self, inside, out, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        self.shortcut = nn.Identity() if inside == out else nn.Sequential(
            nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet8():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Block(16, 16, 1), Block(16, 32, 2),
        Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def stepper(net, shape, batch, channels_last=False, device="cpu"):
    torch.manual_seed(7)
    model, x, y = net().to(device), torch.randn(batch, *shape).to(device), (torch.arange(batch) * 7919 % 10).to(device)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimiser, loss = torch.optim.Adam(model.parameters(), lr=1e-3), nn.CrossEntropyLoss()

    def step():
        optimiser.zero_grad()
        loss(model(x), y).backward()
        optimiser.step()
        if device != "cpu":
            torch.cuda.synchronize()
    return step


def median(step, seconds=4.0):
    step(), step()
    start, times = time.perf_counter(), []
    while len(times) < 5 or (time.perf_counter() - start < seconds and len(times) < 1000):
        t = time.perf_counter()
        step()
        times.append(time.perf_counter() - t)
    return statistics.median(times)


def clients(count, device="cpu"):
    for _ in range(count):
        step = stepper(lenet, (1, 28, 28), 64, device=device)
        for _ in range(200):
            step()


def two_processes():
    """Seconds that two processes of one thread need for five clients each, start of the interpreter
    left out."""
    def run():
        return subprocess.Popen([sys.executable, __file__, "--clients", "5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    both = [run(), run()]
    for p in both:
        p.stdout.readline()
    start = time.perf_counter()
    for p in both:
        p.stdin.write(b"\n")
        p.stdin.flush()
    for p in both:
        p.wait()
    return time.perf_counter() - start


def main(criterion, device="cpu"):
    torch.set_num_threads(1)
    theirs = {}
    for name, net, shape in (("lenet", lenet, (1, 28, 28)), ("mlp", mlp, (1, 28, 28)), ("resnet-8", resnet8, (3, 32, 32))):
        for batch in (32, 64, 512):
            best = median(stepper(net, shape, batch, device=device))
            note = ""
            if name != "mlp":
                last = median(stepper(net, shape, batch, channels_last=True, device=device))
                note = f"channels first {best * 1e3:.2f} ms, last {last * 1e3:.2f} ms"
                best = min(best, last)
            theirs[f"step/{name}/{batch}"] = (best, note)
    if device == "cpu":
        torch.set_num_threads(2)
        start = time.perf_counter()
        clients(10)
        one = time.perf_counter() - start
        two = two_processes()
        theirs["clients/lenet-10x200"] = (min(one, two), f"one process of two threads {one:.2f} s, two processes of one {two:.2f} s")
    else:
        start = time.perf_counter()
        clients(10, device)
        theirs["clients/lenet-10x200"] = (time.perf_counter() - start, "one after the other")

    for name, (seconds, note) in theirs.items():
        line = f"{name:24} PyTorch {seconds * 1e3:9.2f} ms"
        if criterion:
            file = pathlib.Path(criterion) / name / "new" / "estimates.json"
            own = json.loads(file.read_text())["median"]["point_estimate"] / 1e9
            line += f"  ours {own * 1e3:9.2f} ms  {seconds / own:5.2f} times as fast"
        print(line, f"  ({note})" if note else "")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--clients"]:
        torch.set_num_threads(1)
        print("ready", flush=True)
        sys.stdin.readline()
        clients(int(sys.argv[2]))
    else:
        main(*sys.argv[1:] or [None])
