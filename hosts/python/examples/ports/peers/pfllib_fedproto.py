"""`../pfllib_fedproto.py` in PFLlib itself, whose classes are imported from a checkout.

    pip install h5py scikit-learn torch
    FL_DATA_DIR=DIR PYTHONPATH=examples/ports \\
      python examples/ports/peers/pfllib_fedproto.py PFLLIB/system
"""

import os
import sys
import time
import types
from pathlib import Path

import numpy as np
import torch
from rows import cut, dirichlet_parts, fashion

ROUNDS, CLIENTS, LR = int((sys.argv[2:] or [10])[0]), 20, 0.005


def main(system):
    sys.path.insert(0, system)
    os.chdir(system)  # it looks for `../dataset`
    from flcore.servers.serverproto import FedProto, proto_aggregation
    from flcore.trainmodel.models import BaseHeadSplit, FedAvgCNN

    for client, rows in enumerate(dirichlet_parts(fashion("t10k"), CLIENTS, 0.1, 40)):
        for side, (x, y) in zip(("train", "test"), cut(rows, 0.25), strict=True):
            folder = Path("../dataset/port") / side
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(folder / f"{client}.npz", data={"x": x, "y": y})
    torch.manual_seed(1)
    np.random.seed(1)
    net = FedAvgCNN(in_features=1, num_classes=10, dim=1024)
    head, net.fc = net.fc, torch.nn.Identity()
    given = {"device": "cpu", "dataset": "port", "num_classes": 10, "global_rounds": ROUNDS, "local_epochs": 1, "batch_size": 10, "local_learning_rate": LR}
    given |= {"model": BaseHeadSplit(net, head), "num_clients": CLIENTS, "join_ratio": 1.0, "algorithm": "FedProto", "lamda": 1.0, "eval_gap": ROUNDS + 9}
    given |= {"save_folder_name": str(Path("../dataset/port/kept").resolve()), "learning_rate_decay": False, "learning_rate_decay_gamma": 0.99}
    nothing = "random_join_ratio few_shot time_select goal time_threthold top_cnt auto_break client_drop_rate train_slow_rate send_slow_rate dlg_eval"
    given |= dict.fromkeys([*nothing.split(), *"dlg_gap batch_num_per_client num_new_clients fine_tuning_epoch_new".split()], 0)
    server = FedProto(types.SimpleNamespace(**given), 0)
    server.selected_clients = server.clients
    began = time.monotonic()
    for _ in range(ROUNDS):
        for client in server.clients:
            client.train()
        server.receive_protos()
        server.global_protos = proto_aggregation(server.uploaded_protos)
        server.send_protos()
    took = time.monotonic() - began
    right = {"own model": [], "nearest prototype": []}
    for client in server.clients:
        x, y = zip(*(pair for batch in client.load_test_data() for pair in zip(*batch, strict=True)), strict=True)
        with torch.no_grad():
            found = client.model(torch.stack(x)).argmax(1) == torch.stack(y)
        right["own model"].append(found.float().mean().item())
        correct, rows, _ = client.test_metrics()
        right["nearest prototype"].append(correct / rows)
    print(*(f"{name}: mean accuracy of clients {np.mean(all):.4f}" for name, all in right.items()), f"{took / ROUNDS:.2f} s a round", sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
