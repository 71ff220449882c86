#!/usr/bin/env python3
"""`leat` as people call it: what is refused and what it says, signals, the supervisor, replays.

    tests/cli/test_cli.py PATH_OF_LEAT
"""

import contextlib
import glob
import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
GOOD, FAILED, USAGE, BAD_JOB, INTERRUPTED = 0, 1, 2, 3, 130

JOB = """
param count: int = 4000000
param every: duration = 100ms
job j {{ memory: 64MiB, workers: 2, checkpoint: {{ every: every, dir: "state" }} }}
source s = sequence {{ count: count, keys: 1000, rate: 100000, event_time: ts }}
stream d = s | feature by key over 10m every 1m {{ n: count() }} | where n % 100 == 0
sink o = file from d {{ path: "out.jsonl" }}
{more}
"""
FILE_JOB = """
job f { checkpoint: { every: 1h, dir: "state" } }
source s = file { path: "data.jsonl", schema: { id: int, ts: time(ms) }, event_time: ts }
sink o = file from s { path: "out.jsonl" }
"""


@contextlib.contextmanager
def place(job=None, more=""):
    """A folder with job.leat in it, and into it."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with open("job.leat", "w", encoding="utf-8") as file:
                file.write(job or JOB.format(more=more))
            yield
        finally:
            os.chdir(before)


def leat(*arguments, env=None, limit=None):
    """(status, stdout, stderr)"""
    set_limit = (lambda: resource.setrlimit(limit[0], (limit[1], limit[1]))) if limit else None
    result = subprocess.run([LEAT, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                            env={**os.environ, **(env or {})}, preexec_fn=set_limit)
    return result.returncode, result.stdout, result.stderr


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def undisturbed():
    """Digest of the output of a whole run."""
    with place():
        status, _, errors = leat("run", "job.leat", "--quiet")
        assert status == GOOD, errors
        return digest("out.jsonl")


def start(*arguments, env=None):
    """A run that has published a checkpoint."""
    process = subprocess.Popen([LEAT, "run", "job.leat", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, **(env or {})})
    deadline = time.monotonic() + PATIENCE_S
    while not published() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    return process


def published():
    """Checkpoints; folders may get their names, and go, while one looks."""
    return [path for path in glob.glob("state/gen-*/ckpt-*") if re.search(r"/ckpt-\d+$", path)]


# arguments, environment, status, what stderr must hold
REFUSED = [
    (["frobnicate"], {}, USAGE, r"E1001.*\n.*leat --help"),
    (["rum"], {}, USAGE, r"did you mean `leat run`"),
    (["run"], {}, USAGE, r"which job"),
    (["run", "none.leat"], {}, BAD_JOB, r"E0601.*none\.leat"),
    (["run", "."], {}, BAD_JOB, r"E0601.*\n.*Is a directory"),
    (["run", "job.leat", "again.leat"], {}, USAGE, r"give one job only"),
    (["run", "job.leat", "--workers", "0"], {}, USAGE, r"1 to 256"),
    (["run", "job.leat", "--fresh", "--resume"], {}, USAGE, r"give only one of them"),
    (["run", "job.leat", "--resume"], {}, FAILED, r"E0707.*\n.*start the job without --resume"),
    (["run", "job.leat", "--until", "tomorrow"], {}, USAGE, r"2024-05-01T00:00:00Z"),
    (["run", "job.leat", "--set", "count=many"], {}, BAD_JOB, r"E0208"),
    (["run", "job.leat", "--set", "counts=1"], {}, BAD_JOB, r"E0205"),
    (["run", "job.leat", "--sink", "p=x"], {}, BAD_JOB, r"E1001.*no sink `p`\n.*it has: o"),
    (["run", "job.leat", "--replay", "p=x"], {}, BAD_JOB, r"E1001.*no source `p`\n.*it has: s"),
    (["run", "job.leat", "--no-such"], {}, USAGE, r"no-such"),
    (["check", "job.leat"], {"LEAT_KERNELS": "neon"}, USAGE, r"E1002.*LEAT_KERNELS"),
    (["check", "job.leat"], {"LEAT_FAILPOINTS": "nowhere=kill"}, USAGE, r"E1002.*nowhere"),
    (["check", "job.leat"], {"LEAT_FAILPOINTS": "ckpt.fsync=jump"}, USAGE, r"E1002.*\n.*kill, stop, exit, error"),
    (["checkpoint", "list", "none"], {}, FAILED, r"E0701.*none"),
    (["checkpoint", "shout", "."], {}, FAILED, r"E1001.*\n.*list, show, verify, prune, save and restore"),
    (["model", "show", "none"], {}, FAILED, r"E07\d\d.*none"),
    (["generate", "nothing"], {}, USAGE, r"`ctr` and `nexmark`"),
    (["generate", "nexmark", "--labelled"], {}, USAGE, r"--labelled is not an option of this KIND"),
    (["generate", "ctr", "--tps", "5"], {}, USAGE, r"--tps is not an option of this KIND"),
    (["generate", "nexmark", "--part", "2/2"], {}, USAGE, r"`2/2` is not a part like 0/2"),
    (["generate", "ctr", "--events", "1000000000000"], {}, USAGE, r"more than 100 years"),
    (["record"], {}, USAGE, r"leat record clicks --to rec"),
    (["record", "--to", "rec"], {}, USAGE, r"which topics"),
    (["record", "t", "--to", "rec", "--from", "yesterday"], {}, USAGE, r"earliest, latest, a time.*`yesterday`"),
    (["record", "t", "--to", "rec", "--until", "then"], {}, USAGE, r"--until takes latest"),
    (["record", "t", "--to", "rec", "--format", "xml"], {}, USAGE, r"jsonl or msgpack"),
    (["record", "t", "--to", "rec", "--span-time", "5min"], {}, USAGE, r"a duration like 5m,"),
    (["record", "a b", "--to", "rec"], {}, BAD_JOB, r"E0404.*`a b`"),
    (["record", "t", "--to", "rec", "--brokers", "http://x"], {}, BAD_JOB, r"E0404.*host:port"),
    (["record", "t", "--to", "rec", "--source", "job.leat"], {}, BAD_JOB, r"E1001.*JOB:NAME"),
    (["record", "t", "--to", "rec", "--source", "job.leat:s"], {}, BAD_JOB, r"E1001.*not of kind kafka\n.*none"),
    (["produce", "t"], {}, USAGE, r"leat produce clicks clicks.jsonl"),
    (["produce", "t", "f", "--rate", "0/s"], {}, USAGE, r"a number above 0, for example 10/s"),
    (["produce", "t", "f", "--speed", "fast"], {}, USAGE, r"for example 10x, not `fast`"),
    (["produce", "t", "f", "--format", "avro"], {}, USAGE, r"json, csv or msgpack"),
    (["produce", "t", "f", "--skip-lost"], {}, USAGE, r"for --dead-letters"),
    (["produce", "t", "f", "--time", "ts"], {}, USAGE, r"--speed or --keep-times"),
    (["produce", "--dead-letters"], {}, USAGE, r"which dead letters"),
    (["produce", "t", "none.jsonl"], {}, FAILED, r"E0602.*none.jsonl"),
    (["produce", "t", "job.leat"], {}, FAILED, r"E0402.*job.leat.*\n.*--format json"),
]


def test_every_command_helps():
    _, text, _ = leat("--help")
    for command in re.findall(r"^  (\w+) +\S", text, re.M):
        status, said, _ = leat(command, "--help")
        assert status == GOOD and said.startswith(f"Usage: leat {command}"), (command, status, said)
        assert all(len(line) < 100 for line in said.split("\n")), command


def test_what_cannot_be_meant_is_refused():
    with place():
        for arguments, env, expected, words in REFUSED:
            status, _, errors = leat(*arguments, env=env)
            assert status == expected and re.search(words, errors), (arguments, env, status, errors)
            assert not os.path.exists("out.jsonl"), arguments


def test_a_job_file_that_is_too_large_says_how_large_it_may_be():
    with place():
        with open("big.leat", "w", encoding="utf-8") as file:
            file.write("# filler\n" * 1_100_000)
        for command in ("check", "run", "fmt"):
            status, _, errors = leat(command, "big.leat")
            assert status in (FAILED, BAD_JOB) and re.search(r"E0105.*9900000 bytes; at most 1048576 are allowed", errors), errors
            assert "hint" in errors


def test_each_file_is_formatted_once():
    with place():
        usual = leat("fmt", "--stdout", "job.leat")[1]
        assert usual.count("job j") == 1, usual
        assert leat("fmt", "--check", "job.leat", "job.leat") == (FAILED, "job.leat: not in its usual form\n" * 2, "")
        assert leat("fmt", "job.leat") == (GOOD, "job.leat\n", "")
        with open("job.leat", encoding="utf-8") as file:
            assert file.read() == usual


def test_threads_that_the_system_refuses():
    with place():
        stack = (resource.RLIMIT_STACK, 1 << 40)  # of each thread
        status, _, errors = leat("run", "job.leat", "--workers", "256", limit=stack)
        assert status == FAILED and "E0505" in errors, (status, errors)


def test_memory_that_the_system_refuses():
    with place():
        starts = next(b for b in range(16 << 20, 1 << 34, 8 << 20)
                      if leat("help", "sources", limit=(resource.RLIMIT_AS, b))[0] == GOOD)
        status, _, errors = leat("generate", "ctr", "--events", "1000", "--out", "ctr",
                                 limit=(resource.RLIMIT_AS, starts + (16 << 20)))
        assert status == FAILED and "E0802" in errors and "hint" in errors, (status, errors)
        assert leat("generate", "ctr", "--events", "1000", "--out", "ctr")[0] == GOOD  # nothing stands in its way


def test_a_foreign_folder_is_left_alone():
    with place():
        os.mkdir("state")
        with open("state/mine", "w", encoding="utf-8") as file:
            file.write("x")
        status, _, errors = leat("run", "job.leat")
        assert status == FAILED and "E0701" in errors and "`mine`" in errors, errors
        assert os.listdir("state") == ["mine"]


def test_one_process_a_directory():
    with place():
        process = start("--set", "count=400000000")
        status, _, errors = leat("run", "job.leat")
        process.kill()
        process.communicate()
        assert status == FAILED and "E0706" in errors and "--take-over" in errors, errors


def test_interrupted_once_it_takes_a_checkpoint_and_goes_on():
    expected = undisturbed()
    for number in (signal.SIGINT, signal.SIGTERM):
        with place():
            process = start("--set", "count=4000000")
            process.send_signal(number)
            _, errors = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == GOOD and "a second Ctrl-C stops at once" in errors, (process.returncode, errors)
            assert not os.path.exists("out.jsonl"), "the output has its final name although the run is not through"
            status, out, errors = leat("run", "job.leat", "--json", "--resume")
            assert status == GOOD and "resuming from checkpoint" in errors, errors
            assert json.loads(out)["nodes"][0]["counts"]["in"] == 4000000
            assert digest("out.jsonl") == expected
            status, out, _ = leat("run", "job.leat")
            assert status == GOOD and "finished already" in out, out


def test_interrupted_twice_it_stops_at_once():
    with place():
        process = start("--set", "count=400000000", env={"LEAT_FAILPOINTS": "ckpt.manifest=sleep:5000"})
        process.send_signal(signal.SIGINT)
        while "a second Ctrl-C stops at once" not in (process.stderr.readline() or "a second Ctrl-C stops at once"):
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == INTERRUPTED, process.returncode


def test_output_that_does_not_arrive():
    """A full disk is an error of any command; a reader that has seen enough is none."""
    with place():
        for words in (["help"], ["check", "job.leat"], ["explain", "--svg", "job.leat"], ["run", "job.leat", "--set", "count=10", "--quiet"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([LEAT, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
            assert done.returncode == FAILED and "error[E0608]: standard output could not be written" in done.stderr, done
            read, write = os.pipe()
            os.close(read)
            done = subprocess.run([LEAT, *words], stdout=write, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
            os.close(write)
            assert "standard output" not in done.stderr and done.returncode in (GOOD, -signal.SIGPIPE), done


def test_the_supervisor_starts_it_again():
    expected = undisturbed()
    with place():
        status, out, errors = leat("run", "job.leat", "--supervise", "--json", "--set", "every=20ms",
                                   env={"LEAT_FAILPOINTS": "ckpt.published=kill@2"})
        assert status in (GOOD, FAILED), (status, errors)
        assert len(re.findall(r"ended by signal 9.*restarting from the newest checkpoint", errors)) >= 1, errors
        assert "resuming from checkpoint" in errors, errors
        if status == FAILED:  # five short lives, each with two checkpoints: given up loudly, nothing lost
            assert "giving up" in errors, errors
            status, out, errors = leat("run", "job.leat", "--json")
            assert status == GOOD, errors
        assert json.loads(out)["nodes"][0]["counts"]["in"] == 4000000
        assert digest("out.jsonl") == expected


def test_the_supervisor_gives_up_loudly_and_not_on_bad_jobs():
    with place():
        status, _, errors = leat("run", "job.leat", "--supervise", env={"LEAT_FAILPOINTS": "ckpt.barrier=kill@1"})
        assert status == FAILED and "giving up: 5 lives" in errors, (status, errors)
    with place("job"):
        status, _, errors = leat("run", "job.leat", "--supervise")
        assert status == BAD_JOB and "restarting from the newest checkpoint" not in errors, (status, errors)


def test_an_interrupt_reaches_the_run_below_the_supervisor():
    with place():
        process = start("--supervise", "--set", "count=400000000")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == GOOD and "restarting from the newest checkpoint" not in errors, (process.returncode, errors)


def test_an_interrupt_between_two_lives_ends_the_supervisor():
    with place():
        process = subprocess.Popen([LEAT, "run", "job.leat", "--supervise"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "LEAT_FAILPOINTS": "ckpt.barrier=kill@1"})
        while "restarting from the newest checkpoint in 1600 ms" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == INTERRUPTED and errors == "", (process.returncode, errors)


def test_another_job_is_refused_and_fresh_starts_anew():
    with place():
        assert leat("run", "job.leat", "--set", "count=1000")[0] == GOOD
        status, _, errors = leat("run", "job.leat", "--set", "count=2000")
        assert status == FAILED and "E0703" in errors and "--fresh" in errors, errors
        os.remove("out.jsonl")
        status, out, errors = leat("run", "job.leat", "--set", "count=2000", "--fresh", "--json")
        assert status == GOOD and json.loads(out)["nodes"][0]["counts"]["in"] == 2000, errors


def test_until_stops_and_goes_on():
    with place(FILE_JOB):
        with open("data.jsonl", "w", encoding="utf-8") as file:
            for i in range(5000):
                file.write(json.dumps({"id": i, "ts": 1700000000000 + i * 1000}) + "\n")
        status, out, errors = leat("run", "job.leat", "--json", "--until", "2023-11-14T22:30:00Z")
        read = json.loads(out)["nodes"][0]["counts"]["in"]
        assert status == GOOD and 0 < read < 5000, (read, errors)
        batches = json.loads(out)["micro_batches"]
        status, out, errors = leat("run", "job.leat", "--json", "--until", "2023-11-14T22:20:00Z")  # an earlier one, too
        assert status == GOOD and json.loads(out)["micro_batches"] == batches and not json.loads(out)["finished"], errors
        assert "before --until were read already" in "".join(leat("run", "job.leat", "--until", "2023-11-14T22:30:00Z")[1:])
        status, out, errors = leat("run", "job.leat", "--json", "--resume")
        assert status == GOOD and json.loads(out)["nodes"][0]["counts"]["in"] == 5000, errors
        with open("out.jsonl", encoding="utf-8") as file:
            assert [json.loads(line)["id"] for line in file] == list(range(5000))


def test_a_table_that_changed_needs_a_new_run():
    def brands(name):
        with open("items.csv", "w", encoding="utf-8") as file:
            file.writelines(["id,brand\n"] + [f"{i},{name}\n" for i in range(0, 5000, 2)])

    job = FILE_JOB.replace("sink o = file from s", "stream b = s | lookup \"items.csv\" on id { brand: text }\nsink o = file from b")
    with place(job):
        with open("data.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"id": i, "ts": 1700000000000 + i * 1000}) + "\n" for i in range(5000))
        brands("old")
        assert leat("run", "job.leat", "--until", "2023-11-14T22:30:00Z")[0] == GOOD
        brands("new")
        status, _, errors = leat("run", "job.leat")
        assert status == FAILED and "E0604" in errors and "the content of `items.csv` is not the same" in errors, errors
        assert errors.count("error[") == 1, errors
        os.rename("state", "before")
        status, out, errors = leat("run", "job.leat", "--from", "before", "--json")
        assert status == GOOD, errors
        node = next(n for n in json.loads(out)["nodes"] if n["kind"] == "lookup")
        assert node["counts"]["in"] == 5000 and node["report"]["run"]["unmatched"] == 2500, node
        with open("out.jsonl", encoding="utf-8") as file:
            assert {json.loads(line)["brand"] for line in file} == {"old", "new", None}


def test_a_replay_has_a_directory_of_its_own():
    with place(FILE_JOB):
        for name, count in (("data.jsonl", 100), ("recorded.jsonl", 70)):
            with open(name, "w", encoding="utf-8") as file:
                file.writelines(json.dumps({"id": i, "ts": 1700000000000 + i}) + "\n" for i in range(count))
        assert leat("run", "job.leat")[0] == GOOD
        before = digest("out.jsonl")
        for arguments in (["--replay", "s=recorded.jsonl"], ["--replay=s=recorded.jsonl", "--fresh"]):
            status, out, errors = leat("run", "job.leat", "--json", *arguments)
            assert status == GOOD and json.loads(out)["nodes"][0]["counts"]["in"] == 70, (errors, out)
        assert digest("out.jsonl") == before and sorted(os.listdir(".")) == [
            "data.jsonl", "job.leat", "out.jsonl", "recorded.jsonl", "state", "state.replay"], os.listdir(".")
        status, _, errors = leat("run", "--replay", "s=recorded.jsonl", "--sink", "o=again.jsonl", "job.leat",
                                 "--fresh")
        assert status == GOOD and sum(1 for _ in open("again.jsonl", encoding="utf-8")) == 70, errors
        assert leat("run", "job.leat")[0] == GOOD and digest("out.jsonl") == before


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
