#!/usr/bin/env python3
"""What runs do to files: whose they never take, what is left of one that was killed, where errors point to.

    tests/cli/test_files.py PATH_OF_LEAT
"""

import contextlib
import glob
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
GOOD, FAILED, USAGE, BAD_JOB = 0, 1, 2, 3
ROWS = 500
INPUT = "".join(f'{{"n":{n},"t":{1_700_000_000_000 + n}}}\n' for n in range(ROWS))
SCHEMA = "schema: { n: int, t: time(ms) }, event_time: t"
PRECIOUS = "precious\n"


@contextlib.contextmanager
def place(**files):
    """A folder with in.jsonl and these files, and into it."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            write("in.jsonl", INPUT)
            for name, text in files.items():
                write(name.replace("__", "."), text)
            yield
        finally:
            os.chdir(before)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    with open(path, encoding="latin-1") as file:
        return file.read()


def leat(*arguments, **env):
    result = subprocess.run([LEAT, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                            env={**os.environ, **env})
    return result.returncode, result.stdout, result.stderr


def job(sinks, more="", source=f'file {{ path: "in.jsonl", {SCHEMA} }}', block=""):
    """Writes job.leat: sinks are texts that follow `sink NAME = file from s`."""
    lines = [f"job j {{ workers: 1{block} }}", f"source s = {source}", more]
    lines += [f"sink o{i} = file from s {{ {text} }}" for i, text in enumerate(sinks)]
    write("job.leat", "\n".join(lines) + "\n")


def contents():
    """Of every file below, by name, without following links."""
    found = {}
    for folder, _, names in os.walk("."):
        for name in names:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            found[path] = (info.st_ino, stat.S_IFMT(info.st_mode), read(path) if stat.S_ISREG(info.st_mode) else None)
    return found


def refused(code, words, *arguments, check=True):
    """By `leat check` and by `leat run`, with a place in the job, and nothing is touched."""
    before = contents()
    if check:
        status, _, errors = leat("check", "job.leat")
        assert status == BAD_JOB and code in errors and re.search(words, errors), (status, errors)
        assert re.search(rf"job\.leat:\d+:\d+: error\[{code}\]", errors), errors
    status, _, errors = leat("run", "job.leat", "--quiet", *arguments)
    assert status in (FAILED, BAD_JOB) and re.search(code, errors) and re.search(words, errors), (status, errors)
    after = contents()
    assert after == before, [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return errors


# --- Number one: an output takes nothing that the job needs

def test_an_output_is_never_an_input():
    for spelling in ("in.jsonl", "./in.jsonl", "sub/../in.jsonl", "//{cwd}/in.jsonl", "here/in.jsonl", "{cwd}/sub/../here/./in.jsonl"):
        with place():
            os.mkdir("sub")
            os.symlink(".", "here")
            job([f'path: "{spelling.format(cwd=os.getcwd())}", overwrite: true'])
            refused("E0617", "source `s` reads")


def test_an_output_that_a_link_makes_an_input():
    with place():
        os.link("in.jsonl", "other.jsonl")
        job(['path: "other.jsonl", overwrite: true'])
        refused("E0617", "source `s` reads")
    with place():
        os.rename("in.jsonl", "real.jsonl")
        os.symlink("real.jsonl", "in.jsonl")
        job(['path: "real.jsonl", overwrite: true'])
        refused("E0617", "source `s` reads")
        job(['path: "in.jsonl", overwrite: true'])
        refused("E0605", "symbolic link")


def test_an_output_that_a_pattern_would_read():
    with place():
        os.mkdir("d")
        os.rename("in.jsonl", "d/in.jsonl")
        for pattern, output in (("d/*.jsonl", "d/out.jsonl"), ("*/[a-p]?.jsonl", "d/ou.jsonl"), ("d/*", "d/out.csv"),
                                ("d/in*", "./d/in-rolled.jsonl\", roll_rows: \"9")):
            job([f'path: "{output}", overwrite: true'.replace('"9"', "9")], source=f'file {{ path: "{pattern}", {SCHEMA} }}')
            refused("E0617", "source `s` reads")
        job(['path: "d/out.csv"'], source=f'file {{ path: "d/*.jsonl", {SCHEMA} }}')
        assert leat("run", "job.leat")[0] == GOOD


def test_an_unfinished_output_is_never_an_input():
    with place():
        os.rename("in.jsonl", "in.jsonl.part")
        job(['path: "in.jsonl", overwrite: true'], source=f'file {{ path: "in.jsonl.part", {SCHEMA} }}')
        refused("E0617", "source `s` reads")


def test_what_else_a_job_reads():
    with place(names__csv="n,name\n1,one\n", secret__txt="xyz\n"):
        more = 'stream named = s | lookup "names.csv" on n { name: text }\nsink x = null from named'
        job(['path: "./names.csv", overwrite: true'], more)
        refused("E0617", "`lookup` in `named` reads")
        job(['path: "job.leat", overwrite: true'])
        refused("E0617", "the job itself reads")
        job(['path: "secret.txt", overwrite: true'], 'param p: text = file("./secret.txt")')
        refused("E0617", r"file\(\.\.\.\) reads")
        os.mkdir("rec")
        write("rec/manifest.json", "{}")
        job(['path: "rec/manifest.json", overwrite: true'], 'source k = kafka { brokers: "127.0.0.1:1", topic: "t", '
            f'backfill: ["./rec"], {SCHEMA} }}\nsink x = null from k')
        refused("E0617", "source `k` reads")
        job(['path: "state/rows.jsonl", overwrite: true'], block=', checkpoint: { dir: "./state" }')
        refused("E0617", "the checkpoint directory")
        job(['path: "store/rows.jsonl", overwrite: true'], block=f', checkpoint: {{ dir: "state", store: "file:{os.getcwd()}/store" }}')
        refused("E0617", "the checkpoints' store")
        os.mkdir("real")
        os.symlink("real", "link")
        job(['path: "real/state/gen-000001/db/x.jsonl", overwrite: true'], block=', checkpoint: { dir: "link/state" }')
        refused("E0617", "the checkpoint directory")


def test_a_store_in_the_checkpoint_directory():
    """Or around it: each would remove what it does not know."""
    with place():
        here = os.getcwd()
        for directory, store in (("state", "state"), ("state/own", "state"), ("state", "state/store"), ("./state/../state", "/state/.")):
            job(['path: "rows.jsonl"'], block=f', checkpoint: {{ dir: "{directory}", store: "file:{here}/{store}" }}')
            refused("E0617", "lie in one another")
        job(['path: "rows.jsonl"'], block=f', checkpoint: {{ dir: "state", store: "file://{here}/state-store" }}')
        assert leat("run", "job.leat")[0] == GOOD


def test_the_order_log():
    with place():
        job(['path: "o.jsonl", overwrite: true'])
        assert leat("run", "job.leat", "--record-order", "log")[0] == GOOD
        job(['path: "log", overwrite: true'])
        refused("E0617", "--order reads", "--order", "log", check=False)
        refused("E0606|E0407|E0617", "log", "--record-order", "log", check=False)
        os.mkdir("logs")
        job(['path: "logs/RUN", overwrite: true'])
        refused("E0407", "--record-order and|and --record-order", "--record-order", "logs/", check=False)
        job(['path: "o.jsonl", overwrite: true'])
        for taken in ("in.jsonl", "job.leat"):
            refused("E0617", "reads", "--record-order", taken, check=False)
        refused("E0605", "is a device", "--record-order", "/dev/null", check=False)


def test_outputs_of_the_command_line():
    with place():
        job(['path: "o.jsonl", overwrite: true'])
        refused("E0617", "source `s` reads", "--sink", "o0=./in.jsonl", check=False)
        job(['path: "o.jsonl", overwrite: true'], source=f'file {{ path: "nothing.jsonl", {SCHEMA} }}')
        refused("E0617", "source `s` reads", "--replay", "s=in.jsonl", "--sink", "o0=./in.jsonl", check=False)


def test_two_outputs_are_two_files():
    with place():
        os.mkdir("d")
        os.symlink("d", "e")
        for first, second in (("a.jsonl", "./a.jsonl"), ("d/a.jsonl", "e/a.jsonl"), ("a.jsonl", "a.jsonl.part"),
                              ("d/a.jsonl\", roll_rows: 9, times: \"ms", "e/a-000012.jsonl")):
            job([f'path: "{first}", overwrite: true'.replace('"ms"', "ms"), f'path: "{second}", overwrite: true'])
            refused("E0407", "both write")
        write("a.jsonl", PRECIOUS)
        os.link("a.jsonl", "b.jsonl")
        job(['path: "a.jsonl", overwrite: true', 'path: "b.jsonl", overwrite: true'])
        refused("E0407", "both write")


def test_only_files_are_replaced():
    with place():
        os.mkdir("directory")
        os.mkfifo("pipe")
        os.symlink("nowhere", "dangling")
        write("real.jsonl", PRECIOUS)
        os.symlink("real.jsonl", "link")
        kinds = {"directory": "is a directory", "pipe": "is a pipe", "socket": "is a socket", "dangling": "is a symbolic link",
                 "link": "is a symbolic link"}
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("socket")
        if os.geteuid() == 0:
            os.mknod("full", stat.S_IFCHR | 0o666, os.makedev(1, 7))
            kinds["full"] = "is a device"
        for name, what in kinds.items():
            for overwrite in ("true", "false"):
                job([f'path: "{name}", overwrite: {overwrite}'])
                errors = refused("E0605", what)
                assert "overwrite: true" not in errors.split("hint")[1], errors
        job(['path: "/dev/null"'])
        assert "sink `null`" in refused("E0605", "is a device")


def test_a_run_that_is_refused_takes_nothing_away():
    """Whatever refuses it, and in whichever order."""
    with place(a__jsonl=PRECIOUS, b__jsonl=PRECIOUS, c__jsonl__part=PRECIOUS):
        job(['path: "a.jsonl", overwrite: true', 'path: "b.jsonl"', 'path: "c.jsonl", overwrite: true'])
        refused("E0606", "`b.jsonl` exists already", check=False)
        job(['path: "a.jsonl", overwrite: true'], 'stream t = s | lookup "none.csv" on n { name: text }\nsink x = null from t')
        refused("E0602", "none.csv", check=False)
        job(['path: "a.jsonl", overwrite: true'], source=f'file {{ path: "in.jsonl", {SCHEMA}, order_by: t, sort_dir: "none" }}')
        refused("E0605", "sorted copy", check=False)
        job(['path: "a.jsonl", overwrite: true', 'path: "job.leat/x.jsonl"'])
        refused("E0605", "Not a directory", check=False)


def test_overwriting_knows_its_own_names():
    """Files whose names only begin like numbered ones are another's."""
    with place():
        kept = ["o-000001.backup.jsonl", "o-1.jsonl", "o-0000001x.jsonl", "o-.jsonl", "o-00001.jsonl"]
        gone = ["o-000000.jsonl", "o-000077.jsonl", "o-1000000.jsonl", "o-000078.jsonl.part"]
        for name in kept + gone:
            write(name, PRECIOUS)
        job(['path: "o.jsonl", roll_rows: 200'])
        refused("E0606", "exists already", check=False)
        job(['path: "o.jsonl", roll_rows: 200, overwrite: true'])
        assert leat("run", "job.leat")[0] == GOOD
        assert sorted(glob.glob("o-*")) == sorted(kept + ["o-000000.jsonl", "o-000001.jsonl", "o-000002.jsonl"])
        assert all(read(name) == PRECIOUS for name in kept)


