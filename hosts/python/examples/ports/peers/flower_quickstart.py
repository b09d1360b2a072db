"""`../flower_quickstart.py` in Flower itself: a ClientApp, a ServerApp and FedAvg, in Flower's
simulation, which `pyproject.toml` names.

    FL_DATA_DIR=$PWD/.. PYTHONPATH=$PWD/examples/ports \\
      flwr run examples/ports/peers local --stream \\
      --federation-config 'num-supernodes=10 client-resources-num-cpus=1'

Flower begins a SuperLink for `local`, unless one runs already: that one would not know the
variables.
"""

import time

import torch
from flwr.app import ArrayRecord, MetricRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from rows import cifar10, cut, equal_parts
from torch import nn

CLIENTS, LR, BATCH = 10, 0.1, 32


class Net(nn.Sequential):
    def __init__(self):
        layers = [nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
        super().__init__(*layers, nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


client = ClientApp()
server = ServerApp()


@client.train()
def train(message, context):
    torch.set_num_threads(1)
    net, mine = Net(), context.node_config["partition-id"]
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = map(torch.from_numpy, cut(equal_parts(cifar10("train"), CLIENTS)[mine], 0.2)[0])
    torch.manual_seed(CLIENTS * message.content["config"]["server-round"] + mine)
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
    strategy.start(grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=context.run_config["rounds"], evaluate_fn=evaluate)
