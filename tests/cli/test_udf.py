#!/usr/bin/env python3
"""`use "lib.so"`: the example is built by its own CMakeLists.txt outside of the tree and run, compared with a
computation of its own, through kills and at several numbers of workers; what is wrong with a library is said; what
crashes is named.

    tests/cli/test_udf.py PATH_OF_LEAT
"""

import datetime
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import tap  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
GOOD, USAGE, BAD_JOB = 0, 2, 3

JOB = """
use "build/libgeo.so"
job trips { workers: %d, checkpoint: { every: 20ms, dir: "%s" } }
source trips = file { path: "trips.jsonl", schema: { user: int, name: text, ts: time(ms), lat: float, lon: float }
  event_time: ts, max_delay: 10s }
stream measured = trips | since by user forget 2h | with km = haversine(lat, lon, 52.52, 13.405), who = initials(name, "?")
stream gone = trips | silent by user after 30m
sink measured = file from measured { path: "%s/measured.jsonl" }
sink gone = file from gone { path: "%s/gone.jsonl" }
sink dead = file from dead_letters { path: "%s/dead.jsonl" }
"""

BAD = """
#include "leat.h"
#include <err.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void crash(struct leat_call *call)
{
    for (uint32_t i = 0; i < call->rows; i++) {
        if (call->argument[0].values.ints[i] == 77)
            HOW;
        call->result.ints[i] = 0;
    }
}

static const struct leat_function functions[] = {
    {.name = NAME, .signature = "f(x)", .summary = "dies", .example = "f(1)", .arguments = ARGUMENTS, .result = 'i',
     .call = crash},
    {0},
};

LEAT_EXPORT = {.abi = ABI, .name = "bad", .functions = functions};
"""


