"""A spec on Flower: the same digest in its simulation, and on a SuperLink with TLS and
authenticated SuperNodes."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import fl
import numpy as np
import pytest
from conftest import PORTS, QUICK

flwr = pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fl-federated[flower]'")


def app(folder: Path, spec: Path, *beside: Path) -> Path:
    """An app of Flower with this spec, and these modules beside it."""
    fl._tools.command("new", "flower", folder.name, "--out", str(folder))
    (there,) = folder.glob("*/spec.yaml")
    there.write_bytes(spec.read_bytes())
    for module in beside:
        shutil.copy(module, there.parent)
    return folder


def outcomes(nodes: int, folder: Path, *apps: Path) -> list[dict]:
    """What runs of apps in Flower's simulation come to."""
    pytest.importorskip("ray", reason="Flower's simulation is not installed: pip install 'fl-federated[flower]'")
    from cluster import Busy, Cluster

    with Cluster(folder, simulated=nodes) as cluster:
        try:
            return [cluster.run(app).outcome() for app in apps]
        except Busy as why:
            pytest.skip(str(why))


def test_exact_a_spec_has_the_same_digest_in_flowers_simulation(tmp_path):
    module = PORTS / "fedproto.py"
    specs = [QUICK / "fedkt.yaml", module.with_suffix(".yaml")]
    apps = [app(tmp_path / f"{spec.stem}-app", spec, module) for spec in specs]
    for spec, there in zip(specs, outcomes(2, tmp_path / "simulation", *apps), strict=True):
        here = fl.run(spec, quiet=True)
        assert there["digest"] == here.digest
        assert there["bytes"] == here.outcome["bytes"] and there["metrics"] == here.metrics


def test_exact_on_nodes_with_keys_and_nobody_else_gets_anything(tmp_path):
    from cluster import Cluster, authority

    fl._tools.command("new", "flower", "my-app", "--out", str(tmp_path / "my-app"))
    small = "data.clients=2 protocol.rounds=2"
    spec = tmp_path / "my-app/my_app/spec.yaml"
    here = fl.run(spec, small.split(), quiet=True)
    authority(tmp_path / "other")
    home = lambda name: {"fl-home": str(tmp_path / name)}  # noqa: E731
    with Cluster(tmp_path) as cluster:
        for k in range(2):
            cluster.register(f"node-{k}")
            cluster.node(f"node-{k}", {"clients": str(k)} | home(f"home-{k}"))
        cluster.node("stranger", {"clients": "0 1"} | home("home-stranger"))
        cluster.node("misled", {"clients": "0 1"} | home("home-misled"), ca=tmp_path / "other/ca.crt")
        first = cluster.run(tmp_path / "my-app", set=small, stop_after=1, out=str(tmp_path / "run")).outcome()
        assert first["stopped"] == "round 1"
        last = cluster.run(tmp_path / "my-app", set=small, resume=str(tmp_path / "run")).outcome()
        assert last["digest"] == here.digest
        assert last["bytes"] == here.outcome["bytes"] and last["metrics"] == here.metrics
        # each node kept what lasts in its own home; those two were never asked
        assert {path.name for path in tmp_path.glob("home-*")} == {"home-0", "home-1"}
        cluster.until(lambda: cluster.running["stranger"].poll() is not None, "Flower to turn the unregistered node away")


