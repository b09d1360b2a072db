#!/usr/bin/env python3
"""Specs on Flower: `pip install fl_federated-*.whl 'fl-federated[flower]'`, then

    tests/bench/flower.py MODE ..

specs [SPEC ..]     each (all of specs/quick) in Flower's simulation, on three nodes: the digest of
                    fl.run
nodes [SPEC ..]     each (MNIST's FedKD) on a SuperLink with TLS and five authenticated SuperNodes,
                    all of the specs at once: the digest of fl.run
faults              on a SuperLink with TLS and five authenticated SuperNodes: a node is killed in a
                    round and begun anew, then the ServerApp is killed and the run gone on with: the
                    digest of fl.run
own                 five authenticated SuperNodes, each with a file of rows that nobody else has
                    (census rows by FL_DATA_DIR) and a node's file: the digest of fl run with the
                    same files
supernodes [N ..]   10, then 20, 40 .. authenticated SuperNodes, a client each, until a round takes
                    over 60 s: seconds a round and of the processor, memory
strategy [ROUNDS]   Flower's quickstart with its FedAvg and with fl's mean in its place: seconds a
                    round, and how far the arrays are apart (CIFAR-10 by FL_DATA_DIR)
overhead [NODES ..] seconds per round (median) in the simulation beside Flower's own FedAvg with the
                    same payload
"""

import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from flower_app import simulated
from processes import megabytes, named, parent_and_seconds

ROOT = Path(__file__).resolve().parents[2]


SPECS = """
import json, os
from pathlib import Path
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
import fl
from fl.flower import client_app, server_app

FOLDER = Path(os.environ["BENCH_FOLDER"])
server = ServerApp()

class Client(ClientApp):
    "The clients of whichever spec is running now."
    def __call__(self, message, context):
        return client_app(Path((FOLDER / "now").read_text()))(message, context)

client = Client()

@server.main()
def main(grid, context):
    for spec in map(Path, json.loads(os.environ["BENCH_SPECS"])):
        (FOLDER / "now").write_text(str(spec))
        context.run_config = {"out": str(FOLDER / f"there-{spec.stem}")}
        try:
            server_app(spec)(grid, context)
            here = fl.run(spec, quiet=True, out=FOLDER / f"here-{spec.stem}").digest
            same = "the same" if fl.open(context.run_config["out"]).digest == here else "DIFFERENT"
        except fl.Error as error:
            same = "DIFFERENT: " + " ".join(str(error).split())
        print("== spec", spec.stem, same, flush=True)
    print("== end", flush=True)
"""


def specs(folder, *given):
    """Runs specs one after another in one simulation, for Ray takes half a minute to start; says
    which differ."""
    given = [Path(spec).resolve() for spec in given or sorted((ROOT / "specs/quick").glob("*.yaml"))]
    failed = []
    env = {"BENCH_FOLDER": folder, "BENCH_SPECS": json.dumps([str(spec) for spec in given]), "FL_NODE_HOME": folder / "home"}
    with simulated(folder / "app", SPECS, 3, **env) as (run, _):
        while (found := run.until(r"== (end|spec (\S+) (.*))"))[1] != "end":
            print("==", found[2], found[3], flush=True)
            failed += [found[2]] if found[3] != "the same" else []
    print(f"{len(given)} specs: {', '.join(spec.stem for spec in given)}")
    sys.exit(f"different: {', '.join(failed)}" if failed else 0)


def nodes(folder, *given):
    """Runs specs at the same time on one SuperLink, whose five nodes share the clients out; says
    which differ."""
    from cluster import Cluster

    import fl
    from fl._tools import command

    given = [Path(spec).resolve() for spec in given] or [ROOT / "specs/fedkd/mnist.yaml"]
    heres = [fl.run(spec, quiet=True, out=folder / f"here-{spec.stem}") for spec in given]
    most = max(fl.check(spec)["data"]["clients"] for spec in given)
    failed = []
    with Cluster(folder) as cluster:
        for k in range(5):
            cluster.register(f"node-{k}")
            cluster.node(f"node-{k}", {"clients": " ".join(map(str, range(k, most, 5))), "fl-home": str(folder / f"home-{k}")})
        runs = []
        for spec in given:
            command("new", "flower", spec.stem, "--out", str(folder / spec.stem))
            (app,) = (folder / spec.stem).glob("*/spec.yaml")
            app.write_bytes(spec.read_bytes())
            runs.append(cluster.run(folder / spec.stem, out=str(folder / f"there-{spec.stem}")))
        for spec, run, here in zip(given, runs, heres, strict=True):
            there = run.outcome()
            same = there["digest"] == here.digest and there["metrics"] == here.metrics and there["bytes"] == here.outcome["bytes"]
            print("==", spec.stem, "the same" if same else "DIFFERENT", there["digest"], there["metrics"], flush=True)
            failed.extend([] if same else [spec.stem])
    sys.exit(f"different: {', '.join(failed)}" if failed else 0)


