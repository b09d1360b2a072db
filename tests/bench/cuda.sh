#!/bin/sh
# What a card has to show, as one Markdown file: OUT/report.md (OUT: cuda-results by default).
# Run it from the repository's root on a machine with an NVIDIA card.
#
# The self-check comes first, and nothing after it where it fails. Each step has a limit, and BUDGET
# (3600 by default) is the limit of all, in seconds; the report names what was cut off or left out.
# HOURS=n adds the papers' sizes, up to n hours each.
#
# Programs are built unless they are given, for a machine that cannot build them: FL (`fl`), TESTS
# (the trainer's unit tests) and STEPS (the benchmark `steps`).
#
# `DRY=1 FL_CUDA_DRIVER=..libfake_cuda.so FL=target/debug/fl sh tests/bench/cuda.sh` runs the steps
# on the PTX interpreter, small, in some minutes: it shows that the script reaches its end.
set -eu
OUT=${OUT:-cuda-results}
DEVICE=${DEVICE:-cuda}
DRY=${DRY:-}
BUDGET=${BUDGET:-3600}
HOURS=${HOURS:-}
export OUT DEVICE DRY HOURS FL_CUDA_DRIVER="${FL_CUDA_DRIVER:-libcuda.so.1}"

# digest NAME SPEC ARGUMENTS..: runs a spec, and prints its digest
digest() {
  folder=$OUT/$1 spec=$2
  shift 2
  rm -rf "$folder"
  "$FL" run "$spec" --json --out "$folder" "$@" >"$folder.json"
  sed 's/.*"digest":"\([0-9a-f]*\)".*/\1/' "$folder.json"
}

table() {
  echo "| spec | digest | processor | card | card again |"
  echo "|---|---|---|---|---|"
}

# both NAME SPEC ARGUMENTS..: a row with the seconds on the processor and twice on the card, and
# whether the card has the processor's digest
wrong=0
both() {
  name=$1 spec=$2
  shift 2
  sed "s/use: dfdx,/use: dfdx, device: $DEVICE,/" "$spec" >"$OUT/$name.yaml"
  cells=
  for run in cpu card-1 card-2; do
    case $run in cpu) text=$spec ;; *) text=$OUT/$name.yaml ;; esac
    start=$(date +%s)
    found=$(digest "$name-$run" "$text" "$@") || found=failed
    seconds=$(($(date +%s) - start))
    [ "$run" = cpu ] && wanted=$found
    case $found in
      failed) cells="$cells **failed** |" wrong=1 ;;
      "$wanted") cells="$cells $seconds s |" ;;
      *) cells="$cells **DIFFERS: $found** |" wrong=1 ;;
    esac
  done
  echo "| $name | \`$(echo "$wanted" | cut -c -16)\` |$cells"
}

# the spec of ten clients that train one network at once
ten() {
  cat <<SPEC
name: ten-$1
seed: 1
data:
  set: { glyphs: { train: $2, test: 1000 } }
  clients: 10
protocol: { use: fedavg, rounds: 2, local: { steps: 100, batch: 32 } }
parts:
  model: { use: dfdx, net: $1, optimiser: { adam: { lr: 0.001 } } }
  aggregator: { use: mean }
SPEC
}

check() {
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | sed 's/^/    /'
    echo
  fi
  code=0
  "$FL" doctor >"$OUT/doctor.txt" || code=$?
  sed 's/^/    /' "$OUT/doctor.txt"
  [ "$code" = 0 ] && grep -q "gives the processor's numbers" "$OUT/doctor.txt"
}

# every operation, every network and many models at once
tests() {
  only=exact
  [ -z "$DRY" ] || only=exact_losses_on_scores
  set -- "$only" --include-ignored --skip mutants --skip ptx_is_made_again
  if [ -n "${TESTS:-}" ]; then
    "$TESTS" "$@" >"$OUT/tests.txt" 2>&1 || code=$?
  elif [ -n "$DRY" ]; then
    echo "Dry, and without TESTS: left out."
    return
  else
    cargo test --release -p fl-plugin-trainer-dfdx --lib -- "$@" >"$OUT/tests.txt" 2>&1 || code=$?
  fi
  { grep -E "^test result|FAILED|panicked" "$OUT/tests.txt" || true; } | sed "s/^/    /"
  return "${code:-0}"
}

