"""FedAvg of a PyTorch LeNet on MNIST, 10 clients of 1,000 images, one epoch of 32 a round, in a
spec, in plain PyTorch and in Flower.

    pip install torch fl_federated-*.whl 'flwr[simulation]>=1.40,<2'
    OMP_NUM_THREADS=1 python tests/bench/pytorch_fedavg.py [ROUNDS]

FL_DATA_DIR says where `mnist` is. Prints seconds a round (training, averaging and testing;
processes begun and data loaded before) of a program that does nothing else: one client after
another and side by side. Flower's apps are those of its quickstart for PyTorch, with this network
and these data. Every way has its own first weights and orders of examples.
"""
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
from torch import nn

from flower_app import simulated
from mnist import tensors

CLIENTS, OWN, BATCH, RATE = 10, 1000, 32, 0.05
HERE = pathlib.Path(__file__).resolve()


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def train(model, x, y):
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    for at in torch.randperm(len(x)).split(BATCH):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[at]), y[at]).backward()
        optimiser.step()


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        return 100 * (model(x).argmax(1) == y).float().mean().item()


def own(client):
    x, y = tensors("train", CLIENTS * OWN)
    return x[client::CLIENTS], y[client::CLIENTS]


def plain(rounds):
    torch.set_num_threads(1)
    test, data = tensors("t10k", 10_000), [own(k) for k in range(CLIENTS)]
    model, whole, times = lenet(), lenet(), []
    for _ in range(rounds):
        began, sent = time.perf_counter(), []
        for x, y in data:
            model.load_state_dict(whole.state_dict())
            train(model, x, y)
            sent.append({name: value.clone() for name, value in model.state_dict().items()})
        whole.load_state_dict({name: sum(one[name] for one in sent) / CLIENTS for name in sent[0]})
        found = accuracy(whole, *test)
        times.append(time.perf_counter() - began)
    return times, found


FLOWER = """
import json, os, time
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from mnist import tensors
from pytorch_fedavg import CLIENTS, OWN, accuracy, lenet, own, train

client = ClientApp()
server = ServerApp()
kept, rounds = {}, int(os.environ["BENCH_ROUNDS"])

@client.train()
def fit(message, context):
    torch.set_num_threads(1)
    k = int(context.node_config["partition-id"])
    if k not in kept:
        kept[k] = own(k)
    model = lenet()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, *kept[k])
    said = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": OWN})}
    return Message(RecordDict(said), reply_to=message)

@server.main()
def main(grid, context):
    test, model, ends = tensors("t10k", 10_000), lenet(), []

    def measure(round, arrays):
        model.load_state_dict(arrays.to_torch_state_dict())
        found = accuracy(model, *test)
        ends.append(time.perf_counter())
        return MetricRecord({"accuracy": found})

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    while len(list(grid.get_node_ids())) < CLIENTS:
        time.sleep(0.1)
    result = strategy.start(grid=grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=rounds, evaluate_fn=measure)
    found = result.evaluate_metrics_serverapp[rounds]["accuracy"]
    print("times", json.dumps([[b - a for a, b in zip(ends, ends[1:])], found]), flush=True)
"""


def flower(rounds, folder):
    with simulated(folder / "app", FLOWER, CLIENTS, BENCH_ROUNDS=rounds) as (run, _):
        return json.loads(run.until("times (.*)")[1])


PART = f"""
import sys
sys.path.insert(0, {str(HERE.parent)!r})
import fl, fl.torch
from pytorch_fedavg import lenet

@fl.trainer("lenet-of-pytorch")
class LeNet(fl.torch.Trainer):
    "The same network."
    def net(self):
        return lenet()
"""


def ours(rounds, threads, folder):
    import fl

    (folder / "lenet_part.py").write_text(PART)
    spec = {
        "name": "pytorch-fedavg",
        "plugins": [{"module": "lenet_part", "path": str(folder)}],
        "data": {"set": "mnist", "limit": {"train": CLIENTS * OWN}, "clients": CLIENTS, "split": "iid"},
        "protocol": {"use": "fedavg", "rounds": rounds, "local": {"epochs": 1, "batch": BATCH}},
        "parts": {"model": {"use": "lenet-of-pytorch", "lr": RATE}, "aggregator": {"use": "mean"}},
    }
    ends = []
    result = fl.run(spec, quiet=True, threads=threads, out=folder / f"run-{threads}", on_step=lambda _: ends.append(time.perf_counter()))
    return [b - a for a, b in zip(ends, ends[1:])], 100 * result.metrics["accuracy"]


def shown(name, times, found):
    print(f"{name:34} {statistics.median(times):6.2f} s a round ({min(times):.2f} to {max(times):.2f}), accuracy {found:.1f}", flush=True)
    return statistics.median(times)


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    with tempfile.TemporaryDirectory() as made:
        alone = shown("plain PyTorch, one thread", *plain(rounds))
        one = shown("ours, one thread", *ours(rounds, 1, pathlib.Path(made)))
        both = shown("ours, a thread for each processor", *ours(rounds, os.cpu_count(), pathlib.Path(made)))
        theirs = shown("Flower's simulation", *flower(rounds, pathlib.Path(made)))
    print(f"ours / plain on one thread: {one / alone:.2f}; ours / Flower: {both / theirs:.2f}")
