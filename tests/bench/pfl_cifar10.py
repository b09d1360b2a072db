"""pfl-research's CIFAR-10 benchmark in pfl, in plain PyTorch, in Flower's simulation and here:
seconds a round.

    pip install pfl torch            # pfl takes Python 3.10 to 3.12
    pip install 'flwr[simulation]'   # for the column of Flower, which is left out otherwise
    cargo build --release
    FL_DATA_DIR=.. python tests/bench/pfl_cifar10.py target/release/fl [ROUNDS] \\
      [cnn mlp softmax] [--threads N] [--without flower ..]

1,000 users of 50 images (fewer if the files have fewer) dealt at random, 50 of them a round, one
epoch in batches of 10, SGD with rate 0.1, the mean of the updates. The networks are pfl's CNN of
1.6 million numbers, an MLP with two layers of 200, and softmax regression; in all programs without
dropout, which costs nothing beside the rest. Programs run in turn, three times, each on N threads
(1): PyTorch and pfl give them to the products, Flower and fl to clients. A round costs the
difference of a run of ROUNDS + 1 rounds and one of a single round, divided by ROUNDS: so neither
the start nor the reading of the set counts. Each program keeps its own habits: ours writes its
journal, receipts and checkpoints, and hashes what crosses; pfl and plain PyTorch pass tensors in
one process and keep nothing. No program evaluates. On a busy machine only the processor's seconds
on one thread can be compared. In the place of a ratio stands `noise` where the times of one of the
two programs lie as far apart as the programs do; Flower, which runs once, counts with the spread of
ours.
"""

import contextlib
import io
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

THREADS = int(sys.argv[sys.argv.index("--threads") + 1]) if "--threads" in sys.argv else 1
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = str(THREADS)  # before NumPy and PyTorch are loaded
os.environ["PFL_PYTORCH_DEVICE"] = "cpu"

import numpy
import torch
from flower_app import simulated
from processes import seconds_with_descendants
from torch import nn

torch.set_num_threads(THREADS)
MOST, EACH, COHORT, BATCH, RATE, TIMES = 1000, 50, 50, 10, 0.1, 3
# as pfl's: two convolutions without padding, a pool, and a hidden layer of 128
NETS = {
    "cnn": "{use: dfdx, net: [{conv: {out: 32, kernel: 3}}, relu, {conv: {out: 64, kernel: 3}}, relu, {pool: 2}, "
    "{linear: 128}, relu, outputs], optimiser: {sgd: {lr: 0.1}}}",
    "mlp": "{use: dfdx, net: [{linear: 200}, relu, {linear: 200}, relu, outputs], optimiser: {sgd: {lr: 0.1}}}",
    "softmax": "{use: dfdx, net: [outputs], optimiser: {sgd: {lr: 0.1}}}",
}