def server_process(cluster) -> int:
    """The process of the ServerApp that the cluster runs: it is told where the SuperLink is."""
    out = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines()[1:]:
        pid, args = line.split(None, 1)
        if "flwr-serverapp" in args and f"127.0.0.1:{cluster.port} " in args:
            return int(pid)
    raise SystemExit("no ServerApp is running")


def faults(folder):
    from cluster import Cluster

    import fl
    from fl._tools import command

    command("new", "flower", "my-app", "--out", str(folder / "app"))
    sets = "protocol.rounds=8"
    here = fl.run(folder / "app/my_app/spec.yaml", sets.split(), quiet=True, out=folder / "here")
    with Cluster(folder) as cluster:
        config = [{"clients": str(k), "fl-home": str(folder / f"home-{k}")} for k in range(5)]
        for k in range(5):
            cluster.register(f"node-{k}")
            cluster.node(f"node-{k}", config[k])
        run = cluster.run(folder / "app", set=sets, out=str(folder / "run"))
        run.until("fl: round 3 of")
        cluster.kill("node-2")
        print("node 2 was killed in round 3", flush=True)
        # Flower lets a key in again when it has missed the node's heartbeat; until then its log
        # says exit code 305
        cluster.node("node-2", config[2], again=True)
        run.until("fl: round 6 of")
        os.kill(server_process(cluster), signal.SIGKILL)
        print(f"node 2 was begun {cluster.log('node-2').count('Exit Code: 305') + 2} times; the ServerApp was killed in round 6", flush=True)
        run.process.stdout.read()
        run.process.wait()
        last = cluster.run(folder / "app", set=sets, resume=str(folder / "run")).outcome()
    print("digest", last["digest"], "the same" if last["digest"] == here.digest else f"DIFFERENT: fl.run has {here.digest}")
    sys.exit(last["digest"] != here.digest)


def own(folder):
    """Every node has a part of the census of its own, in a CSV file, and says so in its node's
    file."""
    from cluster import Cluster

    from fl._tools import command

    given = Path(os.environ["FL_DATA_DIR"]) / "adult"
    rows = {part: [line.rstrip(".\n").split(", ") for line in gzip.open(given / f"adult.{part}.gz", "rt") if line.count(",") == 14] for part in ("data", "test")}

    def table(name, of):
        lines = ["age,education,hours,sex,income"] + [f"{r[0]},{r[4]},{r[12]},{r[9]},{r[14]}" for r in of]
        (folder / name).write_text("\n".join(lines) + "\n")

    table("test.csv", rows["test"])
    data = "files: {{ format: csv, train: {0}, test: {1}, label: income, classes: ['<=50K', '>50K'], columns: {{ age: number, education: number, hours: number, sex: {{category: {{of: [Female, Male]}}}} }} }}"
    (folder / "spec.yaml").write_text(f"""
name: census
data: {{ set: {{ {data.format("test.csv", "test.csv")} }}, clients: 5, split: own, normalise: {{ mean: [38, 10, 40, 0, 0], std: [14, 2.5, 12, 1, 1] }} }}
protocol: {{ use: fedavg, rounds: 5, local: {{ epochs: 1, batch: 32 }} }}
parts: {{ model: {{ use: linear, lr: 0.05 }}, aggregator: {{ use: mean }} }}
""")
    for k in range(5):
        table(f"n{k}.csv", rows["data"][k::5])
        for where in ("here", "there"):
            text = f"client: {k}\nhome: {folder}/home-{where}-{k}\ndata: {{ {data.format(f'n{k}.csv', 'test.csv')} }}\n"
            (folder / f"{where}-{k}.yaml").write_text(text)
    args = [arg for k in range(5) for arg in ("--node", f"here-{k}.yaml")]
    done = subprocess.run([sys.executable, "-m", "fl", "run", "spec.yaml", *args, "--json", "--quiet"], cwd=folder, stdout=subprocess.PIPE, check=True)
    here = json.loads(done.stdout)
    with Cluster(folder) as cluster:
        for k in range(5):
            cluster.register(f"node-{k}")
            cluster.node(f"node-{k}", {"fl-node": str(folder / f"there-{k}.yaml")})
        command("new", "flower", "app", "--out", str(folder / "app"))
        (app,) = (folder / "app").glob("*/spec.yaml")
        app.write_text((folder / "spec.yaml").read_text().replace("test.csv", str(folder / "test.csv")))
        there = cluster.run(folder / "app", out=str(folder / "run")).outcome()
    same = there["digest"] == here["digest"]
    print("digest", there["digest"], there["metrics"], "the same" if same else f"DIFFERENT: fl run has {here['digest']}")
    sys.exit(not same)


