#!/usr/bin/env python3
"""Learners with `device: cuda(0)` on the host's model of a GPU: the CPU's predictions, bit for bit, through kills and
checkpoints, and from one device to the other; what dense layers in sixteen bits cost.

    tests/device/test_learning.py PATH_OF_LEAT PATH_OF_LEAT_CUDA_ON_HOST_SO
"""

import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT, LIBRARY = (os.path.abspath(path) for path in sys.argv[1:3])
EVENTS = 1500

JOB = """
job learning {{ workers: 1, checkpoint: {{ every: 10ms, dir: "{state}" }} }}
source events = file {{
  path: "{data}"
  schema: {{ ts: time(ms), user: int, item: int, cat: text, hour: int, price: float, age: float, clicked: int! }}
  event_time: ts, max_delay: 5s
}}
learner model = {kind} from events {{
  {labels}: {label}, sparse: [user, item, cat, hour], dense: [price, age]
  embedding: {{ dim: 8, admit_after: 2, expire_after: 1h }}, {more}
  batch: 32, device: {device}
}}
sink predictions = file from model.predictions {{ path: "{out}" }}
"""

KINDS = {
    "deepfm": "hidden: [8]",
    "dcnv2": "hidden: [8], cross_layers: 1",
    "dlrm": "hidden: [8], bottom: [4]",
    "mmoe": "hidden: [8], towers: [4], experts: 2",
    "afm": "attention: 8",
}


# Beside a learner's own options: what its dense layers multiply, and how a step goes through them.
PRECISIONS = ("precision: bf16", "precision: fp16", "precision: auto, precision_trial: 700", "accumulate: 2",
              "precision: fp16, accumulate: 4, clip_norm: 0.5")
COST_EVENTS, COST_MAX = 20_000, 1e-3  # share of the logloss


class Folder:
    def __init__(self, path, events=EVENTS):
        self.path = path
        self.data = os.path.join(path, "ctr", "ctr.jsonl")
        subprocess.run([LEAT, "generate", "ctr", "--labelled", "--events", str(events), "--out", os.path.dirname(self.data)],
                       check=True, capture_output=True)

    def job(self, name, kind, device, more=None, **values):
        place = os.path.join(self.path, name)
        several = kind == "mmoe"
        values = {"state": place + ".state", "data": self.data, "out": place + ".jsonl", **values}
        text = JOB.format(kind=kind, device=device, more=KINDS[kind] if more is None else more,
                          labels="labels" if several else "label", label="[clicked]" if several else "clicked", **values)
        with open(place + ".leat", "w", encoding="utf-8") as file:
            file.write(text)
        return place

    @staticmethod
    def run(place, expected=(0,), failpoints="", options=()):
        environment = {**os.environ, "LEAT_CUDA_LIBRARY": LIBRARY, "LEAT_FAILPOINTS": failpoints}
        done = subprocess.run([LEAT, "run", place + ".leat", *options], check=False, capture_output=True, text=True, env=environment,
                              timeout=PATIENCE_S)
        assert done.returncode in expected, (done.returncode, done.stdout[-800:], done.stderr[-2000:])
        return done.stdout + done.stderr

    @staticmethod
    def predictions(place):
        with open(place + ".jsonl", "rb") as file:
            return file.read()


def test_same_as_the_cpu():
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for kind in KINDS:
            places = [folder.job(f"{kind}-{device[:4]}", kind, device) for device in ("cpu", "cuda(0)")]
            said = [folder.run(place, options=["--json"]) for place in places]
            assert 0.0 < float(re.search(r"device_busy\D+([\d.]+)", said[1])[1]) <= 1.0, said[1]
            ours, theirs = (folder.predictions(place) for place in places)
            assert len(ours.splitlines()) == EVENTS, kind
            assert ours == theirs, f"{kind}: predictions of the two devices differ"


