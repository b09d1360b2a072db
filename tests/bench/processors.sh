#!/usr/bin/env bash
# Compares the digests of the quick specs on four kinds of processors: this one, x86-64 with AVX2
# and fused multiply-adds, x86-64 without them, and aarch64; all but the first emulated by QEMU.
# About half an hour on two cores.
#   tests/bench/processors.sh [SPEC..]
# It needs: rustup target add aarch64-unknown-linux-gnu; apt-get install gcc-aarch64-linux-gnu
# qemu-user
set -euo pipefail
cd "$(dirname "$0")/../.."
for tool in qemu-x86_64 qemu-aarch64 aarch64-linux-gnu-gcc; do
  command -v "$tool" >/dev/null || { echo "skipped: there is no $tool here"; exit 0; }
done
[ "$(uname -m)" = x86_64 ] || { echo "skipped: the script starts on x86-64"; exit 0; }
specs=("$@")
[ $# -gt 0 ] || specs=(specs/quick/*.yaml)
target=${CARGO_TARGET_DIR:-target}
foreign=aarch64-unknown-linux-gnu
cargo build --quiet --release --locked -p fl-cli
CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
  cargo build --quiet --release --locked -p fl-cli --target "$foreign"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$target/release/fl
on() {
  case $1 in
    native) shift; "$here" "$@" ;;
    x86-64-v3) shift; qemu-x86_64 -cpu Haswell "$here" "$@" 2>/dev/null ;;
    x86-64) shift; qemu-x86_64 -cpu Nehalem "$here" "$@" 2>/dev/null ;;
    aarch64) shift; qemu-aarch64 -cpu cortex-a57 -L /usr/aarch64-linux-gnu "$target/$foreign/release/fl" "$@" ;;
  esac
}
digest() { # PROCESSOR SPEC
  local out="$work/$1"
  rm -rf "$out"
  on "$1" run "$2" --quiet --threads 1 --out "$out" >"$work/log" || { tail -3 "$work/log" >&2; echo failed; return; }
  sed -n 's/.*"digest": *"\([0-9a-f]*\)".*/\1/p' "$out/outcome.json" | head -1
}
failed=0
for spec in "${specs[@]}"; do
  wanted=$(digest native "$spec")
  line="$(basename "$spec" .yaml) ${wanted:0:16}"
  for processor in x86-64-v3 x86-64 aarch64; do
    found=$(digest "$processor" "$spec")
    [ "$found" = "$wanted" ] && [ ${#wanted} = 64 ] && line+=" $processor: same" || {
      line+=" $processor: ${found:0:16}"
      failed=$((failed + 1))
    }
  done
  echo "$line"
done
if [ "$failed" != 0 ]; then
  echo "$failed runs differ"
  exit 1
fi
echo "${#specs[@]} specs: one digest on all processors"