digests() {
  table
  if [ -n "$DRY" ]; then
    both fednova specs/quick/fednova.yaml --set protocol.rounds=1
    both selective-fd specs/quick/selective-fd.yaml \
      --set protocol.rounds=1 --set protocol.distil.steps=2
    return $wrong
  fi
  # FedKD first, as it is the largest; next-letter has an LSTM, which no card computes
  all=$(grep -l "use: dfdx," specs/quick/*.yaml | grep -v -e /fedkd.yaml -e /next-letter.yaml)
  for spec in specs/quick/fedkd.yaml $all; do
    both "$(basename "$spec" .yaml)" "$spec"
  done
  return $wrong
}

clients() {
  table
  for net in lenet resnet-8; do
    spec=$OUT/ten-$net.spec.yaml
    if [ -n "$DRY" ]; then
      ten "$net" 200 >"$spec"
      both "ten-$net" "$spec" --threads 10 --set protocol.rounds=1 --set protocol.local.steps=1 \
        --set protocol.local.batch=2 --set data.set.glyphs.test=10
    else
      ten "$net" 20000 >"$spec"
      both "ten-$net" "$spec" --threads 10
    fi
  done
  return $wrong
}

cifar() {
  if [ -n "$DRY" ]; then
    echo "Dry: left out."
  elif "$FL" check specs/fedavg/cifar10.yaml >/dev/null 2>&1; then
    table
    both cifar10 specs/fedavg/cifar10.yaml --set protocol.rounds=2 --set protocol.local.epochs=1
    return $wrong
  else
    echo "Left out: \`FL_DATA_DIR\` has no CIFAR-10."
  fi
}

speed() {
  if [ -n "$DRY" ]; then
    echo "Dry: left out, because an interpreter has no speed."
    return
  fi
  # the card's come last, and are those that PyTorch's are compared with
  for device in cpu "$DEVICE"; do
    export FL_BENCH_DEVICE=$device
    if [ -n "${STEPS:-}" ]; then
      "$STEPS" --bench "step|clients" >"$OUT/steps-$device.txt" 2>&1
    else
      cargo bench -q -p fl-bench --bench steps -- "step|clients" >"$OUT/steps-$device.txt" 2>&1
    fi
    echo "Training steps on \`$device\`:"
    echo
    grep -E "time: |^(step|clients)/" "$OUT/steps-$device.txt" | sed 's/^/    /'
    echo
  done
  if python3 tests/bench/pytorch_steps.py target/criterion cuda >"$OUT/pytorch.txt" 2>&1; then
    echo "Beside PyTorch on the card:"
    echo
    sed 's/^/    /' "$OUT/pytorch.txt"
  else
    echo "PyTorch: left out ($(tail -n 1 "$OUT/pytorch.txt"))."
  fi
}

kernels() {
  if [ -n "$DRY" ] || ! command -v nsys >/dev/null; then
    echo "Left out: dry, or \`nsys\` is not installed."
    return
  fi
  sed "s/use: dfdx,/use: dfdx, device: $DEVICE,/" specs/quick/fedkd.yaml >"$OUT/profiled.yaml"
  rm -rf "$OUT/profiled"
  nsys profile -o "$OUT/profiled" --force-overwrite true \
    "$FL" run "$OUT/profiled.yaml" --out "$OUT/profiled" >"$OUT/profiled.txt" 2>&1
  nsys stats --report cuda_gpu_kern_sum "$OUT/profiled.nsys-rep" | sed 's/^/    /'
}

# the papers' sizes
long() {
  for spec in specs/fedkd/cifar10.yaml specs/selective-fd/mnist-strong.yaml; do
    name=$(basename "$(dirname "$spec")")
    sed "s/use: dfdx,/use: dfdx, device: $DEVICE,/" "$spec" >"$OUT/$name-long.yaml"
    if timeout --signal INT "${HOURS}h" \
      "$FL" run "$OUT/$name-long.yaml" --out "$OUT/$name-long" >"$OUT/$name-long.txt" 2>&1; then
      echo "* $name: done."
    else
      echo "* $name: stopped at $(tail -n 1 "$OUT/$name-long.txt");" \
        "\`fl run --resume $OUT/$name-long\` goes on."
    fi
  done
}

# a step calls this script again, so that a limit ends all that the step has begun
if [ -n "${1:-}" ]; then
  "$1"
  exit
fi

mkdir -p "$OUT"
BEGIN=$(date +%s)
REPORT=$OUT/report.md
FAILED=0
if [ -z "${FL:-}" ]; then
  cargo build --release -p fl-cli
  FL=target/release/fl
fi
export FL

# step LIMIT NAME TITLE
step() {
  left=$((BUDGET - $(date +%s) + BEGIN)) limit=$1
  [ "$limit" -le "$left" ] || limit=$left
  printf '\n## %s\n\n' "$3" >>"$REPORT"
  if [ "$limit" -le 0 ]; then
    echo "**Left out**: the budget of $BUDGET s is used up." >>"$REPORT"
    return 0
  fi
  start=$(date +%s) code=0
  timeout -k 10 "$limit" sh "$0" "$2" >"$OUT/$2.md" 2>"$OUT/$2.log" || code=$?
  cat "$OUT/$2.md" >>"$REPORT"
  case $code in
    0) end=done ;;
    124 | 137) end="**cut off** by its limit" ;;
    *) end="**FAILED**" FAILED=1 ;;
  esac
  printf '\n%s after %s s.\n' "$end" $(($(date +%s) - start)) >>"$REPORT"
  if [ "$code" != 0 ] && [ -s "$OUT/$2.log" ]; then
    { echo; tail -n 20 "$OUT/$2.log" | sed 's/^/    /'; } >>"$REPORT"
  fi
  echo "$2: $end"
  return "$code"
}

{
  echo "# fl on a card"
  echo
  echo "$(date -u '+%Y-%m-%d %H:%M') UTC, $("$FL" --version), \`device: $DEVICE\`," \
    "driver \`$(basename "$FL_CUDA_DRIVER")\`${DRY:+, dry: no card}."
} >"$REPORT"
step 60 check "The card against the processor" || { cat "$REPORT"; exit 1; }
step 900 tests "Every operation and every network" || true
step 900 digests "Digests of the quick specs" || true
step 600 clients "Ten clients at once" || true
step 600 speed "Seconds of a step" || true
step 300 kernels "Time by kernel" || true
step 600 cifar "ResNet-8 on CIFAR-10" || true
if [ -n "$HOURS" ] && [ -z "$DRY" ]; then
  BUDGET=$((BUDGET + 7200 * HOURS + 60))
  step $((7200 * HOURS + 60)) long "The papers' sizes" || true
fi
echo "report: $REPORT"
exit $FAILED