def test_a_grid_that_loses_things(identity):
    """The courier alone, over a grid that takes nothing, loses nodes, and gives them back under
    other names."""
    from flwr.app import ConfigRecord, Error, Message, RecordDict

    from fl import flower, remote

    spec = fl.check(QUICK / "fedavg.yaml", {"protocol.rounds": 3})
    here = fl.run(spec, quiet=True)
    node = remote.Node(spec, home="home")

    class Grid:
        """Every client has a node; in each push one message is lost with its node, and all but the
        first are not taken at first."""

        def __init__(self):
            self.names = {client: 100 + client for client in range(5)}
            self.replies, self.pushes, self.lost = {}, 0, 0

        def get_node_ids(self):
            return list(self.names.values())

        def send_and_receive(self, messages, timeout):
            client = {name: client for client, name in self.names.items()}
            return [self.reply(m, RecordDict({"who": ConfigRecord({"clients": str(client[m.metadata.dst_node_id])})})) for m in messages]

        def reply(self, message, content):
            message.metadata.__dict__["_message_id"] = str(id(message))
            return Message(content, reply_to=message)

        def push_messages(self, messages):
            if len(messages) > 1:
                return []  # too large
            (message,) = messages
            self.pushes += 1
            message.metadata.__dict__["_message_id"] = str(self.pushes)
            if self.pushes % 7 == 3:
                # it was answered, and the reply was lost with the node, which comes back under
                # another name
                name = message.metadata.dst_node_id
                (client,) = [c for c, n in self.names.items() if n == name]
                self.names[client] = name + 1000
                node.answer(*flower._unpack(message.content))
                self.lost += 1
                self.replies[str(self.pushes)] = Message(Error(flower.ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)
            else:
                head, body = node.answer(*flower._unpack(message.content))
                self.replies[str(self.pushes)] = Message(flower._pack(head, flower._array(body)), reply_to=message)
            return [str(self.pushes)]

        def pull_messages(self, ids):
            # the last comes first, and one at a time
            return [self.replies.pop(id) for id in sorted(ids, key=int)[-1:] if id in self.replies]

    grid = Grid()
    there = remote.lead(spec, flower._Courier(grid, 5, None), window=4, quiet=True)
    assert grid.lost > 1 and there.digest == here.digest

    class Twice(Grid):
        def get_node_ids(self):
            return [*self.names.values(), 7]

        def send_and_receive(self, messages, timeout):
            return [self.reply(m, RecordDict({"who": ConfigRecord({"clients": "3"})})) for m in messages]

    with pytest.raises(fl.RunError, match="both say that client 3 lives there; end one of them"):
        remote.lead(spec, flower._Courier(Twice(), 5, None), window=4, quiet=True)

    class Nobody(Grid):
        def get_node_ids(self):
            return list(self.names.values())[:4]

    with pytest.raises(fl.RunError, match="client 4.*no node has announced this client within 0 s"):
        remote.lead(spec, flower._Courier(Nobody(), 0, None), window=9, quiet=True)

    class Full(Grid):
        def push_messages(self, messages):
            return [None] * len(messages)

    with pytest.raises(fl.RunError, match=r"client 0.*Flower did not take its request of \d+ bytes; is it too large"):
        remote.lead(spec, flower._Courier(Full(), 5, None), window=9, quiet=True)


def test_exact_the_page_from_an_app_to_a_spec(tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation is not installed: pip install 'fl-federated[flower]'")
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    from cluster import Cluster

    page = (Path(__file__).parents[3] / "specs/book/src/from-flower.md").read_text()
    folder = tmp_path / "app"
    (folder / "quickstart").mkdir(parents=True)
    (folder / "quickstart/__init__.py").touch()
    with Cluster(tmp_path / "simulation", simulated=3) as cluster:
        for what, name, code in re.findall(r"<!-- (file|append|run)(?:: (\S+))? -->\n```\w+\n(.*?)```", page, re.S):
            if what != "run":
                with (folder / name).open("a" if what == "append" else "w") as file:
                    file.write(code)
                continue
            done = subprocess.run(["bash", "-euc", code], cwd=folder, env=cluster.env, capture_output=True, text=True)
            if "node timed out during startup" in done.stdout + done.stderr:
                pytest.skip("Ray, which Flower simulates with, did not start: this machine is too busy")
            assert done.returncode == 0, done.stdout + done.stderr
    first, second, third, here = (fl.open(folder / name) for name in ("first", "second", "third", "here"))
    for run in (first, second):
        assert run.metrics["accuracy"] > 0.5 and any("plain client of Flower" in note for note in run.notes)
        assert 0.3 < run.metrics["plain.evaluate.eval_acc"] <= 1 and run.metrics["training-loss"] > 0
    assert third.digest == here.digest and not any("plain client" in note for note in third.notes)


def trains(x, y, arrays, steps=20):
    """Some training of a linear model, as an app of somebody else does it."""
    weight, bias = arrays["weight"].copy(), arrays["bias"].copy()
    for _ in range(steps):
        scores = x @ weight + bias
        soft = np.exp(scores - scores.max(1, keepdims=True))
        slope = soft / soft.sum(1, keepdims=True) - np.eye(len(bias))[y]
        weight, bias = weight - 0.1 * x.T @ slope / len(x), bias - 0.1 * slope.mean(0)
    return {"weight": weight.astype("float32"), "bias": bias.astype("float32")}


def plain_app(say=lambda arrays, n: {"arrays": arrays, "metrics": {"num-examples": n, "train_loss": 0.5}}):
    """A ClientApp that knows nothing of fl."""
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message, context):
        assert message.content["config"]["lr"] == 0.1 and message.content["config"]["server-round"] >= 1
        draws = np.random.default_rng(5)
        x = draws.normal(size=(30, 8)).astype("float32")
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        said = say(trains(x, draws.integers(4, size=30), arrays), 30)
        content = RecordDict({"arrays": ArrayRecord({name: Array(value) for name, value in said["arrays"].items()})})
        if "metrics" in said:
            content["metrics"] = MetricRecord(said["metrics"])
        return Message(content, reply_to=message)

    return app


class Mixed:
    """A grid where clients 0 to 3 have a node each with both apps, and another node has one of
    somebody else."""

    def __init__(self, spec, app):
        from flwr.app import Context, RecordDict

        from fl import flower

        self.apps = {100 + k: flower.client_app(spec, home=f"home-{k}", plain=app) for k in range(4)} | {7: app}
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config={"clients": str(node - 100)}, state=RecordDict(), run_config={}) for node in self.apps
        }
        self.replies, self.sent, self.types = {}, 0, []

    def get_node_ids(self):
        return list(self.apps)

    def ask(self, message):
        from flwr.app import Error, Message

        node = message.metadata.dst_node_id
        self.sent += 1
        message.metadata.__dict__["_message_id"] = str(self.sent)
        self.types.append((node, message.metadata.message_type))
        try:
            reply = self.apps[node](message, self.contexts[node])
        except Exception as error:
            reply = Message(Error(2, str(error)), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = node
        return reply

    def send_and_receive(self, messages, timeout):
        return [self.ask(message) for message in messages]

    def push_messages(self, messages):
        replies = [self.ask(message) for message in messages]
        ids = [message.metadata.message_id for message in messages]
        self.replies |= dict(zip(ids, replies))
        return ids

    def pull_messages(self, ids):
        return [self.replies.pop(id) for id in ids if id in self.replies]


@pytest.fixture
def identity():
    """Messages can be made in this process."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1


ROUNDS = {
    "name": "mixed",
    "data": {"set": "blobs", "clients": 5, "split": "iid"},
    "protocol": {"use": "fedavg", "rounds": 3, "local": {"epochs": 1, "batch": 32}},
    "parts": {"model": {"use": "linear", "lr": 0.1}, "aggregator": {"use": "mean"}},
}


def mixed(spec=ROUNDS, app=None, plain=(3, 4), config={"lr": 0.1}, evaluate=None, **more):
    from fl import flower, remote

    resume = more.get("resume")
    spec = None if resume else fl.check(spec)
    grid = Mixed(fl.check(ROUNDS) if resume else spec, app or plain_app())
    courier = flower._Courier(grid, 5, None, plain if resume else flower.plain_client.check(spec, plain), config, evaluate)
    return grid, remote.lead(spec, courier, window=8, quiet=True, **more)


def test_plain_clients_of_flower_take_part_in_rounds(identity):
    grid, results = mixed()
    assert {node for node, kind in grid.types if kind == "train"} == {103, 7}
    assert ("query.fl" in {kind for node, kind in grid.types if node == 102}) and not any(kind == "query.fl" for node, kind in grid.types if node == 103)
    assert results.metrics["accuracy"] > 0.5
    assert sum("clients 3, 4: plain client of Flower, without fl's guarantees" in note for note in results.notes) == 1
    assert "nothing differs" in fl._tools.command("verify", str(results.folder))
    assert "plain client of Flower" in (results.folder / "report.md").read_text()
    # what they train counts: the model is the weighted mean of theirs and ours
    steps = {}

    @fl.aggregator("watching-mean")
    class Watching:
        """The mean, watched."""

        needs = ["samples", "training_loss"]

        def aggregate(self, round, inbox):
            steps[round.number] = [(mail.sender, mail.weight, mail.training_loss, {name: np.array(value) for name, value in mail.items()}) for mail in inbox]
            return inbox.mean([mail.weight for mail in inbox])

    _, watched = mixed({**ROUNDS, "parts": {**ROUNDS["parts"], "aggregator": {"use": "watching-mean"}}})
    last = [steps[k] for k in sorted(steps)][-1]
    assert [said[:3] for said in last][3:] == [(3, 30.0, 0.5), (4, 30.0, 0.5)]
    final = watched.model("final").arrays()
    for name, value in final.items():
        total = sum(weight for _, weight, *_ in last)
        np.testing.assert_allclose(value, sum(weight / total * sent[name] for _, weight, _, sent in last), rtol=1e-4, atol=1e-6)


def test_exact_a_run_with_plain_clients_goes_on(identity):
    _, whole = mixed()
    _, first = mixed(stop_after=1, out="stopped")
    assert first.stopped
    from fl import flower, remote

    spec = fl.check(ROUNDS)
    courier = flower._Courier(Mixed(spec, plain_app()), 5, None, (3, 4), {"lr": 0.1})
    assert remote.lead(None, courier, window=8, quiet=True, resume="stopped").digest == whole.digest


def measuring_app(seen, said={}):
    """A plain app that also evaluates, and measures more."""
    from flwr.app import Message, MetricRecord, RecordDict

    app = plain_app(lambda arrays, n: {"arrays": arrays, "metrics": {"num-examples": n, "train_loss": 0.25, "steps": 3, **said}})

    @app.evaluate()
    def evaluate(message, context):
        config, weight = message.content["config"], message.content["arrays"]["weight"].numpy()
        seen.append((context.node_id, config["server-round"], config["rows"], weight.copy()))
        return Message(RecordDict({"metrics": MetricRecord({"eval_acc": float(np.abs(weight).sum()), "num-examples": 7})}), reply_to=message)

    return app


def test_configurations_of_rounds_evaluations_and_metrics_of_plain_clients(identity):
    trains, evals, seen = [], [], []

    def config(round):
        trains.append(round)
        return {"lr": 0.1, "half": round > 1}

    def evaluate(round):
        evals.append(round)
        return None if round == 2 else {"rows": 10 * round}

    grid, results = mixed(app=measuring_app(seen), config=config, evaluate=evaluate)
    assert trains == evals == [1, 2, 3], "once for all clients of a round"
    assert sorted(one[:3] for one in seen) == [(7, 1, 10), (7, 3, 30), (103, 1, 10), (103, 3, 30)]
    kinds = [kind for node, kind in grid.types if node == 103 and kind in ("train", "evaluate")]
    assert kinds == ["evaluate", "train", "train", "evaluate", "train"]
    # both evaluate the server's parameters of the round before
    first, last = ([weight for _, round, _, weight in seen if round == k] for k in (1, 3))
    assert np.array_equal(*first) and np.array_equal(*last) and not np.array_equal(first[0], last[0])
    assert results.metrics["plain.evaluate.eval_acc"] == pytest.approx(float(np.abs(last[0]).sum()), rel=1e-6)
    assert results.metrics["plain.evaluate.num-examples"] == 7 and results.metrics["plain.train.steps"] == 3
    losses = [row for row in results.rows if row["name"] == "training-loss"][-1]
    assert dict(zip(losses["clients"], losses["each"]))[3] == 0.25, losses
    assert "plain.evaluate.eval_acc" in (results.folder / "report.html").read_text()
    # the rest of the run does not depend on who measures
    assert results.metrics["accuracy"] == mixed()[1].metrics["accuracy"]
    # a stopped run goes on in the round in which it was
    seen.clear(), trains.clear()
    _, stopped = mixed(app=measuring_app(seen), config=config, evaluate=evaluate, stop_after=2, out="half")
    assert stopped.stopped
    _, again = mixed(app=measuring_app(seen), config=config, evaluate=evaluate, resume="half")
    assert again.digest == results.digest and trains == [1, 2, 3]


def test_metrics_of_plain_clients_that_are_no_numbers_are_named(identity):
    _, results = mixed(app=measuring_app([], {"each": [1.0, 2.0]}), evaluate={"rows": 1})
    assert any("lists among the metrics of its `train` are left out: each" in note for note in results.notes)
    with pytest.raises(fl.RunError, match="client 3(.|\n)*evaluate"):
        mixed(evaluate={})  # this app has no `@app.evaluate()`


def test_a_plain_client_that_replies_something_else_is_named(identity):
    bad = {
        "has no `num-examples`": lambda arrays, n: {"arrays": arrays},
        "must be a whole number of examples, got 1.5": lambda arrays, n: {"arrays": arrays, "metrics": {"num-examples": 1.5}},
        "other tensors: `0` here": lambda arrays, n: {"arrays": {"0": arrays["weight"]}, "metrics": {"num-examples": n}},
    }
    for text, say in bad.items():
        with pytest.raises(fl.RunError, match=f"client 3(.|\n)*{text}"):
            mixed(app=plain_app(say))
    counted = lambda arrays, n: {"arrays": arrays | {"batches": np.array(3)}, "metrics": {"num-examples": n, "train_loss": 0.5}}  # noqa: E731
    assert mixed(app=plain_app(counted))[1].digest == mixed()[1].digest
    # and `faults` decides, as about any client
    _, results = mixed({**ROUNDS, "faults": {"on-error": "drop"}}, plain_app(bad["has no `num-examples`"]))
    assert results.metrics["accuracy"] > 0.5
    with pytest.raises(fl.RunError, match="name as many plain clients as there are such nodes"):
        mixed(plain=(3,))


def test_plain_clients_are_refused_where_a_spec_promises_something_of_clients():
    from fl import flower

    for spec, text in {
        "dp-sgd": "parts.accountant: no client that is not fl's keeps it",
        "dp-fedavg": "parts.server-privacy: no client that is not fl's keeps it",
        "scaffold": "plain clients take part in `fedavg`, and this is `scaffold`",
        "fedkt": "plain clients take part in `fedavg`, and this is `two-tier-vote`",
    }.items():
        with pytest.raises(fl.SpecError, match=text):
            flower.plain_client.check(fl.check(QUICK / f"{spec}.yaml"), [0])
    with pytest.raises(fl.SpecError, match="there is no client 5; the spec has 5, from 0"):
        flower.plain_client.check(fl.check(ROUNDS), [5])


def test_requests_and_replies_are_those_of_a_node():
    """The wire form of plain clients beside what a node reads and writes."""
    from fl import remote
    from fl._flower import plain_client

    node, seen = remote.Node(ROUNDS, home="home"), []

    class Compared(Here):
        def receive(self):
            client, head, body = self.sent.pop()
            reply = self.nodes[client].answer(head, body)
            request = plain_client.read(head, body)
            if request.want == plain_client.ANSWER:
                assert request.label == plain_client.TRAIN and request.client == client
                assert plain_client.message(plain_client.parameters(body)) == body and plain_client.message(plain_client.parameters(reply[1])) == reply[1]
                ours = plain_client.answer(request, head, reply[1], 200, None)
                assert ours[:4] == reply[0][:4]
                # as far as the node's name, and after it with the number of examples
                size = len(reply[0]) - 16 - len(reply[0].split(bytes(plain_client.hashlib.sha256(head).digest()))[1]) + 16
                # the checksum is of all that follows
                assert ours[8:size] == reply[0][8:size]
                with pytest.raises(plain_client.Wrong, match="damaged on its way"):
                    plain_client.read(head, body[:-1] + bytes([body[-1] ^ 1]))
                assert ours[size + 16 :].startswith(reply[0][size + 16 :][:4])
                seen.append(request.number)
            return client, reply, ""

    spec = {**ROUNDS, "data": {**ROUNDS["data"]}}
    remote.lead(spec, Compared(node), quiet=True)
    assert sorted({*seen}) == [1, 2, 3]


class Here:
    """A courier to nodes in this process."""

    def __init__(self, *nodes):
        self.nodes, self.sent = {client: node for node in nodes for client in node.clients}, []

    def send(self, *request):
        self.sent.append(request)

    def receive(self):
        client, head, body = self.sent.pop()
        return client, self.nodes[client].answer(head, body), ""

    def end(self, keep):
        pass


def test_exact_nodes_with_data_of_their_own(tmp_path):
    from fl import remote

    def rows(part):
        of = [i for i in range(120) if i % 3 == part]
        return "x,y,label\n" + "".join(f"{(i * 37) % 11},{(i * 17) % 7},{'ab'[(i * 37) % 11 > 5]}\n" for i in of)

    for part, name in enumerate(["test", "n0", "n1"]):
        (tmp_path / f"{name}.csv").write_text(rows(part))
    data = "files: {{ format: csv, train: {0}.csv, test: test.csv, label: label, classes: [a, b], columns: {{ x: number, y: number }} }}"
    spec = f"""
name: own
data: {{ set: {{ {data.format("n0")} }}, clients: 2, split: own, test: {{ own: 0.25 }}, normalise: {{ mean: [5, 3], std: [3, 2] }} }}
protocol: {{ use: fedavg, rounds: 2, local: {{ epochs: 1, batch: 16 }} }}
parts: {{ model: {{ use: linear, lr: 0.1 }}, aggregator: {{ use: mean }} }}
"""
    (tmp_path / "own.yaml").write_text(spec)
    for k in range(2):
        (tmp_path / f"n{k}.yaml").write_text(f"client: {k}\nhome: kept-{k}\ndata: {{ {data.format(f'n{k}')} }}\n")
    nodes = [remote.Node("own.yaml", home="unused", own=f"n{k}.yaml") for k in range(2)]
    assert [node.clients for node in nodes] == [[0], [1]] and not (tmp_path / "unused").exists()
    there = remote.lead("own.yaml", Here(*nodes), clients=range(2), window=2, quiet=True)
    (tmp_path / "n2.yaml").write_text((tmp_path / "n1.yaml").read_text().replace("client: 1", "client: 2"))
    beyond = remote.Node("own.yaml", home="unused", own="n2.yaml")
    with pytest.raises(fl.RunError, match="its own data do not fit the spec"):
        remote.lead("own.yaml", Here(beyond), clients=[2], quiet=True)
    [shutil.rmtree(f"kept-{k}") for k in range(2)]
    args = ["run", "own.yaml", "--node", "n0.yaml", "--node", "n1.yaml", "--json", "--quiet"]
    done = subprocess.run([sys.executable, "-m", "fl", *args], capture_output=True, text=True)
    done = json.loads(done.stdout)
    assert done["digest"] == there.digest and "own.over-rows.accuracy" in done["metrics"]


def test_another_spec_at_a_node_is_found_out(tmp_path):
    from fl import remote

    spec = QUICK / "fedavg.yaml"
    other = remote.Node(spec, {"protocol.rounds": 4}, home="home")
    with pytest.raises(fl.RunError, match="another spec than this node: `protocol.rounds` is 5 there, and 4 here"):
        remote.lead(spec, Here(other), quiet=True)
    with pytest.raises(fl.RunError, match="it has no head"):
        other.answer(b"\x01", b"")
    with pytest.raises(fl.RunError, match="it uses wire format 99, and this program [0-9]+; install the same version of fl on both sides"):
        other.answer(b"\x63\0\0\0", b"")
    # the same file in another place is the same data, and another file is not
    rows = "x,y,label\n" + "".join(f"{(i * 37) % 11},{(i * 17) % 7},{'ab'[i % 2]}\n" for i in range(60))
    text = """
name: elsewhere
data: { set: { files: { format: csv, train: points.csv, label: label, holdout: 0.5 } }, clients: 3, split: iid }
protocol: { use: fedavg, rounds: 2, local: { epochs: 1, batch: 16 } }
parts: { model: { use: linear, lr: 0.1 }, aggregator: { use: mean } }
"""
    for folder, data in [("a", rows), ("b", rows), ("c", rows.replace("0,0,a", "9,9,a", 1))]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "spec.yaml").write_text(text)
        (tmp_path / folder / "points.csv").write_text(data)
    there = remote.lead("a/spec.yaml", Here(remote.Node("b/spec.yaml", home="home")), quiet=True)
    assert there.digest == fl.run("a/spec.yaml", quiet=True).digest
    with pytest.raises(fl.RunError, match="another spec than this node: `data files` is "):
        remote.lead("a/spec.yaml", Here(remote.Node("c/spec.yaml", home="home")), quiet=True)
    shutil.rmtree("home")


SECRET = "root:$6$SECRETHASH:19000:0:99999:7:::\nalice,pw=topsecret\n"


def told(spec, message_type="query.who", **run_config):
    """What a node tells the server: a reply, or the text of an exception, which Flower sends as
    well."""
    from flwr.app import Context, Message, RecordDict

    from fl import flower

    app = flower.client_app(spec, home="told")
    context = Context(run_id=1, node_id=1, node_config={"clients": "0"}, state=RecordDict(), run_config=run_config)
    try:
        reply = app(Message(RecordDict({}), dst_node_id=1, message_type=message_type), context)
    except Exception as error:
        return str(error)
    return str(dict(reply.content["who"]))


@pytest.mark.parametrize("kind", ["query.who", "query.fl"])
def test_a_node_tells_the_server_nothing_of_its_files(identity, tmp_path, monkeypatch, capfd, kind):
    monkeypatch.chdir(tmp_path)
    Path("secret.txt").write_text(SECRET)
    Path("spec.yaml").write_text(
        "name: x\ndata: { set: { files: { format: libsvm, train: secret.txt, test: secret.txt } }, clients: 3, split: own }\n"
        "protocol: { use: fedavg, rounds: 3 }\nparts: { model: { use: linear }, aggregator: { use: mean } }\n"
    )
    said = told("spec.yaml", kind)
    assert "its log says why" in said and not any(word in said for word in ("SECRETHASH", "root", "alice", "secret.txt"))
    assert "SECRETHASH" in capfd.readouterr().err
    # of a node's own file, too
    Path("node.yaml").write_text("root:$6$SECRETHASH: [\n")
    from fl import flower

    monkeypatch.setattr(flower, "client_app", lambda spec, home, app=flower.client_app: app(spec, home=home, own="node.yaml"))
    said = told(QUICK / "fedavg.yaml", kind)
    assert "its log says why" in said and "SECRETHASH" not in said


def test_the_configuration_of_a_run_names_no_file_of_a_node(identity, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("secret.txt").write_text(SECRET)
    Path("evil.py").write_text("open('loaded', 'w')\n")
    spec = QUICK / "fedavg.yaml"
    for change, place in [
        ("data.set={files: {format: libsvm, train: secret.txt, test: secret.txt}}", "data.set.files"),
        (f"data.set={tmp_path}/secret.txt", "data.set"),
        ("plugins=[{module: evil}]", "plugins"),
        ("plugins=[{path: evil.so}]", "plugins"),
        ("protocol.initial=secret.txt", "protocol.initial"),
        ("sinks=[{use: evil}]", "sinks"),
    ]:
        said = told(spec, set=f"'{change}'")
        assert f"sets `{place}" in said and "SECRETHASH" not in said, said
    assert not Path("loaded").exists()
    said = told(spec, set="protocol.rounds=9 data.clients=4 parts.aggregator.use=median")
    assert "'clients': '0'" in said, said


class LocalGrid:
    """A grid that answers at once, by a ClientApp's train function for each of five nodes; in the
    order that `order` gives."""

    def __init__(self, train, order=sorted, mods=()):
        self.train, self.order, self.mods, self.contexts = train, order, mods, {}

    def get_node_ids(self):
        return [7, 3, 11, 5, 2]

    def send_and_receive(self, messages, *, timeout=None):
        from flwr.app import Context, RecordDict

        replies = []
        for message in self.order(messages, key=lambda one: one.metadata.dst_node_id):
            node = message.metadata.dst_node_id
            context = self.contexts.setdefault(node, Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={}))
            call = self.train
            for one in self.mods:
                call = (lambda one, inner: lambda message, context: one(message, context, inner))(one, call)
            replies.append(call(message, context))
        return replies


def steps_of(node, arrays):
    """Three full-batch steps towards the node's own point."""
    w = {name: np.array(array, np.float64) for name, array in arrays.items()}
    for _ in range(3):
        w = {name: array - 0.1 * (array - node) for name, array in w.items()}
    return w


def training(message, _context):
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

    node, sent = message.metadata.dst_node_id, message.content["arrays"]
    floats = {name: array.numpy() for name, array in sent.items() if array.numpy().dtype.kind == "f"}
    made = {name: Array(array.astype(np.float32)) for name, array in steps_of(node, floats).items()}
    if "batches" in sent:
        made["batches"] = Array(sent["batches"].numpy() + node)
    metrics = {"num-examples": 10 * node, "train_loss": 1 / node}
    return Message(RecordDict({"arrays": ArrayRecord(made), "metrics": MetricRecord(metrics)}), reply_to=message)


def started(strategy, rounds=6, first=None, **grid):
    from flwr.app import Array, ArrayRecord

    first = first or {"w": np.zeros((2, 3), np.float32), "b": np.ones(3, np.float32)}
    result = strategy.start(LocalGrid(training, **grid), ArrayRecord({name: Array(array) for name, array in first.items()}), num_rounds=rounds)
    return {name: array.numpy() for name, array in result.arrays.items()}, result


def test_close_a_strategy_of_a_part_is_the_part_in_flowers_loop(identity):
    from fl.flower import Strategy
    from flwr.serverapp.strategy import FedAvg

    quiet = {"fraction_evaluate": 0.0}
    (mine, ran), (theirs, _) = started(Strategy("mean", **quiet)), started(FedAvg(**quiet))
    for name, array in theirs.items():
        assert np.abs(mine[name] - array).max() < 1e-6
    assert ran.train_metrics_clientapp[6]["train_loss"] > 0
    # a trimmed mean by hand: one of five falls on each side
    trimmed, _ = started(Strategy("trimmed-mean", trim=0.2, weighted_by_key="num-examples", **quiet))
    w = {"w": np.zeros((2, 3)), "b": np.ones(3)}
    for _ in range(6):
        answers = [steps_of(node, w) for node in [2, 3, 5, 7, 11]]
        w = {name: np.sort([one[name] for one in answers], axis=0)[1:-1].mean(axis=0) for name in w}
    for name, array in w.items():
        assert np.abs(trimmed[name] - array).max() < 1e-5, name
    # the order of replies changes no bit, and a part with state goes on elsewhere
    backwards = lambda messages, key: sorted(messages, key=key, reverse=True)  # noqa: E731
    whole, _ = started(Strategy("fed-adam", lr=0.1, **quiet), order=backwards)
    first = Strategy("fed-adam", lr=0.1, **quiet)
    half, _ = started(first, rounds=3)
    then = Strategy("fed-adam", lr=0.1, **quiet)
    then.load(first.save())
    rest, _ = started(then, rounds=3, first=half)
    for name, array in whole.items():
        assert (rest[name] == array).all(), name


def test_exact_a_mean_has_the_arrays_of_flowers_fedavg_after_some_rounds(identity):
    """FedAvg adds 32-bit floats as replies come, so its arrays depend on that order, and training
    makes last bits large. With doubles its sums agree with the part's, bit by bit."""
    torch = pytest.importorskip("torch")
    from fl.flower import Strategy
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp.strategy import FedAvg

    layers = torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
    net = torch.nn.Sequential(*layers)

    def trains(message, _context):
        node, number = message.metadata.dst_node_id, message.content["config"]["server-round"]
        sent = message.content["arrays"].to_torch_state_dict()
        net.load_state_dict(sent)
        torch.manual_seed(100 * node + number)
        # shares that are exact: 0.1 is none, and decides ties of rounding
        examples = {2: 64, 3: 32, 5: 16, 7: 8, 11: 8}[node]
        x, y = torch.randn(examples, 1, 8, 8), torch.randint(0, 3, (examples,))
        optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        for at in torch.randperm(len(x)).split(8):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(x[at]), y[at]).backward()
            optimiser.step()
        # in the type that was sent: Flower adds doubles in 64 bits
        trained = {name: value.to(sent[name].dtype) for name, value in net.state_dict().items()}
        said = {"arrays": ArrayRecord(trained), "metrics": MetricRecord({"num-examples": len(x)})}
        return Message(RecordDict(said), reply_to=message)

    torch.manual_seed(5)
    first = {name: torch.randn(value.shape) / 8 for name, value in net.state_dict().items()}
    threads = torch.get_num_threads()

    def arrays(strategy, kind=np.float32, **grid):
        begin = ArrayRecord({name: Array(value.numpy().astype(kind)) for name, value in first.items()})
        torch.set_num_threads(1)
        try:
            made = strategy(fraction_evaluate=0.0).start(LocalGrid(trains, **grid), begin, num_rounds=4)
        finally:
            torch.set_num_threads(threads)
        return [array.numpy().astype(np.float32) for array in made.arrays.values()]

    def apart(some, others):
        return max(float(np.abs(a - b).max()) for a, b in zip(some, others, strict=True))

    def mean(**given):
        return Strategy("mean", **given)

    backwards = {"order": lambda messages, key: sorted(messages, key=key, reverse=True)}
    due = arrays(FedAvg, np.float64)
    assert apart(arrays(mean), due) == 0 and apart(arrays(mean, **backwards), due) == 0
    # Flower's FedAvg may add floats in another order
    itself = apart(arrays(FedAvg), arrays(FedAvg, **backwards))
    assert itself < 1e-3 and apart(arrays(FedAvg), due) < 1e-3


