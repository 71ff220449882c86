#!/usr/bin/env python3
"""What a request is answered equals what training makes of the row when it comes next, bit for bit; and asking changes
nothing. Each of some 2,000 rows is asked before it is run (ask.c). So is a follower, which was restored from a checkpoint in
the middle of the run and has only what the run publishes since: it gives the same answers.

    tests/serve/test_parity.py PATH_OF_LEAT PATH_OF_ASK [PATH_OF_LEAT_CUDA_ON_HOST_SO]
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import jobs  # noqa: E402
import stream  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT, ASK = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
LIBRARY = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else None
ROWS, ROWS_OF_LEARNERS, ROWS_ON_GPU = 2600, 2400, 200
BY_ROW = {**os.environ, "LEAT_TEST_CUT": "1"}


def run(command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=BY_ROW)
    assert result.returncode == 0, f"{command[:2]}: {result.stderr[-900:]}"


def lines(path):
    """Each line as a dict whose numbers are texts: equal texts are equal bits."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line, parse_float=str, parse_int=str) for line in file]


class Asked:
    """A run of a job whose rows were asked before they came: answers, held answers, and what was trained."""

    def __init__(self, folder, job, out="", **env):
        settings = {"data": folder, "out": f"{folder}/out", "state": f"{folder}/state"}
        self.run([ASK, job, f"{folder}/answers", "--follow", *[f"{name}={value}" for name, value in settings.items()]], env)
        check_followed(f"{folder}/answers")
        self.trained = lines(f"{folder}/out{out}")
        self.answers, self.held = lines(f"{folder}/answers"), lines(f"{folder}/answers.held")
        settings.update(out=f"{folder}/alone", state=f"{folder}/alone_state")
        self.run([LEAT, "run", job, "--quiet", "--workers", "1",
                  *[word for name, value in settings.items() for word in ("--set", f"{name}={value}")]], env)
        assert self.trained == lines(f"{folder}/alone{out}"), "asking changed what was learned"

    @staticmethod
    def run(command, env):
        for path in [word.split("=")[1] for word in command if word.split("=")[0] == "out"]:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                                env={**BY_ROW, **env})
        assert result.returncode == 0, f"{command[:2]}: {result.stderr[-900:]}"


def check_followed(path):
    """The follower's answers, from where it has joined on, are those of the run itself."""
    with open(path, encoding="utf-8") as file, open(path + ".followed", encoding="utf-8") as followed:
        answers, others = file.readlines(), followed.readlines()
    assert len(answers) == len(others), (len(answers), len(others))
    joined = [number for number, other in enumerate(others) if other != "\n"]
    assert len(joined) >= len(answers) // 2 and joined == list(range(joined[0], len(answers))), (len(answers), len(joined))
    for number in joined:
        assert answers[number] == others[number], f"row {number}: run {answers[number]}follower {others[number]}"


def written(folder, job, rows, seed):
    stream.write(folder, rows, seed)
    path = os.path.join(folder, "job.leat")
    with open(path, "w", encoding="ascii") as file:
        file.write(job.replace("TABLE", os.path.join(folder, "table.csv")))
    return path


def equal(answer, row, number, without=()):
    for name, value in answer.items():
        assert name in without or row[name] == value, (
            f"row {number}, `{name}`: answered {value}, trained {row[name]}: {row}")


def check(job, rows, seed, answered_least, without=(), is_learned=lambda row: True, **env):
    """Answers come in the order of rows. Duplicates, which training leaves out, are answered like others."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Asked(folder, written(folder, job, rows, seed), **env)
    assert len(asked.answers) == rows, f"{len(asked.answers)} answers"
    found = [answer for answer in asked.answers if "_status" not in answer]
    assert len(found) >= answered_least, f"only {len(found)} answered"
    at = 0
    for number, row in enumerate(asked.trained):
        while at < len(found) and found[at]["id"] != row["id"]:
            at += 1  # sampled out, or a duplicate
        assert at < len(found), f"row {number} was not answered: {row}"
        if is_learned(row):
            equal(found[at], row, number, without)
        at += 1


def check_labelled(asked, key, least):
    """At a row's arrival its features equal those of the example; when the label comes, the score does, too."""
    def name_of(row):
        return row[key], row["ts"]
    first, trained = {}, {name_of(row): row for row in asked.trained}
    scores = [name for name in asked.held[0] if name.startswith("prediction") or name == "rate"]
    for answer in asked.answers:
        if "_status" not in answer:
            first.setdefault(name_of(answer), answer)
    for number, row in enumerate(asked.trained):
        equal(first[name_of(row)], row, number, without=scores)
    assert scores and len(asked.trained) >= least and len(asked.held) >= least // 4, (len(asked.trained), len(asked.held))
    for number, answer in enumerate(asked.held):
        equal(answer, trained[name_of(answer)], number)


def test_features():
    check(jobs.FEATURES, ROWS, 1, 1700)


def test_labelled():
    with tempfile.TemporaryDirectory() as folder:
        check_labelled(Asked(folder, written(folder, jobs.LABELLED, ROWS, 4)), "id", 2000)


def test_ctr():
    """jobs/ctr.leat, as it is."""
    with tempfile.TemporaryDirectory() as folder:
        Asked.run([LEAT, "generate", "ctr", "--events", "12000", "--out", folder], {})
        job = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "jobs", "ctr.leat")
        check_labelled(Asked(folder, job, "/scored.jsonl"), "imp_id", 8000)


def test_kernels():
    """Each variant of the kernels that this machine has answers what the same variant trains."""
    for variant in ("scalar", "avx2", "avx512"):
        runs = subprocess.run([LEAT, "--version"], check=False, capture_output=True, env={**os.environ, "LEAT_KERNELS": variant})
        if runs.returncode == 0:
            check(jobs.learner("deepfm-batch"), 600, 5, 400, LEAT_KERNELS=variant)


def test_next_items_on_a_gpu():
    """On the host's model of a GPU, whose outputs have a CPU's bits: the run answers there, the follower on the CPU by its cuts."""
    if LIBRARY is None:
        return "no model of a GPU was built"
    for name in ("sasrec", "hstu"):
        job = jobs.next_item(name).replace("top: 7,", "top: 7, device: cuda(0),")
        check(job, ROWS_ON_GPU, 2, ROWS_ON_GPU // 2, without=("rank",), is_learned=lambda row: row["item"] is not None,
              LEAT_CUDA_LIBRARY=LIBRARY)
    return None


def add_learners():
    def test_of(name):
        return lambda: check(jobs.learner(name), ROWS_OF_LEARNERS, 2, 2000)
    for name in jobs.LEARNERS:
        globals()["test_" + name.replace("-", "_")] = test_of(name)


def add_next_items():
    """Answers have no rank. A row without an item is answered like others, and rejected when it comes to be learned."""
    def test_of(name):
        return lambda: check(jobs.next_item(name), ROWS_OF_LEARNERS, 2, 2000, without=("rank",),
                             is_learned=lambda row: row["item"] is not None)
    for name in jobs.NEXT_ITEMS:
        globals()["test_" + name.replace("-", "_")] = test_of(name)


add_learners()
add_next_items()

if __name__ == "__main__":
    sys.exit(tap.run(globals()))
