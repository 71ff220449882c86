#!/usr/bin/env python3
"""A live job that takes a checkpoint every 100 ms for two hours: what grows, and must not.

    LEAT=build/release/leat tests/soak/growth.py [--seconds 7200] [--rate 400] [--every 100ms] [--out build/growth]

Records come to a topic at a steady rate; the job removes duplicates, makes features, joins labels, looks up a table that is
replaced now and then, learns, and writes to a topic and to files that roll. Its state is bounded by its windows, and it keeps
the last checkpoints alone (an hourly one holds back what a start from it needs, which grows for as many hours), so after a few
minutes everything that lies on the disk (but for the outputs) and in memory must stay as large as it is. Each ten
seconds: resident memory, threads, descriptors, and for each kind of file how many there are and how large they are. The
measurements go to OUT/growth.csv, and as a picture to OUT/growth.svg: look at it. What grows by more than a tenth from the
second sixth of the time to the last one is a failure. Prints TAP.
"""

import argparse
import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "kafka"))
import rig  # noqa: E402

LEAT = os.path.abspath(os.environ.get("LEAT", "build/release/leat"))
SAMPLE_SECONDS = 10
ALLOWED = 0.10  # by so much may something be larger in the end
USERS, ITEMS = 500, 200

JOB = """job growth {{ workers: 2, memory: 64MiB, checkpoint: {{ every: {every}, dir: "{folder}/state", keep: {{ last: 5 }} }} }}
source views = kafka {{
  brokers: "{brokers}", topic: "{views}", format: json, start: earliest, event_time: ts, max_delay: 1s, idle_after: 5s
  schema: {{ id: int!, user: int, item: int, ts: time(ms), price: float }}
}}
source clicks = kafka {{
  brokers: "{brokers}", topic: "{clicks}", format: json, start: earliest, event_time: ts, max_delay: 1s, idle_after: 5s
  schema: {{ id: int!, ts: time(ms) }}
}}
stream features = views
  | dedup by id within 1m
  | lookup "{folder}/items.csv" on item refresh 5s {{ brand: text }}
  | feature by item over [10s, 1m] every 1s {{ seen: count(), spend: sum(price), users: distinct(user), top: quantile(price, 0.9) }}
  | feature by user over 1m every 1s {{ views: count() }}
stream examples = features | attribute clicks on id within 10s as clicked
stream minutes = examples | window by item over sliding(1m, 10s) {{ n: count(), clicks: sum(clicked) }}
learner model = fm from examples {{
  label: clicked, sparse: [user, item, brand], dense: [log1p(seen_1m), price], embedding: {{ dim: 4, expire_after: 2m, admit_after: 2 }}, metrics_every: 5000
}}
sink scored = kafka from model.predictions {{ brokers: "{brokers}", topic: "{scores}" }}
sink minutes = file from minutes {{ path: "{folder}/out/minutes-{{n}}.jsonl", roll_rows: 20000 }}
sink metrics = file from model.metrics {{ path: "{folder}/out/metrics.csv" }}
sink dead = file from dead_letters {{ path: "{folder}/out/dead.jsonl" }}
"""