def test_a_strategy_says_what_it_leaves_and_what_it_cannot_take(identity, caplog):
    from fl.flower import Strategy

    first = {"w": np.zeros(2, np.float64), "batches": np.array([4], np.int64)}
    made, _ = started(Strategy("median", fraction_evaluate=0.0), first=first, rounds=2)
    assert made["batches"].tolist() == [4] and made["batches"].dtype == np.int64 and made["w"].dtype == np.float32
    assert caplog.text.count("no floats, so they stay as they were sent: batches") == 1
    with pytest.raises(fl.RunError, match="takes an aggregator"):
        Strategy("rdp", delta=1e-5)
    with pytest.raises(fl.SpecError, match="no such setting"):
        Strategy("mean", trimm=0.1)
    with pytest.raises(fl.RunError, match="training loss"):
        started(Strategy("q-fedavg", lr=0.1, loss_key="loss"))


def test_the_page_of_one_part_in_a_flower_project_runs(identity):
    torch = pytest.importorskip("torch")
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    page = (Path(__file__).parents[3] / "specs/book/src/flower.md").read_text()
    section = page[page.index("## One part of fl") : page.index("## Another engine")]
    server, client = re.findall(r"```python\n(.*?)```", section, re.S)
    assert 15 >= sum(bool(line.strip()) for line in (server + client).splitlines())

    kept = []

    class Net(torch.nn.Linear):
        def __init__(self):
            super().__init__(3, 2)
            kept.append({name: value.detach().numpy().copy() for name, value in self.state_dict().items()})

    def context():
        return Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})

    shown = {"ServerApp": ServerApp, "ClientApp": ClientApp, "ArrayRecord": ArrayRecord, "Net": Net, "fl": fl}
    trains = lambda message, context: training(message, context) if message.metadata.message_type == "train" else Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)  # noqa: E731
    names = shown | {"ran": (ran := [])}
    exec(compile(f"{server}    ran.append(result)\n", "flower.md, the server", "exec"), names)
    names["app"](LocalGrid(trains), context())
    [result] = ran
    assert set(result.arrays) == {"weight", "bias"} and len(result.train_metrics_clientapp) == 10
    assert not np.allclose(result.arrays["bias"].numpy(), kept[-1]["bias"])
    mods, price = client.splitlines()[:2]
    exec(compile(mods, "flower.md, the client", "exec"), names)
    names["app"].train()(training)
    node = context()
    sent = RecordDict({"arrays": ArrayRecord({"w": Array(np.zeros(4, np.float32))}), "config": ConfigRecord({})})
    names["app"](Message(sent, dst_node_id=3, message_type="train"), node)
    names["context"] = node
    exec(compile(price, "flower.md, the price", "exec"), names)
    assert len(fl.flower.spent(node)) == 1 and names["price"]["epsilon"] > 0


