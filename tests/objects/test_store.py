#!/usr/bin/env python3
"""Jobs with `checkpoint: { store: ... }`: the store has what was published, and is enough to go on from; whatever fails in it, the
job goes on.

    test_store.py PATH_OF_LEAT
"""

import collections
import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import rig
import tap
from patience import PATIENCE_S

LEAT = os.path.abspath(sys.argv[1])
JOB = """
param out: text = "out"
param store: text = ""
job stored { memory: 32MiB, checkpoint: { every: 20ms, dir: concat(out, "/state"), store: store, keep: { last: 2 } %s } }
source s = file { path: "in.jsonl", schema: { n: int!, ts: time(ms) }, event_time: ts }
stream t = s | dedup by n within 24h
sink t = file from t { path: concat(out, "/t%s.jsonl") %s }
"""
RECORDS = 150_000
FOLDER = tempfile.TemporaryDirectory(prefix="leat-store-")
EXPECTED = []


def place(*parts):
    return os.path.join(FOLDER.name, *parts)


def leat(*words, **environment):
    return subprocess.run([LEAT, *words], cwd=FOLDER.name, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                          env={**os.environ, "LEAT_TEST_STATE": "4096", **environment})


def words(out, store, job="job.leat"):
    return "run", job, "--workers", "2", "--set", f"out={out}", "--set", f"store={store}"


def run(out, store, job="job.leat", **environment):
    return leat(*words(out, store, job), **environment)


def output(out):
    with open(place(out, "t.jsonl"), "rb") as file:
        return file.read()