def network(name):
    torch.manual_seed(0)
    flat = 3 * 32 * 32
    if name == "cnn":
        return nn.Sequential(
            nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(),
            nn.Linear(128, 10))
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(flat, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
    return nn.Sequential(nn.Flatten(), nn.Linear(flat, 10))


def users():
    """Images and labels of each user."""
    folder = Path(os.environ["FL_DATA_DIR"]) / "cifar10"
    raw = b"".join(lzma.open(folder / f"data_batch_{n}.bin.xz").read() for n in range(1, 6))
    rows = numpy.frombuffer(raw, numpy.uint8).reshape(-1, 3073)
    rows = rows[numpy.random.default_rng(0).permutation(len(rows))]
    images = torch.from_numpy(rows[:, 1:].astype(numpy.float32) / 255 - 0.5).reshape(-1, 3, 32, 32)
    labels = torch.from_numpy(rows[:, 0].astype(numpy.int64))
    return [(images[at : at + EACH], labels[at : at + EACH]) for at in range(0, min(MOST, len(rows) // EACH) * EACH, EACH)]


def clocks():
    """Seconds of the processor, for this process and those that it has waited for, and of the
    wall's clock."""
    return numpy.array([sum(os.times()[:4]), time.monotonic()])


def train(model, images, labels):
    optimiser, loss = torch.optim.SGD(model.parameters(), lr=RATE), nn.CrossEntropyLoss()
    for at in torch.randperm(EACH).split(BATCH):
        optimiser.zero_grad()
        loss(model(images[at]), labels[at]).backward()
        optimiser.step()


def plain(name, data, rounds):
    model, draw = network(name), numpy.random.default_rng(1)
    began = clocks()
    for _ in range(rounds):
        before = [p.detach().clone() for p in model.parameters()]
        sums = [torch.zeros_like(p) for p in before]
        for user in draw.choice(len(data), COHORT, replace=False):
            with torch.no_grad():
                for p, b in zip(model.parameters(), before):
                    p.copy_(b)
            train(model, *data[user])
            with torch.no_grad():
                for s, p in zip(sums, model.parameters()):
                    s.add_(p)
        with torch.no_grad():
            for p, s in zip(model.parameters(), sums):
                p.copy_(s / COHORT)
    return clocks() - began


def pfl(name, data, rounds):
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Weighted
    from pfl.model.pytorch import PyTorchModel

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = network(name)

        def loss(self, images, labels, eval=False):
            self.train(not eval)
            return nn.functional.cross_entropy(self.layers(images), labels)

        def metrics(self, images, labels, eval=True):
            with torch.no_grad():
                return {"loss": Weighted(float(self.loss(images, labels, True)) * len(labels), len(labels))}

    model = Net()
    one = PyTorchModel(model=model, local_optimizer_create=torch.optim.SGD, central_optimizer=torch.optim.SGD(model.parameters(), 1.0))
    sampler = get_user_sampler("random", list(range(len(data))))
    federation = FederatedDataset(lambda user: PyTorchTensorDataset(data[user], user_id=str(user)), sampler)
    backend = SimulatedBackend(training_data=federation, val_data=federation, postprocessors=[])
    # it evaluates models at users in the first round, which does not count
    params = NNAlgorithmParams(central_num_iterations=rounds, evaluation_frequency=rounds + 1, train_cohort_size=COHORT, val_cohort_size=0)
    began = clocks()
    how = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH)
    with contextlib.redirect_stdout(io.StringIO()):
        FederatedAveraging().run(params, backend, one, model_train_params=how, model_eval_params=None, callbacks=[])
    return clocks() - began


FLOWER = """
import os
import numpy
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from pfl_cifar10 import COHORT, EACH, network, train

NAME, FOLDER, USERS, ROUNDS = (os.environ["BENCH_" + word] for word in ("NET", "FOLDER", "USERS", "ROUNDS"))
client = ClientApp()
server = ServerApp()

@client.train()
def fit(message, context):
    torch.set_num_threads(1)
    model = network(NAME)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    held = numpy.load(f"{FOLDER}/{context.node_config['partition-id']}.npz")
    train(model, torch.from_numpy(held["x"]), torch.from_numpy(held["y"]))
    said = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": EACH})}
    return Message(RecordDict(said), reply_to=message)

@server.main()
def main(grid, context):
    class Timed(FedAvg):
        def aggregate_train(self, *args):
            out = super().aggregate_train(*args)
            print("== aggregated", flush=True)
            return out

    strategy = Timed(fraction_train=COHORT / int(USERS), min_train_nodes=COHORT, min_available_nodes=int(USERS), fraction_evaluate=0.0)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(network(NAME).state_dict()), num_rounds=int(ROUNDS))
"""


def flower(name, data, rounds, folder):
    """Flower's simulation, a client on each thread. The first round, in which its processes begin,
    takes no part."""
    for user, (x, y) in enumerate(data):
        numpy.savez(f"{folder}/{user}.npz", x=x.numpy(), y=y.numpy())
    env = {"BENCH_NET": name, "BENCH_FOLDER": folder, "BENCH_USERS": len(data), "BENCH_ROUNDS": rounds + 1}
    ends = []
    with simulated(Path(folder) / "app", FLOWER, len(data), THREADS, **env) as (run, link):
        for _ in range(rounds + 1):
            run.until("== aggregated")
            ends.append(numpy.array([seconds_with_descendants(link), time.monotonic()]))
    return ends[-1] - ends[0]


def ours(program, name, users, rounds, folder):
    spec = Path(folder) / "spec.yaml"
    spec.write_text(
        f"name: pfl\nseed: 1\ndata: {{set: cifar10, clients: {users}, split: iid}}\n"
        f"protocol: {{use: fedavg, rounds: {rounds}, local: {{epochs: 1, batch: {BATCH}}}}}\n"
        f"parts:\n  model: {NETS[name]}\n  cohort: {{use: uniform, share: {COHORT / users}}}\n  aggregator: {{use: mean}}\n"
        # only the last round is evaluated, in the run of one round as in the other
        "evaluate: {every: 1000000}\n")
    out = Path(folder) / f"run-{time.monotonic_ns()}"
    began = clocks()
    subprocess.run([program, "run", str(spec), "--threads", str(THREADS), "--json", "--out", str(out)], check=True, capture_output=True)
    took = clocks() - began
    shutil.rmtree(out)
    return took


def times(all):
    return f"{min(all):10.3f} {max(all):8.3f}"


def ratio(theirs, own):
    """The least of their times beside ours, unless the times of one program lie as far apart as the
    two."""
    noise = max(max(one) - min(one) for one in (theirs, own))
    return f"{min(theirs) / min(own):6.2f} x" if abs(min(theirs) - min(own)) > noise else f"{'noise':>8}"


def main():
    words = sys.argv[1:]
    without = words[words.index("--without") + 1 :] if "--without" in words else []
    words = words[: words.index("--without")] if without else words
    if "--threads" in words:
        at = words.index("--threads")
        words = words[:at] + words[at + 2 :]
    program, rounds = words[0], int(words[1]) if len(words) > 1 else 10
    data = users()
    peers = {"plain PyTorch": plain, "pfl": pfl}
    peers = {peer: run for peer, run in peers.items() if peer not in without}
    for name in words[2:] or NETS:
        numbers = sum(p.numel() for p in network(name).parameters())
        took = {peer: [] for peer in [*peers, "fl"]}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(TIMES):
                for peer, run in peers.items():
                    took[peer].append((run(name, data, rounds + 1) - run(name, data, 1)) / rounds)
                took["fl"].append((ours(program, name, len(data), rounds + 1, folder) - ours(program, name, len(data), 1, folder)) / rounds)
        if "flower" not in without:
            try:
                with tempfile.TemporaryDirectory() as folder:
                    took["Flower, once"] = [flower(name, data, rounds, folder) / rounds]
            except ImportError as error:
                print(f"Flower is left out: {error}")
        print(f"{name}, {numbers:,} numbers, {len(data)} users, {THREADS} thread(s), seconds a round, the least of {TIMES} and the most:")
        print(f"  {'':14} {'processor':>28} {'wall':>28}")
        for peer, all in took.items():
            clocks = zip(numpy.transpose(all), numpy.transpose(took["fl"]))
            print(f"  {peer:14}", *(times(theirs) + ("" if peer == "fl" else ratio(theirs, own)) for theirs, own in clocks), flush=True)


if __name__ == "__main__":
    main()
