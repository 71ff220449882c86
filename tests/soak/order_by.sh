#!/usr/bin/env bash
# Files of records in no order, sorted and read by a job that is killed: KILLS moments of each sort, with each of SEEDS.
set -eu
cd "$(dirname "$0")/../.."
leat=${LEAT:-build/release/leat}
for seed in $(seq 1 "${SEEDS:-3}"); do
    python3 tests/crash/order_by.py --leat "$leat" --seed "$seed" --kills "${KILLS:-200}" --folder build/order_by-soak
done
