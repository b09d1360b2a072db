"""`../flower_quickstart.py` in Flower itself: a ClientApp, a ServerApp and FedAvg, in Flower's simulation.

    FL_DATA_DIR=DIR PYTHONPATH=examples/ports python examples/ports/peers/flower_quickstart.py
"""

import sys
import time

import torch
from flwr.app import ArrayRecord, MetricRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from rows import cifar10, cut, equal_parts
from torch import nn

ROUNDS, CLIENTS, LR, BATCH = int((sys.argv[1:] or [3])[0]), 10, 0.1, 32


class Net(nn.Sequential):
    def __init__(self):
        layers = [nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
        super().__init__(*layers, nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


client, server = ClientApp(), ServerApp()


@client.train()
def train(message, context):
    torch.set_num_threads(1)
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    partitions = equal_parts(cifar10("train"), context.node_config["num-partitions"])
    x, y = map(torch.from_numpy, cut(partitions[context.node_config["partition-id"]], 0.2)[0])
    optimiser = torch.optim.SGD(net.parameters(), LR, momentum=0.9)
    for at in torch.randperm(len(x)).split(BATCH):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(net(x[at]), y[at])
        loss.backward()
        optimiser.step()
    metrics = MetricRecord({"loss": loss.item(), "num-examples": len(x)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@server.main()
def main(grid, context):
    torch.manual_seed(1)
    x, y = map(torch.from_numpy, cifar10("test"))
    ends = []

    def evaluate(number, arrays):
        ends.append(time.monotonic())
        net = Net()
        net.load_state_dict(arrays.to_torch_state_dict())
        with torch.no_grad():
            accuracy = (net(x).argmax(1) == y).float().mean().item()
        print(f"round {number}: accuracy {accuracy:.4f}, {ends[-1] - ends[0]:.1f} s", flush=True)
        return MetricRecord({"accuracy": accuracy})

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=ROUNDS, evaluate_fn=evaluate)


if __name__ == "__main__":
    run_simulation(server, client, num_supernodes=CLIENTS, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})