def make_input():
    with open(place("job.leat"), "w", encoding="utf-8") as file:
        file.write(JOB % ("", "", ""))
    with open(place("waits.leat"), "w", encoding="utf-8") as file:
        file.write(JOB % (', commit: "store", behind: 1', "-{n}", ", roll_rows: 500"))
    with open(place("keeps.leat"), "w", encoding="utf-8") as file:
        keeps = JOB.replace("keep: { last: 2 }", "keep: { last: 1000 }").replace("every: 20ms", "every: 200ms")
        keeps = keeps.replace("dedup by n", f'with key = concat("{"key" * 100}", text(n)) | dedup by key')  # wide state
        file.write(keeps % ("", "", ""))
    with open(place("in.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(f'{{"n":{n * 7919 % (RECORDS // 2)},"ts":{1_700_000_000_000 + n}}}\n' for n in range(RECORDS))
    result = run("plain", "")
    assert result.returncode == 0, result.stderr
    EXPECTED.append(output("plain"))
    assert EXPECTED[0].count(b"\n") == RECORDS // 2


def killed_and_lost(url, kill, **environment):
    """A life that is killed and whose directory is lost; another one goes on from the store alone."""
    out = f"killed-{kill.split('=')[0]}-{url[:2]}"
    # Slowly, so that it comes to be killed before it ends, however slow the store is.
    result = run(out, url, LEAT_FAILPOINTS=f"{kill},run.claimed=sleep:200", **environment)
    assert result.returncode == -signal.SIGKILL, (kill, result.returncode, result.stderr)
    shutil.rmtree(place(out, "state"))
    listed = leat("checkpoint", "list", url, **environment)
    assert listed.returncode == 0, listed.stderr
    if "no checkpoints" in listed.stdout:
        return False
    which = f"{url}@{listed.stdout.split()[0]}" if url.startswith("file:") else url  # by name, or the newest
    result = leat("checkpoint", "restore", which, "--to", f"{out}/state", **environment)
    assert result.returncode == 0 and listed.stdout.split()[0] + ": " in result.stdout, (result, listed.stdout)
    assert leat("checkpoint", "verify", f"{out}/state").returncode == 0
    result = run(out, url, **environment)
    assert result.returncode == 0 and "resumed" in result.stdout + result.stderr, result
    assert output(out) == EXPECTED[0]
    return True


def test_directory():
    """Killed at each step of a copy."""
    resumed = 0
    for kill in ("objects.head=kill@2", "objects.write=kill@9", "objects.rename=kill@12", "objects.fsync=kill@7",
                 "ckpt.published=kill@3"):
        resumed += killed_and_lost(f"file:{place('store of ' + kill)}", kill)
    assert resumed >= 1, resumed  # at the second head there is a first one


def some_groups(out, url, **environment):
    """A tenth of the key groups alone: whole, told as such, and refused by a run, which needs the others, too."""
    result = leat("checkpoint", "restore", url, "--to", f"{out}/some", "--groups", "0-71", **environment)
    assert result.returncode == 0 and ": key groups 0-71 copied to" in result.stdout, result
    assert leat("checkpoint", "verify", f"{out}/some").returncode == 0
    shown = leat("checkpoint", "show", f"{out}/some")
    assert shown.returncode == 0 and "key groups 0-71 alone" in shown.stdout, shown
    shutil.rmtree(place(out, "state"))
    os.rename(place(out, "some"), place(out, "state"))
    result = run(out, url, **environment)
    assert result.returncode != 0 and "E0701" in result.stderr and "leat checkpoint restore" in result.stderr, result


def test_key_groups():
    url = f"file:{place('groups')}"
    assert run("groups-out", url).returncode == 0
    some_groups("groups-out", url)
    for groups in ("720", "3-1", "1,1", ""):
        result = leat("checkpoint", "restore", url, "--to", "x", "--groups", groups)
        assert result.returncode != 0 and "0-71, 90" in result.stderr, result.stderr
    result = leat("checkpoint", "restore", "groups-out/state", "--to", "x", "--groups", "1")
    assert result.returncode != 0 and "from an object store" in result.stderr, result.stderr


def test_store_is_behind_at_the_end():
    """The store cannot be written: the job ends well, and says what the store lacks."""
    with open(place("a file"), "w", encoding="utf-8"):
        pass
    result = leat(*words("behind", f"file:{place('a file')}/below"), "--json")
    assert result.returncode == 0, result.stderr
    store = json.loads(result.stdout)["store"]
    assert store["checkpoints_behind"] > 0 < store["behind_ms"] and store["bytes"] == 0 and not store["sinks_wait"], store
    assert "the store lacks" in result.stderr and "E0710" in result.stderr, result.stderr
    assert "the run ends, and the store lacks its newest" in result.stderr, result.stderr
    assert output("behind") == EXPECTED[0]


def test_store_recovers():
    """Errors that pass are tried again; at the end the store has the last checkpoint."""
    url = f"file:{place('recovers')}"
    result = run("recovers-out", url, LEAT_FAILPOINTS="objects.write=error:EIO@3")
    assert result.returncode == 0, result.stderr
    assert "the store lacks" in result.stderr and "the run ends, and" not in result.stderr, result.stderr
    newest = leat("checkpoint", "list", "recovers-out/state").stdout.split()[0]
    assert leat("checkpoint", "list", url).stdout.split()[0] == newest
    assert "every byte is as written" in leat("checkpoint", "verify", url).stdout
    assert leat("state", "list", url).stdout == leat("state", "list", "recovers-out/state").stdout != ""


def test_bad_store():
    for url, word in (("s4://x", "file:/shared/directory"), ("file:relative", "absolute path")):
        result = run("bad", url)
        assert result.returncode != 0 and "E0710" in result.stderr and word in result.stderr, result.stderr
    result = leat("checkpoint", "show", "file:/nowhere")
    assert result.returncode != 0 and "no such checkpoint" in result.stderr, result.stderr
    result = leat("checkpoint", "prune", "file:/nowhere")
    assert result.returncode != 0 and "restore the checkpoint into a directory first" in result.stderr, result.stderr
    result = leat("checkpoint", "restore", f"file:{place('empty')}", "--to", "x")
    assert result.returncode != 0 and "E0705" in result.stderr, result.stderr


def two_lives(out, url, **environment):
    """Two lives that end before the end of the input: the store has the last checkpoint of each. Their directory is lost."""
    for until in ("2023-11-14T22:14:10Z", "2023-11-14T22:15:00Z"):
        result = leat("run", "job.leat", "--workers", "2", "--set", f"out={out}", "--set", f"store={url}", "--until", until,
                      **environment)
        assert result.returncode == 0 and "the store lacks" not in result.stderr, result.stderr
    shutil.rmtree(place(out, "state"))
    listed = [line.split()[0] for line in leat("checkpoint", "list", url, **environment).stdout.splitlines()]
    newest, older = (max((name for name in listed if name.startswith(life)), key=lambda name: int(name[2:])) for life in "21")
    return newest, older


def run_from(out, url, source, **environment):
    return leat("run", "job.leat", "--workers", "2", "--set", f"out={out}", "--set", f"store={url}", "--from", source, **environment)


def copies(out):
    return [name for name in os.listdir(place(out, "state")) if name.startswith(".from-")]


def from_store(out, url, **environment):
    """A new run from the store alone: killed while it copies, and before its own first checkpoint."""
    newest, older = two_lives(out, url, **environment)
    result = run_from(out, url, url, LEAT_FAILPOINTS="objects.restore=kill@2", **environment)
    assert result.returncode == -signal.SIGKILL and os.listdir(place(out, "state")), result.stderr
    result = run_from(out, url, f"{url}@{older}", LEAT_FAILPOINTS="ckpt.pre_rename=kill@1", **environment)
    assert result.returncode == -signal.SIGKILL and f"copied checkpoint {older} from {url}" in result.stderr, result.stderr
    assert len(copies(out)) == 1, copies(out)
    result = run(out, url, **environment)  # needs the store no more: the copy is there
    assert result.returncode == 0 and f"state of checkpoint {older} in {url}" in result.stderr, result.stderr
    assert "copied" not in result.stderr and copies(out) == [], (result.stderr, copies(out))
    assert output(out) == EXPECTED[0]
    # Its copies are newer than those of the run before, which are pruned.
    again = leat("checkpoint", "list", url, **environment).stdout.splitlines()
    assert int(again[0].split("-")[0]) > int(newest.split("-")[0]), (again, newest)
    assert "the store lacks" not in result.stderr, result.stderr


def test_from():
    from_store("from", f"file:{place('from store')}")


def test_from_again_copies_again():
    """A run that began with a store, and lost its copy before its own first checkpoint, gets that very checkpoint again."""
    url = f"file:{place('lost copy')}"
    _, older = two_lives("lost", url)
    assert run_from("lost", "", f"{url}@{older}", LEAT_FAILPOINTS="ckpt.pre_rename=kill@1").returncode == -signal.SIGKILL
    shutil.rmtree(place("lost", "state", copies("lost")[0]))
    result = run("lost", "")
    assert result.returncode == 0 and f"copied checkpoint {older} from {url}" in result.stderr, result.stderr
    assert output("lost") == EXPECTED[0]


def test_from_nothing():
    for source, code, words in ((f"file:{place('nothing')}", "E0705", "leat checkpoint list"),
                                (f"file:{place('nothing')}@3-17", "E0705", "no checkpoint 3-17"),
                                ("file:relative", "E0710", "absolute path"),
                                ("s3://bucket", "E0710", "AWS_ACCESS_KEY_ID")):
        result = run_from("nothing-out", "", source, AWS_ACCESS_KEY_ID="")
        assert result.returncode != 0 and code in result.stderr and words in result.stderr, result.stderr
        assert copies("nothing-out") == [], copies("nothing-out")


def test_store_of_another_run():
    """A run that begins anew beside an older one's checkpoints touches nothing, and says what to do."""
    url = f"file:{place('of another')}"
    two_lives("other", url)
    resumed = leat("checkpoint", "restore", url, "--to", "other/state")
    assert resumed.returncode == 0 and run("other", url).returncode == 0
    before = leat("checkpoint", "list", url).stdout
    result = run("anew", url)
    assert result.returncode == 0 and "of another run" in result.stderr and f"--from {url}" in result.stderr, result.stderr
    assert leat("checkpoint", "list", url).stdout == before


def content(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def head_files(path):
    """By a checkpoint's file, relative to the directory: the object that has it, and its bytes."""
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file if line.startswith("file ")]
    return {name: (found, int(size[5:])) for size, found, name in lines}


def uploads(out, folder):
    """For each head in the store, oldest first: bytes of the objects that it needed and no earlier one had, and its own; bytes in
    the local files that no earlier checkpoint in the store had."""
    objects, contents = set(), set()
    for path in sorted(glob.glob(place(folder, "heads", "*"))):
        files = head_files(path)
        sent = os.path.getsize(path) + sum({found: size for found, size in files.values() if found not in objects}.values())
        local = {content(place(out, "state", name)): size for name, (_, size) in files.items()}
        yield os.path.basename(path), sent, sum(size for digest, size in local.items() if digest not in contents)
        objects |= {found for found, _ in files.values()}
        contents |= set(local)


def test_upload_is_what_is_new():
    """Of each checkpoint, also across restarts, no more than 1.1 times the bytes that are new goes up; nothing where a finished run
    starts again. State is evicted, so that there is a database; all checkpoints stay, to be compared."""
    url = f"file:{place('new only')}"
    for until in ("2023-11-14T22:13:45Z", "2023-11-14T22:14:10Z", "2023-11-14T22:14:34Z", None, None, None):
        more = ("--until", until) if until else ()
        slowly = {"LEAT_FAILPOINTS": "run.claimed=sleep:200"} if until else {}  # several copies a life, one a second
        result = leat(*words("ratio", url, "keeps.leat"), *more, LEAT_TEST_STATE="65536", **slowly)
        assert result.returncode == 0 and "the store lacks" not in result.stderr, result.stderr
    found = list(uploads("ratio", "new only"))
    lives = {name.split("-")[0] for name, _, _ in found}
    large = [(name, sent, new) for name, sent, new in found if new >= 256 << 10]
    deltas = [name for i, (name, _, _) in enumerate(large) if i > 0 and name.split("-")[0] == large[i - 1][0].split("-")[0]]
    assert len(lives) == 4 and len(large) >= 3 and deltas, found
    assert len({name.rsplit("-", 1)[0] for name, _, _ in found}) == len(found), found  # each checkpoint has one head
    assert all(sent <= 1.1 * new for _, sent, new in large), large
    assert all(sent <= 1.1 * new + (8 << 10) for _, sent, new in found), found  # of small ones: the head
    every = {os.path.relpath(path, place("new only")) for path in glob.glob(place("new only", "**"), recursive=True) if os.path.isfile(path)}
    named = {name for path in glob.glob(place("new only", "heads", "*")) for name, _ in head_files(path).values()}
    assert {name for name in every if not name.startswith("heads")} == named, every - named  # nothing went up for nobody


# --- commit: store ---


def named(out):
    """The files of `waits.leat` that have their final names, in order."""
    return sorted((name for name in os.listdir(place(out)) if name.endswith(".jsonl")), key=lambda name: int(name[2:-6]))


def rolled(out):
    return b"".join(open(place(out, name), "rb").read() for name in named(out))


def local(out):
    """The epoch of the newest checkpoint in the directory; 0: there is none."""
    lines = leat("checkpoint", "list", f"{out}/state").stdout.split()
    return int(lines[0].split("-")[1]) if lines and "-" in lines[0] else 0


def test_files_wait_for_the_store():
    """No file has its name before the store has its rows; a restart, which knows nothing of the store, changes nothing."""
    url = f"file:{place('waits for')}"
    for _ in range(2):
        result = run("waits", url, "waits.leat", LEAT_FAILPOINTS="objects.head=kill@1")
        assert result.returncode == -signal.SIGKILL and local("waits") > 0, result.stderr
        assert named("waits") == [] and os.path.exists(place("waits", "t-000000.jsonl.part")), os.listdir(place("waits"))
    shutil.rmtree(place("waits for"))
    result = run("waits", url, "waits.leat")
    assert result.returncode == 0 and rolled("waits") == EXPECTED[0], result.stderr


def test_behind():
    """A store that is away: the sources wait, and go on when it is back."""
    url = f"file:{place('another file')}/below"
    slowly = {**os.environ, "LEAT_FAILPOINTS": "run.claimed=sleep:10"}  # or the input may be through before two checkpoints are
    with open(place("another file"), "w", encoding="utf-8"):
        pass
    with subprocess.Popen([LEAT, *words("far", url, "waits.leat")], cwd=FOLDER.name, stderr=subprocess.PIPE, text=True,
                          env=slowly) as process:
        said = next(line for line in process.stderr if "sinks commit nothing until it has them" in line)
        again = next(line for line in process.stderr if "the store lacks" in line)  # five seconds later
        assert "E0710" in said and "lacks 2 checkpoints" in again, (said, again)
        assert local("far") == 2 and named("far") == [], (local("far"), named("far"))
        os.unlink(place("another file"))
        rest = process.stderr.read()
        assert process.wait(PATIENCE_S) == 0, rest
    assert rolled("far") == EXPECTED[0]


def test_the_end_without_a_store():
    """The input has ended, and the store is away: an error, and the next start commits what is left."""
    url = f"file:{place('third file')}/below"
    with open(place("third file"), "w", encoding="utf-8"):
        pass
    options = ("--until", "2023-11-14T22:13:21Z")
    result = leat(*words("ends", url, "waits.leat"), *options)
    assert result.returncode != 0 and "E0710" in result.stderr and "start the job again" in result.stderr, result.stderr
    assert named("ends") == [], named("ends")
    os.unlink(place("third file"))
    result = leat(*words("ends", url, "waits.leat"), *options)
    assert result.returncode == 0 and named("ends") != [], result.stderr


def test_commit_needs_a_store():
    result = run("none", "", "waits.leat")
    assert result.returncode != 0 and "`commit: store` waits for a store" in result.stderr, result.stderr


def test_s3():
    """The same against s3proxy; no object is put twice but by a request that is sent again."""
    try:
        rig.class_path()
    except rig.install.Missing as error:
        return f"no s3proxy: {error}"
    with rig.Store() as store:
        store.make_bucket("jobs")
        environment = {name: value for name, value in store.environment().items() if name.startswith("AWS_")}
        assert killed_and_lost("s3://jobs/a b/ü", "objects.head=kill@2", **environment)
        puts = collections.Counter(path for method, path, _, _ in store.seen if method == "PUT")
        assert len(puts) > 10 and set(puts.values()) == {1}, puts.most_common(3)
        from_store("from-s3", "s3://jobs/from", **environment)
        some_groups("killed-objects.head-s3", "s3://jobs/a b/ü", **environment)
        assert all(path.startswith(("/jobs/from/", "/jobs/a%20b/%C3%BC/")) for path in puts if path != "/jobs"), puts
    return None


if __name__ == "__main__":
    make_input()
    sys.exit(tap.run(globals()))
