#!/usr/bin/env python3
"""Requests made from the OpenAPI documents, good ones and bad ones (schemathesis): none is answered 5xx but as documented, or
by what the document does not know. Prints TAP.

    tests/metrics/test_openapi.py PATH_OF_LEAT [--seconds N] [--document URL]

--seconds: for each document (10). --document: of a server that is there already, and of no other.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import live  # noqa: E402
import packages  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

PARSER = argparse.ArgumentParser()
PARSER.add_argument("leat")
PARSER.add_argument("--seconds", type=int, default=10)
PARSER.add_argument("--document")
ARGUMENTS = PARSER.parse_args()
CHECKS = ("status_code_conformance", "content_type_conformance", "response_headers_conformance",
          "response_schema_conformance")
CONTROL_DOCUMENT = "/api/v1/openapi.json"
# Methods that HTTP knows; any other one is answered 501, as RFC 9110 (9.1) wants it. 503 is good where the document has it,
# which another check sees to.
CONFIG = """[phases.coverage]
unexpected-methods = ["get", "put", "post", "delete", "options", "patch", "trace"]
[phases.examples]
enabled = false
[phases.stateful]
enabled = false
[checks]
enabled = false
[checks.not_a_server_error]
enabled = true
expected-statuses = ["2xx", "3xx", "4xx", 503]
""" + "".join(f"[checks.{check}]\nenabled = true\n" for check in CHECKS)
RECORDS, CASES_MIN = 400_000, 10


def ask_all(url, *words):
    """Lets schemathesis ask; fails with what it found. On a machine that is busy it gets more time, for CASES_MIN cases."""
    packages.use()
    seconds = ARGUMENTS.seconds
    while ask(url, seconds, *words) < CASES_MIN:
        seconds *= 3
        assert seconds < PATIENCE_S, f"fewer than {CASES_MIN} cases in {seconds / 3:.0f} s"


def ask(url, seconds, *words):
    """Returns how many cases there were."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", url, "--max-time", str(seconds), "--warnings", "off",
               "--request-timeout", str(PATIENCE_S), *words]
    with tempfile.TemporaryDirectory() as folder:  # it reads and leaves files where it is started
        with open(os.path.join(folder, "schemathesis.toml"), "w", encoding="ascii") as file:
            file.write(CONFIG)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                              timeout=PATIENCE_S + 10 * seconds, env={**os.environ, "NO_COLOR": "1"})
    cases = re.search(r"(\d+) generated, .*", done.stdout)
    found = done.stdout[max(done.stdout.find("= FAILURES ="), 0):]
    assert done.returncode == 0, f"{done.returncode}: {' '.join(found.split())} {done.stderr[-1000:]}"
    print(f"# {url}: {cases[0] if cases else 'no time for a case'}")
    return int(cases[1]) if cases else 0


def test_serve():
    if why := packages.missing():
        return why
    with live.place(records=20_000) as folder:
        subprocess.run([live.LEAT, "run", "job.leat", "--quiet"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with live.serve(folder) as server:
            server.wait_until_ready("/v2/health/ready")
            ask_all(f"http://127.0.0.1:{server.port}/openapi.json")
            assert server.is_alive(), server.said[-5:]
    return None


def test_control():
    """With the token that acts; all but the stop, which has tests of its own."""
    if why := packages.missing():
        return why
    pause_ms = max(1000, 12 * ARGUMENTS.seconds)  # so that the run is there all the time
    with live.place(records=RECORDS) as folder, live.run(folder, pause_ms) as run:
        run.wait_until_ready("/readyz")
        if run.ask(CONTROL_DOCUMENT)[0] == 404:
            return "the control API has no document"
        with open(os.path.join(folder, "state", "CONTROL"), encoding="ascii") as file:
            token = file.read().split()[4]
        ask_all(f"http://127.0.0.1:{run.port}{CONTROL_DOCUMENT}", "--header", f"Authorization: Bearer {token}",
                "--exclude-path", "/api/v1/stop")
        assert run.is_alive(), run.said[-5:]
    return None


def ask_document():
    if why := packages.missing():
        return why
    ask_all(ARGUMENTS.document)
    return None


if __name__ == "__main__":
    sys.exit(tap.run({"test_document": ask_document} if ARGUMENTS.document else globals()))
