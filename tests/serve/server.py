"""A `leat serve` process of a test, and a client of its HTTP calls made of http.client alone."""

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time

from patience import PATIENCE_S
from place import LEAT

DATATYPES = {bool: "BOOL", int: "INT64", float: "FP64", str: "BYTES"}


class Server:
    """Ends the process at the end of a `with`, and checks that it ended well."""

    def __init__(self, place, *words, state="state", out="out.jsonl", env=None):
        self.process = subprocess.Popen(
            [LEAT, "serve", place.path("job.leat"), "--listen", "127.0.0.1:0", "--look-every", "20", *words,
             *place.settings(state, out)],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={**os.environ, **(env or {})})
        self.said, self.has_said, self.is_killed = [], threading.Condition(), False
        threading.Thread(target=self.listen, daemon=True).start()
        self.port = int(self.wait_for(r"listening on https?://127\.0\.0\.1:(\d+)").group(1))

    def listen(self):
        for line in self.process.stderr:
            with self.has_said:
                self.said.append(line)
                self.has_said.notify_all()
        with self.has_said:
            self.said.append(None)
            self.has_said.notify_all()

    def wait_for(self, pattern):
        """The first match in what the process has said or will say."""
        deadline = time.monotonic() + PATIENCE_S
        with self.has_said:
            while True:
                for line in self.said:
                    match = line and re.search(pattern, line)
                    if match:
                        return match
                left = deadline - time.monotonic()
                assert left > 0 and None not in self.said, f"no `{pattern}` in {self.said}"
                self.has_said.wait(left)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.is_killed:
            return
        if kind is not None:
            self.process.kill()
        else:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
        assert kind is not None or status == 0, (status, self.said)

    def client(self):
        return Client(self.port)

    def kill(self):
        self.is_killed = True
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def ready(self):
        self.wait_for("answers from checkpoint")
        return self


class Client:
    """One connection."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)

    def ask(self, method, path, body=None, **headers):
        """Status, header fields, body."""
        self.connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def get(self, path):
        status, _, body = self.ask("GET", path)
        return status, json.loads(body) if body[:1] in (b"{", b"[") else body.decode()

    def infer(self, model, inputs, outputs=None, **more):
        """Status and answer. inputs: tensors."""
        request = {"inputs": inputs, **more}
        if outputs is not None:
            request["outputs"] = [{"name": name} for name in outputs]
        status, _, body = self.ask("POST", f"/v2/models/{model}/infer", json.dumps(request))
        return status, json.loads(body, parse_float=str)

    def metrics(self):
        """By name with labels: the figure."""
        status, _, body = self.ask("GET", "/metrics")
        assert status == 200
        pairs = [line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}


def tensor(name, values, **more):
    """Values of one type, or None. A list of lists is one tensor of all elements and one of lengths (tensors())."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        kinds = {float}
    kind = kinds.pop() if kinds else int
    return {"name": name, "shape": [len(values)], "datatype": DATATYPES[kind], "data": values, **more}


def tensors(rows, names):
    """Inputs with the columns `names` of the rows, which are dicts; a missing value is null."""
    inputs = []
    for name in names:
        values = [row.get(name) for row in rows]
        if any(isinstance(value, list) for value in values):
            flat = [element for value in values for element in value or []]
            inputs.append({"name": name, "shape": [len(flat)], "datatype": "INT64", "data": flat})
            inputs.append(tensor(f"{name}.lengths", [len(value or []) for value in values]))
            inputs.append(tensor(f"{name}.valid", [value is not None for value in values]))
        elif name == "price":
            inputs.append({**tensor(name, values), "datatype": "FP64"})
        elif name == "item":
            inputs.append({**tensor(name, values), "datatype": "BYTES"})
        else:
            inputs.append(tensor(name, values))
    return inputs


def rows_of(answer):
    """The answer's rows as dicts of the non-null values; of lists: the whole tensors are left out."""
    columns = {output["name"]: output["data"] for output in answer["outputs"]}
    lists = {name[:-len(".lengths")] for name in columns if name.endswith(".lengths")}
    plain = {name: data for name, data in columns.items() if name not in lists and not name.endswith((".lengths", ".valid"))}
    count = max((len(data) for data in plain.values()), default=0)
    return [{name: data[i] for name, data in plain.items() if data[i] is not None} for i in range(count)]
