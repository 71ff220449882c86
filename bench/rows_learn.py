"""Rows of the table: learning, one progressive pass over ctr_1m.jsonl, predictions written.

The input is made by ../shared/peers/learners/gen.py (needs numpy); where it is missing the rows are skipped. The
peers' constants are those of RESULTS.md beside it, measured on another machine (2 cores of an AMD EPYC, Zen 4);
Vowpal Wabbit is measured here too where its wheel can be installed."""

import json
import os
import shutil
import subprocess

from harness import NUMPY_PYTHON, ROOT, Broken, Figure, Peer, Skip, logloss, median, rate, same, say, wall_rate
from rows_engine import wall

EVENTS = 1_000_000
GENERATOR = os.path.join(ROOT, "..", "shared", "peers", "learners", "gen.py")
RESULTS = "RESULTS.md, other machine"
VW_VERSION = "vowpalwabbit==9.11.9"
VW_COMMON = ["--loss_function", "logistic", "--link", "logistic", "--quiet"]
VW_LINEAR = ["-b", "22", "--ftrl", "--ftrl_alpha", "0.1", "--ftrl_beta", "1"]
VW_PAIRS = ["DE", "DF", "FG", "DL", "DH", "CE", "CH", "BF", "DJ"]
VW_CROSSES = ["-b", "24", *VW_LINEAR[2:], *[word for pair in VW_PAIRS for word in ("-q", pair)]]


def ctr_folder(bench):
    """ctr_1m.jsonl, .vw of seed 7."""
    if not os.path.exists(GENERATOR):
        raise Skip("../shared/peers/learners/gen.py is not there")
    if subprocess.run([NUMPY_PYTHON, "-c", "import numpy"], capture_output=True, check=False).returncode != 0:
        raise Skip(f"{NUMPY_PYTHON} has no numpy: apt-get install python3-numpy")
    return bench.made("ctr-seed7", lambda path: bench.run(
        [NUMPY_PYTHON, GENERATOR, "--events", str(EVENTS), "--seed", "7", "--vw", "--out", path]))


def columns_of(bench):
    """The same events as decoded columns, for programs that learn without reading."""
    def make(path):
        data = path + ".npz"
        bench.run([NUMPY_PYTHON, GENERATOR, "--events", str(EVENTS), "--seed", "7", "--npz", "--no-json", "--out",
                   data])
        bench.run([NUMPY_PYTHON, os.path.join(ROOT, "bench", "kernels", "npz_to_columns.py"),
                   os.path.join(data, "ctr_1m.npz"), path])
        shutil.rmtree(data)
    return bench.made("ctr-seed7-two.columns", make)


def limit_of_linear(bench):
    """M events/s of a bare loop over decoded columns: exact keys, hashed ones."""
    run = bench.run([bench.program("limits", "limit_linear"), columns_of(bench)])
    found = json.loads(run.output)
    return found["exact_per_s"] / 1e6, found["hashed_per_s"] / 1e6


def labels_of(bench, data):
    path = bench.made("ctr-seed7-labels.txt", lambda path: write_labels(data, path))
    with open(path, encoding="ascii") as file:
        return [line == "1\n" for line in file]


def write_labels(data, path):
    with open(data, encoding="ascii") as lines, open(path, "w", encoding="ascii") as out:
        out.writelines(f"{json.loads(line)['clicked']}\n" for line in lines)


def vw_python(bench):
    """A Python with Vowpal Wabbit, in an environment of its own; None where it cannot be had."""
    folder = bench.path("vw")
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(os.path.join(folder, "tried")):
        say(f"installing {VW_VERSION} into build/bench/vw")
        for command in (["python3", "-m", "venv", folder],
                        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", VW_VERSION]):
            try:
                done = subprocess.run(command, capture_output=True, timeout=300, check=False).returncode == 0
            except (OSError, subprocess.TimeoutExpired):
                done = False
            if not done:
                break
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "tried"), "w", encoding="ascii") as file:
            file.write("yes\n" if done else "no\n")
    with open(os.path.join(folder, "tried"), encoding="ascii") as file:
        return python if file.read() == "yes\n" else None