class Traffic(threading.Thread):
    """A steady rate of views, clicks of some of them, duplicates, late and broken ones; a new table each half minute."""

    def __init__(self, cluster, folder, views, clicks, rate):
        super().__init__(daemon=True)
        self.cluster, self.folder, self.views, self.clicks, self.rate = cluster, folder, views, clicks, rate
        self.must_end, self.sent = False, 0

    def write_table(self, rng):
        path = os.path.join(self.folder, "items.csv")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write("item,brand\n" + "".join(f"{item},b{rng.randrange(20)}\n" for item in range(ITEMS)))
        os.replace(path + ".new", path)

    def run(self):
        rng, began, ids = random.Random(1), time.monotonic(), 0
        producer = self.cluster.producer()
        while not self.must_end:
            due = int((time.monotonic() - began) * self.rate) - self.sent
            now = int(time.time() * 1000)
            views, clicks = [], []
            for _ in range(due):
                ids += 1
                ts = now - (90000 if rng.random() < 0.002 else rng.randrange(500))
                row = json.dumps({"id": ids, "user": rng.randrange(USERS), "item": int(rng.paretovariate(0.8)) % ITEMS, "ts": ts,
                                  "price": round(rng.random() * 10, 2)}).encode()
                if rng.random() < 0.001:
                    row = b"{broken"
                views += [{"value": row, "key": b"%d" % (ids % 7)}] * (2 if rng.random() < 0.01 else 1)
                if rng.random() < 0.2:
                    clicks.append({"value": json.dumps({"id": ids, "ts": now + 100}).encode(), "key": b"%d" % (ids % 7)})
            self.sent += due
            if views:
                self.cluster.produce(self.views, views, producer)
            if clicks:
                self.cluster.produce(self.clicks, clicks, producer)
            if self.sent // (30 * self.rate) != (self.sent - due) // (30 * self.rate):
                self.write_table(rng)
            time.sleep(0.05)


def kind_of(path):
    """What sort of file it is: names without their numbers."""
    name = re.sub(r"[0-9a-f]{32}", "DIGEST", path)
    return re.sub(r"\d+", "N", name)


def files_below(folder):
    """{kind: (count, bytes on disk)}; links to one inode count once."""
    found, seen = {}, set()
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                info = os.lstat(os.path.join(path, name))
            except OSError:
                continue
            kind = kind_of(os.path.relpath(os.path.join(path, name), folder))
            kind = re.sub(r"ckpt-N(\.tmp)?/db/.*", "checkpoints' database", kind)
            kind = re.sub(r"gen-N/db/.*", "database", kind)
            count, size = found.get(kind, (0, 0))
            found[kind] = (count + 1, size + (0 if info.st_ino in seen else info.st_blocks * 512))
            seen.add(info.st_ino)
    return found


def sample(process, folder):
    """{series: value}."""
    values = {}
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
        text = file.read()
    values["memory: resident, KiB"] = int(re.search(r"VmRSS:\s+(\d+)", text)[1])
    values["threads"] = int(re.search(r"Threads:\s+(\d+)", text)[1])
    values["descriptors"] = len(os.listdir(f"/proc/{process.pid}/fd"))
    for part in ("state", "out", "order"):
        for kind, (count, size) in files_below(os.path.join(folder, part)).items():
            values[f"{part}/{kind}: files"] = count
            values[f"{part}/{kind}: KiB"] = size // 1024
    return values


def must_stay(name):
    """Outputs and the order log grow with what is read."""
    return not name.startswith(("out/", "order/"))


def mean(values):
    return sum(values) / max(len(values), 1)


def judge(times, series):
    """What has grown: from the second sixth to the last."""
    wrong, sixth = [], len(times) // 6
    for name, values in sorted(series.items()):
        before, after = mean(values[sixth:2 * sixth]), mean(values[-sixth:])
        slack = 2 if name.endswith("files") or name in ("threads", "descriptors") else 512
        if must_stay(name) and after > before * (1 + ALLOWED) + slack:
            wrong.append(f"{name} grew from {before:,.0f} to {after:,.0f}")
    return wrong


