"""A folder with the streams of stream.py and a job, for the tests of `leat score` and `leat serve`."""

import datetime
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import stream  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
GOOD, FAILED, USAGE, BAD_JOB, INTERRUPTED = 0, 1, 2, 3, 130
ROWS = 1500


def time_text(ms):
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Place:
    """A folder with the streams and a job."""

    def __init__(self, job, rows=ROWS):
        self.folder = tempfile.TemporaryDirectory()
        self.events = stream.write(self.folder.name, rows, 3)
        self.write("job.leat", job.replace("TABLE", self.path("table.csv")))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def settings(self, state="state", out="out.jsonl"):
        settings = [f"data={self.folder.name}", f"out={self.path(out)}", f"state={self.path(state)}"]
        return [word for setting in settings for word in ("--set", setting)]

    def leat(self, command, *words, state="state", out="out.jsonl", text=None):
        sets = self.settings(state, out)
        return subprocess.run([LEAT, command, self.path("job.leat"), *words, *sets], capture_output=True, text=True,
                              input=text, timeout=PATIENCE_S, check=False, env={**os.environ, "LEAT_TEST_CUT": "1"})

    def run(self, *words, **names):
        result = self.leat("run", "--quiet", *words, **names)
        assert result.returncode == GOOD, result.stderr[-900:]

    def rows(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return [json.loads(line, parse_float=str, parse_int=str) for line in file]

    def score(self, requests, *words, **names):
        """The answers to requests, each a dict or the text of a line."""
        lines = [one if isinstance(one, str) else json.dumps(one) for one in requests]
        path = self.write("requests.jsonl", "".join(line + "\n" for line in lines))
        result = self.leat("score", path, *words, **names)
        assert result.returncode == GOOD, result.stderr[-900:]
        return [json.loads(line, parse_float=str, parse_int=str) for line in result.stdout.splitlines()]


def first_from(events, until_ms):
    """Index of the first event that a run until that time has not taken: by the newest time so far."""
    newest = 0
    for number, event in enumerate(events):
        newest = max(newest, event["ts"])
        if newest >= until_ms:
            return number
    raise AssertionError("no event is left")