class Learning:
    """One row: a job, its peers, what it must reach."""

    def __init__(self, job, target, loss, peers, workers=1, source="jsonl", vw=None, has_limit=False):
        self.job, self.target, self.loss, self.peers = job, target, loss, peers
        self.workers, self.source, self.vw, self.has_limit = workers, source, vw, has_limit

    def input(self, bench, data):
        if self.source == "jsonl":
            return data
        return bench.made("ctr-seed7.batches", lambda path: bench.run_job(
            "record.leat", data=data, out=path + ".batches") and os.rename(path + ".batches", path))

    def reference(self, bench, data):
        """Untimed, with another number of lanes; its predictions say what its summary says."""
        out = bench.path("reference.csv")
        run = bench.run_job(self.job, workers=3 - self.workers, data=data, out=out)
        loss = logloss(out, labels_of(bench, os.path.join(ctr_folder(bench), "ctr_1m.jsonl")))
        if abs(loss - run.learner()["logloss"]) > 1e-6:
            raise Broken(f"{self.job}: predictions have logloss {loss}, the summary says {run.learner()['logloss']}")
        return file_digest(out)

    def measure(self, bench, what):
        folder = ctr_folder(bench)
        jsonl = os.path.join(folder, "ctr_1m.jsonl")
        data, out = self.input(bench, jsonl), bench.path("predictions.csv")
        digest, losses = self.reference(bench, data), []

        def learn():
            run = bench.run_job(self.job, workers=self.workers, data=data, out=out)
            losses.append(run.learner()["logloss"])
            if file_digest(out) != digest:
                raise Broken(f"{self.job}: predictions differ from the untimed run's")
            return run

        measures = [learn, lambda: bench.run_job("parse.leat", data=data)]
        python = vw_python(bench) if self.vw else None
        if python:
            command = [python, "-m", "vowpalwabbit", "-d", os.path.join(folder, "ctr_1m.vw"), "-p",
                       bench.path("vw.txt"), *VW_COMMON, *self.vw]
            measures.append(lambda: bench.run(command))
        runs, parses, *others = bench.repeat(*measures)
        same(runs, runs[0], lambda run: run.learner()["logloss"])
        figure = self.figure(what, runs, parses, others)
        if self.has_limit:
            exact, hashed = zip(*bench.repeat(lambda: limit_of_linear(bench)))
            figure.peers[:0] = [Peer("sixty lines of C from decoded columns, exact keys", median(exact), "same run"),
                                Peer("the same, hashed keys", median(hashed), "same run")]
        return [figure]

    def figure(self, what, runs, parses, others):
        is_alone = self.workers == 1
        peers = [Peer(name, value, RESULTS) for name, value in self.peers]
        if others:
            best = median([min(run.wall, run.cpu) for run in others[0]])
            peers.append(Peer("vw, the better of wall and CPU", EVENTS / best / 1e6, "same run"))
        elif self.vw:
            peers.append(Peer("vw", 0.584 if self.vw is VW_LINEAR else 0.231, RESULTS + " (its wheel did not install)"))
        peers.append(Peer("leat reading alone", rate(EVENTS, parses), "same run"))
        note = (f"By wall time {wall(EVENTS, runs)}." if is_alone else
                f"By wall time (two lanes); {rate(EVENTS, runs):.3f} M events a CPU second; other processes had "
                f"{median([run.others for run in runs]):.1f} cores.")
        return Figure(what, "M/s", (rate if is_alone else wall_rate)(EVENTS, runs), self.target, peers=peers, runs=runs,
                      quality=runs[0].learner()["logloss"], quality_target=self.loss, note=note,
                      checked=f"bytes of all predictions in each timed run against a run with {3 - self.workers} "
                              "lanes; their logloss computed again from that file")


def file_digest(path):
    return subprocess.run(["sha256sum", path], capture_output=True, check=True, text=True).stdout.split()[0]


LEARNING = {
    "linear": ("linear, one core, from JSON",
               Learning("learn_linear.leat", 2.5, 0.4001, [("fw LR from text", 1.6)], vw=VW_LINEAR)),
    "linear-batches": ("linear, one core, from .batches",
                       Learning("learn_linear.leat", 6.0, 0.4001, [("fw LR from its cache", 3.2)], source="batches",
                                has_limit=True)),
    "crosses": ("linear + 9 crosses, one core, from JSON",
                Learning("learn_crosses.leat", 1.6, 0.3858, [("fw LR + 9 pairs", 0.93)], vw=VW_CROSSES)),
    "ffm": ("ffm k=8, one core, from JSON", Learning("learn_ffm.leat", 0.7, 0.3819, [("fw FFM", 0.145)])),
    "ffm-lanes": ("ffm k=8, two lanes, from JSON",
                  Learning("learn_ffm.leat", 0.95, 0.3819, [("fw FFM hogwild, no predictions", 0.227)], workers=2)),
    "ffm-hidden": ("ffm k=8 + hidden [128, 64], one core, from JSON",
                   Learning("learn_ffm_hidden.leat", 0.2, 0.3806, [("fw FFM + MLP", 0.082)])),
    "deepfm": ("deepfm dim 16, hidden [128, 64], one core, from JSON",
               Learning("learn_deepfm.leat", 0.22, 0.3905, [("PyTorch, parsing not counted", 0.136)])),
}


def row_of(name):
    what, learning = LEARNING[name]
    return lambda bench: learning.measure(bench, what)


ROWS = {name: (what, row_of(name)) for name, (what, _) in LEARNING.items()}
