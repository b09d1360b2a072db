#!/usr/bin/env python3
"""What runs on MNIST give away: the tables of hosts/attack/README.md, in Markdown.

    cargo build --release -p fl-cli
    python tests/bench/attacks.py target/release/fl [TABLE ..]

Tables: gradient, inversion, slopes, substitute, made, membership; all if none is named. FL_DATA_DIR
says where `mnist` is. Means and standard deviations are over the seeds 1 to 3, each the mean over
the images of one run.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEEDS = (1, 2, 3)
SGD = {"sgd": {"lr": 0.1}}
ADAM = {"adam": {"lr": 0.001}}
CONV = {"conv": {"out": 12, "kernel": 5, "stride": 2, "pad": 2}}
NETWORKS = {
    "LeNet": "lenet",
    "tanh": [CONV, "tanh", CONV, "tanh", "outputs"],
    "dense": [{"linear": 64}, "relu", {"linear": 32}, "relu", "outputs"],
}


def network(net, optimiser=SGD):
    return {"use": "dfdx", "net": NETWORKS[net], "optimiser": optimiser}


def data(train, clients, **more):
    return {"set": "mnist", "limit": {"train": train, "test": 1000}, "clients": clients, "split": "iid", **more}


def rounds(net, images, epochs=1, optimiser=SGD, **parts):
    """FedAvg of two clients, of which each has so many images and makes one step of all of them, so
    often."""
    return {
        "name": "update", "data": data(2 * images, 2),
        "protocol": {"use": "fedavg", "rounds": 1, "local": {"epochs": epochs, "batch": 64}},
        "parts": {"model": network(net, optimiser), "aggregator": {"use": "mean"}, **parts},
    }


def fedavg():
    protocol = {"use": "fedavg", "rounds": 10, "local": {"epochs": 5, "batch": 32}}
    parts = {"model": network("LeNet", ADAM), "aggregator": {"use": "mean"}}
    return {"name": "fedavg", "data": data(600, 3), "protocol": protocol, "parts": parts}


def fedkd():
    protocol = {"use": "one-shot-distill", "local": {"epochs": 50, "batch": 32}, "student": {"epochs": 50, "batch": 64}, "wire": "f32"}
    parts = {"teacher": network("LeNet", ADAM), "student": network("LeNet", ADAM), "ensemble": {"use": "class-weighted"}}
    return {"name": "fedkd", "data": data(2600, 3, public={"from": {"count": 2000}}), "protocol": protocol, "parts": parts}


def fedkt():
    much = {"epochs": 50, "batch": 32}
    protocol = {"use": "two-tier-vote", "partitions": 1, "subsets": 2, "teacher": much, "student": much, "final-model": much}
    parts = {slot: network("LeNet", ADAM) for slot in ("teacher", "student", "final")}
    parts |= {"tier1": {"use": "majority-vote"}, "tier2": {"use": "consistent-vote"}}
    return {"name": "fedkt", "data": data(2600, 3, public={"from": {"count": 2000}}), "protocol": protocol, "parts": parts}


def hard_labels():
    """Three rounds of distillation in which clients say the most probable class of each public
    sample."""
    protocol = {"use": "co-distill", "rounds": 3, "warm-up": {"epochs": 50, "batch": 32}, "local": {"epochs": 5, "batch": 32},
                "distil": {"epochs": 5, "batch": 64}, "samples": 2000, "labels": "hard"}
    parts = {"model": network("LeNet", ADAM), "ensemble": {"use": "mean-labels"}}
    return {"name": "hard-labels", "data": data(2600, 3, public={"from": {"count": 2000}}), "protocol": protocol, "parts": parts}


def noise(multiplier):
    return {"use": "gaussian-update", "clip": 1.0, "noise-multiplier": multiplier}


class Program:
    def __init__(self, path, folder):
        self.path, self.folder = pathlib.Path(path).resolve(), pathlib.Path(folder)

    def __call__(self, *args):
        done = subprocess.run([self.path, *map(str, args)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"fl {' '.join(map(str, args))}: {done.stderr}")
        return done.stdout

    def spec(self, spec):
        path = self.folder / "spec.yaml"
        path.write_text(json.dumps(spec))
        return path

    def attack(self, name, *args):
        return json.loads(self("attack", name, *args, "--json"))

    def run(self, spec, seed):
        """The folder of a run, and its accuracy in percent."""
        out = self.folder / f"run-{len(list(self.folder.iterdir()))}"
        said = json.loads(self("run", spec, "--out", out, "--json", "--quiet", "--threads", 1, "--set", f"seed={seed}"))
        return out, 100 * said["metrics"]["accuracy"]


def spread(values, digits):
    text = f"{statistics.mean(values):.{digits}f}"
    deviation = statistics.stdev(values)
    return f"{text} +- {deviation:.{digits}f}" if deviation >= 10 ** -digits / 2 else text


def like(attacks):
    """PSNR and SSIM over seeds."""
    mean = lambda what: [statistics.mean(one[what]) for one in attacks]
    return f"{spread(mean('psnr'), 1)} | {statistics.mean(mean('ssim')):.2f}"


def row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def gradient(fl):
    cases = [
        *((f"LeNet, {n}", rounds("LeNet", n)) for n in (1, 4, 8)),
        ("LeNet, 1, five steps of Adam", rounds("LeNet", 1, 5, ADAM)),
        *((f"tanh, {n}", rounds("tanh", n)) for n in (1, 4, 8)),
        ("tanh, 4, five steps", rounds("tanh", 4, 5)),
        *((f"dense, {n}", rounds("dense", n)) for n in (1, 4, 8)),
        *((f"tanh, 1, noise of {m}", rounds("tanh", 1, privacy=noise(m))) for m in (0.001, 0.01, 0.1)),
        *((f"dense, 1, noise of {m}", rounds("dense", 1, privacy=noise(m))) for m in (0.001, 0.01, 0.1)),
    ]
    row("network, images", "labels right", "`search`", "", "`first layer`", "", "class mean", "")
    row(*["---"] * 8)
    for name, spec in cases:
        found = [fl.attack("gradient", fl.spec(spec), "--set", f"seed={seed}") for seed in SEEDS]
        cells = [
            like(of) if of else " | "
            for of in ([a for one in found for a in one["attacks"] if a["attack"] == what] for what in ("search", "first layer", "class mean"))
        ]
        row(name, ", ".join(str(one["labels_right"]) for one in found) + f" of {found[0]['examples']}", *cells)
    row("images, labels alone", "one step", "five steps of Adam", "ten rounds later", "noise of 0.01")
    row(*["---"] * 5)
    for n in (8, 16, 32, 64):
        cells = []
        for spec, update in ((rounds("LeNet", n), 1), (rounds("LeNet", n, 5, ADAM), 1), (rounds("LeNet", n), 11), (rounds("LeNet", n, privacy=noise(0.01)), 1)):
            spec["protocol"]["rounds"] = update
            found = [fl.attack("gradient", fl.spec(spec), "--set", f"seed={seed}", "--steps", 1, "--update", update) for seed in SEEDS]
            cells.append(", ".join(str(one["labels_right"]) for one in found))
        row(n, *cells)


def inversion(fl):
    row("model", "`inversion`", "", "class mean", "", "`--prior 2000`", "", "by chance", "")
    row(*["---"] * 9)
    for name, spec in (("FedAvg's", fedavg()), ("FedKD's student", fedkd()), ("FedKT's final", fedkt())):
        runs = [fl.run(fl.spec(spec), seed)[0] for seed in SEEDS]
        found = [fl.attack("inversion", out)["attacks"][-1] for out in runs]
        prior = [fl.attack("inversion", out, "--prior", 2000)["attacks"][-1] for out in runs]
        known, by_chance = ([one[what] for one in found] for what, found in (("known", found), ("unsearched", prior)))
        row(name, *map(like, (found, known, prior, by_chance)))


def slopes(fl):
    sets = ["data.limit={train: 600, test: 1000}", "data.clients=3", "data.split=iid", "protocol.local.epochs=50"]
    sets = [word for one in sets for word in ("--set", one)]
    spec = ROOT / "specs/fediod/mnist.yaml"
    found = [fl.attack("slopes", spec, *sets, "--set", f"seed={seed}")["attacks"] for seed in SEEDS]
    row("FedIOD's slopes", "with them", "", "without", "")
    row(*["---"] * 5)
    for attack in ("follow", "ask"):
        # the mean over clients first
        def mean(of):
            mine = [[of(one) for one in seed if one["attack"] == attack] for seed in found]
            return [{what: [x for one in all for x in one[what]] for what in ("psnr", "ssim")} for all in mine]

        row(f"`{attack}`", like(mean(lambda one: one)), like(mean(lambda one: one["known"])))


def substitute(fl):
    row("answers", "model", "accuracy", "agreement", "PSNR, dB", "SSIM", "class mean", "")
    row(*["---"] * 8)
    scores = fedkd()
    # it learns once all is said
    scores["protocol"]["student"]["epochs"] = 1
    shares = lambda of, what: ", ".join(f"{100 * one[what]:.1f}" for one in of)
    for name, spec, asked in (("FedKD's scores", scores, ("--ask", 5000)), ("hard labels", hard_labels(), ())):
        found = [fl.attack("substitute", fl.spec(spec), "--set", f"seed={seed}", *asked)["attacks"] for seed in SEEDS]
        for of in zip(*found):
            cells = (like([one["inversion"] for one in of]), like([one["inversion"]["known"] for one in of]))
            row(name, of[0]["model"], shares(of, "accuracy"), shares(of, "agreement"), *cells)
    row("`--prior 2000`, seed 1", "loss", "PSNR, dB", "SSIM", "class mean", "", "by chance", "")
    row(*["---"] * 8)
    for one in fl.attack("substitute", fl.spec(scores), "--prior", 2000, "--set", "seed=1")["attacks"]:
        one = one["inversion"]
        of_seed = lambda what: f"{statistics.mean(what['psnr']):.1f} | {statistics.mean(what['ssim']):.2f}"
        row(one["model"], f"{one['loss']:.4f}", *map(of_seed, (one, one["known"], one["unsearched"])))


def made(fl):
    row("", "PSNR to the nearest, dB", "of the nearest of all", "SSIM", "Frechet")
    row(*["---"] * 5)
    runs = [fl.run(ROOT / "specs/fediod/mnist.yaml", seed)[0] for seed in SEEDS]
    found = [fl.attack("made", out)["found"] for out in runs]
    for at, name in enumerate(("made", "test")):
        each = lambda of: ", ".join(of(one[at]) for one in found)
        row(
            name, each(lambda one: f"{statistics.mean(one['psnr']):.1f}"), each(lambda one: f"{max(one['psnr']):.1f}"),
            each(lambda one: f"{statistics.mean(one['ssim']):.2f}"), each(lambda one: f"{one['frechet']:.1f}"))


def membership(fl):
    row("model", "accuracy", "`loss`: AUC", "at 1 %", "`lira`: AUC", "at 1 %")
    row(*["---"] * 6)
    for name, spec in (("FedAvg's", fedavg()), ("FedKD's student", fedkd())):
        runs = [fl.run(fl.spec(spec), seed) for seed in SEEDS]
        found = [fl.attack("membership", out, "--shadows", 8, "--threads", 1)["attacks"] for out, _ in runs]
        each = lambda of: ", ".join(of(one) for one in found)
        cells = [
            cell
            for at in (0, 1)
            for cell in (each(lambda one: f"{one[at]['auc']:.2f}"), each(lambda one: f"{100 * one[at]['at_1_percent']:.1f}") + " %")
        ]
        row(name, ", ".join(f"{accuracy:.1f}" for _, accuracy in runs), *cells)


TABLES = {table.__name__: table for table in (gradient, inversion, slopes, substitute, made, membership)}


def main():
    wanted = sys.argv[2:] or list(TABLES)
    if len(sys.argv) < 2 or not set(wanted) <= set(TABLES):
        sys.exit(__doc__)
    for name in wanted:
        with tempfile.TemporaryDirectory() as folder:
            print(f"\n{name}\n")
            TABLES[name](Program(sys.argv[1], folder))


main()
