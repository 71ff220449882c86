#!/usr/bin/env python3
"""The sums of tests/summary.py over outputs whose counts are known. Prints TAP."""

import io
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CMOCKA = """[==========] Running 3 test(s).
[ RUN      ] test_a
[       OK ] test_a
[ RUN      ] test_b
no such folder
[  SKIPPED ] test_b
[ RUN      ] test_c
[  ERROR   ] --- 0x1 != 0x2
[  FAILED  ] test_c
[==========] 3 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] test_b
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] test_c
"""
PASSED = "[==========] tests: 2 test(s) run.\n[  PASSED  ] 2 test(s).\n"
SKIP_77 = '<skipped message="SKIP_RETURN_CODE=77"/>'
GONE = '<skipped message="Unable to find executable"/>'


def case(status, output, extra=""):
    return f'<testcase name="t" time="0.1" status="{status}">{extra}<system-out>{output}</system-out></testcase>'


# what, the files of the folder, the last line expected, the exit status expected, a line that must be there
ROWS = [
    ("one_plain_test", {"a.xml": case("run", "fine")}, "1 passed, 0 failed, 0 skipped", 0, ""),
    ("cmocka_counts_sub_tests", {"a.xml": case("fail", CMOCKA)}, "1 passed, 1 failed, 1 skipped", 1,
     "    a: t/test_b: no such folder"),
    ("a_leak_after_passing_is_a_failure", {"a.xml": case("fail", PASSED)}, "2 passed, 1 failed, 0 skipped", 1, ""),
    ("crash_without_output", {"a.xml": case("fail", "")}, "0 passed, 1 failed, 0 skipped", 1,
     "    no output; it crashed or ran out of time after 0.1 s"),
    ("skip_says_why", {"a.xml": case("notrun", "x\nno CUDA device\n", SKIP_77) + case("run", "")},
     "1 passed, 0 failed, 1 skipped", 0, "    a: t: no CUDA device"),
    ("missing_program_is_a_failure", {"a.xml": case("notrun", "", GONE)}, "0 passed, 1 failed, 0 skipped", 1, ""),
    ("tap", {"a.xml": case("fail", "ok - a\nnot ok - b\n#   why\nok 3 - c # SKIP no disk\n")},
     "1 passed, 1 failed, 1 skipped", 1, "    a: t/c: no disk"),
    ("what_failed_is_said_at_the_end", {"a.xml": case("fail", "not ok - b\n#   why\n" + "ok - c\n" * 99)},
     "99 passed, 1 failed, 0 skipped", 1, "        #   why"),
    ("tap_file", {"fuzz.tap": "ok - json\nok - csv\n"}, "2 passed, 0 failed, 0 skipped", 0, ""),
    ("unreadable_report_is_a_failure", {"a.xml": "\x01"}, "0 passed, 1 failed, 0 skipped", 1, ""),
    ("nothing_at_all_is_no_success", {}, "0 passed, 0 failed, 0 skipped", 1, ""),
    ("phases", {"phases.tsv": "tests\t13\t19\nbuild release\t4\t16\n", "a.tap": "ok\n"}, "1 passed, 0 failed, 0 skipped", 0,
     "all                              15"),
]


def check(files, last, status, line):
    with tempfile.TemporaryDirectory(prefix="leat-summary-") as folder:
        for name, text in files.items():
            if name.endswith(".xml"):
                text = f'<?xml version="1.0"?><testsuite>{text}</testsuite>'
            with io.open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        result = subprocess.run([sys.executable, os.path.join(HERE, "summary.py"), folder], capture_output=True,
                                text=True, check=False)
    lines = result.stdout.rstrip("\n").split("\n")
    return lines[-1] == last and result.returncode == status and (not line or line in lines), result.stdout + result.stderr


def main():
    failed = 0
    for what, files, last, status, line in ROWS:
        is_right, said = check(files, last, status, line)
        print(f"{'ok' if is_right else 'not ok'} - {what}")
        if not is_right:
            failed += 1
            print("\n".join("#   " + text for text in said.split("\n")))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
