"""`../pfl_dp_fedavg.py` in pfl-research itself.

    pip install pfl torch    # Python 3.10 to 3.12
    FL_DATA_DIR=DIR PYTHONPATH=examples/ports python examples/ports/peers/pfl_dp_fedavg.py
"""

import os
import sys
import time

os.environ["PFL_PYTORCH_DEVICE"] = "cpu"
import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy import CentrallyAppliedPrivacyMechanism
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_accountant import PLDPrivacyAccountant
from rows import equal_parts, fashion
from torch import nn

ROUNDS, USERS, COHORT, EACH, LARGER = int((sys.argv[1:] or [30])[0]), 1000, 50, 50, 1000


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layers = nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))

    def loss(self, images, labels, eval=False):
        return nn.functional.cross_entropy(self.layers(images), labels)

    def metrics(self, images, labels, eval=True):
        with torch.no_grad():
            return {"loss": Weighted(float(self.loss(images, labels)) * len(labels), len(labels))}


def main():
    torch.manual_seed(1)
    np.random.seed(1)
    users = [tuple(map(torch.from_numpy, rows)) for rows in equal_parts(fashion("train"), USERS, EACH)]
    x, y = map(torch.from_numpy, fashion("t10k"))
    accountant = PLDPrivacyAccountant(
        num_compositions=ROUNDS, sampling_probability=LARGER / 10**6, mechanism="gaussian", epsilon=2.0, delta=1e-6, noise_scale=COHORT / LARGER)
    noise = GaussianMechanism.from_privacy_accountant(accountant=accountant, clipping_bound=0.4)
    print(f"noise multiplier {accountant.cohort_noise_parameter * LARGER / COHORT:.4f} for {LARGER} users")
    net = Net()
    model = PyTorchModel(model=net, local_optimizer_create=torch.optim.SGD, central_optimizer=torch.optim.SGD(net.parameters(), 1.0))
    sampler = get_user_sampler("random", list(range(USERS)))
    federation = FederatedDataset(lambda user: PyTorchTensorDataset(users[user], user_id=str(user)), sampler)
    central = CentrallyAppliedPrivacyMechanism(noise)
    backend = SimulatedBackend(training_data=federation, val_data=federation, postprocessors=[WeightByUser(), central])
    # it evaluates models at users in the first round
    params = NNAlgorithmParams(central_num_iterations=ROUNDS, evaluation_frequency=ROUNDS + 1, train_cohort_size=COHORT, val_cohort_size=0)
    how = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=0.1, local_batch_size=10)
    began = time.monotonic()
    FederatedAveraging().run(params, backend, model, model_train_params=how, model_eval_params=None, callbacks=[])
    took = time.monotonic() - began
    with torch.no_grad():
        accuracy = (net.layers(x).argmax(1) == y).float().mean().item()
    print(f"accuracy {accuracy:.4f}, {took / ROUNDS:.2f} s a round")


if __name__ == "__main__":
    main()
