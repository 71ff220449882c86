#!/usr/bin/env python3
"""A user without rights: every place that a run reads or writes, closed to it in turn. Each is named with its code and a way
out, nothing begins anew because it cannot be read, and with the rights back the job goes on.

    tests/cli/test_rights.py PATH_OF_LEAT
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
NOBODY = 65534
IS_ROOT = os.geteuid() == 0  # then leat runs as somebody else: root may do everything

JOB = """job r {{ {checkpoint} }}
source s = file {{ path: "{source}", schema: {{ n: int!, ts: time(ms) }}, event_time: ts {more} }}
stream t = s | dedup by n within 1h
sink t = file from t {{ path: "out/t.jsonl" }}
"""
CHECKPOINT = 'checkpoint: { every: 10ms, dir: "state" }'


def drop_rights():
    if IS_ROOT:
        os.setgid(NOBODY)
        os.setuid(NOBODY)


@contextlib.contextmanager
def place(source="in.jsonl", more="", checkpoint=CHECKPOINT):
    """A folder of the user's with a job and its input."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="leat-rights-") as folder:
        os.chmod(folder, 0o755)
        os.chdir(folder)
        try:
            with open("in.jsonl", "w", encoding="utf-8") as file:
                file.writelines(f'{{"n":{n},"ts":{1_700_000_000_000 + n}}}\n' for n in range(30000))
            with open("j.leat", "w", encoding="utf-8") as file:
                file.write(JOB.format(source=source, more=more, checkpoint=checkpoint))
            tap.for_all_users(LEAT, ".")
            for path in (".", "in.jsonl", "j.leat") if IS_ROOT else ():
                os.chown(path, NOBODY, NOBODY)
            yield
        finally:
            for path, _, _ in os.walk("."):
                os.chmod(path, 0o700)
            os.chdir(before)


def close(path, mode):
    """Rights of the user on the path: of a directory, its content stays."""
    if IS_ROOT:
        os.chown(path, 0, 0)
    os.chmod(path, mode)


def give_back(path):
    if IS_ROOT:
        os.chown(path, NOBODY, NOBODY)
    os.chmod(path, 0o755)


def leat(*arguments, **environment):
    return subprocess.run(["./leat", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, preexec_fn=drop_rights, check=False,
                          env={**os.environ, **environment})


def refused(code, *says, arguments=("run", "j.leat"), status=1, **environment):
    found = leat(*arguments, **environment)
    missing = [text for text in (f"error[{code}]", "Permission denied", "hint:", *says) if text not in found.stderr]
    assert found.returncode == status and not missing, (found.returncode, missing, found.stderr, found.stdout)


def goes_well():
    found = leat("run", "j.leat")
    assert found.returncode == 0, found.stderr
    with open("out/t.jsonl", encoding="utf-8") as file:
        assert sum(1 for _ in file) == 30000


def closed(path, mode=0o555):
    """A directory that the user may not write to, or, with 0, not even look into."""
    os.makedirs(path, exist_ok=True)
    close(path, mode)


def test_input():
    with place():
        close("in.jsonl", 0)
        refused("E0601", "`in.jsonl`")
        give_back("in.jsonl")
        goes_well()
    with place(source="d/*.jsonl"):
        os.makedirs("d")
        shutil.move("in.jsonl", "d/in.jsonl")
        close("d", 0)
        refused("E0601", "d/*.jsonl")
        give_back("d")
        goes_well()


def test_output():
    with place():
        closed("out")
        refused("E0605", "out/t.jsonl")
        give_back("out")
        goes_well()


def test_checkpoint_directory():
    for mode in (0o555, 0):
        with place():
            closed("state", mode)
            refused("E0701", "state")
            give_back("state")
            goes_well()
    with place(checkpoint=CHECKPOINT.replace('"state"', '"above/state"')):
        closed("above")
        refused("E0701", "above/state")
        give_back("above")
        goes_well()


def test_checkpoints_that_cannot_be_read():
    """They are there: a run that begins anew would send its rows a second time."""
    for path in ("state/LOCK", "state/gen-000001", "state/gen-000001/GENERATION", "MANIFEST"):
        with place():
            goes_well()
            name = max(name for name in os.listdir("state/gen-000001") if name.startswith("ckpt-"))
            path = path.replace("MANIFEST", f"state/gen-000001/{name}/MANIFEST")
            shutil.move("out/t.jsonl", "t.jsonl")  # or it would be in the way of a new run
            close(path, 0)
            refused("E0701", "state")
            assert not os.path.exists("out/t.jsonl") and os.listdir("out") == [], "a new run began"
            give_back(path)
            shutil.move("t.jsonl", "out/t.jsonl")
            found = leat("run", "j.leat")
            assert found.returncode == 0 and "finished already" in found.stdout, (found.stdout, found.stderr)


def test_temporary_directory():
    with place(checkpoint=""):
        closed("tmp")
        refused("E0801", "TMPDIR", TMPDIR=os.path.abspath("tmp"))
        goes_well()


def test_sorted_copy():
    with place(more=', order_by: n, sort_dir: "sort"'):
        closed("sort")
        refused("E0605", "sort")
        give_back("sort")
        goes_well()


def test_order_log():
    for path in ("order/log", "order/"):
        with place():
            closed("order")
            refused("E0605", "order", arguments=("run", "j.leat", "--record-order", path))
            give_back("order")


def test_job_file():
    with place():
        close("j.leat", 0)
        refused("E0601", "j.leat", status=3)
        refused("E0601", "j.leat", arguments=("check", "j.leat"), status=3)


def test_other_commands():
    with place():
        goes_well()
        with open("state/CONTROL", "w", encoding="ascii") as file:
            file.write("leat control 1\n127.0.0.1:1\n" + "0" * 64 + "\n\n")
        close("state/CONTROL", 0)
        refused("E1001", "state/CONTROL", "only the user who started the run", arguments=("ctl", "stop", "j.leat"))
        found = leat("top", "--once", "j.leat")
        assert found.returncode == 1 and "Permission denied; only the user who started the run" in found.stderr, found.stderr
        closed("shut")
        refused("E0708", "shut/copy", arguments=("checkpoint", "save", "state", "--to", "shut/copy"))
        found = leat("generate", "ctr", "--events", "100", "--out", "shut")
        assert found.returncode == 1 and "E0605" in found.stderr and "Permission denied" in found.stderr, found.stderr
        close("state", 0)
        refused("E0701", "state", arguments=("checkpoint", "list", "state"))


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
