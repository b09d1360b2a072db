"""Numbers to predict: fl's methods beside scikit-learn on all rows in one place.

    pip install fl_federated-*.whl scikit-learn pandas
    python tests/bench/sklearn_regression.py [friedman friedman-skewed flats diabetes digits]

Four sets: Friedman's function (Friedman 1991, scikit-learn's generator), a user's CSV of flats with
columns of numbers and of categories, which this script makes, arrays (the diabetes data of Efron et
al. 2004, which come with scikit-learn), and images whose label is a number: scikit-learn's 1,797
digits of 8 x 8 pixels, where the number to predict is the digit itself. Each has five clients with
as many rows each, public rows without labels, and test rows, drawn anew for each of three seeds.
The clients of `friedman-skewed` have different labels: the rows of each tenth of the labels are
dealt by proportions from a Dirichlet distribution with alpha 0.5, as by `label-groups: 10`.
scikit-learn learns the same clients' rows together, and none of the public ones. Prints the errors
(RMSE on the test rows, in the label's unit) as Markdown: mean and deviation over seeds.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import fl
import fl.sklearn
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_digits, make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

SEEDS, CLIENTS = (1, 2, 3), 5
WIDTH = 24


@fl.trainer("random-forest")
class RandomForest(fl.sklearn.Trainer):
    """A forest of scikit-learn."""

    def estimator(self):
        return RandomForestRegressor(100)


def framed(x, y):
    return pd.DataFrame({f"x{at}": column for at, column in enumerate(x.T)} | {"y": y})


def friedman(seed):
    return framed(*make_friedman1(2000, noise=1.0, random_state=seed))


def flats(seed):
    draws = np.random.default_rng(seed)
    n = 2000
    area, age = draws.gamma(6, 13, n).round(1), draws.integers(0, 100, n)
    district, heating = draws.choice(["north", "south", "old town", "harbour"], n, p=[0.4, 0.3, 0.2, 0.1]), draws.choice(["gas", "oil", "district"], n)
    square_metre = pd.Series(district).map({"north": 3.2, "south": 4.1, "old town": 6.0, "harbour": 5.0}).to_numpy()
    price = area * square_metre * np.exp(-age / 150) + 25 * (heating == "district") + draws.normal(0, 20, n)
    return pd.DataFrame({"area": area, "age": age, "district": district, "heating": heating, "y": price.round(2)})


def diabetes(seed):
    return framed(*load_diabetes(return_X_y=True, scaled=False))


def digits(seed):
    x, y = load_digits(return_X_y=True)
    return framed(x / 16, y.astype(float))


SETS = {"friedman": friedman, "friedman-skewed": friedman, "flats": flats, "diabetes": diabetes, "digits": digits}
#: Sides of the images of a set; rows of the others are lists of numbers.
IMAGES = {"digits": (1, 8, 8)}


def skewed(labels, seed):
    """The rows of each client: those of each tenth of the labels by a client's share of it."""
    draws = np.random.default_rng(seed)
    clients = [[] for _ in range(CLIENTS)]
    for tenth in np.array_split(np.argsort(labels, kind="stable"), 10):
        shares = np.cumsum(draws.dirichlet([0.5] * CLIENTS))
        cuts = np.round(shares[:-1] * len(tenth)).astype(int)
        for client, rows in zip(clients, np.split(draws.permutation(tenth), cuts), strict=True):
            client.extend(rows)
    return clients


def parts(frame, seed, skew):
    """The rows of each client, the public ones and those to test with."""
    frame = frame.sample(frac=1, random_state=seed)
    first, second = len(frame) // 4, len(frame) * 2 // 5
    test, public, own = frame.iloc[:first], frame.iloc[first:second], frame.iloc[second:]
    rows = skewed(own["y"].to_numpy(), seed) if skew else np.array_split(np.arange(len(own)), CLIENTS)
    return [own.iloc[at] for at in rows], public, test


def central(own, test):
    """scikit-learn's errors, by model."""
    texts = [name for name in own if own[name].dtype.kind not in "iuf"]
    numbers = [name for name in own if name not in texts and name != "y"]
    encoded = ColumnTransformer([("texts", OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts), ("numbers", StandardScaler(), numbers)])
    net = TransformedTargetRegressor(MLPRegressor(hidden_layer_sizes=(WIDTH,), activation="tanh", solver="sgd", batch_size=16, learning_rate_init=0.05, momentum=0, alpha=0, max_iter=60, random_state=0), transformer=StandardScaler())
    models = {
        "linear": LinearRegression(),
        "network": net,
        "forest": RandomForestRegressor(100, random_state=0),
        "boosting": HistGradientBoostingRegressor(learning_rate=0.05, max_leaf_nodes=None, max_depth=6, early_stopping=False),
    }
    out = {}
    for name, model in models.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = make_pipeline(encoded, model).fit(own.drop(columns="y"), own["y"])
        out[name] = float(np.sqrt(np.mean((fitted.predict(test.drop(columns="y")) - test["y"]) ** 2)))
    return out


