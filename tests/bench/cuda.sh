#!/bin/sh
# Everything that a card has to show: run from the repository's root on a machine with an NVIDIA card.
# It has not run on any yet. About an hour; results go to the folder OUT (cuda-results by default).
set -eu
OUT=${OUT:-cuda-results}
DEVICE=${DEVICE:-cuda}
mkdir -p "$OUT"
cargo build --release -p fl-cli
FL=target/release/fl

echo "1. the card against the processor"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv >"$OUT/card.csv"
"$FL" doctor >"$OUT/doctor.txt" || { cat "$OUT/doctor.txt"; exit 1; }
cat "$OUT/doctor.txt"

echo "2. digests of the quick specs that train networks, on both, twice"
: >"$OUT/digests.txt"
for spec in $(grep -l "use: dfdx," specs/quick/*.yaml); do
  name=$(basename "$spec" .yaml)
  sed "s/use: dfdx,/use: dfdx, device: $DEVICE,/" "$spec" >"$OUT/$name.yaml"
  for run in cpu-1 card-1 card-2; do
    case $run in cpu*) text=$spec ;; *) text=$OUT/$name.yaml ;; esac
    rm -rf "$OUT/$name-$run"
    digest=$("$FL" run "$text" --json --out "$OUT/$name-$run" |
      sed 's/.*"digest":"\([0-9a-f]*\)".*/\1/')
    echo "$name $run $digest" >>"$OUT/digests.txt"
  done
done
awk '{ if (n[$1]++ == 0) first[$1] = $3; else if ($3 != first[$1]) { print "DIFFERS: " $0; bad = 1 } }
  END { exit bad }' "$OUT/digests.txt"

echo "3. seconds of a training step, and of ten clients; beside PyTorch where it is installed"
for device in cpu "$DEVICE"; do
  FL_BENCH_DEVICE=$device cargo bench -q -p fl-bench --bench steps >"$OUT/steps-$device.txt" 2>&1
done
python3 tests/bench/pytorch_steps.py >"$OUT/steps-pytorch.txt" 2>&1 || echo "skipped: PyTorch"

echo "4. time by kernel"
if command -v nsys >/dev/null; then
  nsys profile -o "$OUT/fedkd" --force-overwrite true \
    "$FL" run "$OUT/fedkd.yaml" --out "$OUT/fedkd-profiled"
  nsys stats --report cuda_gpu_kern_sum "$OUT/fedkd.nsys-rep" >"$OUT/kernels.txt"
else
  echo "skipped: nsys is not installed"
fi
