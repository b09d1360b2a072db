"""Runs FedKT's tables again and prints them beside what the paper printed.

    cargo build --release
    python3 specs/fedkt/tables.py                      # all that need no network: some minutes
    python3 specs/fedkt/tables.py adult partitions     # some of them; --list names all
    python3 specs/fedkt/tables.py mnist --epochs 20

Needs Python 3.9 and nothing else. Every number is `fl run` of a spec in this folder with `--set`; `--verbose` prints the commands.
A seed decides the split, the subsets, the models and the noise alike, so settings are compared seed by seed: the mean of the
differences and its 95 % t-interval. `--cache FILE` keeps every answer, so that a run that was stopped goes on; it knows nothing of
a changed program, so begin a new file then.
"""

import argparse
import math
import os
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.dont_write_bytecode = True  # every folder in specs has specs
sys.path.insert(0, str(HERE.parent))
from runs import Memory, rows  # noqa: E402
# 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom
T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101,
     2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]

TREE = "{use: tree, depth: 6}"
FOREST = "{use: forest, trees: 100, depth: 6}"
BOOSTING = "{use: boosting, trees: 100, depth: 6, rate: 0.05, min-gain: 1.0, start: even}"
BOOSTING_10 = BOOSTING.replace("100", "10")
# public and test together, which the paper's shares of queries are shares of
POOL = {"Adult": 8141, "cod-rna": 14884}
# ten trees, not a hundred: some 50 settings of 5 seeds in minutes instead of hours; `--cod-rna cod-rna-100.yaml` for the others
SPEC = {"Adult": "adult.yaml", "cod-rna": "cod-rna.yaml"}


def all_models(model):
    return [f"parts.{slot}={model}" for slot in ("teacher", "student", "final")]


def solo(model):
    return ["protocol={use: solo}", f"parts={{model: {model}}}"]


def centralised(model):
    return ["protocol={use: centralised}", f"parts={{model: {model}}}"]


def pate(teacher, student, teachers=50):
    return [f"protocol={{use: pate, teachers: {teachers}}}", f"parts={{teacher: {teacher}, student: {student}, vote: {{use: majority-vote}}}}"]


class Runs(Memory):
    def __init__(self, args):
        super().__init__(args, HERE)

    def one(self, spec, sets, seed):
        return self.run(spec, [f"seed={seed}", *sets])

    def many(self, spec, sets, seeds):
        return [self.one(spec, sets, seed) for seed in seeds]

    def accuracy(self, spec, sets, seeds):
        # a method without a server's model is as good as its clients' are on average
        best = lambda answer: answer["metrics"].get("accuracy", answer["metrics"].get("clients.accuracy"))
        return [100 * best(answer) for answer in self.many(spec, sets, seeds)]


def spread(values):
    return f"{statistics.mean(values):.1f} +- {statistics.stdev(values):.1f}"


def interval(differences):
    """Mean and half width of the 95 % interval of paired differences."""
    n = len(differences)
    return statistics.mean(differences), T[min(n - 1, 30) - 1] * statistics.stdev(differences) / math.sqrt(n)


def summary(title, runs, spec, cases, seeds):
    def body():
        for label, sets, published in cases:
            values = runs.accuracy(spec, sets, seeds)
            yield [label, f"{statistics.median(values):.1f}", spread(values), f"{min(values):.1f} to {max(values):.1f}", published]
    rows(f"{title}, seeds {seeds[0]} to {seeds[-1]}", ["method", "median", "mean +- std", "range", "published"], body())


