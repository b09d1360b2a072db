"""Runs the tables of Selective-FD and its family again and prints them beside what the papers printed.

    cargo build --release
    python3 specs/selective-fd/tables.py strong        # Table 1, one class a client, three seeds: about 90 minutes on two cores
    python3 specs/selective-fd/tables.py               # all of them: a long afternoon; --list names them

Needs Python 3.9 and nothing else. Every number is `fl run` of a spec in this folder (or of `../nfdp`) with `--set`; `--verbose`
prints the commands. Runs go side by side on `--jobs` threads, one each: results do not depend on that. `--cache FILE` keeps every
answer, so that a run that was stopped goes on; it knows nothing of a changed program, so begin a new file then.
"""

import argparse
import json
import os
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.dont_write_bytecode = True  # every folder in specs has specs
sys.path.insert(0, str(HERE.parent))
from runs import Memory, rows  # noqa: E402

SOFT, HARD = ["protocol.labels=soft"], ["protocol.labels=hard"]
# The published code takes the own step before the labels; the specs keep the paper's order: labels, own step, distillation.
CODE_ORDER = ["protocol.order=own-before-labels"]
MEAN_LABELS = ["parts.ensemble.use=mean-labels"]

# label: (spec, sets). From one seed all methods draw the same split, public samples and initial parameters.
METHODS = {
    "independent": ("independent.yaml", []),
    "FKD": ("fkd.yaml", []),
    "PLS": ("pls.yaml", []),
    "FedED, hard": ("feded.yaml", HARD + CODE_ORDER),
    "DS-FL, hard": ("ds-fl.yaml", HARD + CODE_ORDER),
    "FedMD, hard": ("fedmd.yaml", HARD + MEAN_LABELS + CODE_ORDER),
    "Selective-FD, hard": ("mnist-strong.yaml", HARD + CODE_ORDER),
    "FedED, soft": ("feded.yaml", SOFT + CODE_ORDER),
    "DS-FL, soft": ("ds-fl.yaml", SOFT + CODE_ORDER),
    "FedMD, soft": ("fedmd.yaml", SOFT + MEAN_LABELS + CODE_ORDER),
    "Selective-FD, soft": ("mnist-strong.yaml", SOFT + CODE_ORDER),
}
# one ratio for each class only where a client has one or two of them, as in the paper
ONE_RATIO = ["parts.client-filter.per-class=false"]
FIVE = ["independent", "FedED, soft", "DS-FL, soft", "FedMD, soft", "Selective-FD, soft"]
# Table 1 of the paper
STRONG = {"independent": "10.0", "FKD": "10.0", "PLS": "10.0", "FedED, hard": "11.49 +- 0.25", "DS-FL, hard": "19.72 +- 0.32",
          "FedMD, hard": "18.89 +- 0.30", "Selective-FD, hard": "85.92 +- 0.37", "FedED, soft": "11.92 +- 0.41",
          "DS-FL, soft": "35.25 +- 0.36", "FedMD, soft": "88.71 +- 0.28", "Selective-FD, soft": "94.68 +- 0.52"}
WEAK = {"independent": "19.96", "FedED, soft": "60.26 +- 1.80", "DS-FL, soft": "47.87 +- 0.31", "FedMD, soft": "95.16 +- 0.52",
        "Selective-FD, soft": "96.30 +- 0.25", "Selective-FD, hard": "86.82 +- 0.26"}
IID = {"independent": "98.18 +- 0.04", "FedED, soft": "98.26 +- 0.06", "DS-FL, soft": "98.56 +- 0.02", "FedMD, soft": "98.63 +- 0.01",
       "Selective-FD, soft": "98.60 +- 0.04"}
FASHION = {"independent": "10.0", "FedED, soft": "12.52 +- 0.38", "DS-FL, soft": "35.98 +- 0.43", "FedMD, soft": "64.63 +- 0.37",
           "Selective-FD, soft": "75.31 +- 0.29", "Selective-FD, hard": "73.41 +- 0.98"}


class Runs(Memory):
    def __init__(self, args):
        super().__init__(args, HERE, ["--threads", "1"])

    def add(self, answer, out):
        points = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        answer["curve"] = [[p["round"], p["value"]] for p in points if p["name"] == "clients.accuracy"]

    def all(self, jobs):
        """Answers in the order of `jobs`, each a spec and what is set in it."""
        with ThreadPoolExecutor(self.args.jobs) as pool:
            return list(pool.map(lambda job: self.run(*job), jobs))