def supernodes(folder, *counts):
    """As many real SuperNodes as this machine bears."""
    from cluster import Cluster

    import fl
    from fl._tools import command

    rounds, begun = 3, 0
    command("new", "flower", "app", "--out", str(folder / "app"))
    (app,) = (folder / "app").glob("*/spec.yaml")
    with Cluster(folder) as cluster:
        for n in map(int, counts or [10, 20, 40, 80, 160]):
            while begun < n:
                cluster.register(f"node-{begun}")
                cluster.node(f"node-{begun}", {"clients": str(begun), "fl-home": str(folder / f"home-{begun}")})
                begun += 1
            spec = {
                "name": "supernodes",
                "seed": 1,
                "data": {"set": {"blobs": {"features": 8, "train": n, "test": 8}}, "clients": n, "split": "iid"},
                "protocol": {"use": "fedavg", "rounds": rounds, "local": {"epochs": 1, "batch": 64}},
                "parts": {"model": {"use": "linear", "lr": 0.1}, "aggregator": {"use": "mean"}},
            }
            app.write_text(json.dumps(spec))
            here = fl.run(spec, quiet=True, out=folder / f"here-{n}")
            run = cluster.run(folder / "app", out=str(folder / f"there-{n}"))
            begins, apps, took, over = [], [[]], {}, threading.Event()

            def watch(apps=apps, took=took, over=over):
                while not over.wait(0.5):
                    found = named("flwr-clientapp")
                    apps.append(megabytes(found))
                    took.update((one, seconds) for one in found if (seconds := parent_and_seconds(one)[1]))

            watcher = threading.Thread(target=watch)
            watcher.start()
            for number in range(1, rounds + 1):
                run.until(f"fl: round {number} of")
                begins.append(time.monotonic())
            over.set()
            watcher.join()
            nodes = sum(megabytes(named("flower-supernode") + named("flower-superexec"))) / n
            there = run.outcome()
            steps = sorted(b - a for a, b in zip(begins, begins[1:]))
            print(
                f"{n} SuperNodes: {steps[len(steps) // 2]:.1f} s a round, {sum(took.values()) / len(took):.1f} s of the processor an answer,",
                f"{nodes:.0f} MB a node, at most {max(map(len, apps))} ClientApps at once with {max(map(sum, apps)):.0f} MB,",
                "the digest of fl.run" if there["digest"] == here.digest else "ANOTHER DIGEST", flush=True)
            if steps[len(steps) // 2] > 60:
                return


OURS = """
import json, os
from fl.flower import client_app, server_app
spec = json.loads(os.environ["BENCH_SPEC"])
server = server_app(spec)
client = client_app(spec)
"""
THEIRS = """
import os, time
import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
nodes, rounds, numbers = map(int, os.environ["BENCH_SIZES"].split())
client = ClientApp()
server = ServerApp()
@client.train()
def train(message, context):
    said = {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(said), reply_to=message)
@server.main()
def main(grid, context):
    while len(list(grid.get_node_ids())) < nodes:
        time.sleep(0.1)
    ends = []
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    strategy.start(grid=grid, initial_arrays=ArrayRecord([np.zeros(numbers, np.float32)]), num_rounds=rounds, evaluate_fn=lambda *_: ends.append(time.time()))
    steps = sorted(b - a for a, b in zip(ends, ends[1:]))
    print("seconds per round", steps[len(steps) // 2], flush=True)
"""
#: Flower's quickstart (`hosts/python/examples/ports/peers`), with FedAvg, with the part in its
#: place, and with FedAvg that gets doubles in the order of the nodes. Eight clients have equal
#: weights that are exact, so that sums of doubles are exact too.
STRATEGY = """
import json, os, time
import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from fl.flower import Strategy
import flower_quickstart
from flower_quickstart import Net

CLIENTS = flower_quickstart.CLIENTS = 8
ROUNDS = int(os.environ["BENCH_ROUNDS"])
client = flower_quickstart.client
server = ServerApp()

def of(arrays, kind):
    return ArrayRecord({name: Array(one.numpy().astype(kind)) for name, one in arrays.items()})

class Doubles(FedAvg):
    def aggregate_train(self, server_round, replies):
        replies = sorted(replies, key=lambda reply: reply.metadata.src_node_id)
        for reply in replies:
            reply.content["arrays"] = of(reply.content["arrays"], np.float64)
        arrays, metrics = super().aggregate_train(server_round, replies)
        return of(arrays, np.float32), metrics

def made(name, **given):
    kinds = {"FedAvg": FedAvg, "FedAvg of doubles": Doubles}
    return kinds[name](**given) if name in kinds else Strategy(name, **given)

@server.main()
def main(grid, context):
    torch.manual_seed(1)
    first, found, seconds = Net().state_dict(), {}, {}
    for name in json.loads(os.environ["BENCH_ORDER"]):
        nodes = dict.fromkeys(["min_train_nodes", "min_available_nodes"], CLIENTS)
        strategy = made(name, fraction_train=1.0, fraction_evaluate=0.0, **nodes)
        ends, models = [], []
        def kept(number, arrays):
            ends.append(time.monotonic())
            models.append(arrays.to_numpy_ndarrays())
        strategy.start(grid=grid, initial_arrays=ArrayRecord(first), num_rounds=ROUNDS, evaluate_fn=kept)
        seconds.setdefault(name, []).extend(b - a for a, b in zip(ends[1:], ends[2:]))
        if name in found:
            equal = all((a == b).all() for one, other in zip(found[name], models) for a, b in zip(one, other))
            print("== again", name, "the same arrays" if equal else "OTHER ARRAYS", flush=True)
        found[name] = models
    for name, took in seconds.items():
        print(f"== seconds {name}: {np.median(took):.2f} a round ({min(took):.2f} to {max(took):.2f})", flush=True)
    for name in ("FedAvg", "FedAvg of doubles"):
        for number, (ours, theirs) in enumerate(zip(found["mean"], found[name])):
            apart = max(float(abs(a - b).max()) for a, b in zip(ours, theirs))
            most = max(float(abs(a).max()) for a in theirs)
            print(f"== round {number}: mean and {name} differ by {apart:.1e} at most, of numbers up to {most:.2f}", flush=True)
    print("== end", flush=True)
"""


def strategy(folder, rounds=3):
    """Flower's quickstart with Flower's FedAvg, with `fl.flower.Strategy("mean")`, and with FedAvg
    of doubles, twice in turn, in one simulation of eight nodes."""
    ports = ROOT / "hosts/python/examples/ports"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ports / "peers"), str(ports), os.environ.get("PYTHONPATH", "")])
    env = {"BENCH_ROUNDS": rounds, "BENCH_ORDER": json.dumps(["FedAvg", "mean", "FedAvg of doubles"] * 2)}
    with simulated(folder / "app", STRATEGY, 8, **env) as (run, _):
        while (found := run.until(r"== (.*)"))[1] != "end":
            print(found[1], flush=True)


