"""What the `tables.py` of the folders here share: `fl run` with a memory of what was run, and tables."""

import json
import shlex
import subprocess
import sys
import tempfile
import threading
from pathlib import Path


class Memory:
    """Answers of `fl run --json` to specs in `folder`; `args` has `fl`, `cache` and `verbose`. Threads may share it."""

    def __init__(self, args, folder, options=()):
        self.args, self.folder, self.options = args, folder, list(options)
        self.known, self.lock = {}, threading.Lock()
        if args.cache and Path(args.cache).exists():
            for line in Path(args.cache).read_text().splitlines():
                key, answer = json.loads(line)
                self.known[key] = answer

    def add(self, answer, out):
        """Adds to the answer what else is wanted from the run folder `out`."""

    def run(self, spec, sets):
        key = json.dumps([spec, sets])
        with self.lock:
            if key in self.known:
                return self.known[key]
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            command = [self.args.fl, "run", str(self.folder / spec), "--json", *self.options, "--out", str(out)]
            for value in sets:
                command += ["--set", value]
            if self.args.verbose:
                print("$", shlex.join(command), file=sys.stderr)
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{shlex.join(command)}\n{done.stderr}")
            answer = json.loads(done.stdout)
            answer.pop("out")
            self.add(answer, out)
        with self.lock:
            self.known[key] = answer
            if self.args.cache:
                with open(self.args.cache, "a") as file:
                    file.write(json.dumps([key, answer]) + "\n")
        return answer


def rows(title, header, body):
    print(f"\n### {title}\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in body:
        print(f"| {' | '.join(row)} |", flush=True)
