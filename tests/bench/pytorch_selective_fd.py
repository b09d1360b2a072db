"""One round of Selective-FD on MNIST, one class a client: `fl` beside PyTorch (from PyPI), on two
threads each.

    cargo build --release
    FL_DATA_DIR=... python tests/bench/pytorch_selective_fd.py [target/release/fl]

A round is, for each of ten clients, one step of 64 of its own images, labels for 512 public images,
and ten steps of those 512 (the network and rate of the method's published code, without its
dropout). `fl`'s time is the difference between a run of 14 rounds and one of 4, so that loading
data and fitting filters do not count. PyTorch runs once in one process with two threads, images in
channels-last order, and once in two processes with one thread, five clients each; the labels are
exchanged through shared memory. Neither evaluates.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS, CLIENTS, OWN, PUBLIC, STEPS = 10, 10, 64, 512, 10


def ours(fl):
    root = pathlib.Path(__file__).resolve().parents[2]
    spec = (root / "specs/selective-fd/mnist-strong-code.yaml").read_text()
    spec = spec.replace("{ dropout: 0.5 }, ", "").replace("  client-filter", "  #client-filter")
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "spec.yaml"
        path.write_text(spec)
        for rounds in (4, 4 + ROUNDS):
            took = []
            for again in range(2):
                out = subprocess.run(
                    [fl, "run", path, "--json", "--threads", "2", "--out", f"{folder}/{rounds}-{again}",
                     "--set", f"protocol.rounds={rounds}", "--set", "evaluate.every=1000"],
                    check=True, capture_output=True, text=True)
                took.append(json.loads(out.stdout)["seconds"])
            seconds[rounds] = min(took)
    return (seconds[4 + ROUNDS] - seconds[4]) / ROUNDS


def client(torch):
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(1, 10, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(10, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10))
    net = net.to(memory_format=torch.channels_last)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def step(torch, net, rule, x, y):
    rule.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    rule.step()


def images(torch, n):
    return torch.randn(n, 1, 28, 28).to(memory_format=torch.channels_last)


def one_process():
    import torch
    torch.set_num_threads(2)
    clients = [client(torch) for _ in range(CLIENTS)]
    own, labels = images(torch, OWN), torch.randint(0, 10, (OWN,))
    public = images(torch, PUBLIC)
    took = []
    for _ in range(6):
        start = time.perf_counter()
        for net, rule in clients:
            step(torch, net, rule, own, labels)
        with torch.no_grad():
            taught = sum(torch.softmax(net(public), 1) for net, _ in clients) / CLIENTS
        for net, rule in clients:
            for _ in range(STEPS):
                step(torch, net, rule, public, taught)
        took.append(time.perf_counter() - start)
    return statistics.median(took[1:])


def worker(shared, start, done, rounds):
    import torch
    torch.set_num_threads(1)
    clients = [client(torch) for _ in range(CLIENTS // 2)]
    own, labels = images(torch, OWN), torch.randint(0, 10, (OWN,))
    torch.manual_seed(0)
    public = images(torch, PUBLIC)
    for _ in range(rounds):
        start.wait()
        for net, rule in clients:
            step(torch, net, rule, own, labels)
        with torch.no_grad():
            mine = sum(torch.softmax(net(public), 1) for net, _ in clients) / CLIENTS
        with shared.get_lock():
            view = torch.frombuffer(shared.get_obj(), dtype=torch.float32).view(PUBLIC, 10)
            view += mine
        done.wait()
        taught = view.clone()
        for net, rule in clients:
            for _ in range(STEPS):
                step(torch, net, rule, public, taught)
        done.wait()


def two_processes():
    import ctypes
    import multiprocessing as mp
    ctx = mp.get_context("spawn")
    shared, start, done = ctx.Array(ctypes.c_float, PUBLIC * 10), ctx.Barrier(3), ctx.Barrier(3)
    workers = [ctx.Process(target=worker, args=(shared, start, done, 6)) for _ in range(2)]
    for w in workers:
        w.start()
    took = []
    for _ in range(6):
        for i in range(PUBLIC * 10):
            shared[i] = 0.0
        start.wait()
        begun = time.perf_counter()
        done.wait()
        done.wait()
        took.append(time.perf_counter() - begun)
    for w in workers:
        w.join()
    return statistics.median(took[1:])


if __name__ == "__main__":
    fl = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/fl")
    mine, one, two = ours(fl), one_process(), two_processes()
    print(f"fl, two threads                      {mine:6.2f} s a round")
    print(f"PyTorch, one process of two threads  {one:6.2f} s, {one / mine:.2f} x")
    print(f"PyTorch, two processes of one thread {two:6.2f} s, {two / mine:.2f} x")
