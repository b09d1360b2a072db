"""Protocols that the tests use."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import fl
import numpy as np


@dataclass(frozen=True)
class Sampling:
    """How a step of DP-SGD draws a client's examples."""

    rate: Annotated[float, "Share of the client's examples in a step.", fl.between(gt=0, le=1)]
    draw: Annotated[Literal["poisson", "fixed"], "How they are drawn."] = "poisson"


@fl.protocol("py-fedavg")
class PyFedAvg:
    """FedAvg (McMahan et al. 2017): clients train from the server's parameters, and the server
    combines theirs."""

    rounds: Annotated[int, "Rounds.", fl.between(ge=1)] = 5
    local: Annotated[fl.RoundTraining, "A client's training in one round."] = fl.RoundTraining(epochs=2, batch=16)
    sampling: Annotated[Sampling | None, "DP-SGD: how each of `local.steps` steps draws examples."] = None
    mu: Annotated[float, "FedProx: the weight of the distance to the server's parameters.", fl.between(ge=0)] = 0.0
    grows_by = "rounds"

    example_privacy = fl.slot("privacy", "Clips the gradient of each example, and adds noise to their sum in each step.", "gradient-sum")
    model = fl.slot(
        "trainer", "The model that all clients train.", shared_parameters=True, at_server=True, through=[example_privacy],
        needs=lambda self: ["example-gradients"] * bool(self.sampling) + ["gradient-terms"] * (self.mu > 0) + self.local.needs,
    )  # fmt: skip
    aggregator = fl.slot("aggregator", "Combines the clients' parameters.", "params")
    cohort = fl.slot("selector", "Picks the clients of a round; all, if it is empty.", "clients")
    privacy = fl.slot("privacy", "Bounds and hides what training has changed.", "params")

    def conflicts(self, has: Callable[[fl.Slot], bool]) -> list[tuple[str, str]]:
        return self.local.conflicts("local", self.rounds)

    def update(self) -> fl.Release | None:
        return None if self.sampling else fl.difference(type(self).privacy)

    def steps(self) -> fl.Steps | None:
        how = self.sampling
        return how and fl.steps(type(self).example_privacy, steps=self.local.steps or 0, rate=how.rate, fixed=how.draw == "fixed")

    @fl.exchange(
        "parameters after local training", to=cohort, into=aggregator, times="rounds", trains=lambda self: not self.sampling,
        releases=update, releases_steps=steps,
    )  # fmt: skip
    def train(self, client: fl.Client, params: fl.Arrays) -> fl.Arrays:
        model = client.model(self.model)
        model.set_params(params)
        if client.has(self.example_privacy):
            client.fit_private(self.model, self.example_privacy, batch=self.local.batch)
        else:
            proximal = (self.mu, params) if self.mu else None
            client.fit(self.model, training=self.local, fresh=True, proximal=proximal)
        return model.params()

    def lead(self, server: fl.Server) -> None:
        server.state.params = server.model(self.model).params()
        server.rounds(self.round)
        server.keep_model(self.model)

    def round(self, server: fl.Server, round: fl.Round) -> None:
        if server.cohort(self.train):
            server.state.params = server.run(self.train, server.state.params)
        server.model(self.model).set_params(server.state.params)
        server.evaluate(self.model)


