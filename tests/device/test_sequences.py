#!/usr/bin/env python3
"""Sequence models with `device: cuda(0)` on the host's model of a GPU: what they learn beside the CPU, kills, checkpoints that
move between the devices, passes, devices that fail, and what is refused before a job starts.

    tests/device/test_sequences.py PATH_OF_LEAT PATH_OF_LEAT_CUDA_ON_HOST_SO
"""

import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT, LIBRARY = (os.path.abspath(path) for path in sys.argv[1:3])
EVENTS, FAILED, APART_MAX = 420, 1, 1e-4

JOB = """
job next {{ workers: 1, checkpoint: {{ every: {every}, dir: "{place}.state" }} }}
source events = file {{ path: "{data}", schema: {{ ts: time(ms), user: int, item: text, site: text, part: bool }}, event_time: ts }}
learner model = {kind} from events {{
  by: user, item: item, with: [site], top: 3, metrics_every: 100, history: 8, batch: 16, layers: 1, learn: part
  embedding: {{ dim: 16 }}, loss: sampled_softmax {{ negatives: 8 }}, {more}
  device: {device}
}}
sink top = file from model.top {{ path: "{place}.jsonl" }}
"""
KINDS = {
    "sasrec": "rehearse: 1, also: masked { share: 0.3 }",
    "hstu": "context: [site], recompute: true",
}


def write_events(path):
    draw = random.Random(5)
    with open(path, "w", encoding="utf-8") as file:
        for number in range(EVENTS):
            row = {"ts": 1_700_000_000_000 + number * 4000, "user": int(draw.paretovariate(0.8)) % 20,
                   "item": f"i{int(draw.paretovariate(0.7)) % 40}", "site": draw.choice(["a", "b", None]), "part": draw.random() < 0.85}
            file.write(json.dumps(row) + "\n")


def leat(*arguments, expected=(0,), failpoints="", fault="", memory="", to=None):
    environment = {**os.environ, "LEAT_CUDA_LIBRARY": LIBRARY, "LEAT_FAILPOINTS": failpoints, "LEAT_CUDA_FAULT": fault,
                   "LEAT_CUDA_MEMORY": memory}
    done = subprocess.run([LEAT, *arguments], check=False, capture_output=True, text=True, env=environment, timeout=PATIENCE_S)
    assert done.returncode in expected, (arguments, done.returncode, done.stdout[-800:], done.stderr[-2000:])
    return done.stdout + done.stderr if to is None else getattr(done, to)


class Folder:
    def __init__(self, path):
        self.path, self.data = path, os.path.join(path, "events.jsonl")
        write_events(self.data)

    def job(self, name, kind, device, more=None, every="10ms"):
        place = os.path.join(self.path, name)
        with open(place + ".leat", "w", encoding="utf-8") as file:
            file.write(JOB.format(place=place, data=self.data, kind=kind, device=device, every=every,
                                  more=KINDS[kind] if more is None else more))
        return place

    def undisturbed(self, name, kind, device, more=None):
        place = self.job(name, kind, device, more, every="1h")
        leat("run", place + ".leat")
        return Learned(place)


class Learned:
    """What a run has told, and its weights."""

    def __init__(self, place):
        with open(place + ".jsonl", "rb") as file:
            self.rows = file.read()
        leat("model", "export", place + ".state", "--out", place + ".safetensors")
        with open(place + ".safetensors", "rb") as file:
            self.weights = file.read()

    def tensors(self):
        (length,) = struct.unpack_from("<Q", self.weights)
        header = json.loads(self.weights[8:8 + length])
        found = {}
        for name, entry in header.items():
            if entry.get("dtype") == "F32":
                begin, end = (8 + length + at for at in entry["data_offsets"])
                found[name] = struct.unpack_from(f"<{(end - begin) // 4}f", self.weights, begin)
        return found

    def lists(self):
        return [json.loads(line) for line in self.rows.splitlines()]

    def check_same(self, other, what):
        assert self.rows == other.rows and self.weights == other.weights, what

    def check_near(self, other, what):
        ours, theirs = self.tensors(), other.tensors()
        assert set(ours) == set(theirs) and len(ours) > 5, what
        for name, values in ours.items():
            apart = max((abs(a - b) for a, b in zip(values, theirs[name])), default=0.0)
            assert len(values) == len(theirs[name]) and apart <= APART_MAX, (what, name, apart)
        lists, others = self.lists(), other.lists()
        assert len(lists) == len(others) >= EVENTS // 10, what
        for one, two in zip(lists, others):
            scores = [[item["score"] for item in row["top"] or []] for row in (one, two)]
            assert len(scores[0]) == len(scores[1]), (what, one, two)
            assert all(abs(a - b) <= APART_MAX for a, b in zip(*scores)), (what, one, two)


