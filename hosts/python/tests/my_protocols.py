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
