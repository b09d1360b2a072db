#!/usr/bin/env bash
# Runs every fuzz target (fuzz/, tests/fuzz/) for so many seconds, and says how many inputs each was
# given.
#
#     tests/bench/fuzz.sh [SECONDS EACH] [TARGET ..]
#
# Needs cargo-fuzz (`cargo install cargo-fuzz`). Works with a stable compiler, for which
# RUSTC_BOOTSTRAP stands in for a nightly one. SANITIZER=address finds wrong memory accesses too, at
# half the speed. What is found stays in fuzz/artifacts/TARGET; put it into tests/fuzz/corpus/TARGET
# with the mistake's correction, and the suite keeps it.
set -euo pipefail
cd "$(dirname "$0")/../../fuzz"
seconds=${1:-60}
[ $# -gt 0 ] && shift
if [ $# -gt 0 ]; then
  targets=("$@")
else
  mapfile -t targets < <(cargo fuzz list)
fi
export RUSTC_BOOTSTRAP=1
# the versions that the program is built with
[ -e Cargo.lock ] || cp ../Cargo.lock Cargo.lock
# folders in memory, where there is such a place
[ -d /dev/shm ] && [ -w /dev/shm ] && export TMPDIR=/dev/shm
cargo fuzz build --sanitizer "${SANITIZER:-none}"
logs=$(mktemp -d)
failed=0
all=0
printf '%-12s %12s %10s %8s\n' target inputs a-second corpus
for target in "${targets[@]}"; do
  mkdir -p "corpus/$target"
  log="$logs/$target"
  verdict=
  cargo fuzz run --sanitizer "${SANITIZER:-none}" "$target" "corpus/$target" "../tests/fuzz/corpus/$target" -- \
    -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=10 -print_final_stats=1 -verbosity=1 >"$log" 2>&1 || verdict=FAILED
  of() { grep -a "stat::$1:" "$log" | awk '{ print $2 }'; }
  inputs=$(of number_of_executed_units)
  all=$((all + ${inputs:-0}))
  printf '%-12s %12s %10s %8s %s\n' "$target" "${inputs:-0}" "$(of average_exec_per_sec)" "$(ls "corpus/$target" | wc -l)" "$verdict"
  if [ -n "$verdict" ]; then
    failed=1
    grep -a -m 3 'panicked at\|ERROR: \|Test unit written' "$log" || tail -3 "$log"
  fi
done
printf '%-12s %12s\n' all "$all"
[ -n "${TMPDIR:-}" ] && rm -rf "$logs"
exit $failed