def test_near_the_cpu():
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for kind, more in (*KINDS.items(), ("sasrec", "passes: 2")):
            cpu, gpu = (folder.undisturbed(f"{kind}-{device[:4]}-{more[:6]}", kind, device, more) for device in ("cpu", "cuda(0)"))
            gpu.check_near(cpu, f"{kind}, {more}")
        place = folder.job("says", "hstu", "cuda(0)")
        report = json.loads(leat("run", place + ".leat", "--json", to="stdout"))
        figures = next(node["report"]["run"] for node in report["nodes"] if node["name"] == "model")
        assert 0.0 < figures["device_busy"] <= 1.0 and figures["steps"] > 15, figures


def test_killed_and_moved():
    """Killed after a checkpoint, a run goes on with equal bits on the same device, and nearly so on the other."""
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for kind, more in (("hstu", None), ("sasrec", "passes: 2")):
            whole = folder.undisturbed(f"whole-{kind}", kind, "cuda(0)", more)
            for devices in (("cuda(0)", "cuda(0)"), ("cuda(0)", "cpu", "cuda(0)")):
                name, kills = f"{kind}-{len(devices)}", 0
                for number, device in enumerate(devices):
                    place = folder.job(name, kind, device, more)
                    last = number == len(devices) - 1
                    said = leat("run", place + ".leat", expected=(0,) if last else (-9, 0), failpoints="" if last else "ckpt.published=kill@1")
                    kills += "finished" not in said
                assert kills > 0, name
                if len(devices) == 2:
                    Learned(place).check_same(whole, name)
                else:
                    Learned(place).check_near(whole, name)


def test_faults():
    """A device that fails ends the run with a message; the next run ends as if nothing had happened."""
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        whole = folder.undisturbed("whole", "hstu", "cuda(0)")
        for number, name in ((700, "cudaErrorIllegalAddress"), (214, "cudaErrorECCUncorrectable")):
            place = folder.job(f"fault-{number}", "hstu", "cuda(0)")
            said = leat("run", place + ".leat", expected=(FAILED,), fault=f"{number}@{chance.randrange(200, 1500)}")
            assert "error[E0902]" in said and name in said and "--supervise" in said, said
            if os.path.exists(place + ".jsonl"):
                with open(place + ".jsonl", "rb") as file:
                    assert whole.rows.startswith(file.read()), name
            leat("run", place + ".leat")
            Learned(place).check_same(whole, name)
        place = folder.job("memory", "hstu", "cuda(0)")
        said = leat("run", place + ".leat", expected=(FAILED,), fault="2@1")
        assert "error[E0901]" in said and "cannot be allocated" in said, said


def test_refused_before_it_starts():
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for device, arguments, memory, code, said in (
                ("cuda(9)", (), "", "E0901", "Device 9 was requested"), ("tpu", (), "", "E0901", "`device` must be `auto`, `cpu` or a GPU"),
                ("cuda(0)", ("--compare", "cpu"), "", "E0901", "does not know sequence models"),
                ("cuda(0)", (), str(4 << 20), "E0903", "of its GPU than the 4.0 MiB that are free")):
            place = folder.job("bad", "hstu", device)
            output = leat("run", place + ".leat", *arguments, expected=(FAILED, 3), memory=memory)
            assert f"error[{code}]" in output and said in output, output
            assert not os.path.exists(place + ".jsonl"), "nothing starts"
        told = leat("explain", folder.job("told", "sasrec", "cuda(0)") + ".leat", to="stdout")
        assert re.search(r"takes: of cuda\(0\), .*activations .*on the host", " ".join(told.split())), told


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