def picture(times, series):
    """Small charts, one a series, as SVG."""
    width, height, columns = 300, 110, 4
    names = sorted(series, key=lambda name: (":" not in name, name))
    rows = -(-len(names) // columns)
    body = []
    for place, name in enumerate(names):
        values, left, top = series[name], place % columns * width, place // columns * height
        most = max(max(values), 1)
        points = " ".join(f"{left + 10 + (width - 20) * t / max(times[-1], 1):.1f},{top + height - 12 - (height - 44) * v / most:.1f}"
                          for t, v in zip(times, values))
        body.append(f'<text x="{left + 10}" y="{top + 16}" font-size="10">{name[-46:].replace("&", "+")}</text>'
                    f'<text x="{left + width - 10}" y="{top + 28}" font-size="9" text-anchor="end" fill="#666">most {max(values):,.0f}, last {values[-1]:,.0f}</text>'
                    f'<polyline points="{points}" fill="none" stroke="{"#b3261e" if must_stay(name) else "#2563c9"}" stroke-width="1.2"/>'
                    f'<line x1="{left + 10}" y1="{top + height - 12}" x2="{left + width - 10}" y2="{top + height - 12}" stroke="#ccc"/>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * width}" height="{rows * height}" font-family="sans-serif">'
            f'<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(body) + "\n</svg>\n")


def write(out, times, series):
    with open(os.path.join(out, "growth.csv"), "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["seconds", *series])
        for i, moment in enumerate(times):
            writer.writerow([f"{moment:.0f}", *(values[i] for values in series.values())])
    with open(os.path.join(out, "growth.svg"), "w", encoding="utf-8") as file:
        file.write(picture(times, series))


def measure(process, folder, seconds, out):
    times, series, began = [], {}, time.monotonic()
    while time.monotonic() - began < seconds:
        time.sleep(min(SAMPLE_SECONDS, seconds / 60))
        if process.poll() is not None:
            break
        values = sample(process, folder)
        times.append(time.monotonic() - began)
        for name in set(series) | set(values):
            series.setdefault(name, [0] * (len(times) - 1)).append(values.get(name, 0))
        if len(times) % 30 == 0:
            write(out, times, series)
            print(f"# {times[-1]:.0f} s: {values['memory: resident, KiB'] // 1024} MiB resident", flush=True)
    write(out, times, series)
    return times, series


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=7200)
    parser.add_argument("--rate", type=int, default=400)
    parser.add_argument("--every", default="100ms")
    parser.add_argument("--out", default="build/growth")
    arguments = parser.parse_args()
    folder = os.path.abspath(arguments.out)
    subprocess.run(["rm", "-rf", folder], check=True)
    os.makedirs(os.path.join(folder, "out"))
    cluster = rig.own(1)
    try:
        views, clicks, scores = (cluster.create_topic(name, partitions=2) for name in ("views", "clicks", "scores"))
        job = os.path.join(folder, "growth.leat")
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB.format(every=arguments.every, folder=folder, brokers=cluster.brokers, views=views, clicks=clicks, scores=scores))
        traffic = Traffic(cluster, folder, views, clicks, arguments.rate)
        traffic.write_table(random.Random(2))
        traffic.start()
        with open(os.path.join(folder, "stdout"), "w", encoding="utf-8") as stdout, open(os.path.join(folder, "stderr"), "w", encoding="utf-8") as stderr:
            process = subprocess.Popen([LEAT, "run", job, "--json", "--record-order", os.path.join(folder, "order") + "/"], stdout=stdout, stderr=stderr)
        times, series = measure(process, folder, arguments.seconds, folder)
        traffic.must_end = True
        traffic.join()
        process.send_signal(signal.SIGINT)
        status = process.wait(timeout=120)
    finally:
        cluster.close()
    wrong = judge(times, series)
    with open(os.path.join(folder, "stdout"), encoding="utf-8") as file:
        text = file.read()
    if status != 0:
        with open(os.path.join(folder, "stderr"), encoding="utf-8") as file:
            wrong.append(f"it ended with {status}: {file.read()[-1000:]}")
    else:
        summary = json.loads(text)
        wrong += [f"{node['name']}: counts do not add up" for node in summary["nodes"] if not node["counts"]["balanced"]]
        print(f"# {summary['records']:,} records, {summary['checkpoints']:,} checkpoints, a lane stopped for {summary['checkpoint_stop_max_ms']:.1f} ms at most")
    for line in wrong:
        print(f"#   {line}")
    print(f"{'not ok' if wrong else 'ok'} - growth: {times[-1] if times else 0:.0f} s; picture and figures in {arguments.out}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
