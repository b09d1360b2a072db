"""FedProto (Tan et al. 2022): clients share what their models make of each class, and no
parameters."""

from typing import Annotated

import fl
import numpy as np

TENSORS = {"means": ("f32", "classes x features"), "counts": ("u32", "classes")}
OWN = fl.message("own-prototypes", "The mean features of a client's examples of each class, and how many there are.", TENSORS)
KNOWN = fl.message("prototypes", "The mean features of all examples of each class, and how many there are.", TENSORS)


@fl.protocol("my-fedproto")
class FedProto:
    """Clients train models of their own, and the server averages their class prototypes (FedProto,
    Tan et al. 2022)."""

    rounds: Annotated[int, "Rounds.", fl.between(ge=1)] = 10
    epochs: Annotated[int, "Epochs of a client's training.", fl.between(ge=1)] = 1
    batch: Annotated[int, "Examples per mini-batch.", fl.between(ge=1)] = 16
    pull: Annotated[float, "Weight of the distance to the prototypes.", fl.between(ge=0)] = 0.1
    grows_by = "rounds"

    model = fl.slot("trainer", "A client's own model.", lasting=True, published=True, needs=["feature-loss"])

    @fl.exchange("prototypes after local training", KNOWN, OWN, times="rounds", trains=True)
    def train(self, client: fl.Client, known: fl.Arrays) -> fl.Arrays:
        means, there = np.array(known["means"], float), known["counts"] > 0

        def distance(features: np.ndarray, classes: np.ndarray, rows: np.ndarray, stream: fl.Stream) -> tuple[float, np.ndarray]:
            """The mean squared distance of features to the prototype of their class, and its
            slope."""
            apart = (features - means[classes]) * there[classes, None]
            return self.pull * float(np.mean(apart**2)), 2 * self.pull * apart / apart.size

        client.fit(self.model, epochs=self.epochs, batch=self.batch, feature_loss=distance if there.any() else None)
        features, classes = client.model(self.model).features(client.own), client.own.y
        ones = np.eye(client.task.outputs)[classes]
        counts = ones.sum(0)
        return {"means": ones.T @ features / np.maximum(counts, 1)[:, None], "counts": counts.astype(int)}

    def lead(self, server: fl.Server) -> None:
        classes = server.task.outputs
        server.state.known = {"means": np.zeros((classes, 0)), "counts": np.zeros(classes, int)}
        server.rounds(self.round)
        server.keep_clients(self.model)

    def round(self, server: fl.Server, round: fl.Round) -> None:
        answers = server.collect(self.train, server.state.known)
        counts = np.sum([answer["counts"] for answer in answers], axis=0, dtype=float)
        sums = np.sum([answer["means"] * answer["counts"][:, None].astype(float) for answer in answers], axis=0)
        server.state.known = {"means": sums / np.maximum(counts, 1)[:, None], "counts": counts.astype(int)}
        server.evaluate_clients(self.model)