def sweep(title, runs, spec, cases, reference, seeds):
    """`cases`: label -> (sets, published accuracy or None, its +- or None)."""
    of = {label: runs.accuracy(spec, sets, seeds) for label, (sets, _, _) in cases.items()}

    def body():
        for label, (_, published, plus) in cases.items():
            mean, half = interval([a - b for a, b in zip(of[label], of[reference])]) if label != reference else (0, 0)
            ours, theirs = "", ""
            if label != reference:
                ours = f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]" + (", not distinguishable" if abs(mean) <= half else "")
                base, base_plus = cases[reference][1:]
                if published is not None and base is not None:
                    # the paper's own spread, or that of its Table 5 where a table prints none
                    within = max(plus or 0.6, base_plus or 0.6)
                    theirs = f"{published - base:+.1f}" + (", not distinguishable" if abs(published - base) <= within + 1e-9 else "")
            printed = "" if published is None else f"{published}" + ("" if plus is None else f" +- {plus}")
            yield [label, spread(of[label]), ours, printed, theirs]
    rows(f"{title}, seeds {seeds[0]} to {seeds[-1]}", ["setting", "ours", f"minus `{reference}`, paired", "published", f"minus `{reference}`"], body())


def adult(runs, seeds):
    students = [f"parts.student={FOREST}", f"parts.final={FOREST}"]
    summary("Adult, 50 parties (Tables 1 and 8)", runs, "adult.yaml", [
        ("FedKT, single trees everywhere (`adult.yaml`)", [], "82.2 +- 0.6"),
        ("FedKT, single trees; students and final model forests (the released code's `tree`)", students, "82.2 +- 0.6"),
        ("FedKT, forests everywhere (`adult-forests.yaml`)", all_models(FOREST), "82.2 +- 0.6"),
        ("FedKT, single trees, classes numbered as in the file", ["data.class-order=[0, 1]"], ""),
        ("SOLO, single trees", solo(TREE), ""),
        ("SOLO, forests (the released code)", solo(FOREST), "68.6 or 67.0"),
        ("PATE, 50 trees, student forest", pate(TREE, FOREST), "83.5"),
        ("PATE, 50 trees, student tree", pate(TREE, TREE), ""),
        ("centralised tree", centralised(TREE), ""),
        ("centralised forest", centralised(FOREST), ""),
        ("centralised boosting", centralised(BOOSTING), ""),
    ], seeds(10))
    runs_of = lambda sets: runs.accuracy("adult.yaml", sets, seeds(10))
    mean, half = interval([a - b for a, b in zip(runs_of([]), runs_of(solo(FOREST)))])
    print(f"\nSingle trees minus SOLO with forests, paired: {mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}].")


def cod_rna(runs, seeds):
    for trees, model in (("10", BOOSTING_10), ("100", BOOSTING)):
        spec = "cod-rna.yaml" if trees == "10" else "cod-rna-100.yaml"
        summary(f"cod-rna, 50 parties, boosting of {trees} trees (Tables 1 and 8)", runs, spec, [
            (f"FedKT (`{spec}`)", [], "88.3 +- 0.6"),
            ("FedKT, classes numbered as in the file", ["data.class-order=[0, 1]"], ""),
            ("SOLO, boosting", solo(model), ""),
            ("SOLO, forests (the released code)", solo(FOREST), "65.0"),
            ("PATE, 50 teachers", pate(model, model), "91.1"),
            ("centralised", centralised(model), "91.2"),
        ], seeds(5))
        of = lambda sets: runs.accuracy(spec, sets, seeds(5))
        mean, half = interval([a - b for a, b in zip(of([]), of(centralised(model)))])
        print(f"\nFedKT minus centralised, paired: {mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]; published -2.9.")


def both(f):
    return lambda runs, seeds: [f(runs, name, SPEC[name], seeds(10 if name == "Adult" else 5)) for name in SPEC]


def partitions(runs, name, spec, seeds):
    printed = {"Adult": [(80.8, 1.4), (82.0, 0.6), (81.5, 0.6), (81.2, 0.5), (81.1, 0.1)],
               "cod-rna": [(87.7, 0.6), (88.3, 0.6), (88.3, 0.5), (88.1, 0.5), (88.2, 0.5)]}[name]
    cases = {f"s = {s}": ([f"protocol.partitions={s}"], *printed[s - 1]) for s in range(1, 6)}
    sweep(f"{name}: partitions s, t = 5 (Table 5)", runs, spec, cases, "s = 2", seeds)


