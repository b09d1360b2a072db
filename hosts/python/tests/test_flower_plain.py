"""Plain clients of Flower in a run: they know nothing of fl."""

import fl
import numpy as np
import pytest
from conftest import QUICK, Here

flwr = pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fl-federated[flower]'")


def trains(x, y, arrays, steps=20):
    """An app that trains a linear model and knows nothing of fl."""
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
