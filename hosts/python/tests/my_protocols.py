"""Protocols that the tests use."""

from typing import Annotated

import fl
import numpy as np


@fl.protocol("py-fedavg")
class PyFedAvg:
    """FedAvg (McMahan et al. 2017): clients train from the server's parameters, and the server combines theirs."""

    rounds: Annotated[int, "Rounds.", fl.between(ge=1)] = 5
    epochs: Annotated[int, "Epochs of a client's training.", fl.between(ge=1)] = 2
    batch: Annotated[int, "Examples per mini-batch.", fl.between(ge=1)] = 16
    mu: Annotated[float, "FedProx: the weight of the distance to the server's parameters.", fl.between(ge=0)] = 0.0
    grows_by = "rounds"

    model = fl.slot("trainer", "The model that all clients train.", shared_parameters=True, at_server=True)
    aggregator = fl.slot("aggregator", "Combines the clients' parameters.", "params")
    cohort = fl.slot("selector", "Picks the clients of a round; all, if it is empty.", "clients")
    privacy = fl.slot("privacy", "Bounds and hides what training has changed.", "params")

    @fl.exchange(
        "parameters after local training", to=cohort, into=aggregator, times="rounds", trains=True, releases=fl.difference(privacy)
    )
    def train(self, client: fl.Client, params: fl.Arrays) -> fl.Arrays:
        model = client.model(self.model)
        model.set_params(params)
        proximal = (self.mu, params) if self.mu else None
        client.fit(self.model, epochs=self.epochs, batch=self.batch, fresh=True, proximal=proximal)
        return model.params()

    def lead(self, server: fl.Server) -> None:
        server.state.params = server.model(self.model).params()
        server.rounds(self.rounds, self.round)
        server.keep_model(self.model)

    def round(self, server: fl.Server, round: fl.Round) -> None:
        cohort = server.cohort(self.cohort)
        if cohort:
            server.state.params = server.run(self.train, cohort, server.state.params)
        server.model(self.model).set_params(server.state.params)
        server.evaluate(self.model)


@fl.protocol("py-distil")
class PyDistil:
    """Clients score public samples, and the server's student learns from the mean of those that are clear."""

    rounds: Annotated[int, "Rounds.", fl.between(ge=1)] = 3
    samples: Annotated[int, "Public samples of a round.", fl.between(ge=1)] = 20

    teacher = fl.slot("trainer", "A client's own model.", lasting=True)
    student = fl.slot("trainer", "What the server teaches.", at_server=True)
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
        server.rounds(self.rounds, self.round)
        server.keep_clients(self.teacher)

    def begin(self, server: fl.Server, round: fl.Round) -> None:
        server.state.size = len(server.public.samples)

    def round(self, server: fl.Server, round: fl.Round) -> None:
        ids = np.sort(round.stream.numpy().choice(server.state.size, self.samples, replace=False))
        ids = server.public.samples.ids[ids]
        scores = server.run(self.score, server.everyone, {"ids": ids})
        soft = np.exp(scores["values"] - scores["values"].max(1, keepdims=True))
        soft /= soft.sum(1, keepdims=True)
        picked = server.select(self.clear, {"rows": scores["rows"], "values": soft})
        picked = np.arange(len(soft)) if picked is None else picked
        if len(picked):
            server.fit(self.student, server.public.pick(scores["rows"][picked]), soft[picked], epochs=2, batch=8)
        server.record("clear", len(picked))
        server.evaluate(self.student)
