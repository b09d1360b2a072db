#!/usr/bin/env python3
"""Kills runs at random moments, goes on with them, and compares what they come to with a run that
nobody touched.

    tests/bench/kill.py target/release/fl [KILLS] [SEED] [--library LIB]

Every spec of specs/quick in turn, in one way of running after the other, is begun, killed (-9) at a
random moment from its first millisecond on, gone on with and killed again, up to four times in a
row, and then brought to its end. The ways are: in the program; over the wire; clients in two
processes; nodes with data of their own; and, with the library of plugins/example-dynamic (or one
that LIB names), a loaded part in processes of its own and in the program. Where there are other
processes, every third kill is of one of these. After each kill no process of the run may be left.
Every second run writes a checkpoint after each step, so that many kills fall into one. At the end
runs are starved of disk space: a limit on the size of a file (RLIMIT_FSIZE) makes a write fail
somewhere, and the same run must go on and come to the same once there is room.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EVERY = ["--set", "checkpoint.every={rounds: 1}"]
# those whose aggregator may be the library's: parameters in, parameters out
LOADED = ["fedavg", "fedavg-fast", "scaffold", "fednova", "feddf", "fedgen"]


def finish(process):
    out, err = process.communicate()
    return process.returncode, out.decode(), err.decode()


def processes_of(folder):
    """The processes that were begun for the run in this folder: each has its environment."""
    found, name = [], f"FL_KILL_RUN={folder}".encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and name in (entry / "environ").read_bytes().split(b"\0") and "Z" not in (entry / "stat").read_text().rsplit(")", 1)[1][:3]:
                found.append(int(entry.name))
        except OSError:
            pass
    return found


class Trial:
    def __init__(self, fl, mode, spec, begin, always, folder):
        self.fl, self.mode, self.spec, self.folder = fl, mode, spec, folder
        # of a run that begins, and of each that goes on too
        self.begin, self.always = begin, always

    def start(self, limit=None):
        """Begins the run or goes on with it, whichever it needs."""
        begun = (self.folder / "run.json").exists()
        args = ["--resume", str(self.folder)] if begun else [str(self.spec), *self.begin, "--out", str(self.folder)]

        def starve():
            # without this the signal would end it before it could say anything
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        return subprocess.Popen(
            [str(self.fl), "run", *args, *self.always, "--json", "--threads", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ, FL_KILL_RUN=str(self.folder)),
            preexec_fn=starve if limit is not None else None,
        )

    def done(self):
        return (self.folder / "outcome.json").exists()

    def left(self):
        """Processes that outlive the killed run by two seconds."""
        for _ in range(40):
            if not processes_of(self.folder):
                return []
            time.sleep(0.05)
        return processes_of(self.folder)


def towns(folder, name):
    """Three nodes with a table each, of which a run makes a federation; gives its spec and their
    files."""
    folder = folder / name
    rows = lambda of: "age,job,income\n" + "".join(
        f"{20 + i * 7 % 50},{('cook', 'nurse')[i % 2]},{'high' if 20 + i * 7 % 50 + 20 * (i % 2) > 50 else 'low'}\n" for i in of
    )
    data = (
        "{ files: { format: csv, train: %s, test: all.csv, label: income, classes: [low, high], "
        "columns: { age: { number: { range: [0, 100] } }, job: { category: { of: [cook, nurse] } } } } }"
    )
    folder.mkdir(parents=True)
    (folder / "all.csv").write_text(rows(range(90)))
    (folder / "own.yaml").write_text(
        f"name: towns\ndata:\n  set: {data % 'all.csv'}\n  clients: 3\n  split: own\n"
        "protocol: { use: scaffold, rounds: 12, local: { epochs: 1, batch: 8 } }\n"
        "parts: { model: { use: linear }, aggregator: { use: mean } }\n"
    )
    nodes = []
    for k in range(3):
        town = folder / str(k)
        town.mkdir()
        (town / "mine.csv").write_text(rows(range(k, 90, 3)))
        (town / "all.csv").write_text(rows(range(4)))
        (town / "node.yaml").write_text(f"client: {k}\nhome: kept\ndata: {data % 'mine.csv'}\n")
        nodes += ["--node", str(town / "node.yaml")]
    return folder / "own.yaml", nodes


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("fl", type=Path)
    ask.add_argument("kills", type=int, nargs="?", default=500)
    ask.add_argument("seed", type=int, nargs="?", default=1)
    ask.add_argument("--library", type=Path)
    asked = ask.parse_args()
    fl = asked.fl.resolve()
    draw = random.Random(asked.seed)
    specs = sorted((ROOT / "specs/quick").glob("*.yaml"))
    library = asked.library or fl.parent / "libfl_plugin_example_dynamic.so"
    loaded = [spec for spec in specs if spec.stem in LOADED]
    ours = ["--set", "parts.aggregator={use: momentum-mean}", "--plugin", str(library.resolve())]
    # specs, what begins a run, and what goes on with it too
    modes = {
        "in the program": (specs, [], []),
        "over the wire": (specs, [], ["--wire"]),
        "in two processes": (specs, [], ["--processes", "2"]),
        "nodes": (None, [], []),
    }
    if library.exists():
        modes["a library, isolated"] = (loaded, ours, [])
        modes["a library, in the program"] = (loaded, [*ours, "--isolate=false"], ["--isolate=false"])
        modes["a library, isolated, in two processes"] = (loaded, ours, ["--processes", "2"])
    else:
        print(f"{library} is not there: no run has a loaded part")
    modes = {mode: (specs, [w for w in begin if w not in always], always) for mode, (specs, begin, always) in modes.items()}
    # one thread makes the moments of kills comparable
    digests, took, failed = {}, {}, 0
    kills, others, runs, wrong, before = Counter(), Counter(), Counter(), 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)

        def trial(mode, number):
            of, begin, always = modes[mode]
            if of is None:
                spec, always = towns(scratch, f"towns-{number}")
            else:
                spec = of[runs[mode] % len(of)]
            return Trial(fl, mode, spec, begin, always, scratch / f"{spec.stem}-{number}")

        def known(one, number):
            """The digest of the same run that nobody touches, and how long it takes."""
            key = (one.spec.stem, "momentum-mean" in str(one.begin))
            if (key, one.mode) not in took:
                again = trial(one.mode, f"straight-{number}")
                began = time.monotonic()
                code, out, err = finish(again.start())
                assert code == 0, (one.mode, one.spec, err)
                took[key, one.mode] = time.monotonic() - began
                # whatever the way of running
                digest = json.loads(out)["digest"]
                assert digests.setdefault(key, digest) == digest, (one.mode, one.spec)
            return digests[key], took[key, one.mode]

        number = 0
        while sum(kills.values()) < asked.kills:
            mode = list(modes)[number % len(modes)]
            one = trial(mode, number)
            digest, seconds = known(one, number)
            number += 1
            if (number // len(modes)) % 2:
                one.begin = [*one.begin, *EVERY]
            runs[mode] += 1
            for _ in range(draw.randint(1, 4)):
                if one.done():
                    break
                process = one.start()
                # in the first moments as often as later
                time.sleep(draw.choice([draw.uniform(0, 0.05), draw.uniform(0, seconds)]))
                beside = [pid for pid in processes_of(one.folder) if pid != process.pid]
                if beside and draw.random() < 1 / 3:
                    try:
                        os.kill(draw.choice(beside), signal.SIGKILL)
                        kills[mode] += 1
                        others[mode] += 1
                    except OSError:
                        pass
                    finish(process)
                    continue
                process.kill()
                if finish(process)[0] == -signal.SIGKILL:
                    kills[mode] += 1
                    before += not (one.folder / "state").exists()
                if left := one.left():
                    failed += 1
                    print(f"{one.folder.name}, {mode}: {len(left)} processes are left: {left}")
                    for pid in left:
                        os.kill(pid, signal.SIGKILL)
            # one that was killed after its outcome was written is tidied up, and a whole one says
            # so
            was_done = one.done()
            code, out, err = finish(one.start())
            whole = was_done and code == 1 and " is done" in err
            if code != 0 and not whole:
                failed += 1
                print(f"{one.folder.name}, {mode}: cannot go on: {err}", flush=True)
                continue
            found = json.loads((one.folder / "outcome.json").read_text())["outcome"]["digest"]
            if found != digest or not (one.folder / "report.html").exists():
                wrong += 1
                print(f"{one.folder.name}, {mode}: another digest, or no page", flush=True)
            temporary = [p.name for p in one.folder.iterdir() if p.name.startswith(".tmp") or p.name in ("lock", "answers")]
            if temporary:
                failed += 1
                print(f"{one.folder.name}, {mode}: {temporary} are left")
            shutil.rmtree(one.folder, ignore_errors=True)
        for mode in modes:
            print(f"{mode}: {kills[mode]} kills ({others[mode]} of another process) in {runs[mode]} runs")
        print(
            f"{sum(kills.values())} kills in {sum(runs.values())} runs over {len({stem for stem, _ in digests})} specs, "
            f"{before} before the first checkpoint: {wrong} other digests, {failed} other failures"
        )

        starved = full = 0
        for at in range(20):
            spec = specs[at % len(specs)]
            one = Trial(fl, "in the program", spec, EVERY, [], scratch / f"full-{at}")
            runs["in the program"] = at
            digest, _ = known(one, f"full-{at}")
            limit = draw.choice([0, 10, 100, 500, 1000, 2000, 4000])
            code, out, err = finish(one.start(limit))
            if code == 0:
                continue
            full += 1
            if "File too large" not in err and "No space" not in err:
                print(f"full-{at}: with {limit} bytes it said only: {err}")
            code, out, err = finish(one.start())
            if code != 0 or json.loads(out)["digest"] != digest:
                starved += 1
                print(f"full-{at}: after {limit} bytes: {code} {err}")
        print(f"{full} of 20 runs found the disk full: {starved} did not recover")
    sys.exit(bool(wrong or failed or starved))


main()
