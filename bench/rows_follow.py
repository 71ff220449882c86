"""Rows of the table: `leat serve` beside a job that runs: what followers cost the job, and how fast they apply what it
publishes.

The job has one core and the server the other; the job reads as fast as it can. Each job runs without a `serve`, with one that
nobody follows, and followed, in turns; the figure is user and system time of the job's whole process for an event. The digest
of the job's predictions is the same in all three."""

import os
import re
import signal
import subprocess
import time
import urllib.request

from harness import JOBS, Broken, Figure, busy_cores, finish, median, remove

EVENTS, QUICK_EVENTS = 2_000_000, 400_000
SPARSE = "sparse: [user, item, adv, cat, site, slot, dev, os, br, city, query, hour]"
LEARNERS = {
    "deepfm": f"deepfm from examples {{ label: clicked, {SPARSE}, dense: [price, age, pos, score, log1p(seen_24h)], "
              "embedding: { dim: 16 }, hidden: [128, 64], batch: 256 }",
    "ffm": f"ffm from examples {{ label: clicked, {SPARSE}, embedding: {{ dim: 4 }} }}",
    "linear": f"linear from examples {{ label: clicked, {SPARSE}, dense: [price, age, pos, score, log1p(seen_24h)] }}",
}
SERVE = 'serve scores { from: model.predictions, request: events, listen: "127.0.0.1:0" }'


def events_of(bench):
    count = bench.size(EVENTS, QUICK_EVENTS)

    def make(path):
        remove(path)
        bench.run([bench.leat, "generate", "ctr", "--labelled", "--events", str(count), "--out", path])
    return os.path.join(bench.made(f"follow-{count}", make), "ctr.jsonl"), count


def job_of(bench, name, is_served):
    with open(os.path.join(JOBS, "follow.leat"), encoding="utf-8") as file:
        text = file.read()
    text = text.replace("# LEARNER\n", f"learner model = {LEARNERS[name]}\n" + (SERVE + "\n") * is_served)
    path = bench.path(f"follow-{name}-{is_served:d}.leat")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


class Follower:
    """`leat serve` on its own core; None of it without a job."""

    def __init__(self, bench, job, settings):
        words = [word for pair in settings.items() for word in ("--set", "=".join(pair))]
        self.process = subprocess.Popen(["taskset", "-c", "1", bench.leat, "serve", job, *words], stderr=subprocess.PIPE, text=True)
        self.port = int(re.search(r":(\d+)$", self.process.stderr.readline().strip())[1])

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return {name: float(value) for name, value in re.findall(r"^(leat_follow_\w+){[^}]*} (\S+)$", text, re.M)}

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


def run_once(bench, name, is_served, is_followed):
    """(run, digest, applied): applied: the server's last figures, and its CPU time, while the job ran."""
    data, _ = events_of(bench)
    state = bench.path("follow-state")
    remove(state)
    job, settings = job_of(bench, name, is_served), {"data": data, "state": state}
    follower, applied = Follower(bench, job, settings) if is_followed else None, {}
    try:
        command = ["taskset", "-c", "0", *bench.job_command(job, 1, settings)]
        out = bench.path("follow-out")
        with open(out, "wb") as file:
            started, busy = time.monotonic(), busy_cores()
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
            while is_followed:
                if is_zombie(process.pid):
                    break
                now = follower.metrics()
                if now["leat_follow_live"]:
                    applied = {**now, "cpu": follower.cpu(), "first": applied.get("first", (now, follower.cpu()))}
                time.sleep(0.1)
            run = finish(process, started, busy, "")
        if process.returncode != 0:
            raise Broken(f"{name}: status {process.returncode}")
        with open(out, encoding="utf-8") as file:
            digest = re.search(r'"note": ?"([^"]+)"', file.read())[1]
    finally:
        if follower is not None:
            follower.stop()
        remove(state)
    return run, digest, applied


def is_zombie(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


def row_of(name):
    def row(bench):
        _, count = events_of(bench)
        turns = [[run_once(bench, name, *how) for how in ((False, False), (True, False), (True, True))]
                 for _ in range(bench.repeats)]
        if len({digest for turn in turns for _, digest, _ in turn}) != 1:
            raise Broken("predictions differ")
        ratios = [[turn[i][0].cpu / turn[0][0].cpu for turn in turns] for i in (1, 2)]
        applied = [turn[2][2] for turn in turns if "first" in turn[2][2]]
        if not applied:
            raise Broken("the job was not followed")
        rates = [(one["leat_follow_rows_total"] - one["first"][0]["leat_follow_rows_total"]) / (one["cpu"] - one["first"][1])
                 for one in applied if one["cpu"] > one["first"][1]]
        cuts = median([one["leat_follow_cuts_total"] for one in applied])
        size = median([one["leat_follow_bytes_total"] / max(one["leat_follow_cuts_total"], 1) for one in applied])
        if not rates:
            raise Broken("the server's CPU time is too short for a rate: more events are needed")
        note = (f"{count} events, {median([turn[0][0].cpu for turn in turns]) / count * 1e9:.0f} ns each without a serve; about "
                f"{cuts:.0f} cuts; {size / 1e3:.0f} KB of log a cut.")
        checked = "predictions as of the run that is not served"
        return [Figure(f"{name}: rows that a follower applies per CPU second, cuts included", "M/s", median(rates) / 1e6, 3.0,
                       checked=checked),
                Figure(f"{name}: what a serve costs that nobody follows", "%", (median(ratios[0]) - 1) * 100, 0.5, is_upper=True,
                       checked=checked),
                Figure(f"{name}: what a follower costs the job", "%", (median(ratios[1]) - 1) * 100, 3.0, is_upper=True,
                       checked=checked, note=note)]
    return row


ROWS = {f"follow-{name}": (f"what followers cost a job with {name}", row_of(name)) for name in LEARNERS}
