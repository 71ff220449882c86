#!/usr/bin/env bash
# Processes that sleep while their directory is taken over, and then wake: each failpoint with each of three moments to
# wake at, and random moments, without Kafka and with it. SEEDS: how many times.
set -eu
cd "$(dirname "$0")/../.."
leat=${LEAT:-build/release/leat}
for seed in $(seq 1 "${SEEDS:-3}"); do
    python3 tests/crash/takeover.py --leat "$leat" --seed "$seed" --folder build/takeover-soak
    python3 tests/kafka/test_takeover.py "$leat" --seed "$seed" --moments 60
done