#: Public ranges and categories of the flats' columns, as a user would state them.
COLUMNS = {
    "area": {"number": {"range": [0, 300]}},
    "age": {"number": {"range": [0, 100]}},
    "district": {"category": {"of": ["north", "south", "old town", "harbour"]}},
    "heating": {"category": {"of": ["gas", "oil", "district"]}},
}
NET = {"use": "dfdx", "net": [{"linear": WIDTH}, "tanh", "outputs"], "optimiser": {"sgd": {"lr": 0.05}}}
LINEAR = {"use": "linear", "lr": 0.05}
LONG = {"epochs": 60, "batch": 16}
ROWS = {
    # by name: protocol, parts, and the measure
    "FedAvg, linear": ({"use": "fedavg", "rounds": 30, "local": {"epochs": 2, "batch": 16}}, {"model": LINEAR, "aggregator": {"use": "mean"}}, "rmse"),
    "FedAvg, network": ({"use": "fedavg", "rounds": 30, "local": {"epochs": 2, "batch": 16}}, {"model": NET, "aggregator": {"use": "mean"}}, "rmse"),
    "centralised, network": ({"use": "centralised", "local": LONG}, {"model": NET}, "clients.rmse"),
    "centralised, forest": ({"use": "centralised"}, {"model": {"use": "forest", "depth": 20}}, "clients.rmse"),
    "solo, forest": ({"use": "solo"}, {"model": {"use": "forest", "depth": 20}}, "clients.rmse"),
    "FedKD, forests of fl teach boosting": ({"use": "fedkd", "loss": "mse"}, {"teacher": {"use": "forest", "depth": 20}, "student": {"use": "boosting"}, "ensemble": {"use": "mean-logits"}}, "rmse"),
    "FedKD, forests of scikit-learn teach one": ({"use": "fedkd", "loss": "mse"}, {"teacher": {"use": "random-forest"}, "student": {"use": "random-forest"}, "ensemble": {"use": "mean-logits"}}, "rmse"),
    "FedKD, forests teach a network": ({"use": "fedkd", "loss": "mse", "student": LONG}, {"teacher": {"use": "forest", "depth": 20}, "student": NET, "ensemble": {"use": "mean-logits"}}, "rmse"),
    "centralised, boosting": ({"use": "centralised"}, {"model": {"use": "boosting"}}, "clients.rmse"),
}


def of_fl(row, clients, public, test, seed, name, folder):
    protocol, filled, measure = ROWS[row]
    spec = {"name": "regression", "seed": seed, "protocol": protocol, "parts": filled}
    if name == "flats":
        files = {f"client-{at}.csv": own for at, own in enumerate(clients)} | {"public.csv": public.drop(columns="y"), "test.csv": test}
        for file, frame in files.items():
            frame.to_csv(folder / file, index=False)
        label = {"column": "y", "kind": "number"}
        train = [str(folder / file) for file in files if file.startswith("client")]
        csv = {"format": "csv", "train": train, "test": str(folder / "test.csv"), "label": label}
        csv["columns"] = COLUMNS
        spec["data"] = {"set": {"files": csv}}
        if protocol["use"] == "fedkd":
            files = {"format": "csv", "train": str(folder / "public.csv"), "columns": COLUMNS}
            spec["data"]["public"] = {"from": {"set": {"files": files}}}
        return fl.run(spec, quiet=True, keep="nothing").metrics[measure]
    scale, sides = StandardScaler().fit(pd.concat(clients).drop(columns="y")), IMAGES.get(name)

    def given(frame):
        x = frame.drop(columns="y")
        # pixels are from 0 to 1, and stay so
        x = x.to_numpy().reshape(len(x), *sides) if sides else scale.transform(x)
        return x.astype(np.float32), frame["y"].to_numpy()

    data = {"train": {f"client-{at}": given(own) for at, own in enumerate(clients)}, "test": given(test), "label": {"kind": "number"}}
    if protocol["use"] == "fedkd":
        data["public"] = given(public)[0]
    return fl.run(spec, data=data, quiet=True, keep="nothing").metrics[measure]


def shown(values):
    return f"{np.mean(values):.2f} +- {np.std(values, ddof=1):.2f}"


def main():
    names, found = sys.argv[1:] or list(SETS), {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for seed in SEEDS:
                clients, public, test = parts(SETS[name](seed), seed, name.endswith("-skewed"))
                errors = {f"scikit-learn, {of}": error for of, error in central(pd.concat(clients), test).items()}
                errors["the mean of the labels"] = float(np.std(test["y"]))
                errors |= {row: of_fl(row, clients, public, test, seed, name, Path(folder)) for row in ROWS}
                for row, error in errors.items():
                    found.setdefault(row, {}).setdefault(name, []).append(error)
    print("| | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for row, cells in found.items():
        print(f"| {row} | " + " | ".join(shown(cells[name]) for name in names) + " |")


if __name__ == "__main__":
    main()
