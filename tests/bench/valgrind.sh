#!/bin/sh
# valgrind's memcheck over a small run with a loaded part in Rust and one in C: an error in either
# fails the script. tests/bench/valgrind.sh [TARGET_DIR]
set -eu
cd "$(dirname "$0")/../.."
target=${1:-${CARGO_TARGET_DIR:-target}}
for tool in valgrind cc; do
  command -v "$tool" >/dev/null || { echo "skipped: there is no $tool here"; exit 0; }
done
CARGO_TARGET_DIR="$target" cargo build --quiet --offline -p fl-cli -p fl-plugin-example-dynamic
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -std=c11 -O1 -g -ffp-contract=off -fPIC -shared -fvisibility=hidden -Ifl-core/include -o "$work/c_mean.so" plugins/example-c/c_mean.c
spec() { sed "s/use: mean/use: $1/; s/rounds: 5/rounds: 2/" specs/quick/fedavg.yaml > "$work/$1.yaml"; }
spec c-mean
spec momentum-mean
case=plugins/example-c/case.json
check() {
  echo "fl $*"
  # a library is never unloaded, so what it holds at the end is no leak
  valgrind --quiet --error-exitcode=9 --leak-check=no --suppressions=tests/bench/valgrind.supp "$target/debug/fl" "$@" > "$work/out" || {
    cat "$work/out"
    exit 1
  }
}
rust=$target/debug/libfl_plugin_example_dynamic.so
check try aggregator c-mean --plugin "$work/c_mean.so" --input "$case"
check try aggregator momentum-mean --plugin "$rust" --input "$case"
check list --plugin "$rust" --plugin "$work/c_mean.so"
check run "$work/c-mean.yaml" --plugin "$work/c_mean.so" --out "$work/c" --threads 2
check run "$work/momentum-mean.yaml" --plugin "$rust" --out "$work/rust" --threads 2
echo "no errors"
