#!/usr/bin/env python3
"""Takes the pictures of the page that the README shows, docs/page-*.png, of a real run of jobs/ctr.leat in Chromium.

    docs/page_pictures.py LEAT [SECONDS]

Some records are malformed, and a sink is slow, so that the run lasts SECONDS (60) and more. Needs Node, `npm ci` in page/, and
chromium-headless-shell.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
JOB = os.path.join(HERE, "..", "jobs", "ctr.leat")
PAGE = os.path.join(HERE, "..", "page")
SERVE = "serve ctr { from: model.predictions"
EVENTS, AT_MS, WAIT_S = 400_000, 1_700_013_600_000, 60


def port_in(path, pattern):
    """The port that a log names, once it does."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with open(path, encoding="utf-8") as file:
            found = re.search(pattern, file.read())
        if found:
            return int(found[1])
        if time.monotonic() > deadline:
            sys.exit(f"{path} does not say a port")
        time.sleep(0.1)


def ask_scores(port, seconds):
    """Requests for that long, so that the view of serving has something to show."""
    tensor = [{"name": name, "shape": [1], "datatype": kind, "data": [value]}
              for name, kind, value in (("ts", "INT64", AT_MS), ("user", "INT64", 7), ("item", "INT64", 10196), ("pos", "FP64", 0.2))]
    body = json.dumps({"inputs": tensor, "outputs": [{"name": "prediction"}]}).encode()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/ctr/infer", body).read()
        except urllib.error.HTTPError as error:
            if error.code != 503:  # there is no checkpoint yet
                raise
            time.sleep(0.5)
        time.sleep(0.02)


def main():
    leat = os.path.abspath(sys.argv[1])
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 60
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([leat, "generate", "ctr", "--events", str(EVENTS), "--out", "data/ctr", "--duplicates", "0.01", "--malformed",
                        "0.001"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with open(JOB, encoding="utf-8") as file:
            job = file.read()
        assert job.count(SERVE) == 1
        with open(os.path.join(folder, "job.leat"), "w", encoding="utf-8") as file:
            file.write(job.replace(SERVE, 'serve ctr { listen: "127.0.0.1:0", from: model.predictions'))
        log = os.path.join(folder, "log")
        with open(log, "wb") as file:
            run = subprocess.Popen([leat, "run", "job.leat", "--ui", "127.0.0.1:0", "--serve", "--quiet"], cwd=folder, stderr=file,
                                   stdout=subprocess.DEVNULL, env={**os.environ, "LEAT_FAILPOINTS": "sink.write=sleep:350"})
        try:
            port = port_in(log, r"the run's page at http://127\.0\.0\.1:(\d+)/")
            ask_scores(port_in(os.path.join(folder, "state", "ctr", "serve.log"), r"listening on http://127\.0\.0\.1:(\d+)"), seconds)
            subprocess.run(["node", "dev/pictures.mjs", f"http://127.0.0.1:{port}/", HERE], cwd=PAGE, check=True)
        finally:
            run.terminate()
            run.wait()


if __name__ == "__main__":
    main()
