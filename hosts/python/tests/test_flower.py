"""A spec on Flower: the same digest in its simulation, and on a SuperLink with TLS and
authenticated SuperNodes."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import fl
import pytest
from conftest import PORTS, QUICK, Here

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


#: Methods whose clients keep something between rounds, one stage each.
KEEPS = """
name: keeps
data: { set: blobs, clients: 2, split: { dirichlet: { alpha: 0.5, reading: floor } }, test: { own: 0.25 } }
stages:
- protocol: { use: fedper, share: [weight], rounds: 10, local: { epochs: 1, batch: 16 } }
- protocol: { use: ditto, lambda: 0.5, rounds: 10, local: { epochs: 1, batch: 16 } }
- protocol: { use: apfl, adaptive: true, rounds: 10, local: { epochs: 1, batch: 16 } }
- protocol: { use: feddyn, alpha: 0.5, rounds: 10, local: { epochs: 1, batch: 16 } }
parts: { model: { use: linear, lr: 0.1 }, aggregator: { use: mean } }
"""


def test_exact_a_spec_has_the_same_digest_in_flowers_simulation(tmp_path):
    module = PORTS / "fedproto.py"
    keeps = tmp_path / "keeps.yaml"
    keeps.write_text(KEEPS)
    specs = [QUICK / "fedkt.yaml", module.with_suffix(".yaml"), keeps]
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
