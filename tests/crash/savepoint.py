#!/usr/bin/env python3
"""Savepoints, new runs from old checkpoints, changed jobs, and what is stored for a key.

    tests/crash/savepoint.py --leat build/release/leat [--folder DIR] [--only NAME]

A job with every kind of state, some of it in the database, is killed after a checkpoint; copies of what is left of it go
on: from the checkpoint itself put back from a savepoint, as a new run, as another job. What has not changed must come out
as from a run that nothing disturbed, byte for byte. Prints TAP lines.
"""

import argparse
import datetime
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

PARSER = argparse.ArgumentParser()
PARSER.add_argument("--leat", required=True)
PARSER.add_argument("--folder", default="build/savepoint-test")
PARSER.add_argument("--only", default="", help="tests whose names have this")
ARGUMENTS = PARSER.parse_args()
LEAT = os.path.abspath(ARGUMENTS.leat)
ROWS = 60_000

JOB = """
param out: text = "out"
param dir: text = "state"
job sp {
  workers: 2, memory: 32MiB
  checkpoint: { every: 10ms, dir: dir, keep: { last: 2 } }
}
source imps = file {
  path: "imps.jsonl", schema: { id: int!, ts: time(ms), user: int, item: int, site: text, price: float }
  event_time: ts, max_delay: 1m
}
source clicks = file { path: "clicks.jsonl", schema: { id: int!, ts: time(ms), item: int }, event_time: ts, max_delay: 1m }
stream features =
    imps
  | dedup by id within 6h
  | feature by item over 6h every 1m { imps: count(), spend: sum(price), users: distinct(user), prices: distinct(price), least: min(price) }
  | feature from clicks by item over 1h every 1m { clicks: count() }
stream examples = features | attribute clicks on id within 30m as clicked
stream hourly = examples | window by item over tumbling(1h) { n: count(), clicks: sum(clicked) }
learner model = deepfm from examples {
  label: clicked
  sparse: [user, item, site]
  dense: [price, log1p(imps)]
  embedding: { dim: 8 }
  hidden: [8, 4]
}
sink examples = file from examples { path: concat(out, "/examples.jsonl") }
sink hourly = file from hourly { path: concat(out, "/hourly.csv") }
sink scored = file from model.predictions { path: concat(out, "/scored.jsonl") }
"""
SINKS = ("examples.jsonl", "hourly.csv", "scored.jsonl")


