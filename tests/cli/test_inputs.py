#!/usr/bin/env python3
"""What a job reads besides its records: how `leat explain --inputs` names it, what a resume says when it has changed, and
that secrets are nowhere. Prints TAP.

    tests/cli/test_inputs.py PATH_OF_LEAT
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
GOOD, FAILED = 0, 1
PASSWORD = "correct-horse-battery"

LIBRARY = """
#include "leat.h"

static void add(struct leat_call *call)
{
    for (uint32_t i = 0; i < call->rows; i++)
        call->result.ints[i] = call->argument[0].values.ints[i] + ADDED;
}

static const struct leat_function functions[] = {
    {.name = "more", .signature = "more(x)", .summary = "adds", .example = "more(1)", .arguments = "i", .result = 'i', .call = add},
    {0},
};

LEAT_EXPORT = {.abi = LEAT_ABI, .name = "more", .functions = functions};
"""

JOB = """use "libmore.so"
job inputs { checkpoint: { dir: "state", every: 20ms } }
source s = file { path: env("DATA", "in.jsonl"), schema: { n: int! } }
stream joined = s | lookup "items.csv" on n = id { name: text } | with region = env("REGION"), m = more(n)
sink out = file from joined { path: "out.jsonl" }
sink far = kafka from joined { brokers: "127.0.0.1:1", topic: "t", security: { protocol: sasl_plaintext, mechanism: plain, user: env("USER_NAME"),
  password: env("PASSWORD") }, properties: { client_rack: env("CLIENT") } }
"""

EXPLAINED = """library  libmore.so, for `use`
         {library}, {library_bytes} bytes
value    env("DATA"), for source `s`
         {data}, 8 bytes
file     items.csv, for `lookup` in `joined`
         {items}, 20 bytes
value    env("REGION"), for `with` in `joined`
         {region}, 3 bytes
value    env("USER_NAME"), for sink `far`
         {user}, 5 bytes
"""

# xxh3-128, by another implementation of it (Python's xxhash).
DIGESTS = {
    "data": "d46687ad18d6f3ef5229250b9ff16337",
    "items": "b52750b4645afb005975b04c94bae7ba",
    "region": "6d4f2f4f7f77bd0d51a9c79a7b7db1ba",
    "user": "48bb949a3dd26afac9a1342ad0e35dd2",
}


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def build(added):
    write("more.c", LIBRARY.replace("ADDED", str(added)))
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{ROOT}/include", "-o", "libmore.new", "more.c"], check=True)
    os.rename("libmore.new", "libmore.so")


@contextlib.contextmanager
def place():
    """A folder with the job and all that it reads, and into it."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="leat-inputs-") as folder:
        os.chdir(folder)
        try:
            write("in.jsonl", "".join(f'{{"n":{n}}}\n' for n in range(50)))
            write("items.csv", "id,name\n1,one\n2,two\n")
            write("job.leat", JOB)
            build(1)
            yield
        finally:
            os.chdir(before)


