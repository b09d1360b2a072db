#!/usr/bin/env bash
# Compares the digests of the quick specs on four kinds of processors: this one, x86-64 with AVX2
# and fused multiply-adds, x86-64 without them, and aarch64. QEMU emulates the last. For the two
# before it, the program runs here without its detection of instructions: a library loaded with it
# clears what Rust's `std_detect` and the crate `libm` found, and glibc obeys its tunables.
#   tests/bench/processors.sh [SPEC..]
# It needs: rustup target add aarch64-unknown-linux-gnu; apt-get install gcc binutils
# gcc-aarch64-linux-gnu qemu-user
set -euo pipefail
cd "$(dirname "$0")/../.."
for tool in gcc nm qemu-aarch64 aarch64-linux-gnu-gcc; do
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
symbol() { nm "$here" | awk -v name="$1" '$3 ~ name { print "0x" $1 }'; }
gcc -D_GNU_SOURCE -shared -fPIC -o "$work/off.so" -xc - <<END
#include <link.h>
#include <stdlib.h>
static int first(struct dl_phdr_info *of, size_t n, void *at) {
  *(size_t *)at = of->dlpi_addr;
  return 1; // the program; libraries follow
}
__attribute__((constructor)) static void off(void) {
  size_t at, kept = strtoul(getenv("KEPT"), 0, 16); // bits in the order of std_detect's arch/x86.rs
  dl_iterate_phdr(first, &at);
  ((void (*)(void))(at + $(symbol detect_and_initialize)))();
  *(size_t *)(at + $(symbol 'detect5cache5CACHE$')) &= kept;
  if (!(kept >> 56 & 1)) *(unsigned *)(at + $(symbol get_cpu_features5CACHE)) = 1u << 31; // no FMA
}
END
without() { KEPT=$1 GLIBC_TUNABLES=glibc.cpu.hwcaps=$2 LD_PRELOAD=$work/off.so "$here" "${@:3}"; }
on() {
  case $1 in
    native) shift; "$here" "$@" ;;
    x86-64-v3) shift; without ff8000000000ffff -AVX512F,-AVX512VL "$@" ;;
    x86-64) shift; without e000000000000ff0 -AVX512F,-AVX512VL,-AVX2,-FMA "$@" ;;
    aarch64) shift; qemu-aarch64 -cpu cortex-a57 -L /usr/aarch64-linux-gnu "$target/$foreign/release/fl" "$@" ;;
  esac
}
declare -A named=([native]=x86_64 [x86-64-v3]='x86_64 avx2 fma"' [x86-64]='x86_64"')
digest() { # PROCESSOR SPEC
  local out="$work/$1"
  rm -rf "$out"
  on "$1" run "$2" --quiet --threads 1 --out "$out" >"$work/log" || { tail -3 "$work/log" >&2; echo failed; return; }
  grep -q "\"processor\": \"${named[$1]:-$1}" "$out/run.json" || { echo still on; return; }
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
