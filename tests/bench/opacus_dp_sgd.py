"""DP-SGD on MNIST in Opacus and here: the same network, lots, clipping, noise, steps and learning
rate.

    pip install torch opacus fl_federated-*.whl
    cargo build --release
    python tests/bench/opacus_dp_sgd.py target/release/fl [SEEDS] [EPSILON ..]

FL_DATA_DIR says where `mnist` is. Prints, for each epsilon (2, 4 and 8 at delta 1e-5), the noise
that `fl account` finds for it, what Opacus's accountants say of that noise, and accuracies over the
seeds, with seconds of the processor: of ours with the linked network and with one of PyTorch, and
of Opacus. They draw different first weights, lots and noise. Both of ours have one price.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")
from opacus import PrivacyEngine
from opacus.accountants import create_accountant

from mnist import tensors

PROGRAM = sys.argv[1]
SEEDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
EPSILONS = [float(e) for e in sys.argv[3:]] or [2.0, 4.0, 8.0]
SPEC = pathlib.Path(__file__).parents[2] / "specs/dp-sgd/mnist.yaml"
STEPS, RATE, CLIP, LEARNING_RATE, DELTA = 300, 0.01, 1.0, 0.5, 1e-5


def cpu():
    """Seconds of the processor, of this process and of those that it has waited for: both sides
    have one thread."""
    return sum(os.times()[:4])


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, 3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))


def opacus(train, test, sigma, seed):
    """The accuracy in percent, and CPU seconds."""
    torch.manual_seed(seed)
    began = cpu()
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    data = torch.utils.data.TensorDataset(*train)
    loader = torch.utils.data.DataLoader(data, batch_size=int(RATE * len(data)))
    engine = PrivacyEngine()
    model, optimiser, loader = engine.make_private(
        module=model, optimizer=optimiser, data_loader=loader, noise_multiplier=sigma, max_grad_norm=CLIP)
    loss, steps = nn.CrossEntropyLoss(), 0
    while steps < STEPS:
        for x, y in loader:
            optimiser.zero_grad()
            loss(model(x), y).backward()
            optimiser.step()
            steps += 1
            if steps == STEPS:
                break
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in zip(test[0].split(1000), test[1].split(1000)))
    return 100 * right / len(test[1]), cpu() - began


PART = """
import fl, fl.torch
from torch import nn

@fl.trainer("opacus-net")
class OpacusNet(fl.torch.Trainer):
    "The same network."
    def net(self):
        return nn.Sequential(
            nn.Conv2d(1, 16, 8, 2, 3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
            nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))
"""


def ours(sigma, seed, in_pytorch=False):
    began = cpu()
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "opacus_net.py").write_text(PART)
        more = [f"plugins=[{{module: opacus_net, path: {folder}}}]", f"parts.model={{use: opacus-net, lr: {LEARNING_RATE}}}"] if in_pytorch else []
        said = subprocess.run(
            [*([sys.executable, "-m", "fl"] if in_pytorch else [PROGRAM]), "run", SPEC, "--out", f"{folder}/run", "--json", "--quiet", "--threads", "1",
             "--set", f"seed={seed}", "--set", f"parts.example-privacy.noise-multiplier={sigma}", *(word for set in more for word in ("--set", set))],
            check=True, stdout=subprocess.PIPE, text=True).stdout
    said = json.loads(said)
    return 100 * said["metrics"]["accuracy"], cpu() - began, said["privacy"]["server"]["epsilon"]


def spread(values):
    return f"{statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main():
    torch.set_num_threads(1)
    train, test = tensors("train"), tensors("t10k")
    for epsilon in EPSILONS:
        said = subprocess.run(
            [PROGRAM, "account", "gaussian", "--rate", str(RATE), "--times", str(STEPS), "--target", str(epsilon), "--json"],
            check=True, capture_output=True, text=True).stdout
        sigma = json.loads(said)["sigma"]
        theirs = {}
        for name in ("prv", "rdp"):
            accountant = create_accountant(name)
            accountant.history = [(sigma, RATE, STEPS)]
            theirs[name] = accountant.get_epsilon(DELTA)
        print(f"epsilon {epsilon:g}: sigma {sigma}; Opacus says {theirs['prv']:.4f} (prv), {theirs['rdp']:.4f} (rdp)", flush=True)
        here = [ours(sigma, seed) for seed in range(1, SEEDS + 1)]
        torchs = [ours(sigma, seed, in_pytorch=True) for seed in range(1, SEEDS + 1)]
        there = [opacus(train, test, sigma, seed) for seed in range(1, SEEDS + 1)]
        for name, runs in (("ours", here), ("ours, PyTorch", torchs), ("Opacus", there)):
            price = f", epsilon {runs[0][2]:.4f}" if len(runs[0]) > 2 else ""
            print(f"  {name:13} {spread([one[0] for one in runs])} %, {statistics.median(one[1] for one in runs):.0f} CPU s a run{price}", flush=True)
        print(f"  ours - Opacus: {statistics.mean(one[0] for one in here) - statistics.mean(one[0] for one in there):+.2f} points", flush=True)


if __name__ == "__main__":
    main()