def test_precisions():
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        plain = folder.job("plain", "deepfm", "cpu")
        folder.run(plain)
        seen = {folder.predictions(plain)}
        for i, more in enumerate(PRECISIONS):
            kind = ("deepfm", "dlrm")[i % 2]
            places = [folder.job(f"{i}-{device[:4]}", kind, device, f"{KINDS[kind]}, {more}") for device in ("cpu", "cuda(0)")]
            for place in places:
                folder.run(place)
            ours, theirs = (folder.predictions(place) for place in places)
            assert ours == theirs, f"{kind}, {more}: predictions of the two devices differ"
            seen.add(ours)
        assert len(seen) == len(PRECISIONS), "each is something else, but for `auto`, which keeps bf16"


def test_cost_of_sixteen_bits():
    """Loglosses of bf16 and fp16 are within 0.1 % of fp32's; `auto` says what it has seen of that, and keeps bf16."""
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path, COST_EVENTS)
        reports = {}
        for precision in ("fp32", "bf16", "fp16", "auto"):
            place = folder.job(precision, "deepfm", "cpu", f"hidden: [32, 16], precision_trial: 10000, precision: {precision}")
            nodes = json.loads(folder.run(place, options=("--json",)))["nodes"]
            reports[precision] = next(node["report"]["run"] for node in nodes if node["name"] == "model")
        losses = {precision: report["logloss"] for precision, report in reports.items()}
        for precision in ("bf16", "fp16"):
            assert 0 < abs(losses[precision] / losses["fp32"] - 1) <= COST_MAX, losses
        tried = reports["auto"]
        assert tried["precision"] == "bf16" and losses["auto"] == losses["bf16"], tried
        assert 10_000 <= tried["trial_examples"] < 10_000 + 32, tried
        assert tried["trial_loss_bf16"] <= tried["trial_loss_fp32"] * (1 + COST_MAX), tried


def test_killed_and_moved():
    """A run is killed after a checkpoint, goes on on the other device, is killed again (unless it had come to its end), and
    ends on the first."""
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path, 4 * EVENTS)
        for i, more in enumerate(("", ", precision: fp16", ", precision: auto, precision_trial: 3000, accumulate: 2")):
            undisturbed = folder.job(f"whole-{i}", "deepfm", "cpu", KINDS["deepfm"] + more)
            folder.run(undisturbed)
            for first, second in (("cuda(0)", "cpu"), ("cpu", "cuda(0)"))[:1 if more else 2]:
                name = f"moved-{i}-{first[:4]}"
                for device, failpoints in ((first, "ckpt.published=kill@1"), (second, "ckpt.published=kill@1"), (first, "")):
                    place = folder.job(name, "deepfm", device, KINDS["deepfm"] + more)
                    folder.run(place, expected=[-9, 0] if failpoints else [0], failpoints=failpoints)
                assert folder.predictions(place) == folder.predictions(undisturbed), f"{first}, {second}, {first}: {more}"


def test_killed_while_it_writes():
    """Staging holds two pieces: the learner is held while the rest of a checkpoint is written, and killed in the midst."""
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        undisturbed = folder.job("whole", "deepfm", "cpu")
        folder.run(undisturbed)
        small = "hidden: [8], device_memory: 22MiB"
        for kill in (1, 2, 4):
            folder.run(folder.job("written", "deepfm", "cuda(0)", small), expected=[-9, 0], failpoints=f"ckpt.write=kill@{kill}")
        said = folder.run(folder.job("written", "deepfm", "cuda(0)", small), options=["--json"])
        assert int(re.search(r"device_held\D+(\d+)", said)[1]) > 0, said
        assert folder.predictions(os.path.join(path, "written")) == folder.predictions(undisturbed)


def test_refused_before_it_starts():
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for device, more, said in (
                ("cuda(9)", None, "Device 9 was requested"), ("tpu", None, "`device` must be `auto`, `cpu` or a GPU"),
                ("cuda(-1)", None, "`device` must be `auto`"), ("cuda(0)", "hidden: [8], device_memory: 1KiB", "MiB of device memory (")):
            output = folder.run(folder.job("bad", "deepfm", device, more), expected=range(256))
            assert "error[E0901]" in output and said in output, output
            assert not os.path.exists(os.path.join(path, "bad.jsonl")), "nothing starts"


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