def test_a_file_that_appears_meanwhile_stays():
    """Nobody had the name when the run began; who took it since keeps it."""
    with place():
        job(['path: "o.jsonl"'], source="sequence { count: 3000000, keys: 10, rate: 100000, event_time: ts }")
        process = subprocess.Popen([LEAT, "run", "job.leat", "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not os.path.exists("o.jsonl.part"):
            time.sleep(0.001)
        write("o.jsonl", PRECIOUS)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == FAILED and "File exists" in errors and "o.jsonl" in errors, (process.returncode, errors)
        assert read("o.jsonl") == PRECIOUS and os.path.getsize("o.jsonl.part") > 1000


# --- What a killed run leaves

SLOW = "sequence { count: 1200000, keys: 100000, rate: 100000, event_time: ts }"
KEEPS = "stream f = s | feature by key over 1h every 1m { n: count(), last: last(ts) }\nsink x = null from f"


def start(*arguments, **env):
    return subprocess.Popen([LEAT, "run", "job.leat", "--quiet", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env={**os.environ, **env})


def wait_for(condition, process):
    """The process is still there then; else, and after too long, it is ended and what it said is shown."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end or process.poll() is not None:
            process.kill()
            raise AssertionError(process.communicate())
        time.sleep(0.002)


def test_the_next_start_removes_what_a_killed_one_kept():
    """State that does not fit into memory lies in TMPDIR, where there are no checkpoints."""
    with place():
        os.mkdir("tmp")
        env = {"TMPDIR": os.path.abspath("tmp"), "LEAT_TEST_STATE": "60000"}
        job([], KEEPS, "sequence { count: 400000, keys: 100000, rate: 100000, event_time: ts }")
        for _ in range(3):
            process = start(**env)
            wait_for(lambda: glob.glob("tmp/leat-state-*/db/*.log") or glob.glob("tmp/leat-state-*/db/CURRENT"), process)
            process.kill()
            process.wait()
            assert glob.glob("tmp/leat-state-*"), "nothing was left: this shows nothing"
        left = os.listdir("tmp")
        living = start(**env)
        wait_for(lambda: len(os.listdir("tmp")) == 1 and os.listdir("tmp") != left, living)
        mine = os.listdir("tmp")
        job([], KEEPS, "sequence { count: 20000, keys: 1000, rate: 100000, event_time: ts }")
        status, _, errors = leat("run", "job.leat", "--quiet", **env)
        assert status == GOOD, errors
        assert os.listdir("tmp") == mine, (os.listdir("tmp"), mine)  # of the one that lives
        _, errors = living.communicate(timeout=PATIENCE_S)
        assert living.returncode == GOOD, errors
        assert os.listdir("tmp") == [], os.listdir("tmp")


def test_what_others_keep_in_tmpdir_stays():
    with place():
        os.makedirs("tmp/leat-state-123456/db")
        write("tmp/leat-state-123456/db/CURRENT", PRECIOUS)  # whose it is nobody knows
        os.makedirs("elsewhere/db")
        write("elsewhere/lock", "")
        os.symlink("../elsewhere", "tmp/leat-state-abcdef")
        before = contents()
        job([], KEEPS, "sequence { count: 20000, keys: 1000, rate: 100000, event_time: ts }")
        assert leat("run", "job.leat", TMPDIR=os.path.abspath("tmp"))[0] == GOOD
        after = contents()
        assert {k: v for k, v in after.items() if k != "./job.leat"} == before


# --- A supervised run goes on with what its own lives wrote

def children(process):
    return subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False).stdout.split()


def kill_child(process, condition):
    """Once the run below the supervisor has come so far; returns when the next one is there."""
    wait_for(condition, process)
    before = children(process)
    os.kill(int(before[0]), signal.SIGKILL)
    wait_for(lambda: children(process) not in ([], before), process)


def supervised(path, *arguments, block="", times=2):
    """Kills the run below the supervisor so many times while it writes; returns how it ended."""
    job([f'path: "{path}"'], block=block, source=SLOW)
    process = start("--supervise", *arguments)
    for _ in range(times):
        kill_child(process, lambda: os.path.exists(f"{path}.part") and os.path.getsize(f"{path}.part") > 1_000_000)
    out, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, errors


def test_a_supervised_run_replaces_what_its_earlier_life_wrote():
    with place():
        job(['path: "o.jsonl"'], source=SLOW)
        assert leat("run", "job.leat", "--quiet")[0] == GOOD
        os.rename("o.jsonl", "expected")
        status, _, errors = supervised("o.jsonl")
        assert status == GOOD and errors.count("restarting from the newest checkpoint") == 2, (status, errors)
        assert read("o.jsonl") == read("expected") and sorted(os.listdir(".")) == ["expected", "in.jsonl", "job.leat", "o.jsonl"]
        os.remove("o.jsonl")
        for log in ("log", "logs/"):
            status, _, errors = supervised("o.jsonl", "--record-order", log, times=1)
            assert status == GOOD and "E0606" not in errors, (status, errors)
            os.remove("o.jsonl")
            job(['path: "o.jsonl"'], source=SLOW)
            assert leat("run", "job.leat", "--quiet", "--order", log)[0] == GOOD
            assert read("o.jsonl") == read("expected")
            os.remove("o.jsonl")


def test_a_supervised_run_of_many_files():
    """Complete files have their names at once, where there are no checkpoints: they are the earlier life's, too."""
    with place():
        job(['path: "o.csv", roll_rows: 250000'], source=SLOW)
        assert leat("run", "job.leat", "--quiet")[0] == GOOD
        expected = {name: read(name) for name in glob.glob("o-*.csv")}
        for name in expected:
            os.remove(name)
        job(['path: "o.csv", roll_rows: 250000'], source=SLOW)
        process = start("--supervise")
        kill_child(process, lambda: os.path.exists("o-000001.csv"))
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == GOOD and "restarting from the newest checkpoint" in errors, errors
        assert {name: read(name) for name in glob.glob("o-*")} == expected


def test_the_first_start_below_a_supervisor_refuses_as_ever():
    for name in ["o.jsonl.part"]:
        with place():
            write(name, PRECIOUS)
            job(['path: "o.jsonl"'], source=SLOW)
            status, _, errors = leat("run", "job.leat", "--quiet", "--supervise")
            assert status == FAILED and errors.count("E0606") == 5 and "giving up" in errors, errors
            assert read(name) == PRECIOUS
    with place():
        write("log", PRECIOUS)
        job(['path: "o.jsonl"'], source=SLOW)
        status, _, errors = leat("run", "job.leat", "--quiet", "--supervise", "--record-order", "log")
        assert status == FAILED and errors.count("E0606") == 5 and read("log") == PRECIOUS, errors


def test_an_order_log_is_never_another_file():
    """A run that was killed before its first checkpoint begins anew: what it cuts is its own log, or it refuses."""
    with place():
        job(['path: "o.jsonl"'], source=SLOW, block=', checkpoint: { every: 1h, dir: "state" }')
        process = start("--record-order", "log")
        wait_for(lambda: os.path.exists("o.jsonl.part"), process)
        process.kill()
        process.wait()
        write("precious", PRECIOUS)
        status, _, errors = leat("run", "job.leat", "--quiet", "--record-order", "precious")
        assert status == FAILED and "E0606" in errors and "not an order log" in errors and read("precious") == PRECIOUS, errors
        assert leat("run", "job.leat", "--quiet", "--record-order", "log")[0] == GOOD


# --- Where errors point to

def test_errors_of_files_have_a_place_in_the_job():
    with place():
        cases = [
            ("E0602", "no file matches", 2, '"none-*.jsonl"', f'file {{ path: "none-*.jsonl", {SCHEMA} }}', ""),
            ("E0602", "no manifest.json", 2, '"."', f'file {{ path: ".", {SCHEMA} }}', ""),
            ("E0601", "is not a regular file", 2, '["in.jsonl"', f'file {{ path: ["in.jsonl", "pipe.jsonl"], {SCHEMA} }}', ""),
            ("E0602", "none.csv", 3, "lookup", "", 'stream f = s | lookup "none.csv" on n { name: text }\nsink x = null from f'),
            ("E0605", "sorted copy", 2, '"in.jsonl"', f'file {{ path: "in.jsonl", order_by: t, sort_dir: "none", {SCHEMA} }}', ""),
            ("E0603", "compressed", 2, '"in.jsonl.gz"', f'file {{ path: "in.jsonl.gz", {SCHEMA} }}', ""),
        ]
        write("in.jsonl.gz", INPUT)
        os.mkfifo("pipe.jsonl")
        for code, words, line, what, source, more in cases:
            job([], more or "sink x = null from s", **({"source": source} if source else {}))
            status, _, errors = leat("run", "job.leat", "--quiet")
            place_of = re.search(rf"job\.leat:{line}:(\d+): ", errors)
            assert status == FAILED and code in errors and words in errors and place_of, errors
            text = read("job.leat").splitlines()[line - 1]
            column = int(place_of[1]) - 1
            assert what in text[column:column + len(what) + 30], (errors, text[column:])
        write("o.jsonl", PRECIOUS)
        for path, code in (("o.jsonl", "E0606"), ("in.jsonl/x", "E0605"), (".", "E0605")):
            job([f'path: "{path}"'])
            errors = leat("run", "job.leat", "--quiet")[2]
            assert re.search(rf"job\.leat:4:31: error\[{code}\]", errors), errors
        status, out, _ = leat("run", "job.leat", "--json")
        assert (json.loads(out)[0]["line"], json.loads(out)[0]["column"]) == (4, 31), out


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