def leat(*arguments, failpoints="", check=None):
    """(status, stdout, stderr)"""
    done = subprocess.run([LEAT, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                          env={**os.environ, "LEAT_FAILPOINTS": failpoints})
    if check is not None:
        assert done.returncode == check, (arguments, done.returncode, done.stdout[-400:], done.stderr[-2500:])
    return done.returncode, done.stdout, done.stderr


def job(text=JOB, *changes):
    """Writes job.leat; changes: (old, new)"""
    for old, new in changes:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    with open("job.leat", "w", encoding="utf-8") as file:
        file.write(text)


def run(out, state, *arguments, **more):
    os.makedirs(out, exist_ok=True)
    return leat("run", "job.leat", "--json", "--set", f"out={out}", "--set", f"dir={state}", *arguments, **more)


def content(out, name):
    with open(os.path.join(out, name), "rb") as file:
        return file.read()


def rows(out, name):
    return [json.loads(line) for line in content(out, name).splitlines()]


def export(state, name):
    leat("model", "export", state, "--out", name, check=0)
    with open(name, "rb") as file:
        return file.read()


def write_input():
    rng = random.Random(5)
    with open("imps.jsonl", "w", encoding="utf-8") as imps, open("clicks.jsonl", "w", encoding="utf-8") as clicks:
        for n in range(ROWS):
            ts, item = 1_700_000_000_000 + n * 400, rng.randrange(4000)
            row = {"id": n if n % 50 else max(n - 100, 0), "ts": ts, "user": rng.randrange(3000), "item": item,
                   "site": f"s{rng.randrange(20)}", "price": rng.randrange(1000) / 100}
            imps.write(json.dumps(row) + "\n")
            if rng.random() < 0.2:
                clicks.write(json.dumps({"id": n, "ts": ts + rng.randrange(600_000), "item": item}) + "\n")


def newest(state):
    return leat("checkpoint", "list", state, check=0)[1].splitlines()[0]


def prepare():
    """`whole`: what an undisturbed run leaves; `killed` and `killed-state`: what a killed one does."""
    shutil.rmtree(ARGUMENTS.folder, ignore_errors=True)
    os.makedirs(ARGUMENTS.folder)
    os.chdir(ARGUMENTS.folder)
    write_input()
    job()
    run("whole", "whole-state", check=0)
    # After the second checkpoint or a later one, until one is in the middle and has rows in the database; how far a
    # run is when it takes them depends on the machine.
    seen = []
    for attempt in range(60):
        shutil.rmtree("out", ignore_errors=True)
        shutil.rmtree("state", ignore_errors=True)
        status, _, _ = run("out", "state", failpoints=f"ckpt.published=kill@{(2, 3, 2, 4, 2, 3, 2, 6)[attempt % 8]}")
        shown = leat("checkpoint", "show", "state", check=0)[1] if status == -signal.SIGKILL else "ended"
        seen.append((status, "ended" in shown, newest("state")))
        if "ended" not in shown and "with database" in newest("state"):
            os.rename("out", "killed")
            os.rename("state", "killed-state")
            return
    raise AssertionError(f"no run was killed in the middle with rows in the database: {seen}")


def again(out="out", state="state"):
    """What the killed run left, anew."""
    for name in (out, state, "new", "sp", "other"):
        shutil.rmtree(name, ignore_errors=True)
    shutil.copytree("killed", out)
    shutil.copytree("killed-state", state)
    job()


def is_whole(out="out", names=SINKS):
    for name in names:
        assert content(out, name) == content("whole", name), f"{name} is not that of an undisturbed run"


def test_a_savepoint_put_back_goes_on():
    again()
    out = leat("checkpoint", "save", "state", "--to", "sp", check=0)[1]
    assert "every byte checked" in out, out
    leat("checkpoint", "verify", "sp", check=0)
    assert newest("sp").split()[0] == newest("state").split()[0]
    assert not [p for p in glob.glob("sp/**/*", recursive=True) if os.stat(p).st_nlink > 1 and os.path.isfile(p)]
    shutil.rmtree("state")
    leat("checkpoint", "restore", "sp/", "--to", "state/", check=0)
    errors = run("out", "state", check=0)[2]
    assert "resuming from checkpoint" in errors, errors
    is_whole()
    assert export("state", "a.safetensors") == export("whole-state", "b.safetensors")


def test_a_new_run_from_a_savepoint_or_its_own_directory():
    for source in ("sp", "state"):
        again()
        leat("checkpoint", "save", "state", "--to", "sp", check=0)
        state = "new" if source == "sp" else "state"
        errors = run("out", state, "--from", source, check=0)[2]
        assert re.search(r"a new run, with the state of checkpoint \d+-\d+ in .*/" + source, errors), errors
        assert "their rows are written again" in errors and "resuming" not in errors, errors
        is_whole()
        assert export(state, "a.safetensors") == export("whole-state", "b.safetensors")


def test_a_new_run_that_dies_at_once_begins_again():
    again()
    leat("checkpoint", "save", "state", "--to", "sp", check=0)
    for point in ("restore.end", "ckpt.pre_rename"):
        status, _, _ = run("out", "new", "--from", "sp", failpoints=f"{point}=kill@1")
        assert status == -signal.SIGKILL, status
    errors = run("out", "new", check=0)[2]
    assert "has written none of its own: it starts from that checkpoint again" in errors, errors
    is_whole()
    # Its own directory holds nothing but such a run: --from finds what that began with.
    again()
    assert run("out", "state", "--from", "state", failpoints="restore.end=kill@1")[0] == -signal.SIGKILL
    run("out", "state", "--from", "state", failpoints="ckpt.published=kill@1")
    run("out", "state", check=0)
    is_whole()


def test_a_supervised_new_run_goes_on():
    again()
    status, _, errors = run("out", "state", "--from", "state", "--supervise", failpoints="ckpt.published=kill@2")
    assert "restarting from the newest checkpoint" not in errors or "resuming from checkpoint" in errors, errors
    assert errors.count("a new run, with the state of") == 1, errors
    if status != 0:  # five short lives: given up
        run("out", "state", check=0)
    is_whole()


def test_a_new_run_keeps_an_order_of_its_own():
    for name in ("order.log", "order/"):
        again()
        arguments = ("--record-order", name)
        assert run("out", "state", "--from", "state", *arguments, failpoints="ckpt.published=kill@1")[0] == -signal.SIGKILL
        run("out", "state", *arguments, check=0)
        is_whole()
        again()
        run("out", "state", "--from", "state", "--order", name, check=0)
        is_whole()


def test_stateless_changes_simply_work():
    again()
    job(JOB, ("imps\n  | dedup", "imps | where price >= 0.0 | with double = price * 2.0\n  | dedup"),
        ("sink hourly", 'sink more = file from features { path: concat(out, "/more.jsonl") }\nsink hourly'),
        ('sink scored = file from model.predictions { path: concat(out, "/scored.jsonl") }', ""))
    status, _, errors = run("out", "state")
    assert status == 1 and "E0703" in errors and "--from" in errors, errors
    _, summary, errors = run("out", "state", "--from", "state", check=0)
    assert "column double of rows held: the checkpoint has none, the job has `float`" in errors, errors
    assert "`sink/scored` is not in the job" in errors and "`sink/more` starts with the rows after" in errors, errors
    is_whole(names=["hourly.csv"])
    nodes = json.loads(summary)["nodes"]
    assert all(node["counts"]["balanced"] for node in nodes), nodes
    found, nulls = rows("out", "examples.jsonl"), 0
    for row, expected in zip(found, rows("whole", "examples.jsonl")):
        double = row.pop("double", "before")
        assert row == expected and double in ("before", None, row["price"] * 2), (row, double, expected)
        nulls += double is None
    assert len(found) == len(rows("whole", "examples.jsonl")) and nulls > 0, (len(found), nulls)
    assert export("state", "a.safetensors") == export("whole-state", "b.safetensors")
    # And on: rows that were held by the columns of before are still there after a kill.
    again()
    job(JOB, ("imps\n  | dedup", "imps | with double = price * 2.0, site2 = site\n  | dedup"))
    assert run("out", "state", "--from", "state", failpoints="ckpt.published=kill@1")[0] == -signal.SIGKILL
    run("out", "state", check=0)
    is_whole(names=["hourly.csv"])


CHANGES = [("within 6h", "within 3h"), ("  | feature from clicks by item over 1h every 1m { clicks: count() }\n", ""),
           ("over tumbling(1h)", "over tumbling(2h)")]


LISTED = """\
job.leat: error[E0703]: `features/feature.2` does not match: the checkpoint has `feature: from: clicks by: item over: 1h every: 1m { clicks: count() }`, the job has no part of that name
job.leat:15:5: error[E0703]: `features/dedup` does not match: dedup: the checkpoint has `by: id within: 6h`, the job has `by: id within: 3h`
   15 |   | dedup by id within 3h
      |     ^~~~~~~~~~~~~~~~~~~~~
job.leat:18:28: error[E0703]: `hourly/window` does not match: window: the checkpoint has `by: item over: tumbling(1h) { n: count(), clicks: sum(clicked) }`, the job has `by: item over: tumbling(2h) { n: count(), clicks: sum(clicked) }`
   18 | stream hourly = examples | window by item over tumbling(2h) { n: count(), clicks: sum(clicked) }
      |                            ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
      hint: change the job back; or start without this state of the checkpoint: --drop-state features/dedup --drop-state features/feature.2 --drop-state hourly/window
"""


def test_what_does_not_match_is_listed_and_dropped_by_name():
    again()
    job(JOB, *CHANGES)
    names = ["features/dedup", "features/feature.2", "hourly/window"]
    status, _, errors = run("out", "state", "--from", "state")
    assert status == 1 and "E0703" in errors, errors
    for name in names:
        assert f"`{name}` does not match" in errors and f"--drop-state {name}" in errors, errors
    assert errors == LISTED, errors
    for left in range(1, 3):
        drops = [word for name in names[left:] for word in ("--drop-state", name)]
        status, _, errors = run("out", "state", "--from", "state", *drops)
        assert status == 1 and f"`{names[0]}` does not match" in errors, errors
        assert f"`{names[left]}` does not match" not in errors, errors
    drops = [word for name in names for word in ("--drop-state", name)]
    _, summary, errors = run("out", "state", "--from", "state", *drops, check=0)
    assert "`features/feature.2`: its state in the checkpoint is dropped" in errors, errors
    assert "`features/dedup` starts empty" in errors and "`hourly/window` starts empty" in errors, errors
    assert all(node["counts"]["balanced"] for node in json.loads(summary)["nodes"]), summary
    # What was left behind goes from the database; what stays is still read from it.
    again()
    job(JOB, *CHANGES)
    assert run("out", "state", "--from", "state", *drops, failpoints="ckpt.published=kill@1")[0] == -signal.SIGKILL
    run("out", "state", check=0)


def test_state_that_comes_to_a_single_instance_after_moves():
    """Rows of groups that have moved are found by their stay, which the state of a single instance does not have."""
    text = JOB.replace("  | dedup by id within 6h\n", "").partition("learner model")[0].replace("site: text", "site: text, tags: list(text)")
    text += 'sink hourly = file from hourly { path: concat(out, "/hourly.csv") }\n'
    single = ("    imps\n", "    imps | unnest tags | nest tags as tags\n")
    for move in (0, 1):
        shutil.rmtree("moved-state", ignore_errors=True)
        job(text)
        half = ("--until", "2023-11-15T02:00:00Z", "--move", str(move)) if move else ("--until", "2023-11-15T02:00:00Z")
        run(f"moved-{move}", "moved-state", *half, failpoints="run.claimed=sleep:20", check=0)
        job(text, single)
        status, _, errors = run(f"moved-{move}", "moved-state", "--from", "moved-state")
        names = [f"`{name}` does not match: it had an instance for each lane" for name in ("features/feature", "hourly/window")]
        assert status == move and all((name in errors) == (move > 0) for name in names), errors
    run("moved-1", "moved-state", "--from", "moved-state", *re.findall(r"--drop-state|[a-z]+/[a-z.0-9]+(?= |$)", errors.split("checkpoint:")[1]),
        check=0)


def test_a_name_to_drop_that_is_none():
    again()
    status, _, errors = run("out", "state", "--from", "state", "--drop-state", "features/dedupe")
    assert status == 1 and "E1001" in errors and "did you mean `features/dedup`?" in errors, errors
    assert "sink/hourly" in errors and "model" in errors, errors
    status, _, errors = run("out", "state", "--drop-state", "model")
    assert status == 2 and "--from" in errors, errors


def test_a_source_that_is_another():
    again()
    job(JOB, ("source clicks = file { path: \"clicks.jsonl\", schema: { id: int!, ts: time(ms), item: int }, event_time: ts, max_delay: 1m }",
              "source answers = file { path: \"clicks.jsonl\", schema: { id: int!, ts: time(ms), item: int }, event_time: ts, max_delay: 1m }"),
        ("feature from clicks", "feature from answers"), ("attribute clicks", "attribute answers"))
    status, _, errors = run("out", "state", "--from", "state")
    assert status == 1 and "`clicks` does not match" in errors and "`features/feature.2` does not match" in errors, errors
    drops = ("--drop-state", "clicks", "--drop-state", "features/feature.2", "--drop-state", "examples/attribute")
    _, _, errors = run("out", "state", "--from", "state", *drops, check=0)
    assert "`answers` has no position in the checkpoint" in errors, errors


def impressions(state):
    """All of them, how many were read when the checkpoint was taken, and how many had left the join."""
    with open("imps.jsonl", encoding="utf-8") as file:
        imps = [json.loads(line) for line in file]
    shown = leat("checkpoint", "show", state, check=0)[1]
    times = [datetime.datetime.fromisoformat(time[:19] + "+00:00") for time in re.findall(r"watermark (\d\S+)Z", shown)]
    left = min(times).timestamp() * 1000 - 30 * 60_000
    return (imps, int(re.search(r"source imps\s+(\d+) records", shown).group(1)),
            next(i for i, imp in enumerate(imps) if imp["ts"] >= left))


def learned_last(state):
    """One of the last rows that had left the join by then."""
    imps, _, left = impressions(state)
    return imps[max(left - 60, 0)]


def tables(state):
    shown = leat("model", "show", state, check=0)[1]
    return {name: int(count) for name, count in re.findall(r"table\s+(\S.*?)\s+(\d+) rows", shown)}, shown


def test_a_learner_gains_and_loses_a_field_and_changes_hidden():
    again()
    before, shown = tables("killed-state")
    job(JOB, ("[user, item, site]", "[cross(site, item), item, user]"), ("hidden: [8, 4]", "hidden: [8, 6, 4]"),
        ("dense: [price, log1p(imps)]", "dense: [log1p(imps), log1p(spend)]"))
    _, summary, errors = run("out", "new", "--from", "state", check=0, failpoints="")
    for text in ("feature site: the checkpoint has `text`, the job has none",
                 "feature cross(site, item): the checkpoint has none", "hidden: the checkpoint has `8, 4`, the job has `8, 6, 4`",
                 "number price: the checkpoint has `float`, the job has none"):
        assert text in errors, (text, errors)
    after, _ = tables("new")
    whole, _ = tables("whole-state")
    assert after["user"] == whole["user"] and after["item"] == whole["item"] and "site" not in after, (after, whole)
    assert 0 < before["user"] <= after["user"] and after["cross(site, item)"] > 0, (before, after, shown)
    learner = [node for node in json.loads(summary)["nodes"] if node["tag"] == "learner"][0]
    examples = len(rows("whole", "examples.jsonl"))
    assert learner["report"]["run"]["examples"] == examples, (learner["report"]["run"], examples)
    # The rows of fields that stay are the same rows, at once: nothing was learned yet.
    again()
    job(JOB, ("[user, item, site]", "[item, cross(site, item), user]"))
    assert run("out", "new", "--from", "state", failpoints="ckpt.published=kill@1")[0] == -signal.SIGKILL
    user = learned_last("state")["user"]
    was = json.loads(leat("state", "get", "state", "model", "user", str(user), "--json", check=0)[1])
    now = json.loads(leat("state", "get", "new", "model", "user", str(user), "--json", check=0)[1])
    assert now["occurrences"] >= was["occurrences"], (was, now)
    if now["occurrences"] == was["occurrences"]:
        assert now["vector"] == was["vector"] and now["vector_state"] == was["vector_state"], (was, now)
    run("out", "new", check=0)
    after, _ = tables("new")
    assert after["user"] == whole["user"], (after, whole)


STILL = """
param out: text = "unused"
param dir: text = "state"
param count: int = 150000
job still { memory: 32MiB, workers: 2, checkpoint: { every: 10ms, dir: dir } }
source s = sequence { count: count, keys: 20000, rate: 1000, event_time: ts }
stream rows = s | with a = key % 7919, b = id % 5003
learner m = fm from rows {
  label: value > 0.5
  sparse: [a, b, key]
  linear: sgd { rate: 0.0 }
  embedding: { dim: 192, admit_after: 3, sketch: 64KiB, optimizer: sgd { rate: 0.0 } }
}
"""


def test_tables_keep_their_numbers():
    """Where nothing moves, a row's vector says which table it was made for, and its count what the sketch had seen. Many
    of the rows are in the database."""
    again()
    job(STILL)
    run("out", "other", check=0)
    for at in range(1, 30):  # to the first checkpoint with a database; the last of all belongs to a run that has ended
        shutil.rmtree("new", ignore_errors=True)
        assert run("out", "new", failpoints=f"ckpt.published=kill@{at}")[0] == -signal.SIGKILL
        if "with database" in newest("new"):
            break
    assert "with database" in newest("new"), newest("new")
    job(STILL, ("[a, b, key]", "[key, cross(a, b), a]"))
    run("out", "new", "--from", "new", check=0)
    found = {}
    for state in ("other", "new"):
        data = export(state, f"{state}.safetensors")
        head = int.from_bytes(data[:8], "little")
        found[state] = {name: data[8 + head + tensor["data_offsets"][0]:8 + head + tensor["data_offsets"][1]]
                        for name, tensor in json.loads(data[8:8 + head]).items()}
    assert "cross(a, b).keys" in found["new"] and "b.keys" not in found["new"], sorted(found["new"])
    for name in (f"{table}.{what}" for table in ("a", "key") for what in ("keys", "weights", "count", "seen_us")):
        assert len(found["other"][name]) > 8 * 7000 and found["new"][name] == found["other"][name], name


def test_a_learner_that_is_another():
    again()
    job(JOB, ("dim: 8", "dim: 16, optimizer: adam { rate: 0.01 }"))
    status, _, errors = run("out", "state", "--from", "state")
    assert status == 1 and "`model` does not match: embedding: the checkpoint has `dim 8, adagrad" in errors, errors
    assert "--drop-state model" in errors, errors
    run("out", "state", "--from", "state", "--drop-state", "model", check=0)
    is_whole(names=["hourly.csv", "examples.jsonl"])


def test_a_finished_run_is_not_begun_with():
    again()
    status, _, errors = run("whole", "new", "--from", "whole-state")
    assert status == 1 and "has finished" in errors and "@3-17" in errors, errors
    is_whole("whole")
    listed = [line.split()[0] for line in leat("checkpoint", "list", "whole-state", check=0)[1].splitlines()]
    assert len(listed) > 1, listed
    drops = [word for name in ("examples", "hourly", "scored") for word in ("--drop-state", f"sink/{name}")]
    _, _, errors = run("other", "new", "--from", f"whole-state@{listed[-1]}", *drops, check=0)
    assert f"with the state of checkpoint {listed[-1]} in" in errors, errors
    for name in SINKS[1:]:
        assert content("whole", name).endswith(content("other", name).partition(b"\n")[2]), name
    for path, what in (("nowhere", "does not exist"), (".", "not a checkpoint directory")):
        status, _, errors = run("other", "new", "--from", path)
        assert status == 1 and what in errors, errors


def test_where_copies_may_not_go():
    again()
    os.makedirs("other")
    with open("other/mine", "w", encoding="utf-8") as file:
        file.write("mine")
    for to, what in (("other", "is not empty"), ("state/sp", "lies within"), ("job.leat", "is no directory")):
        status, _, errors = leat("checkpoint", "save", "state", "--to", to)
        assert status == 1 and what in errors and "hint" in errors, (to, errors)
    assert os.listdir("other") == ["mine"]
    status, _, errors = leat("checkpoint", "save", "state", "--to", "job.leat/below/sp")
    assert status == 1 and "Not a directory" in errors, errors
    status, _, errors = leat("checkpoint", "save", "state")
    assert status == 1 and "--to" in errors, errors
    status, _, errors = leat("checkpoint", "restore", "state", "9-9", "--to", "new")
    assert status == 1 and "there is no checkpoint 9-9" in errors and not os.path.exists("new"), errors
    for point in ("ckpt.write=error:ENOSPC", "ckpt.fsync=error:EIO", "ckpt.rename=error:EIO"):
        status, _, errors = leat("checkpoint", "save", "state", "--to", "sp", failpoints=point)
        assert status == 1 and "E0708" in errors and not glob.glob("sp*"), (point, errors, glob.glob("sp*"))
    leat("checkpoint", "save", "state", "--to", "sp", failpoints="ckpt.rename=kill")
    assert not os.path.exists("sp")
    os.makedirs("new")
    open("new/LOCK", "w", encoding="utf-8").close()
    leat("checkpoint", "restore", "state", "--to", "new", check=0)


def test_a_damaged_checkpoint_is_skipped_or_refused():
    again()
    listed = [line.split()[0] for line in leat("checkpoint", "list", "state", check=0)[1].splitlines()]
    path = f"state/gen-000001/ckpt-{int(listed[0].split('-')[1]):012d}/state.bin"
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    _, out, errors = leat("checkpoint", "save", "state", "--to", "sp", check=0)
    assert "skipped" in errors and "digest" in errors and not out.startswith(listed[0] + ":"), (out, errors)
    leat("checkpoint", "verify", "sp", check=0)
    status, _, errors = leat("checkpoint", "save", "state", listed[0], "--to", "new")
    assert status == 1 and "E0702" in errors and not os.path.exists("new"), errors


def test_saving_beside_a_running_job():
    again()
    job(JOB, ("keep: { last: 2 }", "keep: { last: 1 }"))
    process = subprocess.Popen([LEAT, "run", "job.leat", "--json", "--set", "out=other", "--set", "dir=new"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    saved = 0
    while process.poll() is None:
        if not glob.glob("new/gen-*/ckpt-*[0-9]"):
            time.sleep(0.01)
            continue
        leat("checkpoint", "save", "new", "--to", f"sp-{saved}", check=0)
        saved += 1
        time.sleep(0.05)
    process.communicate()
    assert process.returncode == 0 and saved > 1, (process.returncode, saved)
    is_whole("other")
    for i in range(saved):
        leat("checkpoint", "verify", f"sp-{i}", check=0)
        shutil.rmtree(f"sp-{i}")


def unique(imps):
    """Those that `dedup` lets pass."""
    seen = set()
    return [imp for imp in imps if imp["id"] not in seen and not seen.add(imp["id"])]


def get(part, *key, check=0):
    out = leat("state", "get", "state", part, *map(str, key), "--json", check=check)[1]
    return json.loads(out) if check == 0 else out


def test_what_is_stored_for_a_key():
    again()
    listed = leat("state", "list", "state", check=0)[1]
    for name in ("features/dedup", "features/feature", "features/feature.2", "examples/attribute", "hourly/window", "model"):
        assert re.search(rf"^{name}\s", listed, re.M), listed
    names = {part["part"] for part in json.loads(leat("state", "list", "state", "--json", check=0)[1])["parts"]}
    assert names == {"features/dedup", "features/feature", "features/feature.2", "examples/attribute", "hourly/window",
                     "model"}, names
    imps, read, left = impressions("state")
    row = imps[read - read % 50 - 1]
    found = get("features/dedup", row["id"])
    assert found["until"] > found["seen"] > "2023-11-14", found
    found = get("features/feature", row["item"])
    assert found["panes"] and all(pane["imps"] >= 1 and pane["start"] < pane["end"] for pane in found["panes"]), found
    assert sum(pane["imps"] for pane in found["panes"]) == sum(imp["item"] == row["item"] for imp in unique(imps[:read])), found
    # A row that comes now is held for half an hour; one of half an hour ago is in its window, and learned from.
    found = get("examples/attribute", row["id"])
    assert found["held"][0]["item"] == row["item"] and found["held"][0]["deadline"] > found["held"][0]["ts"], found
    gone = learned_last("state")
    for imp in imps[max(left - 6000, 0):left:200]:  # those that have left are not held
        status, out, _ = leat("state", "get", "state", "examples/attribute", str(imp["id"]), "--json")
        assert status == 1 or json.loads(out)["held"] == [], out
    later = imps[left - 60:left]  # an hour may have ended just behind one of them
    found = next(json.loads(out) for status, out, _ in (
        leat("state", "get", "state", "hourly/window", str(imp["item"]), "--json") for imp in later) if status == 0)
    assert found["panes"] and found["panes"][-1]["n"] >= 1, found
    found = get("model", "user", gone["user"])
    assert len(found["vector"]) == 8 and found["occurrences"] >= 1 and found["last_seen"] > "2023", found
    assert leat("state", "get", "job.leat", "features/dedup", str(row["id"]), check=0)[1].startswith("part: features/dedup")
    text = leat("state", "get", "state", "features/feature", str(row["item"]), check=0)[1]
    assert "panes:\n  - start: 2023" in text, text


def test_a_key_that_is_not_there():
    again()
    out = get("features/dedup", 999_999_999, check=1)
    assert re.search(r"nothing is stored for `999999999` in `features/dedup` of checkpoint \S+ \(key group \d+, hash [0-9a-f]{16}\)",
                     out), out
    assert "key " in get("model", "user", 999_999_999, check=1)
    for arguments, what in ((("features/dedup", "abc"), "id (int)"), (("features/dedup", "1", "2"), "id (int)"),
                            (("features/dedupe", "1"), "did you mean `features/dedup`?"), ((), "its parts are: features/dedup"),
                            (("model", "color", "1"), "sparse features: user, item, site"), (("model", "user"), "sparse features: user"),
                            (("model", "user", "abc"), "is not a value of type int")):
        status, _, errors = leat("state", "get", "state", *arguments)
        assert status == 1 and "E1001" in errors and what in errors, (arguments, errors)
    status, _, errors = leat("state", "shout", "state")
    assert status == 1 and "list and get" in errors, errors


prepare()
sys.exit(tap.run({name: item for name, item in globals().items() if ARGUMENTS.only in name}))
