"""What receipts, signatures and kept messages cost, and how long a verification takes.

    python tests/bench/receipts.py target/release/fl [OTHER_FL]

One round of FedAvg: 100 clients with a linear model of a million parameters. OTHER_FL is a program
without receipts, for comparison. Prints the median of seven runs in turn, in seconds.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPEC = """
name: receipts
seed: 1
data:
  set: { blobs: { features: 9999, classes: 100, train: 400, test: 100 } }
  clients: 100
protocol: { use: fedavg, rounds: 3, local: { epochs: 1, batch: 16 } }
parts:
  model: { use: linear, lr: 0.1 }
  aggregator: { use: mean }
checkpoint: { keep: false }
"""

fl, other = sys.argv[1], sys.argv[2:]
with tempfile.TemporaryDirectory() as folder:
    place = Path(folder)
    (place / "spec.yaml").write_text(SPEC)
    subprocess.run([fl, "verify", "--new-key", place / "key"], check=True, capture_output=True)
    plain = ["run", place / "spec.yaml", "--quiet"]
    ways = {
        "receipts": [fl, *plain],
        "signed": [fl, *plain, "--sign", place / "key"],
        "messages kept": [fl, *plain, "--set", "keep=messages"],
    }
    for program in other:
        ways[program] = [program, *plain]
    times = {name: [] for name in [*ways, "verify", "verify kept"]}

    def timed(name, args):
        began = time.perf_counter()
        subprocess.run(args, check=True, capture_output=True)
        times[name].append(time.perf_counter() - began)

    for turn in range(7):
        for number, (name, args) in enumerate(ways.items()):
            timed(name, [*args, "--out", place / f"{turn}-{number}"])
        timed("verify", [fl, "verify", place / f"{turn}-0"])
        timed("verify kept", [fl, "verify", place / f"{turn}-2"])
        subprocess.run(["rm", "-r", *place.glob(f"{turn}-*")], check=True)
    for name, all in times.items():
        print(f"{name:20} {statistics.median(all):.3f}  ({min(all):.3f} .. {max(all):.3f})")
