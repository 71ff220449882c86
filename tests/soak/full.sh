#!/usr/bin/env bash
# A disk that is full at every write: small file systems of STEPS sizes for each job. SEEDS: how many times.
set -eu
cd "$(dirname "$0")/../.."
leat=${LEAT:-build/release/leat}
for seed in $(seq 1 "${SEEDS:-3}"); do
    python3 tests/crash/full.py --leat "$leat" --seed "$seed" --steps "${STEPS:-40}" --folder build/full-soak
done
