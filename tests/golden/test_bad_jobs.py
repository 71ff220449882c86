#!/usr/bin/env python3
"""Each job under bad/ has errors: what `leat check` says about NAME.leat must be NAME.txt.

    tests/golden/test_bad_jobs.py PATH_OF_LEAT [--update]

Comments `# --set NAME=VALUE` at the beginning of a job are arguments. A job's name begins with a code that it provokes.
--update writes the texts anew: read the difference before you commit it.
"""

import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LEAT = os.path.abspath(sys.argv[1])
BAD_JOB = 3  # exit status
JOBS = sorted(os.path.basename(path) for path in glob.glob(os.path.join(HERE, "bad", "*.leat")))
# The codes that a job file can provoke, beside E01.., which are all of the language. E0408: tests/unit/core/test_option.c.
CODES = """E0201 E0202 E0203 E0204 E0205 E0206 E0207 E0208 E0209 E0302 E0303 E0304 E0305 E0306 E0307 E0308 E0401 E0402
           E0403 E0404 E0405 E0406 E0407 E0501 E0502 E0503 E0504 E0506 E0507 E0616""".split()
NO_PLACE = r"error\[E0501\]|`--set "  # about the whole job, or about an argument


def read(*path):
    with open(os.path.join(*path), encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def check(job):
    settings = re.match(r"(?:# --set .*\n)*", read(HERE, "bad", job)).group().replace("# ", "").split()
    result = subprocess.run([LEAT, "check", job, *settings], cwd=os.path.join(HERE, "bad"), capture_output=True, check=False)
    assert result.returncode == BAD_JOB, f"{job}: ends with {result.returncode}"
    return result.stderr.decode("utf-8", "surrogateescape")


def test_bad_jobs():
    assert JOBS
    for job in JOBS:
        said, path = check(job), os.path.join(HERE, "bad", job.replace(".leat", ".txt"))
        if "--update" in sys.argv:
            with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(said)
        assert said == read(path), f"{job}: said\n{said}"
        assert f"[{job[:5]}]" in said, f"{job}: its name is not a code that it provokes"
        for line in said.splitlines():
            is_place_known = re.match(r"\S+\.leat:\d+:\d+: ", line) or re.search(NO_PLACE, line)
            assert is_place_known or not re.search(r"(error|warning)\[E\d+\]", line), f"{job}: points nowhere: {line}"


def test_every_code_has_a_job():
    lang = re.findall(r"\bE01\d\d\b", read(ROOT, "engine", "core", "diag_codes.def"))
    assert len(lang) >= 7
    missing = [code for code in lang + CODES if not any(job.startswith(code) for job in JOBS)]
    assert not missing, f"no bad job for {missing}"


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
