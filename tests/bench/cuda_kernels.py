"""Counts of the CUDA kernels, without a card: `python tests/bench/cuda_kernels.py`.

1. Registers, shared memory and occupancy of each kernel for eight architectures, by `ptxas`
   (`pip install nvidia-cuda-nvcc-cu12==12.9.86`, or `PTXAS=path`).
2. Launches, instructions and bytes of one training step and of its kernels, counted by the PTX
   interpreter, and the least time that a card can take for them (a roofline).

Step 2 runs an ignored test of the trainer (`cargo test -p fl-plugin-trainer-dfdx --lib`, or the
program of these tests in `FL_STEP_TEST`).
"""

import collections
import gzip
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "plugins/trainer-dfdx/src/cuda/kernels"

# CUDA C++ Programming Guide 12.9, table of compute capabilities: warps of an SM, KiB of shared
# memory of an SM (of which a block also takes 1 KiB from 8.0 on); all have 65,536 registers
ARCHITECTURES = {"70": (64, 96), "75": (32, 64), "80": (64, 164), "86": (48, 100), "89": (48, 100), "90": (64, 228), "100": (64, 228), "120": (48, 100)}
WARPS = 8  # of a block

# NVIDIA's data sheets: SMs, GHz, GB/s
CARDS = {"H100 SXM 80 GB": (132, 1.98, 3352)}
LAUNCH = 2.5e-6  # seconds between two small launches of one stream
LANES = 128  # instructions of threads that an SM begins in a cycle

STEPS = [("lenet", "1x28x28", 32), ("lenet", "1x28x28", 512), ("resnet-8", "3x32x32", 64)]


def ptxas():
    """The program, or None."""
    if "PTXAS" in os.environ:
        return os.environ["PTXAS"]
    found = importlib.util.find_spec("nvidia.cuda_nvcc")
    places = list(found.submodule_search_locations) if found else []
    programs = [pathlib.Path(place, "bin/ptxas") for place in places]
    return next((str(p) for p in programs if p.is_file()), None)


