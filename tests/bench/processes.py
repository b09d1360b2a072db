"""What Linux says of running processes: those named in a command, their memory, their seconds of
the processor."""

import os
import re
from pathlib import Path


def named(name) -> list[Path]:
    """The processes of this machine whose command has this in it."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            found += [one] if name in (one / "cmdline").read_text() else []
        except OSError:  # it has ended
            pass
    return found


def megabytes(of) -> list[float]:
    """Memory of each, with its share of pages that several have."""
    found = []
    for one in of:
        try:
            found.append(int(re.search(r"Pss:\s+(\d+)", (one / "smaps_rollup").read_text())[1]) / 1024)
        except OSError:
            pass
    return found


def parent_and_seconds(of) -> tuple[int, float]:
    """The parent of a process, and its seconds of the processor; 0 and 0 if it has ended."""
    try:
        words = (of / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, 0
    return int(words[1]), (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def seconds_with_descendants(pid) -> float:
    """Seconds of the processor of this process and of all under it that run."""
    stats = {int(one.name): parent_and_seconds(one) for one in Path("/proc").glob("[0-9]*")}
    of, some = 0, {pid}
    while some:
        of += sum(stats[one][1] for one in some)
        some = {one for one, (parent, _) in stats.items() if parent in some}
    return of
