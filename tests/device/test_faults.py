#!/usr/bin/env python3
"""Devices that fail while a learner is on them, on the host's model of a GPU, whose run time then answers as CUDA does
(LEAT_CUDA_FAULT, tests/cuda_on_host/testing.h): the run ends with a message and nothing half-written, and the next one,
by hand or under --supervise, ends with the output and the weights of a run that nothing happened to.

    tests/device/test_faults.py PATH_OF_LEAT PATH_OF_LEAT_CUDA_ON_HOST_SO
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_learning import LEAT, LIBRARY, PATIENCE_S, Folder, tap  # noqa: E402

EVENTS = 3000
OUT_OF_MEMORY = 2
# CUDA's numbers, and what the message has to say. A device that fell off the bus answers with cudaErrorUnknown.
FAULTS = {
    "illegal access": (700, "cudaErrorIllegalAddress", "report it"),
    "ECC error": (214, "cudaErrorECCUncorrectable", "ROW_REMAPPER"),
    "lost device": (999, "cudaErrorUnknown", "nvidia-smi"),
}
FAILED = 1


def leat(*arguments, expected=(0,), fault="", wrong=0, failpoints="", to="stderr"):
    environment = {**os.environ, "LEAT_CUDA_LIBRARY": LIBRARY, "LEAT_CUDA_FAULT": fault, "LEAT_CUDA_WRONG": str(wrong),
                   "LEAT_FAILPOINTS": failpoints}
    done = subprocess.run([LEAT, *arguments], check=False, capture_output=True, text=True, env=environment, timeout=PATIENCE_S)
    assert done.returncode in expected, (fault, done.returncode, done.stdout[-800:], done.stderr[-2000:])
    return getattr(done, to)


def changed(place, changes):
    """The job with other text; returns its place."""
    with open(place + ".leat", encoding="utf-8") as file:
        text = file.read()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    with open(place + ".leat", "w", encoding="utf-8") as file:
        file.write(text)
    return place


def weights(place):
    out = place + ".safetensors"
    leat("model", "export", place + ".state", "--out", out)
    with open(out, "rb") as file:
        return file.read()


def learned(folder, place):
    return folder.predictions(place), weights(place)


class Undisturbed:
    """A run that nothing happens to."""

    def __init__(self, path, kind="dcnv2", more=None):
        self.folder, self.kind, self.more = Folder(path, EVENTS), kind, more
        place = self.job("undisturbed")
        leat("run", place + ".leat")
        self.learned = learned(self.folder, place)

    def job(self, name):
        return self.folder.job(name, self.kind, "cuda(0)", self.more)


def check_message(output, name, advice):
    assert "error[E0902]" in output and name in output and advice in output, output
    assert "last checkpoint" in output and "--supervise" in output, output


def test_ends_with_a_message_and_goes_on():
    """At seeded launches: what is there after the fault is whole lines of what comes in the end."""
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as path:
        whole = Undisturbed(path)
        for name, (number, said, advice) in FAULTS.items():
            place = whole.job(f"fault-{name[:3]}")
            output = leat("run", place + ".leat", expected=[FAILED], fault=f"{number}@{chance.randrange(200, 6000)}")
            check_message(output, said, advice)
            if os.path.exists(place + ".jsonl"):
                so_far = whole.folder.predictions(place)
                assert whole.learned[0].startswith(so_far) and so_far[-1:] in (b"", b"\n"), name
            leat("run", place + ".leat")
            assert learned(whole.folder, place) == whole.learned, name


def test_supervised_it_starts_again():
    """The file is the one fault that there is: the life that meets it takes it away."""
    chance = random.Random(8)
    with tempfile.TemporaryDirectory() as path:
        whole = Undisturbed(path)
        for name, (number, said, advice) in FAULTS.items():
            place, once = whole.job(f"again-{name[:3]}"), os.path.join(path, "once")
            with open(once, "w", encoding="utf-8"):
                pass
            output = leat("run", place + ".leat", "--supervise", fault=f"{number}@{chance.randrange(200, 6000)}:{once}")
            check_message(output, said, advice)
            assert output.count("restarting from the newest checkpoint") == 1, output
            assert learned(whole.folder, place) == whole.learned, name


def test_out_of_memory():
    """An allocation that fails ends the start, which says how much was wanted; nothing is there that was not before."""
    with tempfile.TemporaryDirectory() as path:
        whole = Undisturbed(path)
        for nth in (1, 30):
            place = whole.job(f"memory-{nth}")
            output = leat("run", place + ".leat", expected=[FAILED], fault=f"{OUT_OF_MEMORY}@{nth}")
            assert "error[E0901]" in output and "cannot be allocated" in output, output
            leat("run", place + ".leat")
            assert learned(whole.folder, place) == whole.learned, nth


def test_out_of_memory_while_it_runs():
    with tempfile.TemporaryDirectory() as path:
        whole = Undisturbed(path)
        place, output, nth = whole.job("late"), "error[E0901]", 80
        while "error[E0901]" in output:
            nth += 3
            output = leat("run", place + ".leat", expected=[FAILED], fault=f"{OUT_OF_MEMORY}@{nth}")
        assert "error[E0902]" in output and "cannot be allocated" in output and "`device_memory`" in output, output
        leat("run", place + ".leat")
        assert learned(whole.folder, place) == whole.learned


def test_more_memory_than_there_is():
    """Both devices: refused before anything is written, with what it takes, by part."""
    wide = "sparse: [" + ", ".join(f"user + {i}" for i in range(64)) + "]"
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for device, more, changes, parts in (
                ("cpu", "hidden: [8], cross_layers: 16",
                 {"sparse: [user, item, cat, hour]": wide, "dim: 8": "dim: 512", "batch: 32": "batch: 65536"},
                 (r"activations 287\.3 GiB", r"parameters 448\.1 GiB", "make `batch` smaller")),
                ("cuda(0)", "hidden: [8], device_memory: 4095MiB", {}, (r"tables 4\.0 GiB", "`device_memory`"))):
            place = changed(folder.job("large", "dcnv2", device, more), changes)
            output = leat("run", place + ".leat", expected=[FAILED])
            assert "error[E0903]" in output and all(re.search(part, output) for part in parts), output
            assert not os.path.exists(place + ".jsonl")
            told = leat("explain", place + ".leat", to="stdout")
            assert "takes: " + ("of cuda(0)" if device != "cpu" else "on the CPU") in told, told


def test_compared_with_the_cpu():
    """Nothing differs, after a restore either; a product that is a little off is found, at once where it is a prediction's,
    and else in what it does to a row. What learns on the CPU has nothing to be compared with."""
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for kind in ("mmoe", "fm"):
            place = folder.job("agree-" + kind, kind, "cuda(0)", "" if kind == "fm" else None)
            assert "no difference to the CPU in 46 steps" in leat("run", place + ".leat", "--compare", "cpu"), kind
        wide = folder.job("wide", "dcnv2", "cuda(0)", "hidden: [40], cross_layers: 1, precision: bf16")
        output = leat("run", changed(wide, {"dim: 8": "dim: 16"}) + ".leat", "--compare", "cpu")
        assert "no difference to the CPU" in output, output
        place = folder.job("resumed", "dcnv2", "cuda(0)")
        leat("run", place + ".leat", expected=[-9], failpoints="ckpt.published=kill@1")
        output = leat("run", place + ".leat", "--compare", "cpu")
        assert "resuming" in output and "no difference to the CPU" in output, output
        missing, nth = ["step 1, logit 1 of event 1:", ", vector of sparse feature ", ", dense layer "], 3
        while missing:  # checkpoints part calls; nobody sees a gradient behind a relu of 0, or of an id without a row
            place = folder.job(f"differ-{nth}", "mmoe", "cuda(0)")
            output = leat("run", place + ".leat", "--compare", "cpu", expected=(0, FAILED), wrong=nth)
            assert ("error[E0904]" in output) != ("no difference to the CPU" in output) and nth < 230, (missing, output)
            missing = [where for where in missing if where not in output]
            nth = max(nth + 1, 190)
        output = leat("run", folder.job("cpu", "dcnv2", "cpu") + ".leat", "--compare", "cpu", expected=[FAILED])
        assert "error[E0901]" in output and "this learner runs on the CPU" in output, output


def test_bad_events_hurt_nobody_else():
    """Numbers that are not finite and labels out of range: rejected, on both devices, and the others learn alike."""
    changes = {
        "dense: [price, age]": "dense: [price / float(item % 9), log(float(item % 9 - 1)), age]",
        "label: clicked": "known_early: [item], label: clicked + case when item % 9 = 5 then 2 when item % 9 = 6 then -2 else 0 end",
    }
    with tempfile.TemporaryDirectory() as path:
        folder, said = Folder(path), {}
        for device in ("cpu", "cuda(0)"):
            place = changed(folder.job("bad-" + device[:4], "deepfm", device), changes)
            output = leat("run", place + ".leat", to="stdout")
            lines = [json.loads(line) for line in folder.predictions(place).splitlines()]
            bad = [line["item"] % 9 in (0, 1, 5, 6) for line in lines]
            assert [line["prediction"] is None for line in lines] == bad and 0 < sum(bad) < len(bad), device
            assert re.search(rf"rejected +{sum(bad)}\b", output), output
            said[device] = folder.predictions(place)
        assert said["cpu"] == said["cuda(0)"]


def test_a_checkpoint_of_something_else():
    """Other dims, another model: refused, whichever device wrote it, and what is there stays."""
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for first, second in (("cuda(0)", "cuda(0)"), ("cpu", "cuda(0)")):
            place = folder.job("one", "dcnv2", first)
            leat("run", place + ".leat")
            before = learned(folder, place)
            for kind, changes in (("dcnv2", {"dim: 8": "dim: 16"}), ("dlrm", {})):
                changed(folder.job("one", kind, second), changes)
                output = leat("run", place + ".leat", expected=[FAILED])
                assert "error[E0703]" in output, output
            folder.job("one", "dcnv2", first)
            assert learned(folder, place) == before, (first, second)
            for name in os.listdir(path):
                if name.startswith("one"):
                    shutil.rmtree(os.path.join(path, name), ignore_errors=True)
            os.remove(place + ".jsonl")


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