def percent(answer, name="clients.accuracy"):
    value = answer["metrics"].get(name)
    return None if value is None else 100 * value


def shown(value, digits=1):
    return "" if value is None else f"{value:.{digits}f}"


def spread(values):
    return f"{statistics.mean(values):.1f} +- {statistics.stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def job(label, rounds, seed, sets=()):
    spec, own = METHODS[label]
    if label != "independent":
        several = any("iid" in value or "dirichlet" in value for value in sets) and label.startswith("Selective-FD")
        sets = [*sets, *(ONE_RATIO if several else [])]
        return spec, [f"seed={seed}", f"protocol.rounds={rounds}", *own, *sets]
    # as many mini-batches as the others: 200 before round 1, and the private and public ones of every round
    return spec, [f"seed={seed}", f"protocol.local.steps={200 + 11 * rounds}", *(s for s in sets if s.startswith("data."))]


def methods(runs, title, labels, published, sets=(), rounds=60, seeds=(1,)):
    """One row a method: the clients' mean accuracy, its mean and standard deviation over the seeds."""
    answers = runs.all([job(label, rounds, seed, sets) for label in labels for seed in seeds])

    def body():
        for at, label in enumerate(labels):
            of = answers[at * len(seeds):(at + 1) * len(seeds)]
            values = [percent(a) for a in of]
            if len(seeds) > 1:
                between = [f"{min(values):.1f} to {max(values):.1f}"]
            else:
                between = [shown(percent(of[0], "clients.accuracy.std"))]
            yield [label, spread(values), *between, published.get(label, "")]
    several = f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
    rows(f"{title}; {rounds} rounds, {several}", ["method", "accuracy", "range" if len(seeds) > 1 else "std over clients", "published"], body())
    return answers


def strong(runs):
    seeds = (1, 2, 3)
    answers = methods(runs, "MNIST, one class a client", list(METHODS), STRONG, seeds=seeds)
    marks = (10, 20, 30, 40, 50, 60)

    def curves():
        for at, label in enumerate(METHODS):
            of = [dict(a["curve"]) for a in answers[at * len(seeds):(at + 1) * len(seeds)]]
            if all(mark in curve for curve in of for mark in marks):
                yield [label, *(spread([100 * curve[mark] for curve in of]) for mark in marks)]
    rows("MNIST, one class a client: accuracy after so many rounds", ["method", *map(str, marks)], curves())

    def bytes_():
        for at, label in enumerate(METHODS):
            if label != "independent":
                a = answers[at * len(seeds)]
                up, down = (a["bytes"][way] / 10 / 60 / 1000 for way in ("up", "down"))
                yield [label, f"{up:.2f}", f"{down:.2f}", shown(percent(a))]
        fedavg = ["seed=1", *one_network("{ use: mean }", "aggregator")]
        fedavg += ["protocol={use: param-rounds, rounds: 60, local: {steps: 11, batch: 64}}"]
        a = runs.all([("independent.yaml", fedavg)])[0]
        up, down = (a["bytes"][way] / 10 / 60 / 1000 for way in ("up", "down"))
        yield ["FedAvg, `selective-fd-a` for all", f"{up:.2f}", f"{down:.2f}", shown(percent(a, "accuracy"))]
    header = ["method", "up, kB", "down, kB", "accuracy"]
    rows("Figure 7: bytes per client and round, MNIST, one class a client; 60 rounds, seed 1", header, bytes_())


def one_network(part, slot):
    return [f"parts={{model: {{use: dfdx, net: selective-fd-a, optimiser: {{sgd: {{lr: 0.1}}}}}}, {slot}: {part}}}"]


def order(runs):
    """The specs' own order, and FedMD's own scores."""
    cases = {
        "Selective-FD, soft": ("mnist-strong.yaml", SOFT),
        "Selective-FD, hard": ("mnist-strong.yaml", HARD),
        "FedMD, soft": ("fedmd.yaml", SOFT + MEAN_LABELS),
        "FedMD, scores imitated by KL": ("fedmd.yaml", []),
    }
    jobs = [(spec, ["seed=1", "protocol.rounds=60", *sets, *o]) for spec, sets in cases.values() for o in ([], CODE_ORDER)]
    answers = runs.all(jobs)
    body = ([label, shown(percent(answers[2 * at])), shown(percent(answers[2 * at + 1]))] for at, label in enumerate(cases))
    rows("The order within a round: MNIST, one class a client; 60 rounds, seed 1",
         ["method", "labels, own step, distillation", "own step, labels, distillation"], body)