@fl.protocol("py-distil")
class PyDistil:
    """Clients score public samples, and the server's student learns from the mean of those that are
    clear."""

    rounds: Annotated[int, "Rounds.", fl.between(ge=1)] = 3
    samples: Annotated[int, "Public samples of a round.", fl.between(ge=1)] = 20

    teacher = fl.slot("trainer", "A client's own model.", lasting=True, needs=["task-loss", "soft-targets"])
    student = fl.slot("trainer", "What the server teaches.", at_server=True, needs=["soft-targets"])
    ensemble = fl.slot("aggregator", "Combines the scores.", "logits")
    known = fl.slot("selector", "What a client knows something about.", "samples")
    clear = fl.slot("selector", "What the clients agree on.", "soft-labels")

    @fl.exchange("scores of public samples", "ids", "logits", into=ensemble, times="rounds", rows="samples", trains=True)
    def score(self, client: fl.Client, asked: fl.Arrays) -> fl.Arrays:
        client.fit(self.teacher, epochs=1)
        samples = client.public.pick(asked["ids"])
        picked = client.select(self.known, samples, learn=client.own)
        client.measure("known", len(samples) if picked is None else len(picked))
        soft = np.eye(client.task.outputs, dtype=np.float32)[np.arange(len(samples)) % client.task.outputs]
        client.fit_public(self.teacher, samples.ids, soft, steps=1, batch=4)
        return {"rows": samples.ids, "values": client.model(self.teacher).predict(samples)}

    def lead(self, server: fl.Server) -> None:
        server.once("what there is", self.begin)
        server.rounds(self.round)
        server.keep_clients(self.teacher)

    def begin(self, server: fl.Server, round: fl.Round) -> None:
        server.state.size = len(server.public.samples)

    def round(self, server: fl.Server, round: fl.Round) -> None:
        ids = np.sort(round.stream.numpy().choice(server.state.size, self.samples, replace=False))
        ids = server.public.samples.ids[ids]
        scores = server.run(self.score, {"ids": ids})
        soft = np.exp(scores["values"] - scores["values"].max(1, keepdims=True))
        soft /= soft.sum(1, keepdims=True)
        picked = server.select(self.clear, {"rows": scores["rows"], "values": soft})
        picked = np.arange(len(soft)) if picked is None else picked
        if len(picked):
            server.fit(self.student, server.public.pick(scores["rows"][picked]), soft[picked], epochs=2, batch=8)
        server.record("clear", len(picked))
        server.evaluate(self.student)


@fl.protocol("py-class-means")
class PyClassMeans:
    """Clients train on a private sample of their examples, and share the mean output of each class
    (FKD, Jeong et al. 2018)."""

    rounds: Annotated[int, "Rounds.", fl.between(ge=1)] = 2
    warm_up: Annotated[fl.Training | None, "A client's training before round 1."] = None
    local: Annotated[fl.Training, "A client's training in one round."] = fl.Training(steps=11, batch=64)
    resample: Annotated[bool, "Draw a new private sample in every round."] = False
    grows_by = "rounds"

    sampling = fl.slot("privacy", "Draws the examples that a client trains on.", "ids")
    model = fl.slot("trainer", "A client's model.", lasting=True, published=True, through=[sampling])
    ensemble = fl.slot("aggregator", "Combines the clients' class means.", "class-means")

    @fl.exchange("warm-up", "nothing", "nothing", draws=sampling)
    def warm(self, client: fl.Client, _: fl.Arrays) -> None:
        if self.warm_up:
            own = client.private(self.sampling)
            client.fit(self.model, own, training=self.warm_up)

    @fl.exchange(
        "mean outputs of own classes", "nothing", "class-means", times="rounds", into=ensemble,
        draws=lambda self: type(self).sampling if self.resample else None,
        through=sampling,
    )  # fmt: skip
    def means(self, client: fl.Client, _: fl.Arrays) -> fl.Arrays:
        own = client.private(self.sampling)
        scores = np.exp(client.model(self.model).predict(own))
        client.measure("sample", len(own))
        rows = np.unique(own.y)
        soft = scores / scores.sum(1, keepdims=True)
        values = np.stack([soft[own.y == row].mean(0) for row in rows])
        return {"rows": rows, "values": values}

    @fl.exchange("learning from class means", "class-means", "nothing", times="rounds")
    def learn(self, client: fl.Client, means: fl.Arrays) -> None:
        own = client.private(self.sampling)
        labels = np.eye(client.task.outputs, dtype=np.float32)[own.y]
        client.model(self.model).fit(own, labels, stream=client.stream("model"), training=self.local)

    def lead(self, server: fl.Server) -> None:
        server.once("warm-up", lambda server, _: server.collect(self.warm, None))
        server.rounds(self.round)
        server.keep_clients(self.model)

    def round(self, server: fl.Server, round: fl.Round) -> None:
        said = server.collect(self.means, None)
        mean = server.aggregate(self.means, said)
        server.collect(self.learn, mean)
        server.evaluate_clients(self.model)
