#!/usr/bin/env bash
# 100,000 generated schemas for each format, with records from encoders of other projects (tests/formats/reference.py).
set -eu
cd "$(dirname "$0")/../.."
exec python3 tests/formats/reference.py build/release/tests/formats/decode_cases --schemas 100000 "$@"