def fashion(runs):
    methods(runs, "Fashion-MNIST, one class a client", FIVE, FASHION, ["data.set=fashion-mnist"], rounds=40)


def weak(runs):
    methods(runs, "MNIST, two classes a client", FIVE, WEAK, ["data.split={classes: 2}"], rounds=40)


def iid(runs):
    steps = ["data.split=iid", "protocol.local.steps=5", "protocol.distil.steps=6"]
    methods(runs, "MNIST, IID", FIVE, IID, steps, rounds=20)


def dirichlet(runs):
    labels, strengths = ["DS-FL, soft", "FedMD, soft", "Selective-FD, soft"], (0.001, 0.1, 10)
    jobs = [job(label, 20, 1, [f"data.split={{dirichlet: {{alpha: {b}, reading: plain}}}}"]) for label in labels for b in strengths]
    answers = runs.all(jobs)
    body = ([label, *(shown(percent(a)) for a in answers[3 * at:3 * at + 3])] for at, label in enumerate(labels))
    rows("Figure 4: MNIST, Dirichlet of this concentration; 20 rounds, seed 1", ["method", *map(str, strengths)], body)


def pneumonia(runs):
    nets = [f"{{clients: {at}, use: dfdx, net: selective-fd-{net}, optimiser: {{sgd: {{lr: 0.1}}}}}}" for at, net in enumerate("abde")]
    model, student = f"model: [{', '.join(nets)}]", "student: {use: dfdx, net: selective-fd-a, optimiser: {sgd: {lr: 0.1}}}"
    cases = {
        "independent": ["protocol={use: solo, local: {steps: 860, batch: 64}}", f"parts={{{model}}}"],
        "FedED, soft": ["protocol.teacher=student", f"parts={{{model}, {student}, ensemble: {{use: mean-labels}}}}"],
        "DS-FL, soft": [f"parts={{{model}, {student}, ensemble: {{use: entropy-reduction, temperature: 0.1}}}}"],
        "FedMD, soft": [f"parts={{{model}, ensemble: {{use: mean-labels}}}}"],
        "Selective-FD, soft": [],
        "FedMD, hard": HARD + [f"parts={{{model}, ensemble: {{use: mean-labels}}}}"],
        "Selective-FD, hard": HARD,
    }
    length = ["protocol.rounds=60", *CODE_ORDER]
    jobs = [("pneumonia.yaml", [f"seed={seed}", *([] if label == "independent" else length), *sets])
            for label, sets in cases.items() for seed in (1, 2, 3)]
    answers = runs.all(jobs)

    def body():
        for at, label in enumerate(cases):
            values = [percent(a) for a in answers[3 * at:3 * at + 3]]
            yield [label, spread(values), f"{min(values):.1f} to {max(values):.1f}"]
    rows("PneumoniaMNIST, four clients of one class each; 60 rounds, seeds 1 to 3", ["method", "accuracy", "range"], body())


def ablation(runs, title, spec, cases):
    """Rows of a Selective-FD run and of what its filters let through."""
    answers = runs.all([(spec, ["seed=1", "protocol.rounds=40", *CODE_ORDER, *sets]) for sets in cases.values()])
    names = ["filter.share", "filter.precision", "filter.recall", "filter.auroc", "filter.auroc-right"]

    def body():
        for label, answer in zip(cases, answers):
            yield [label, shown(percent(answer)), *(shown(percent(answer, name)) for name in names),
                   shown(answer["metrics"].get("taught.samples"), 0)]
    header = ["setting", "accuracy", "labelled, %", "precision", "recall", "AUROC, own class", "AUROC, right label", "taught of 512"]
    rows(f"{title}; MNIST, one class a client, 40 rounds, seed 1", header, body())


def thresholds(runs):
    clients = {f"tau_client {q}": [f"parts.client-filter.quantile={q}"] if q != 0.25 else [] for q in (0.05, 0.25, 0.5, 0.75)}
    server = {f"tau_server {t}": [f"parts.server-filter.at-most={t}"] for t in (0.5, 1.0, 1.5)}
    ablation(runs, "Figure 6: tau_client, with tau_server 2", "mnist-strong.yaml", clients)
    ablation(runs, "Figure 6: tau_server, with tau_client 0.25; tau_server 2 is above", "mnist-strong.yaml", server)