def subsets(runs, name, spec, seeds):
    printed = {"Adult": {5: (82.0, 0.6), 10: (81.1, 0.7)}, "cod-rna": {5: (88.3, 0.6), 10: (87.4, 0.6), 15: (83.1, 0.6)}}[name]
    # a balanced split may leave a party with only 10 examples
    skip = "protocol.short-party=skip"
    cases = {f"t = {t}": ([f"protocol.subsets={t}", *([skip] if t > 10 else [])], *of) for t, of in printed.items()}
    sweep(f"{name}: subsets t, s = 2 (Table 6)", runs, spec, cases, "t = 5", seeds)


def parties(runs, name, spec, seeds):
    printed = {"Adult": [83.2, 82.4, 83.6, 83.3, 82.2], "cod-rna": [88.1, 89.7, 86.7, 87.2, 88.3]}[name]
    cases = {f"{n} parties": ([f"data.clients={n}"], printed[n // 10 - 1], None) for n in (10, 20, 30, 40, 50)}
    sweep(f"{name}: parties (Table 8)", runs, spec, cases, "50 parties", seeds)
    printed = {"Adult": [77.5, 68.6, 64.4, 68.3, 67.0], "cod-rna": [69.7, 67.0, 67.9, 66.6, 65.0]}[name]
    cases = {f"{n} parties": ([f"data.clients={n}", *solo(FOREST)], printed[n // 10 - 1], None) for n in (10, 20, 30, 40, 50)}
    sweep(f"{name}: SOLO with forests, parties (Table 8)", runs, spec, cases, "50 parties", seeds)


def public(runs, name, spec, seeds):
    printed = {"Adult": [82.1, 82.1, 82.1, 82.3, 82.2], "cod-rna": [87.3, 87.6, 87.8, 87.8, 88.3]}[name]
    kept = [POOL[name] // 2 * share // 100 for share in (20, 40, 60, 80, 100)]
    cases = {f"{share} %": ([f"protocol.party-queries={n}", f"protocol.server-queries={n}"], value, None)
             for share, n, value in zip((20, 40, 60, 80, 100), kept, printed)}
    sweep(f"{name}: share of the public samples (Table 10)", runs, spec, cases, "100 %", seeds)


def consistent(runs, name, spec, seeds):
    printed = {"Adult": (82.2, 81.1), "cod-rna": (88.3, 87.1)}[name]
    plain = "parts.tier2={use: majority-vote}"
    for s in (2, 3):
        p = printed if s == 2 else (None, None)
        cases = {"consistent": ([f"protocol.partitions={s}"], p[0], None), "plain": ([f"protocol.partitions={s}", plain], p[1], None)}
        sweep(f"{name}: consistent voting, s = {s} (Table 11 has s = 2)", runs, spec, cases, "consistent", seeds)


def beta(runs, name, spec, seeds):
    printed = {"Adult": {0.1: 81.9, 0.5: 82.4, 10: 82.7}, "cod-rna": {0.1: 88.9, 0.5: 89.7, 10: 90.1}}[name]
    cases = {f"beta = {b}": (["data.clients=20", f"data.split.dirichlet.alpha={b}"], value, None) for b, value in printed.items()}
    sweep(f"{name}: heterogeneity, 20 parties (Table 7)", runs, spec, cases, "beta = 0.5", seeds)


# gamma: {share of queries in percent: (epsilon, accuracy)}, as printed
TABLE_15 = {
    ("Adult", "heterogeneous"): {
        0.04: {0.1: (0.64, 71.3), 0.5: (2.56, 76.8), 1: (4.73, 80.2)}, 0.06: {0.1: (0.96, 75.7), 0.5: (3.64, 77.6), 1: (5.78, 80.2)},
        0.08: {0.1: (1.23, 76.0), 0.5: (4.25, 76.3), 1: (7, 80.3)}},
    ("Adult", "homogeneous"): {
        0.02: {0.1: (0.32, 72.2), 0.5: (1.25, 76.1), 1: (1.79, 80.1)}, 0.04: {0.1: (0.6, 76.0), 0.5: (1.9, 80.4), 1: (3.32, 81.5)},
        0.06: {0.1: (0.75, 76.1), 0.5: (2.03, 81.7), 1: (3.36, 82.1)}},
    ("cod-rna", "heterogeneous"): {
        0.04: {0.1: (1.09, 66.8), 0.5: (3.54, 72.5), 1: (5.14, 75.2)}, 0.06: {0.1: (1.52, 69), 0.5: (5.48, 82.6), 1: (8.1, 79.5)},
        0.1: {0.1: (2.12, 69), 0.5: (6.89, 84.7), 1: (11.2, 85.3)}},
    ("cod-rna", "homogeneous"): {
        0.02: {0.2: (0.53, 67.0), 0.5: (1.71, 73.2), 1: (2.45, 75.3)}, 0.04: {0.2: (1.5, 73), 0.5: (3.06, 84.1), 1: (5.1, 85)},
        0.06: {0.2: (1.63, 80.2), 0.5: (3.1, 84.1), 1: (5.14, 86.1)}},
}
TABLE_16 = {
    ("Adult", "heterogeneous"): {
        0.04: {0.1: (1.13, 76.1), 0.5: (2.56, 76.5), 1: (3.72, 78.5)}, 0.05: {0.1: (1.32, 76.1), 0.5: (3.24, 79.0), 1: (4.76, 79.2)},
        0.06: {0.1: (1.96, 76.2), 0.5: (3.93, 78.5), 1: (5.79, 79.4)}},
    ("Adult", "homogeneous"): {
        0.04: {0.3: (2.13, 76.1), 0.5: (2.59, 78.7), 1: (3.72, 81.7)}, 0.06: {0.3: (2.97, 76.3), 0.5: (3.93, 79.9), 1: (5.79, 81.8)},
        0.08: {0.3: (3.77, 76.3), 0.5: (5.04, 80.4), 1: (7.89, 82.0)}},
    ("cod-rna", "heterogeneous"): {
        0.04: {0.5: (3.54, 77.7), 1: (5.14, 79.8), 2: (7.63, 82.0)}, 0.05: {0.5: (4.51, 81.4), 1: (6.58, 82.0), 2: (9.78, 84.7)},
        0.06: {0.5: (5.5, 81.2), 1: (8.1, 83.2), 2: (12.2, 85.9)}},
    ("cod-rna", "homogeneous"): {
        0.03: {0.5: (2.64, 79.2), 1: (3.78, 80.5), 2: (5.51, 83.1)}, 0.04: {0.5: (3.54, 80.1), 1: (5.14, 83.7), 1.5: (6.45, 84.0)},
        0.05: {0.5: (4.51, 80.8), 1: (6.58, 84.2), 1.5: (8.3, 84.7)}},
}


# few labels, many of them wrong: a single tree learns them by heart, so here the released code's forests learn from the votes
LEARNERS = {"Adult": [f"parts.student={FOREST}", f"parts.final={FOREST}"], "cod-rna": []}


def noisy(runs, title, table, shared, unit, where, seeds):
    def body(name, how, gammas):
        spec, split = SPEC[name], ["data.split=iid"] if how == "homogeneous" else []
        base = [*split, "protocol.partitions=1", "protocol.evaluate-clients=false", *LEARNERS[name], *shared]
        clean = runs.accuracy(spec, base, seeds)
        yield ["none", "all", spread(clean), "", "", "", ""]
        for gamma, shares in gammas.items():
            for share, (epsilon, accuracy) in shares.items():
                queries = math.floor(share * POOL[name] / 100 + 1e-9)
                noise = [f"protocol.noise={where}", f"protocol.{where}-queries={queries}", f"parts.privacy={{use: laplace-votes, gamma: {gamma}}}"]
                priced = lambda orders: f"parts.accountant={{use: pate-moments, delta: 1e-5, unit: {unit}, orders: {orders}}}"
                values = runs.accuracy(spec, base + noise + [priced("standard")], seeds)
                spent = [answer["privacy"]["readers"]["epsilon"] for answer in runs.many(spec, base + noise + [priced("standard")], seeds)]
                # what holds for any votes, l = 1..32, or one by one
                eps0 = 2 * gamma
                bound = min([queries * eps0] + [(queries * min(eps0 * l, eps0**2 * l * (l + 1) / 2) - math.log(1e-5)) / l for l in range(1, 33)])
                yield [f"{gamma}", f"{share} % ({queries})", spread(values), f"{accuracy}", f"{statistics.median(spent):.2f}", f"{bound:.2f}", f"{epsilon}"]
    for (name, how), gammas in table.items():
        rows(f"{title}: {name}, {how}, seeds {seeds[0]} to {seeds[-1]}",
             ["gamma", "queries", "accuracy", "published", "epsilon of these votes (median)", "epsilon of any votes", "published"], body(name, how, gammas))


def server_noise(runs, seeds):
    noisy(runs, "L1, one party, s = 1, t = 5, 50 parties (Table 15)", TABLE_15, ["protocol.subsets=5"], "party", "server", seeds(5))


def party_noise(runs, seeds):
    shared = ["protocol.subsets=25", "data.clients=20", "protocol.short-party=skip"]
    noisy(runs, "L2, one example, s = 1, t = 25, 20 parties (Table 16)", TABLE_16, shared, "example", "party", seeds(5))


def mnist(runs, seeds):
    epochs, spec, some = runs.args.epochs, "mnist.yaml", seeds(3)
    lengths = [f"protocol.{phase}.epochs={epochs}" for phase in ("teacher", "student", "final-model")]
    net = "{use: dfdx, net: lenet, optimiser: {adam: {lr: 0.001, weight-decay: 0.000001}}}"
    length = f"{{epochs: {epochs}, batch: 32}}"
    pooled = [f"protocol={{use: pate, teachers: 10, teacher: {length}, student: {length}}}", pate(net, net)[1]]
    alone = [f"protocol={{use: solo, local: {length}}}", f"parts={{model: {net}}}"]
    summary(f"MNIST, 10 parties, {epochs} epochs (Tables 1 and 9)", runs, spec, [
        ("FedKT (`mnist.yaml`)", lengths, "95.9"), ("SOLO", alone, "80.0"), ("PATE, 10 teachers", pooled, "97.8")], some)
    plain = "parts.tier2={use: majority-vote}"
    for s in (2, 3):
        of = [*lengths, f"protocol.partitions={s}"] if s != 2 else lengths
        p = (96.0, 93.6) if s == 2 else (None, None)
        sweep(f"MNIST: consistent voting, s = {s}, {epochs} epochs (Table 11 has s = 2)", runs, spec,
              {"consistent": (of, p[0], None), "plain": ([*of, plain], p[1], None)}, "consistent", some)


TABLES = {
    "adult": adult, "cod-rna": cod_rna, "partitions": both(partitions), "subsets": both(subsets), "parties": both(parties),
    "public": both(public), "beta": both(beta), "consistent": both(consistent), "l1": server_noise, "l2": party_noise, "mnist": mnist,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="all but mnist if none is named")
    parser.add_argument("--list", action="store_true", help="name the tables")
    parser.add_argument("--fl", default=str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "fl"))
    parser.add_argument("--seeds", type=int, help="so many seeds instead of each table's own number (at least 2)")
    parser.add_argument("--epochs", type=int, default=100, help="of every network (mnist)")
    parser.add_argument("--cod-rna", default=SPEC["cod-rna"], metavar="SPEC", help="the spec that cod-rna's sweeps start from")
    parser.add_argument("--cache", help="file that keeps every answer")
    parser.add_argument("--verbose", action="store_true", help="print the commands")
    args = parser.parse_args()
    if args.list:
        return print("\n".join(TABLES))
    wrong = [name for name in args.tables if name not in TABLES]
    if wrong or (args.seeds is not None and not 2 <= args.seeds <= 31):
        parser.error(f"no table is called {wrong[0]}; known: {', '.join(TABLES)}" if wrong else "--seeds must be 2 to 31")
    SPEC["cod-rna"] = args.cod_rna
    runs, seeds = Runs(args), lambda n: range(1, (args.seeds or n) + 1)
    for name in args.tables or [name for name in TABLES if name != "mnist"]:
        TABLES[name](runs, seeds)


if __name__ == "__main__":
    main()
