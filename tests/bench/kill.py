#!/usr/bin/env python3
"""Kills runs at random moments, goes on with them, and compares what they come to with a run that nobody touched.

    tests/bench/kill.py target/release/fl [KILLS] [SEED]

Every spec of specs/quick in turn is begun, killed (-9) at a random moment from its first millisecond on, gone on with and
killed again, up to four times in a row, and then brought to its end. Every second time a checkpoint is written after each
step, so that many kills fall into one. At the end it starves runs of disk space: a limit on the size of a file (RLIMIT_FSIZE)
makes a write fail somewhere, and the same run must go on and come to the same once there is room.
"""

import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def finish(process):
    out, err = process.communicate()
    return process.returncode, out.decode(), err.decode()


class Trial:
    def __init__(self, fl, spec, sets, folder):
        self.fl, self.spec, self.folder = fl, spec, folder
        self.more = [word for one in sets for word in ("--set", one)]

    def start(self, limit=None):
        """Begins the run or goes on with it, whichever it needs."""
        begun = (self.folder / "run.json").exists()
        args = ["--resume", str(self.folder)] if begun else [str(self.spec), *self.more, "--out", str(self.folder)]

        def starve():
            # without this the signal would end it before it could say anything
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        return subprocess.Popen(
            [str(self.fl), "run", *args, "--json", "--threads", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=starve if limit is not None else None,
        )

    def done(self):
        return (self.folder / "report.md").exists()


def main():
    fl = Path(sys.argv[1]).resolve()
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    draw = random.Random(seed)
    specs = sorted((ROOT / "specs/quick").glob("*.yaml"))
    # as many threads as usual is not the point here, and one makes the moments of kills comparable
    straight = {}
    kills = runs = wrong = before = dead = 0
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        while kills < wanted:
            spec = specs[runs % len(specs)]
            every = [] if runs % 2 else ["checkpoint.every={rounds: 1}"]
            if spec not in straight:
                began = time.monotonic()
                code, out, err = finish(Trial(fl, spec, [], scratch / f"{spec.stem}-straight").start())
                assert code == 0, (spec, err)
                straight[spec] = (json.loads(out)["digest"], time.monotonic() - began)
            digest, seconds = straight[spec]
            trial = Trial(fl, spec, every, scratch / f"{spec.stem}-{runs}")
            runs += 1
            for _ in range(draw.randint(1, 4)):
                if trial.done():
                    break
                process = trial.start()
                # in the first moments as often as later
                time.sleep(draw.choice([draw.uniform(0, 0.05), draw.uniform(0, seconds)]))
                process.kill()
                if finish(process)[0] == -signal.SIGKILL:
                    kills += 1
                    before += not (trial.folder / "state").exists()
            if trial.done():
                continue
            code, out, err = finish(trial.start())
            if code != 0:
                dead += 1
                print(f"{trial.folder.name}: cannot go on: {err}")
            elif json.loads(out)["digest"] != digest:
                wrong += 1
                print(f"{trial.folder.name}: another digest")
            shutil.rmtree(trial.folder, ignore_errors=True)
        print(f"{kills} kills in {runs} runs over {len(straight)} specs, {before} before the first checkpoint: {wrong} other digests, {dead} dead folders")

        starved = full = 0
        for at in range(20):
            spec = specs[at % len(specs)]
            digest, _ = straight[spec]
            trial = Trial(fl, spec, ["checkpoint.every={rounds: 1}"], scratch / f"full-{at}")
            limit = draw.choice([0, 10, 100, 500, 1000, 2000, 4000])
            code, out, err = finish(trial.start(limit))
            if code == 0:
                continue
            full += 1
            if "File too large" not in err and "No space" not in err:
                print(f"full-{at}: with {limit} bytes it said only: {err}")
            code, out, err = finish(trial.start())
            if code != 0 or json.loads(out)["digest"] != digest:
                starved += 1
                print(f"full-{at}: after {limit} bytes: {code} {err}")
        print(f"{full} of 20 runs found the disk full: {starved} did not recover")
    sys.exit(bool(wrong or dead or starved))


main()