def test_a_mod_releases_the_change_and_keeps_its_price(identity):
    from fl.flower import Strategy, mod, spent
    from flwr.app import Array, ArrayRecord

    quiet = {"fraction_evaluate": 0.0}
    # hardly any noise: what is left is the clip of the whole change
    clipped = mod("gaussian-update", clip=0.5, noise_multiplier=1e-6, seed=1)
    grid = LocalGrid(training, mods=[clipped])
    first = ArrayRecord({"w": Array(np.zeros(4, np.float32))})
    result = Strategy("mean", **quiet).start(grid, first, num_rounds=1)
    assert abs(np.linalg.norm(result.arrays["w"].numpy()) - 0.5) < 1e-3
    for _ in range(2):
        Strategy("mean", **quiet).start(grid, first, num_rounds=1)
    events = spent(grid.contexts[7])
    assert len(events) == 3 and spent(grid.contexts[2]) == events
    noisy = mod("gaussian-update", clip=0.5, noise_multiplier=2.0)
    loud = LocalGrid(training, mods=[noisy])
    Strategy("mean", **quiet).start(loud, first, num_rounds=2)
    price = fl.make("rdp", delta=1e-5)(spent(loud.contexts[3]))
    assert 0.5 < price["epsilon"] < 20
    # what no mechanism prices does not go
    with pytest.raises(fl.RunError, match="leave out batches"):
        record = ArrayRecord({"w": Array(np.zeros(4, np.float32)), "batches": Array(np.array([1]))})
        Strategy("mean", **quiet).start(LocalGrid(training, mods=[noisy]), record, num_rounds=1)