def selectors(runs):
    on_scores = ["protocol.filter-on=scores"]
    ablation(runs, "Figure 5: selectors at clients", "mnist-strong.yaml", {
        "density ratio of pixels": [],
        "density ratio of features": ["protocol.filter-on=features", "parts.client-filter={use: density-ratio, uniform: 250, share: 0.05, quantile: 0.25}"],
        "confidence": on_scores + ["parts.client-filter={use: confidence, quantile: 0.25}"],
        "energy": on_scores + ["parts.client-filter={use: energy, quantile: 0.25}"],
    })


def code(runs):
    """The published code's setting; it was run with one seed: 91.1 with the filter, 36.3 without."""
    net = ("[{conv: {out: 10, kernel: 5}}, relu, {pool: 2}, {conv: {out: 20, kernel: 5}}, relu, {pool: 2}, {linear: 50}, relu, "
           "{dropout: 0.5}, outputs]")
    plain = ("parts={model: {use: dfdx, net: %s, optimiser: {sgd: {lr: 0.1}}, schedule: {step: {every: 27500, factor: 0.7}}}, "
             "ensemble: {use: mean-labels}}" % net)
    cases = {"Selective-FD": ([], (1, 2, 3), "91.1"), "FedMD": ([plain], (1,), "36.3")}
    jobs = [("mnist-strong-code.yaml", [f"seed={seed}", "protocol.rounds=100", *sets]) for sets, seeds, _ in cases.values() for seed in seeds]
    answers = iter(runs.all(jobs))

    def body():
        for label, (_, seeds, said) in cases.items():
            for seed in seeds:
                curve = dict(next(answers)["curve"])
                yield [label, str(seed), *(shown(100 * curve[mark]) for mark in (10, 20, 50, 100)), said]
    rows("The published code's setting", ["method", "seed", "round 10", "20", "50", "100", "released code, round 100"], body())


def nfdp(runs):
    """`n` of a party is 5,000. Without pre-training on labelled public images, what the parties' own samples bring shows more."""
    model = "model: {use: dfdx, net: [{linear: 128}, relu, {linear: 64}, relu, outputs], optimiser: {adam: {lr: 0.001}}}"
    free = f"parts={{{model}, ensemble: {{use: mean-logits}}}}"
    cases = {str(k): [f"parts.sampling.k={k}"] for k in (16, 60, 300, 1000)}
    cases["all, no sampling (FedMD-NP)"] = [free]
    bare = ["protocol={use: co-distill, rounds: 20, warm-up: {epochs: 25, batch: 32}, samples: 5000, labels: scores, "
            "order: public-first, distil: {epochs: 1, batch: 256}, local: {epochs: 4, batch: 5}}"]
    seeds, spec = (1, 2, 3), "../nfdp/mnist.yaml"
    jobs = [(spec, [f"seed={seed}", *start, *sets]) for sets in cases.values() for start in ([], bare) for seed in seeds]
    pooled = ["protocol={use: centralised, local: {epochs: 25, batch: 32}}", f"parts={{{model}}}"]
    answers = runs.all(jobs + [(spec, [f"seed={seed}", *pooled]) for seed in seeds])

    def body():
        for at, label in enumerate(cases):
            of = answers[6 * at:6 * at + 6]
            cost = (of[0]["privacy"] or {}).get("readers")
            guarantee = [f"{cost['epsilon']:.4f}", f"{cost['delta']:.4g}"] if cost else ["", ""]
            yield [label, *guarantee, *(spread([percent(a) for a in half]) for half in (of[:3], of[3:]))]
        yield ["centralised, pooled private examples", "", "", spread([percent(a) for a in answers[-3:]]), ""]
    rows("FedMD-NFDP: MNIST, ten parties of 5,000 examples; 20 rounds, seeds 1 to 3",
         ["k", "epsilon", "delta", "accuracy", "accuracy without pre-training"], body())


TABLES = {"strong": strong, "fashion": fashion, "weak": weak, "iid": iid, "dirichlet": dirichlet, "pneumonia": pneumonia,
          "thresholds": thresholds, "selectors": selectors, "order": order, "code": code, "nfdp": nfdp}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--fl", default=str(ROOT / "target/release/fl"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--cache")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    if args.list:
        print("\n".join(TABLES))
        return
    unknown = [name for name in args.tables if name not in TABLES]
    if unknown:
        sys.exit(f"no table {', '.join(unknown)}; there are {', '.join(TABLES)}")
    runs = Runs(args)
    for name in args.tables or TABLES:
        TABLES[name](runs)


if __name__ == "__main__":
    main()