def leat(*arguments, **env):
    environment = {**os.environ, "REGION": "eu1", "USER_NAME": "alice", "PASSWORD": PASSWORD, "CLIENT": "own-" + PASSWORD, **env}
    return subprocess.run([LEAT, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)


def run(**env):
    return leat("run", "job.leat", "--sink", "far=far.jsonl", **env)


def explain(**env):
    done = leat("explain", "--inputs", "job.leat", **env)
    assert done.returncode == GOOD, done.stderr
    return done.stdout


def digest_of(text, of):
    return re.search(re.escape(of) + r", for .*\n +([0-9a-f]{32}), ", text)[1]


def test_explain():
    with place():
        text = explain()
        library, size = digest_of(text, "libmore.so"), os.path.getsize("libmore.so")
        assert text == EXPLAINED.format(library=library, library_bytes=size, **DIGESTS), text
        os.rename("items.csv", "items.gone")
        assert "cannot be read: No such file or directory" in explain()
        os.rename("items.gone", "items.csv")
        build(2)
        assert digest_of(explain(), "libmore.so") != library
        write("plain.leat", "source s = sequence { count: 9 }\nsink o = console from s\n")
        assert leat("explain", "--inputs", "plain.leat").stdout == "the job reads nothing besides its records\n"
        clash = leat("explain", "--inputs", "--time", "job.leat")
        assert clash.returncode == 2 and "--inputs" in clash.stderr, clash.stderr


def test_a_glob_is_its_files_one_after_another():
    with place():
        parts = ["id,name\n1,one\n", "id,name\n2,two\n"]
        write("part-1.csv", parts[0])
        write("part-2.csv", parts[1])
        write("whole.csv", "".join(parts))
        job = 'source s = sequence {{ count: 9 }}\nstream d = s | lookup "{0}" on id {{ name: text }}\nsink o = console from d\n'
        lines = []
        for path in ("part-*.csv", "whole.csv"):
            write("glob.leat", job.format(path))
            done = leat("explain", "--inputs", "glob.leat")
            assert done.returncode == GOOD, done.stderr
            lines.append(done.stdout.splitlines()[1])
        assert lines[0] == lines[1] and f"{len(''.join(parts))} bytes" in lines[0], lines


def test_a_resume_says_what_changed():
    with place():
        first = run()
        assert first.returncode == GOOD and "changed since" not in first.stderr, first.stderr
        again = run()
        assert again.returncode == GOOD and "changed since" not in again.stderr, again.stderr
        again = run(REGION="us")
        said = 'changed since the checkpoint: value `env("REGION")` (3 bytes then, 2 bytes now)\n'
        assert again.returncode == GOOD and said in again.stderr, again.stderr
        write("items.csv", "id,name\n1,uno\n2,two\n3,tri\n")
        refused = run()
        assert refused.returncode == FAILED and "`items.csv` is not the same" in refused.stderr, refused.stderr
        write("items.csv", "id,name\n1,one\n2,two\n")
        build(2)
        refused = run()
        assert refused.returncode == FAILED and re.search(
            r"changed since the checkpoint: library `libmore.so` \(\d+ bytes then, \d+ bytes now\)", refused.stderr), refused.stderr
        assert "items.csv" not in refused.stderr and "--fresh" in refused.stderr, refused.stderr
        write("items.csv", "id,name\n1,uno\n2,two\n3,tri\n")
        taken = leat("run", "job.leat", "--sink", "far=far2.jsonl", "--from", "state", "--drop-state", "s")
        assert taken.returncode == GOOD and "file `items.csv` (20 bytes then, 26 bytes now)" in taken.stderr, taken.stderr


def test_secrets_are_nowhere():
    """Neither a secret's value nor its digest, in what leat prints and in all files that it writes."""
    with place():
        done, texts = run(), [explain().encode()]
        assert done.returncode == GOOD, done.stderr
        write("told.leat", 'source s = sequence { count: 9 }\nstream d = s | with a = env("PASSWORD"), b = env("CLIENT")\n'
                           "sink o = console from d\n")
        told = leat("explain", "--inputs", "told.leat").stdout  # there they are no secrets
        digests = [digest_of(told, f'env("{name}")') for name in ("PASSWORD", "CLIENT")]
        texts += [done.stdout.encode(), done.stderr.encode()]
        for more in (["explain", "job.leat"], ["checkpoint", "show", "state"], ["checkpoint", "list", "state"]):
            printed = leat(*more)
            texts += [printed.stdout.encode(), printed.stderr.encode()]
        files = [os.path.join(folder, name) for folder, _, names in os.walk(".") for name in names]
        assert any("state.bin" in path for path in files), files
        for path in files:
            with open(path, "rb") as file:
                texts.append(file.read())
        listed = DIGESTS["region"].encode()  # so the list itself is among what is looked through
        assert listed in texts[0] and any(listed in text for text in texts[1:])
        for text in texts:
            for secret in [PASSWORD, *digests]:
                assert secret.encode() not in text and bytes.fromhex(digests[0]) not in text, secret
        # One variable that is a secret somewhere is one everywhere.
        write("job.leat", JOB.replace('env("REGION")', 'env("PASSWORD")'))
        assert "PASSWORD" not in explain()


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