def occupancy(arch, registers, shared):
    """Share of an SM's warps that blocks of 256 threads keep busy."""
    warps, kib = ARCHITECTURES[arch]
    # registers are given to a warp in steps of 256
    of_warp = -(-registers * 32 // 256) * 256
    by_registers = 65536 // of_warp // WARPS
    held = shared + (1024 if int(arch) >= 80 else 0)
    by_memory = kib * 1024 // held if held else 99
    return min(warps // WARPS, by_registers, by_memory) * WARPS / warps


def assembled(program):
    """(kernel, architecture) -> registers, bytes of shared memory, bytes of spills."""
    found = {}
    for arch in ARCHITECTURES:
        for packed in sorted(KERNELS.glob("*.ptx.gz")):
            with tempfile.NamedTemporaryFile(suffix=".ptx") as ptx:
                ptx.write(gzip.decompress(packed.read_bytes()))
                ptx.flush()
                done = subprocess.run([program, f"-arch=sm_{arch}", "-v", ptx.name, "-o", os.devnull], capture_output=True, text=True, check=True)
            entries = re.split(r"Compiling entry function '", done.stderr)[1:]
            for entry in entries:
                name = entry.split("'")[0]
                registers = int(re.search(r"Used (\d+) registers", entry)[1])
                shared = re.search(r"(\d+) bytes smem", entry)
                spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill", entry))
                found[name, arch] = (registers, int(shared[1]) if shared else 0, spills)
    return found


def kernels_table(found):
    print("| kernel | shared memory | " + " | ".join(f"{a[:-1]}.{a[-1]}" for a in ARCHITECTURES) + " |")
    print("|---|---|" + "---|" * len(ARCHITECTURES))
    for name in sorted({name for name, _ in found}):
        cells = []
        for arch in ARCHITECTURES:
            registers, shared, spills = found[name, arch]
            cells.append(f"{registers}, {occupancy(arch, registers, shared):.0%}" + (f", spills {spills} B" if spills else ""))
        print(f"| `{name}` | {shared or ''} | " + " | ".join(cells) + " |")


def counts(net, shape, batch):
    """Launches of one step: kernel, blocks, instructions, words, bytes."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "counts")
        env = {**os.environ, "FAKE_CUDA_COUNTS": str(file), "FL_STEP": f"{net} {shape} {batch}"}
        program = [os.environ["FL_STEP_TEST"]] if "FL_STEP_TEST" in os.environ else ["cargo", "test", "-q", "-p", "fl-plugin-trainer-dfdx", "--lib", "--"]
        test = ["--ignored", "--exact", "cuda::tests::together::exact_a_step_that_is_counted"]
        subprocess.run(program + test, env=env, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        lines = [line.split() for line in file.read_text().splitlines()]
    return [(name, *map(int, numbers)) for name, *numbers in lines]


def seconds(card, launch, members=1):
    """The least time of a launch, and what bounds it."""
    sms, ghz, bandwidth = CARDS[card]
    _, blocks, instructions, _, size = launch
    busy = min(sms, blocks * members)
    times = {
        "launches": LAUNCH,
        "instructions": instructions * members / (busy * LANES * ghz * 1e9),
        "memory": size * members / (bandwidth * 1e9),
    }
    bound = max(times, key=times.get)
    return times[bound], bound


def of_step_table(steps):
    """Launches, instructions and bytes of each kernel in some steps, and its share of the least
    time on each card."""
    for (net, _, batch), launches in steps:
        print(f"| kernel in a step of {net}, {batch} | launches | instructions | bytes | " + " | ".join(f"share, {card}" for card in CARDS) + " |")
        print("|---|---|---|---|" + "---|" * len(CARDS))
        of = collections.defaultdict(list)
        for launch in launches:
            of[launch[0]].append(launch)
        times = {card: {name: sum(seconds(card, launch)[0] for launch in all) for name, all in of.items()} for card in CARDS}
        first = next(iter(CARDS))
        for name in sorted(of, key=times[first].get, reverse=True):
            instructions, size = (sum(launch[i] for launch in of[name]) for i in (2, 4))
            shares = " | ".join(f"{times[card][name] / sum(times[card].values()):.0%}" for card in CARDS)
            print(f"| `{name}` | {len(of[name])} | {instructions / 1e6:,.1f} M | {size / 1e6:,.2f} MB | {shares} |")
        print()


def steps_table(steps):
    print("| network, batch | launches | instructions | bytes | card | least time of a step | bound by | each of eight together |")
    print("|---|---|---|---|---|---|---|---|")
    for (net, _, batch), launches in steps:
        instructions, size = (sum(launch[i] for launch in launches) for i in (2, 4))
        for card in CARDS:
            shares, total, together = collections.Counter(), 0.0, 0.0
            for launch in launches:
                time, bound = seconds(card, launch)
                shares[bound] += time
                total += time
                together += seconds(card, launch, 8)[0] / 8
            bounds = ", ".join(f"{name} {part / total:.0%}" for name, part in shares.most_common() if part / total >= 0.005)
            print(f"| {net}, {batch} | {len(launches)} | {instructions / 1e6:,.0f} M | {size / 1e6:,.0f} MB | {card} | {total * 1e3:.2f} ms | {bounds} | {together * 1e3:.2f} ms |")


if __name__ == "__main__":
    program = ptxas()
    if program is None:
        print("skipped: ptxas (pip install nvidia-cuda-nvcc-cu12==12.9.86)", file=sys.stderr)
    else:
        kernels_table(assembled(program))
        print()
    print("The least times, from counts of the interpreter. A card takes longer.\n")
    steps = [(step, counts(*step)) for step in STEPS]
    steps_table(steps)
    print()
    of_step_table(steps)
