#!/usr/bin/env python3
"""Takes the mends of joined guarantees out, one at a time, and asks the suite to find each.

    tests/bench/joins_mutants.py [NAME ..]

Each mutant changes one place of hosts/privacy. `cargo test -p fl-privacy` must then fail: by the
random histories (`joins`), or by a test of its own. A mutant that hangs is found after ten minutes.
The files are put back, also after Ctrl-C or a SIGTERM. Some 40 seconds of a processor each. The
exit code is 1 if a mutant survives.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "hosts/privacy/src"
CARGO = ["cargo", "test", "--locked", "-p", "fl-privacy"]
LIMIT = 600  # seconds of a suite

# name: (file, what stands there, what the mutant has)
MUTANTS = {
    "several splits count as one": (
        "total.rs",
        "let one_split = splits.len() < 2;",
        "let one_split = true;",
    ),
    "a row is one client's in all splits": (
        "total.rs",
        "    if splits.len() < 2 {\n        // the same",
        "    if true {\n        // the same",
    ),
    "no split need be the finest": (
        "total.rs",
        "() if all.finest_split && !splits",
        "() if false && !splits",
    ),
    "each party lies in one of any other split": (
        "rows.rs",
        "        if self.same_split(other) {\n            return true;",
        "        if self.comparable(other) {\n            return true;",
    ),
    "all splits of one set are equal": (
        "rows.rs",
        "self.comparable(other) && self.split == other.split",
        "self.comparable(other) && self.rows == other.rows",
    ),
    "unknown rows are those of any split": (
        "entry.rs",
        "} else if self.reservation.data.key.is_empty() {",
        "} else if false {",
    ),
    "every copy of a stopped run uses its stop up": (
        "ledger.rs",
        "match at(&self.entries, &reservation.id).or_else(stopped) {",
        "let copies = reservation.continues.and(self.entries.len().checked_sub(1));\n"
        "                match at(&self.entries, &reservation.id).or_else(stopped).or(copies) {",
    ),
    "a stopped run counts with nothing": (
        "entry.rs",
        "            State::Settled(spent) => spent,\n",
        "            State::Settled(spent) => spent,\n"
        "            State::Stopped(_) => const {\n"
        "                &Spending {\n"
        "                    releases: Some(fl_sim::Releases { server: Vec::new(), clients: Vec::new() }),\n"
        "                    budget: None,\n"
        "                    nothing: BTreeMap::new(),\n"
        "                }\n"
        "            },\n",
    ),
    "a page forgets a run that is not done": (
        "entry.rs",
        "        runs.map(|(name, run)| Self::of_run(name, run, &user))",
        "        runs.filter(|(_, run)| run.summary.is_some())\n"
        "            .map(|(name, run)| Self::of_run(name, run, &user))",
    ),
    "releases say nothing of their neighbours": (
        "total.rs",
        "relation = events.iter().fold(relation, Relation::with);",
        "let _ = events;",
    ),
    "a budget says nothing of its neighbours": (
        "total.rs",
        "relation = relation.and(Relation::of(neighbours));",
        "let _ = neighbours;",
    ),
    "a budget bounds every observer": (
        "record.rs",
        "budget.filter(|own| own.against <= observer)",
        "budget.filter(|own| own.against <= observer || true)",
    ),
    "of several accountants the last counts": (
        "total.rs",
        "epsilon: sum.epsilon + next.epsilon,",
        "epsilon: next.epsilon,",
    ),
    "examples and parties add up": (
        "total.rs",
        "if units.len() > 1 {",
        "if units.len() > 2 {",
    ),
    "readers do not see what the server releases": (
        "total.rs",
        "    if observer != Observer::Server {\n        for event",
        "    if false {\n        for event",
    ),
    "what was seen without a price is forgotten": (
        "entry.rs",
        "if epsilon.is_none() {",
        "if false {",
    ),
    "made inputs say nothing of other parties": (
        "inherited.rs",
        "holds.unit == Unit::Party && own_parties() != Some(true)",
        "holds.unit == Unit::Party && false",
    ),
    "made inputs of dealt rows are those of any": (
        "inherited.rs",
        "} else if holds.after_split && !own.dealt {",
        "} else if false {",
    ),
    "a public row may be another run's client's": (
        "rows.rs",
        "!same && self.public.iter().any(|row| other.sample.contains_key(row))",
        "!same && false",
    ),
    "noise of a seed is noise of the system": (
        "total.rs",
        "reserved().all(|run| run.noise == Noise::System)",
        "reserved().any(|run| run.noise == Noise::System)",
    ),
}


def survives(file: pathlib.Path, old: str, new: str) -> tuple[bool, str]:
    """Runs the suite on a mutant; returns whether it passes, and what found it."""
    text = file.read_text()
    try:
        file.write_text(text.replace(old, new))
        compiled = subprocess.run([*CARGO, "--no-run"], cwd=ROOT, capture_output=True, text=True)
        if compiled.returncode != 0:
            sys.exit(f"the mutant does not compile:\n{compiled.stderr[-3000:]}")
        code, said = suite()
    finally:
        file.write_text(text)
    if code is None:
        return False, "it hangs"
    found = sorted(set(re.findall(r"^test (.+) \.\.\. FAILED$", said, re.M)))
    return code == 0, ", ".join(found) or f"exit code {code}"


def suite() -> tuple[int | None, str]:
    """Runs the suite; returns its exit code, None if it takes too long, and what it prints."""
    command = [*CARGO, "--no-fail-fast"]
    # in a group of its own, so that no test goes on
    running = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = running.communicate(timeout=LIMIT)
        return running.returncode, said
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def stale(name: str) -> str | None:
    """Says why a mutant cannot be made, if it cannot."""
    if name not in MUTANTS:
        return f"no mutant is called {name!r}; there are: {', '.join(MUTANTS)}"
    file, old, _ = MUTANTS[name]
    places = (SOURCES / file).read_text().count(old)
    if places == 1:
        return None
    return f"{name}: {file} has {places} places like {old!r}: write it anew"


def main() -> None:
    names = sys.argv[1:] or list(MUTANTS)
    if wrong := [why for why in map(stale, names) if why]:
        sys.exit("\n".join(wrong))
    # as Ctrl-C, it puts the file back
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    left = []
    for name in names:
        file, old, new = MUTANTS[name]
        alive, found = survives(SOURCES / file, old, new)
        print(f"{'SURVIVES' if alive else 'found   '} {name}: {found}", flush=True)
        left += [name] * alive
    print(f"{len(names) - len(left)} of {len(names)} mutants are found")
    sys.exit(bool(left))


if __name__ == "__main__":
    main()
