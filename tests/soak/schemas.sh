#!/usr/bin/env bash
# 100,000 generated schemas a format, whose records encoders of others wrote (tests/formats/reference.py).
set -eu
cd "$(dirname "$0")/../.."
exec python3 tests/formats/reference.py build/release/tests/formats/decode_cases --schemas 100000 "$@"
