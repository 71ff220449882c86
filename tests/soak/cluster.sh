#!/usr/bin/env bash
# Workers of one job (`leat run --cluster`) between two topics of Kafka, killed at steps and at random moments, and stopped: KILLS, 300.
set -eu
cd "$(dirname "$0")/../.."
exec python3 tests/kafka/test_cluster.py "${LEAT:-build/release/leat}" --kills "${KILLS:-300}" "$@"
