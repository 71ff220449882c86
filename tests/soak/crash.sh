#!/usr/bin/env bash
# A thousand kills, at every failpoint and at random moments.
set -eu
cd "$(dirname "$0")/../.."
exec python3 tests/crash/crash.py --leat "${LEAT:-build/release/leat}" --kills 1000 --events 400000 --folder build/crash-soak "$@"
