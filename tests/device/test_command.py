#!/usr/bin/env python3
"""./dev gpu from its build to its report, with the host's model of a GPU: every program is called, nothing is measured.

    tests/device/test_command.py PATH_OF_LEAT_CUDA_ON_HOST_SO
"""

import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
sys.path.insert(0, os.path.join(ROOT, "bench", "gpu"))
import report  # noqa: E402
import tap  # noqa: E402

LIBRARY = os.path.abspath(sys.argv[1])
# A commit's tests may run beside a build of another kind; what was compiled there is known here (dev).
ENVIRONMENT = {**os.environ, "CCACHE_NOHASHDIR": "1", "CCACHE_BASEDIR": os.environ.get("CCACHE_BASEDIR", ROOT)}


LIMIT_S = "3600"  # the usual one is for a GPU machine that nobody else uses


def gpu(*arguments):
    done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "gpu", "gpu.py"), "--limit", LIMIT_S, *arguments], cwd=ROOT,
                          check=False, capture_output=True, text=True, env=ENVIRONMENT)
    return done.returncode, done.stdout + done.stderr


def newest_report(output):
    path = re.search(r"^report: (.*)$", output, re.M)
    assert path, output
    with open(os.path.join(ROOT, path.group(1)), encoding="utf-8") as file:
        text = file.read()
    with open(os.path.join(ROOT, path.group(1)[:-3] + ".json"), encoding="utf-8") as file:
        return text, json.load(file)


def test_it_builds_alone():
    status, output = gpu("--on-host", LIBRARY, "--again", "build")
    assert status == 0 and "ok - build: compile" in output, output
    assert "bench_batch" in os.listdir(os.path.join(ROOT, "build", "alone", "device"))


def test_all_parts():
    status, output = gpu("--on-host", LIBRARY, "test", "sanitize", "soak", "bench")
    assert status == 0 and "not ok" not in output, output
    for said in (r"^ok - test: test_batch: \d+ passed", r"^ok - test: 2 kills, seed 1: \d+ passed",
                 r"^ok - sanitize: all: not measured: the host's model",
                 r"^ok - soak: ", r"^ok - bench: kernels, scalar: not measured", r"^ok - bench: kernels, cuda: not measured",
                 r"^ok - bench: tables, find: not measured", r"^ok - bench: training, dlrm: not measured",
                 r"^ok - bench: training, checkpoints-10: not measured", r"^ok - bench: training, checkpoints-100: not measured"):
        assert re.search(said, output, re.M), (said, output)
    text, made = newest_report(output)
    assert made["is_model"] and "nothing here is a measurement" in text
    assert all(row["measured"] == "not measured" for row in made["figures"] + made["kernels"] + made["others"])
    assert {row["kernel"] for row in made["kernels"]} >= {"dedupe", "gather_pool", "update", "widen"}
    assert not re.search(r"\d (ms|GB/s|G \w+/s) \|", text.split("## Limits")[1]), text


def test_every_figure_is_called():
    """Whatever the report has a row for, a program has a line for. Of several batches the tiny run has the first."""
    with open(os.path.join(ROOT, "build", "gpu", "on-host.json"), encoding="utf-8") as file:
        found = json.load(file)["parts"]["bench"]
    called = {line["figure"] for result in found.values() for line in result["lines"] if line["group"] in report.GROUPS}
    wanted = {name for key, *_ in report.FIGURES for name in report.BESIDE.get(key, (key,))}
    assert wanted - called == {f"{model} {batch}" for model in ("deepfm", "dcnv2") for batch in (4096, 65536)}, wanted - called
    assert {"dlrm 65536", "dlrm 65536, fp32", "pause", "pause, dense weights", "checkpoints 10 %", "checkpoints 100 %"} <= called
    figures = {row["figure"]: row for row in newest_report(gpu("--on-host", LIBRARY, "bench")[1])[1]["figures"]}
    for key in ("dlrm 65536, fp32", "bf16 against fp32", "pause", "checkpoints 10 %", "checkpoints 100 %"):
        assert figures[key]["measured"] == "not measured" and figures[key]["reached"] == "-", figures[key]


def test_tiers_have_room():
    """In the proportions of a GPU's sizes: the tiny ones leave room that those do not."""
    done = subprocess.run([os.path.join(ROOT, "build", "alone", "device", "bench_tables"), "--small", "tiers"], check=False,
                          capture_output=True, text=True, env={**ENVIRONMENT, "LEAT_CUDA_LIBRARY": LIBRARY})
    assert done.returncode == 0 and json.loads(done.stdout)["figure"] == "tiers", done.stdout + done.stderr


def test_it_goes_on():
    status, output = gpu("--on-host", LIBRARY, "test", "soak", "bench")
    assert status == 0 and "ok - test" not in output and "ok - bench" not in output, output
    status, output = gpu("--on-host", LIBRARY, "--again", "--limit", "0.1", "bench")
    assert status == 3, (status, output)


def test_words_that_it_does_not_know():
    status, output = gpu("benhc")
    assert status == 2 and "there is no part benhc" in output
    status, output = gpu("--help")
    assert status == 0 and "sanitize" in output and "goes on where this one stopped" in output


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
