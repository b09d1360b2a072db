#!/bin/sh
# Everything that a card has to show: run from the repository's root on a machine with an NVIDIA card.
# IT HAS NOT RUN ON A CARD. About an hour; results go to the folder OUT (cuda-results by default).
#
# `DRY=1 FL_CUDA_DRIVER=..libfake_cuda.so FL=target/debug/fl sh tests/bench/cuda.sh` runs every step
# but the measurements on the PTX interpreter, small, in some minutes: it shows that the script
# reaches its end, and no speed.
set -eu
OUT=${OUT:-cuda-results}
DEVICE=${DEVICE:-cuda}
DRY=${DRY:-}
mkdir -p "$OUT"
if [ -z "${FL:-}" ]; then
  cargo build --release -p fl-cli
  FL=target/release/fl
fi

# digest NAME SPEC ARGUMENTS..: runs a spec, and prints its digest
digest() {
  folder=$OUT/$1 spec=$2
  shift 2
  rm -rf "$folder"
  "$FL" run "$spec" --json --out "$folder" "$@" >"$folder.json"
  sed 's/.*"digest":"\([0-9a-f]*\)".*/\1/' "$folder.json"
}

# both NAME SPEC ARGUMENTS..: the same digest on both devices, twice on the card; seconds beside it
both() {
  name=$1 spec=$2
  shift 2
  sed "s/use: dfdx,/use: dfdx, device: $DEVICE,/" "$spec" >"$OUT/$name.yaml"
  for run in cpu card-1 card-2; do
    case $run in cpu) text=$spec ;; *) text=$OUT/$name.yaml ;; esac
    start=$(date +%s)
    found=$(digest "$name-$run" "$text" "$@")
    echo "$name $run $found $(($(date +%s) - start)) s" | tee -a "$OUT/digests.txt"
    [ "$run" = cpu ] && wanted=$found
    [ "$found" = "$wanted" ] || { echo "DIFFERS: $name $run"; exit 1; }
  done
}

echo "1. the card against the processor"
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee "$OUT/card.csv"
fi
"$FL" doctor >"$OUT/doctor.txt" || { cat "$OUT/doctor.txt"; exit 1; }
cat "$OUT/doctor.txt"
grep -q "gives the processor's numbers" "$OUT/doctor.txt" || { echo "no card"; exit 1; }

echo "2. every operation and every network, on the card"
if [ -n "$DRY" ]; then
  echo "dry: left out; this is the test suite itself"
else
  FL_CUDA_DRIVER=${FL_CUDA_DRIVER:-libcuda.so.1} cargo test --release -p fl-plugin-trainer-dfdx \
    --lib -- exact --include-ignored --skip mutants --skip ptx_is_made_again
fi

echo "3. digests on both, twice"
: >"$OUT/digests.txt"
if [ -n "$DRY" ]; then
  both fednova specs/quick/fednova.yaml --set protocol.rounds=1
  both selective-fd specs/quick/selective-fd.yaml \
    --set protocol.rounds=1 --set protocol.distil.steps=2
else
  for spec in $(grep -l "use: dfdx," specs/quick/*.yaml); do
    both "$(basename "$spec" .yaml)" "$spec"
  done
fi

echo "4. ten clients at once, and ResNet-8"
TRAIN=20000 TEST=1000
if [ -n "$DRY" ]; then TRAIN=200 TEST=10; fi
for net in lenet resnet-8; do
  cat >"$OUT/ten-$net.spec.yaml" <<SPEC
name: ten-$net
seed: 1
data:
  set: { glyphs: { train: $TRAIN, test: $TEST } }
  clients: 10
protocol: { use: fedavg, rounds: 2, local: { steps: 100, batch: 32 } }
parts:
  model: { use: dfdx, net: $net, optimiser: { adam: { lr: 0.001 } } }
SPEC
done
if [ -n "$DRY" ]; then
  both ten-lenet "$OUT/ten-lenet.spec.yaml" --threads 10 \
    --set protocol.rounds=1 --set protocol.local.steps=2 --set protocol.local.batch=2
  both ten-resnet-8 "$OUT/ten-resnet-8.spec.yaml" --threads 10 \
    --set protocol.rounds=1 --set protocol.local.steps=1 --set protocol.local.batch=2
else
  both ten-lenet "$OUT/ten-lenet.spec.yaml" --threads 10
  both ten-resnet-8 "$OUT/ten-resnet-8.spec.yaml" --threads 10
  if "$FL" check specs/fedavg/cifar10.yaml >/dev/null 2>&1; then
    both cifar10 specs/fedavg/cifar10.yaml \
      --set protocol.rounds=2 --set protocol.local.epochs=1
  else
    echo "skipped: ResNet-8 on CIFAR-10 (set FL_DATA_DIR)"
  fi
fi

echo "5. seconds of a training step, and of ten clients; beside PyTorch where it is installed"
if [ -n "$DRY" ]; then
  echo "dry: left out; an interpreter has no speed to measure"
else
  for device in cpu "$DEVICE"; do
    FL_BENCH_DEVICE=$device cargo bench -q -p fl-bench --bench steps >"$OUT/steps-$device.txt" 2>&1
    [ "$device" = cpu ] || continue
    python3 tests/bench/pytorch_steps.py target/criterion >"$OUT/pytorch-cpu.txt" 2>&1 ||
      echo "skipped: PyTorch"
  done
  python3 tests/bench/pytorch_steps.py target/criterion cuda >"$OUT/pytorch-cuda.txt" 2>&1 ||
    echo "skipped: PyTorch on the card"
fi

echo "6. time by kernel"
if command -v nsys >/dev/null && [ -z "$DRY" ]; then
  nsys profile -o "$OUT/fedkd" --force-overwrite true \
    "$FL" run "$OUT/fedkd.yaml" --out "$OUT/fedkd-profiled"
  nsys stats --report cuda_gpu_kern_sum "$OUT/fedkd.nsys-rep" >"$OUT/kernels.txt"
else
  echo "skipped: nsys is not installed, or this is dry"
fi

echo "7. the papers' sizes, as far as they get in HOURS (0 by default)"
if [ -n "${HOURS:-}" ] && [ -z "$DRY" ]; then
  for spec in specs/fedkd/cifar10.yaml specs/selective-fd/mnist-strong.yaml; do
    name=$(basename "$(dirname "$spec")")
    sed "s/use: dfdx,/use: dfdx, device: $DEVICE,/" "$spec" >"$OUT/$name-long.yaml"
    timeout --signal INT "${HOURS}h" "$FL" run "$OUT/$name-long.yaml" --out "$OUT/$name-long" ||
      echo "$name: stopped; fl run --resume $OUT/$name-long goes on"
  done
fi
echo "done: $OUT/digests.txt"