def overhead(folder, *nodes):
    """The same number of parameters, and next to no training (an example each; Flower's clients do
    none): what a round costs beside it."""
    import fl

    rounds = 20
    for n, features in [(int(one), features) for one in nodes or [5, 50] for features in (8, 25_000)]:
        spec = {
            "name": "overhead",
            "data": {"set": {"blobs": {"features": features, "train": n, "test": 8}}, "clients": n, "split": "iid"},
            "protocol": {"use": "fedavg", "rounds": rounds, "local": {"epochs": 1, "batch": 64}},
            "parts": {"model": {"use": "linear", "lr": 0.1}, "aggregator": {"use": "mean"}},
        }
        home = folder / f"home-{n}-{features}"
        numbers = fl.run(spec, {"protocol.rounds": 1}, quiet=True, out=folder / f"one-{n}-{features}").outcome["bytes"]["down"] // n // 4
        begun = []
        with simulated(folder / f"ours-{n}-{features}", OURS, n, BENCH_SPEC=json.dumps(spec), FL_NODE_HOME=home) as (run, _):
            while run.until("fl: (round|outcome)")[1] == "round":
                begun.append(time.monotonic())
        steps = sorted(b - a for a, b in zip(begun, begun[1:]))
        with simulated(folder / f"theirs-{n}-{features}", THEIRS, n, BENCH_SIZES=f"{n} {rounds} {numbers}") as (run, _):
            round = float(run.until(r"seconds per round (\S+)")[1])
        print(f"{n} nodes, {numbers} numbers: ours {steps[len(steps) // 2]:.2f} s a round,", end=" ")
        print(f"Flower's FedAvg {round:.2f} s a round", flush=True)


if __name__ == "__main__":
    modes = {"specs": specs, "nodes": nodes, "faults": faults, "own": own, "supernodes": supernodes, "overhead": overhead, "strategy": strategy}
    if len(sys.argv) < 2 or sys.argv[1] not in modes:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="flower") as made:
        modes[sys.argv[1]](Path(made), *sys.argv[2:])
