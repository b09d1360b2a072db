"""A part of fl as a strategy or a mod of Flower's own loop."""

import re
from pathlib import Path

import fl
import numpy as np
import pytest

flwr = pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fl-federated[flower]'")


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


def test_exact_floats_keep_the_type_that_was_sent_whatever_one_reply_has(identity):
    from fl.flower import Strategy
    from flwr.app import Array, ArrayRecord

    def halved(message, context):
        reply = training(message, context)
        if message.metadata.dst_node_id == 2:
            made = {name: Array(array.numpy().astype(np.float16)) for name, array in reply.content["arrays"].items()}
            reply.content["arrays"] = ArrayRecord(made)
        return reply

    def arrays(train, kind):
        begin = ArrayRecord({"w": Array(np.full((2, 3), 0.1, kind))})
        return Strategy("mean", fraction_evaluate=0.0).start(LocalGrid(train), begin, num_rounds=1).arrays["w"].numpy()

    whole, one_half = arrays(training, np.float32), arrays(halved, np.float32)
    assert one_half.dtype == np.float32 and (one_half != one_half.astype(np.float16)).all()
    assert np.abs(one_half - whole).max() < 1e-3
    assert arrays(training, np.float16).dtype == np.float16


def test_a_strategy_says_what_it_leaves_and_what_it_cannot_take(identity, caplog):
    from fl.flower import Strategy

    first = {"w": np.zeros(2, np.float64), "batches": np.array([4], np.int64)}
    made, _ = started(Strategy("median", fraction_evaluate=0.0), first=first, rounds=2)
    assert made["batches"].tolist() == [4] and made["batches"].dtype == np.int64 and made["w"].dtype == np.float64
    assert caplog.text.count("no floats, so they stay as they were sent: batches") == 1
    with pytest.raises(fl.RunError, match="takes an aggregator"):
        Strategy("rdp", delta=1e-5)
    with pytest.raises(fl.SpecError, match="no such setting"):
        Strategy("mean", trimm=0.1)
    with pytest.raises(fl.RunError, match="training loss"):
        started(Strategy("q-fedavg", lr=0.1, loss_key="loss"))


@fl.aggregator("flower-lasts")
class Lasts:
    """The mean of each client's last answer."""

    def __init__(self):
        self.last = {}

    def aggregate(self, round, inbox):
        for mail in inbox:
            self.last[mail.sender] = np.array(mail["w"])
        round.record("known", len(self.last))
        return {"w": np.mean([self.last[one] for one in sorted(self.last)], axis=0)}


def test_a_part_knows_a_node_by_one_number_in_all_rounds(identity):
    from fl.flower import Strategy
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

    class Some(LocalGrid):
        """Other nodes in each round."""

        def get_node_ids(self):
            return self.nodes

    def own_number(message, _context):
        node = message.metadata.dst_node_id
        said = {"arrays": ArrayRecord({"w": Array(np.full(2, node, np.float32))}), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(said), reply_to=message)

    class Before(Strategy):
        def configure_train(self, server_round, arrays, config, grid):
            grid.nodes = [[11, 2], [3, 11], [2, 3]][server_round - 1]
            if server_round == 3:  # as in another process
                state, self.part = self.save(), fl.make("flower-lasts")
                self._nodes = {}
                self.load(state)
            return super().configure_train(server_round, arrays, config, grid)

    few = {"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1}
    first = ArrayRecord({"w": Array(np.zeros(2, np.float32))})
    result = Before("flower-lasts", **few).start(Some(own_number), first, num_rounds=3)
    assert [one["flower-lasts.known"] for one in result.train_metrics_clientapp.values()] == [2, 3, 3]
    assert np.allclose(result.arrays["w"].numpy(), (2 + 3 + 11) / 3)

    def wrong(message, context):
        reply = own_number(message, context)
        if message.metadata.dst_node_id == 7:
            reply.content["arrays"] = ArrayRecord({"w": Array(np.full(2, np.nan, np.float32))})
        return reply

    with pytest.raises(fl.RunError, match="node 7: "):
        Strategy("mean", fraction_evaluate=0.0).start(LocalGrid(wrong), first, num_rounds=1)


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
    # an array of another shape is no change of what was sent
    wide = ArrayRecord({"w": Array(np.zeros((2, 4), np.float32))})

    def row(message, context, call_next):
        reply = call_next(message, context)
        reply.content["arrays"] = ArrayRecord({"w": Array(reply.content["arrays"]["w"].numpy()[:, :1].copy())})
        return reply

    with pytest.raises(fl.RunError, match=r"the reply's `w` has shape \[2, 1\], and the message's \[2, 4\]"):
        Strategy("mean", **quiet).start(LocalGrid(training, mods=[row, noisy]), wide, num_rounds=1)
    # what no mechanism prices does not go
    with pytest.raises(fl.RunError, match="leave out batches"):
        record = ArrayRecord({"w": Array(np.zeros(4, np.float32)), "batches": Array(np.array([1]))})
        Strategy("mean", **quiet).start(LocalGrid(training, mods=[noisy]), record, num_rounds=1)


def test_seeded_noise_of_a_mod_is_another_for_each_release(identity):
    """Flower starts a process for each answer, so each time the mod is made anew."""
    from fl.flower import mod, spent
    from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

    def still(message, _context):
        said = {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(said), reply_to=message)

    def released(context, seed):
        noise = mod("gaussian-update", clip=1.0, noise_multiplier=1.2, seed=seed)
        sent = RecordDict({"arrays": ArrayRecord({"w": Array(np.zeros(4, np.float32))})})
        return tuple(noise(Message(sent, dst_node_id=context.node_id, message_type="train"), context, still).content["arrays"]["w"].numpy())

    def noises(seed):
        made = [Context(run_id=run, node_id=node, node_config={}, state=RecordDict(), run_config={}) for run, node in ((1, 1), (1, 2), (2, 1))]
        return [released(context, seed) for context in made for _ in range(2)], made[0]

    all, context = noises(7)
    assert len(set(all)) == 6 and noises(7)[0] == all and not set(noises(8)[0]) & set(all)
    with pytest.warns(UserWarning, match="no guarantee: who knows the seed can remove the noise"):
        assert fl.make("rdp", delta=1e-5)(spent(context))["noise"] == "seeded"
    systems, context = noises(None)
    assert len(set(systems)) == 6 and "noise" not in fl.make("rdp", delta=1e-5)(spent(context))