def run(*arguments, env=None):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                          env={**os.environ, **(env or {})})


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def rows(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def build_example(folder):
    """As a user would: the sources copied away, the header by a path."""
    shutil.copytree(os.path.join(ROOT, "examples", "udf"), os.path.join(folder, "udf"))
    for command in (["cmake", "-S", "udf", "-B", "build", f"-DLEAT_INCLUDE={ROOT}/include"], ["cmake", "--build", "build"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout + done.stderr, done.stdout + done.stderr


def build_bad(folder, name, how="raise(SIGSEGV)", called="bad_one", arguments="i", abi="LEAT_ABI"):
    text = BAD.replace("HOW", how).replace("NAME", json.dumps(called)).replace("ABI,", f"{abi},")
    write(os.path.join(folder, name + ".c"), text.replace("ARGUMENTS", json.dumps(arguments)))
    done = run("cc", "-shared", "-fPIC", "-I", os.path.join(ROOT, "include"), "-o",
               os.path.join(folder, name + ".so"), os.path.join(folder, name + ".c"))
    assert done.returncode == 0, done.stderr


def make_trips(count):
    draw = random.Random(11)
    trips, now = [], 1_700_000_000_000
    for _ in range(count):
        now += draw.choice((0, 500, 2000, 2000, 60_000 if draw.random() < 0.05 else 1000))
        trips.append({"user": draw.randrange(40) if draw.random() > 0.01 else None,
                      "name": draw.choice(("Ada Lovelace", "Emmy Noether", None, "x")),
                      "ts": now - draw.choice((0, 0, 0, 3000)),
                      "lat": draw.choice((48.86, 40.71, 52.52, 91.0 if draw.random() < 0.02 else 0.0)),
                      "lon": draw.choice((2.35, -74.01, 13.405, 0.0))})
    write("trips.jsonl", "".join(json.dumps(trip) + "\n" for trip in trips))
    return trips


def ms(text):
    moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return round(moment.timestamp() * 1000)


def haversine(lat1, lon1, lat2, lon2):
    a, b = (math.sin(math.radians(x) / 2) for x in (lat2 - lat1, lon2 - lon1))
    h = a * a + math.cos(math.radians(lat1)) * math.cos(math.radians(lat2)) * b * b
    return 2 * 6371 * math.asin(math.sqrt(min(h, 1)))


def check_rows(trips):
    """Rows as the example should make them; all of its keys stay known, so the watermark does not matter."""
    last, newest, expected, lost = {}, {}, [], 0
    for trip in trips:
        user, ts = trip["user"], trip["ts"]
        since = ts - last[user] if user in last else None
        last[user] = max(ts, last.get(user, ts))
        if trip["lat"] > 90:
            lost += 1
        else:
            who = trip["name"] and "".join(c for c in trip["name"] if c.isupper())
            expected.append((user, ts, since, round(haversine(trip["lat"], trip["lon"], 52.52, 13.405), 6),
                             "?" if trip["name"] is None else who))
        if user is not None:
            newest.setdefault(user, []).append(ts)
    found = [(r.get("user"), ms(r["ts"]), r.get("since_ms"), round(r["km"], 6), r.get("who")) for r in rows("one/measured.jsonl")]
    assert found == expected, next((f, e) for f, e in zip(found, expected) if f != e)
    gone = rows("one/gone.jsonl")
    assert sum(r["rows"] for r in gone) == sum(map(len, newest.values())), "each row of a key is in one silence"
    assert all(ms(r["last"]) in newest[r["key"]] for r in gone)
    dead = rows("one/dead.jsonl")
    assert sum("a latitude is beyond 90 degrees in `haversine`" in r["reason"] for r in dead) == lost > 0, dead[:3]
    assert sum(r["reason"] == "the key is null" for r in dead) == sum(t["user"] is None for t in trips) > 0


def test_the_example_runs():
    trips = make_trips(60_000)
    for name, workers in (("one", 1), ("three", 3)):
        os.mkdir(name)
        write("job.leat", JOB % (workers, name + "/state", name, name, name))
        done = run(LEAT, "run", "job.leat", "--quiet", "--json")
        assert done.returncode == GOOD, done.stderr
        assert all(node["counts"]["balanced"] for node in json.loads(done.stdout)["nodes"]), done.stdout
    check_rows(trips)
    compare("one", "three")


def compare(a, b):
    for name in ("measured", "gone", "dead"):
        with open(f"{a}/{name}.jsonl", "rb") as left, open(f"{b}/{name}.jsonl", "rb") as right:
            assert left.read() == right.read(), f"{name}: {a} and {b} differ"


def test_kills_and_stops_change_nothing():
    """Stopped, and gone on with, at other numbers of workers: what the library keeps goes by key group."""
    os.mkdir("stopped")
    write("job.leat", JOB % (2, "stopped/state", "stopped", "stopped", "stopped"))
    assert run(LEAT, "run", "job.leat", "--quiet", env={"LEAT_FAILPOINTS": "ckpt.pre_rename=kill"}).returncode == -signal.SIGKILL
    for workers, until in ((2, "2023-11-15T02:00:00Z"), (3, "2023-11-15T06:00:00Z"), (1, None)):
        write("job.leat", JOB % (workers, "stopped/state", "stopped", "stopped", "stopped"))
        done = run(LEAT, "run", "job.leat", "--quiet", "--json", *(["--until", until] if until else []))
        assert done.returncode == GOOD and json.loads(done.stdout)["finished"] == (until is None), done.stderr
    compare("one", "stopped")


def test_moves_change_nothing():
    """Keys go from lane to lane while the job runs, through kills at each step of a move."""
    kills, moved = 0, 0
    for step in ("announce", "base", "give", "given", "take", "taken"):
        place = f"moved-{step}"
        os.mkdir(place)
        write("job.leat", JOB % (3, place + "/state", place, place, place))
        slowly = "run.claimed=sleep:60"  # a busy machine may take too few checkpoints for a move
        done = run(LEAT, "run", "job.leat", "--quiet", "--json", "--move", "3", env={"LEAT_FAILPOINTS": f"{slowly},move.{step}=kill"})
        if done.returncode == -signal.SIGKILL:
            kills += 1
            done = run(LEAT, "run", "job.leat", "--quiet", "--json", "--move", "4", env={"LEAT_FAILPOINTS": slowly})
        assert done.returncode == GOOD, (step, done.stderr)
        moved += json.loads(done.stdout).get("moved_bytes", 0)
        compare("one", place)
    assert kills > 0 and moved > 0, (kills, moved)


def test_the_help_says_what_it_brings():
    done = run(LEAT, "help", "--use", "build/libgeo.so")
    assert done.returncode == GOOD, done.stderr
    for word in ("haversine(lat1, lon1, lat2, lon2)", "initials", "since", "forget", "default 1h", "silent"):
        assert word in done.stdout, (word, done.stdout)
    assert "dedup" not in done.stdout, "only what the library brings"
    assert "how long a key without rows is remembered" in run(LEAT, "help", "--use", "build/libgeo.so", "since").stdout
    assert run(LEAT, "help", "since").returncode == USAGE


def test_its_digest_is_in_the_fingerprint():
    write("job.leat", JOB % (1, "f/state", "one", "one", "one"))
    def fingerprint():
        done = run(LEAT, "explain", "job.leat")
        assert done.returncode == GOOD, done.stderr
        return next(line for line in done.stdout.splitlines() if "fingerprint" in line)
    before = fingerprint()
    os.rename("build/libgeo.so", "build/kept.so")
    shutil.copy("build/kept.so", "build/libgeo.so")
    assert fingerprint() == before, "the same bytes are the same library"
    with open("build/libgeo.so", "ab") as file:
        file.write(b"another build")
    assert fingerprint() != before
    os.rename("build/kept.so", "build/libgeo.so")


def test_bad_libraries_are_said():
    build_bad(".", "old", abi="LEAT_ABI + 6")
    build_bad(".", "letters", arguments="iz")
    build_bad(".", "taken", called="lower")
    write("none.c", "int nothing;\n")
    assert run("cc", "-shared", "-fPIC", "-o", "none.so", "none.c").returncode == 0
    write("text.so", "not a library\n")
    for name, says in (("old.so", "was built for version 8 of leat.h, but this leat has version 2"),
                       ("letters.so", "function `bad_one` has the arguments `iz`"),
                       ("taken.so", "there is a function `lower` already"),
                       ("none.so", "it has no symbol `leat_library`"),
                       ("text.so", "cannot be loaded"), ("missing.so", "cannot be found")):
        write("bad.leat", f'use "{name}"\nsource s = sequence {{ count: 9 }}\nsink o = console from s\n')
        done = run(LEAT, "check", "bad.leat")
        assert done.returncode == BAD_JOB and "error[E0616]" in done.stderr and says in done.stderr, (name, done.stderr)
        assert "bad.leat:1:5" in done.stderr and "hint: " in done.stderr, done.stderr
    write("bad.leat", 'source s = sequence { count: 9 }\nstream d = s | silent by key\nuse "build/libgeo.so"\n'
                      "sink o = console from d\n")
    assert "error[E0203]" in run(LEAT, "check", "bad.leat").stderr, "before what it brings"
    write("bad.leat", 'use "build/libgeo.so"\nsource s = sequence { count: 9, event_time: ts }\n'
                      "stream d = s | silent by ts after 1m\nsink o = console from d\n")
    done = run(LEAT, "check", "bad.leat")
    assert "`silent`: the key must be one column of type int" in done.stderr and "silent by user after 30m" in done.stderr, done.stderr


def test_a_library_is_no_output():
    """However it is named: a name without a folder is a path, too."""
    build_bad(".", "taken", how="")
    os.link("taken.so", "linked.so")
    with open("taken.so", "rb") as file:
        before = file.read()
    for used in ("taken", "./taken"):
        for output in ("taken.so", "./taken.so", "linked.so"):
            write("taken.leat", (END_JOB % (used, "")).replace('".jsonl"', f'"{output}", format: json, overwrite: true'))
            for command in ("check", "run"):
                done = run(LEAT, command, "taken.leat")
                assert done.returncode == BAD_JOB and "E0617" in done.stderr and "`use` reads" in done.stderr, (used, output, done)
            with open("taken.so", "rb") as file:
                assert file.read() == before, (used, output)


def test_a_crash_is_named():
    for how, number, says in (("raise(SIGSEGV)", signal.SIGSEGV, "a segmentation fault (SIGSEGV)"),
                              ("abort()", signal.SIGABRT, "abort() (SIGABRT)")):
        build_bad(".", "crash", how=how)
        write("crash.leat", 'use "crash.so"\nsource s = sequence { count: 5000, keys: 100 }\n'
                            "stream d = s | with x = bad_one(key)\nsink o = null from d\n")
        done = run(LEAT, "run", "crash.leat", "--quiet")
        ends = 1 if "AddressSanitizer" in done.stderr else -number  # which has an end of its own
        assert done.returncode == ends, (done.returncode, done.stderr)
        assert f"error[E0616]: {says} in function `bad_one` of the library {os.getcwd()}/crash.so" in done.stderr, done.stderr


ENDS = {  # how: what is said
    "exit(0)": "exit(0)",
    "_exit(0)": "_exit(0)",
    "_Exit(7)": "_exit(7)",
    "quick_exit(0)": "quick_exit(0)",
    'errx(0, "bye")': "the end of the process",
    "pthread_exit(NULL)": "pthread_exit()",
}
END_JOB = """use "%s.so"
job ends { workers: 2 }
source s = sequence { count: 5000, keys: 100 }
stream d = s | with x = bad_one(key)
sink o = file from d { path: "%s.jsonl" }
"""
ALONE = """
#include "leat.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void zero(struct leat_call *call)
{
    for (uint32_t i = 0; i < call->rows; i++)
        call->result.ints[i] = 0;
    WHILE_CALLED;
}

HOW

static const struct leat_function functions[] = {
    {.name = "bad_one", .signature = "f(x)", .summary = "gives 0", .example = "f(1)", .arguments = "i", .result = 'i',
     .call = zero},
    {0},
};
LEAT_EXPORT = {.abi = LEAT_ABI, .name = "alone", .functions = functions};
"""


def build_alone(name, how, while_called=""):
    write(name + ".c", ALONE.replace("HOW", how).replace("WHILE_CALLED", while_called))
    done = run("cc", "-shared", "-fPIC", "-pthread", "-I", os.path.join(ROOT, "include"), "-o", name + ".so", name + ".c")
    assert done.returncode == 0, done.stderr
    write(name + ".leat", END_JOB % (name, name))


def fails_by(name, says, *, command="run", quiet=("--quiet",)):
    """It fails, says who it was, and gives no output its name."""
    done = run(LEAT, command, name + ".leat", *quiet)
    assert done.returncode != GOOD, (name, done.stdout, done.stderr)
    assert "error[E0616]" in done.stderr and f"{name}.so" in done.stderr and says in done.stderr, (name, done.returncode, done.stderr)
    assert not os.path.exists(name + ".jsonl"), f"{name}: an output that is not whole has its name"
    return done


def test_an_end_that_is_not_leats_is_a_failure():
    for i, (how, says) in enumerate(ENDS.items()):
        name = f"end{i}"
        build_bad(".", name, how=how)
        write(name + ".leat", END_JOB % (name, name))
        done = fails_by(name, says)
        assert "pthread" in how or "errx" in how or "function `bad_one`" in done.stderr, done.stderr
        assert "hint: " in done.stderr, done.stderr


def test_a_thread_of_a_library_ends_nothing_unseen():
    thread = """static void *ends(void *none) { usleep(20000); CALL; return none; }
        __attribute__((constructor)) static void begin(void) { pthread_t t; pthread_create(&t, NULL, ends, NULL); }"""
    for name, call, says in (("thread_exits", "exit(0)", "exit(0)"), ("thread_ends", "_exit(0)", "_exit(0)"),
                             ("thread_dies", "*(volatile int *)16 = 1", "SIGSEGV")):
        build_alone(name, thread.replace("CALL", call), while_called="usleep(30000)")
        fails_by(name, says)


def test_constructors_and_destructors():
    for name, how, commands in (
            ("load_exits", "__attribute__((constructor)) static void begin(void) { exit(0); }", ("check", "run")),
            ("load_ends", "__attribute__((constructor)) static void begin(void) { _exit(0); }", ("check", "run")),
            ("load_dies", "__attribute__((constructor)) static void begin(void) { raise(SIGSEGV); }", ("check", "run"))):
        build_alone(name, how)
        for command in commands:
            done = fails_by(name, "code at loading", command=command, quiet=())
            assert "constructors" in done.stderr
    for name, how in (("end_exits", "__attribute__((destructor)) static void end(void) { _exit(0); }"),
                      ("end_dies", "__attribute__((destructor)) static void end(void) { *(volatile int *)16 = 1; }"),
                      ("handler_ends", "static void end(void) { _exit(0); }\n"
                       "__attribute__((constructor)) static void begin(void) { atexit(end); }")):
        build_alone(name, how)
        done = run(LEAT, "run", name + ".leat", "--quiet")
        assert done.returncode != GOOD and "error[E0616]" in done.stderr and f"{name}.so" in done.stderr, (name, done)
        assert "finished" in done.stdout, "what leat had to do is done"


def test_what_a_library_may_do():
    """A process of its own that ends as it likes; handlers and destructors that only return."""
    build_alone("forks", "__attribute__((destructor)) static void end(void) { }\nstatic void bye(void) { }\n"
                "__attribute__((constructor)) static void begin(void) { atexit(bye); }",
                while_called="int status; pid_t pid = fork(); if (pid == 0) _exit(3); waitpid(pid, &status, 0);"
                             "pid = fork(); if (pid == 0) exit(0); waitpid(pid, &status, 0)")
    done = run(LEAT, "run", "forks.leat", "--quiet")
    assert done.returncode == GOOD and done.stderr == "", (done.returncode, done.stderr)
    assert os.path.exists("forks.jsonl")


BY_ROW = """
#include "leat.h"

static bool halves_bind(struct leat_bind *bind)
{
    bind->read(bind, 0);
    bind->add(bind, "half", LEAT_INT);
    return true;
}

static void halves_process(struct leat_context *context, const struct leat_batch *batch)
{
    for (uint32_t i = 0; i < batch->rows; i++) {
        int64_t user = batch->column[0].values.ints[i];
        if (user % 5 == 0)
            context->reject(context, i, "a multiple of five");
        else if (user % 2 == 0) {
            context->emit(context, i);
            context->set_int(context, 0, user / 2);
        }
        if (user == 8) {
            context->emit(context, i);
            context->set_int(context, 0, 0);
        }
    }
}

WATERMARK

static const struct leat_operator operators[] = {
    {.name = "halves", .summary = "halves even users", .order = ORDER, .bind = halves_bind, .process = halves_process,
     .on_watermark = CALLED},
    {0},
};
LEAT_EXPORT = {.abi = LEAT_ABI, .name = "halves", .operators = operators};
"""
SERVED = """use "halves.so"
job served { workers: 1, checkpoint: { every: 1h, dir: "served" } }
source trips = file { path: "trips.jsonl", schema: { user: int!, ts: time(ms) }, event_time: ts }
stream halved = trips | halves
serve halved { from: halved, request: trips }
sink o = file from halved { path: "halved.jsonl", overwrite: true }
"""


def build_halves(order="LEAT_BY_ROW", called="NULL"):
    watermark = "static void ticks(struct leat_context *context, int64_t watermark) { (void)context; (void)watermark; }"
    text = BY_ROW.replace("ORDER", order).replace("CALLED", called).replace("WATERMARK", watermark if called != "NULL" else "")
    write("halves.c", text)
    done = run("cc", "-shared", "-fPIC", "-I", os.path.join(ROOT, "include"), "-o", "halves.so", "halves.c")
    assert done.returncode == 0, done.stderr
    write("halves.leat", SERVED)


def test_an_operator_by_the_row_answers_requests():
    """By `process`, as in training; two rows of a request are no answer. An operator that sees all rows, or is called
    at watermarks, is refused."""
    write("trips.jsonl", "".join(json.dumps({"user": user, "ts": user * 1000}) + "\n" for user in range(40)))
    build_halves()
    done = run(LEAT, "run", "halves.leat", "--quiet")
    assert done.returncode == GOOD, done.stderr
    done = run(LEAT, "score", "halves.leat", "trips.jsonl")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 40, done.stderr
    trained = rows("halved.jsonl")
    assert len([row for row in trained if row["user"] == 8]) == 2, trained
    assert [a for a in answers if "_status" not in a] == [row for row in trained if row["user"] != 8], answers
    for user, answer in enumerate(answers):
        says = {"_status": "failed", "_reason": "a multiple of five"} if user % 5 == 0 else \
               {"_status": "failed", "_reason": "the steps made several rows of the request"} if user == 8 else \
               {"_status": "filtered"} if user % 2 == 1 else {"half": user // 2}
        assert says.items() <= answer.items(), (user, answer)
    for order, called in (("LEAT_ALL_ROWS", "NULL"), ("LEAT_BY_ROW", "ticks")):
        build_halves(order, called)
        done = run(LEAT, "check", "halves.leat")
        assert done.returncode == BAD_JOB and "error[E0508]" in done.stderr and "`halves`" in done.stderr, (order, done.stderr)


def main():
    with tempfile.TemporaryDirectory(prefix="leat-udf-") as folder:
        build_example(folder)
        os.chdir(folder)
        return tap.run(globals())


if __name__ == "__main__":
    sys.exit(main())
