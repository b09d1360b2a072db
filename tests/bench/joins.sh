#!/usr/bin/env bash
# Compares what a ledger, a page and a study say of random histories of runs with what observers can
# tell.
#
#     tests/bench/joins.sh [HISTORIES] [SEED]
#
# The suite does so with 200 histories of seed 1. A failure prints its history. The suite's own build
# takes about 25 seconds of a processor for 500 histories, so a release build does not pay.
set -euo pipefail
cd "$(dirname "$0")/../.."
export FL_HISTORIES=${1:-20000} FL_SEED=${2:-2}
cargo test --locked -p fl-privacy --test ledger -- joins --nocapture
