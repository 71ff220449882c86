#!/usr/bin/env python3
"""Adds up what the phases of `./dev test` left in a folder, and prints it.

    tests/summary.py FOLDER

phases.tsv has a line for each phase: name, second it began, second it ended; they may overlap. *.xml are JUnit files of ctest, *.tap lists of `ok - ...` lines
(build steps, fuzz targets). One test executable may hold many sub-tests: they are counted from cmocka's closing
lines or from TAP lines in its output, else it counts as one. Prints each failure with the end of its output, each skipped test with its reason, a table of
durations, again each failure with the lines that say what failed, and as the very last line `N passed, N failed, N skipped`.
"""

import glob
import os
import re
import sys
import xml.etree.ElementTree as ElementTree

OUTPUT_LINES_MAX = 60
DIGEST_LINES_MAX, DIGEST_CHARACTERS_MAX = 8, 300

_CMOCKA_TOTAL = re.compile(r"^\[  (PASSED|FAILED|SKIPPED)\s*\] (?:.*: )?(\d+) test\(s\)", re.M)
_CMOCKA_SKIPPED = re.compile(r"^\[ RUN      \] (\S+)\n((?:(?!\[ RUN ).*\n)*?)\[  SKIPPED \] \1$", re.M)
_TAP = re.compile(r"^(ok|not ok)\b(?: *\d+)?(?: *- *)?(.*)$", re.M)


class Totals:
    def __init__(self):
        self.passed = self.failed = 0
        self.skipped = []  # (test, why)
        self.failures = []  # (test, output)

    def add_failed(self, name, count, output):
        self.failed += count
        self.failures.append((name, output))


def last_line(text):
    lines = [line.strip() for line in text.strip().split("\n") if line.strip()]
    return lines[-1] if lines else "gives no reason"


def add_cmocka(totals, name, output):
    """False where the output is not cmocka's."""
    counts = {"PASSED": 0, "FAILED": 0, "SKIPPED": 0}
    found = _CMOCKA_TOTAL.findall(output)
    for kind, count in found:
        counts[kind] += int(count)
    if not found:
        return False
    totals.passed += counts["PASSED"]
    if counts["FAILED"]:
        totals.add_failed(name, counts["FAILED"], output)
    skipped = [(f"{name}/{test}", last_line(said)) for test, said in _CMOCKA_SKIPPED.findall(output)]
    skipped += [(name, "gives no reason")] * (counts["SKIPPED"] - len(skipped))
    totals.skipped += skipped[: counts["SKIPPED"]]
    return True


def add_tap(totals, name, output):
    """False where the output has no TAP lines."""
    lines = _TAP.findall(output)
    failed = 0
    for status, text in lines:
        what, skip, why = text.partition("# SKIP")
        if status == "ok" and skip:
            totals.skipped.append((f"{name}/{what.strip()}", why.strip() or "gives no reason"))
        elif status == "ok":
            totals.passed += 1
        else:
            failed += 1
    if failed:
        totals.add_failed(name, failed, output)
    return bool(lines)


def add_case(totals, name, status, output):
    """One ctest test. status: run, fail, notrun, disabled."""
    if status in ("notrun", "disabled"):
        totals.skipped.append((name, last_line(output)))
        return
    failed_before = totals.failed
    is_counted = add_cmocka(totals, name, output) or add_tap(totals, name, output)
    if status == "fail" and totals.failed == failed_before:
        totals.add_failed(name, 1, output)  # died before it could say so
    elif not is_counted:
        totals.passed += 1


def add_junit(totals, path):
    phase = os.path.splitext(os.path.basename(path))[0]
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except ElementTree.ParseError as error:
        totals.add_failed(phase, 1, f"{path}: {error}")
        return
    for case in cases:
        seconds = float(case.get("time", "0"))
        output = case.findtext("system-out") or f"no output; it crashed or ran out of time after {seconds:.1f} s"
        skipped = case.find("skipped")
        status = case.get("status", "run")
        if status == "notrun" and (skipped is None or "SKIP" not in skipped.get("message", "")):
            status = "fail"  # its program is missing, or could not be started
            output += "\nnot run: " + (skipped.get("message", "") if skipped is not None else "")
        add_case(totals, f"{phase}: {case.get('name')}", status, output)


def tail(output):
    lines = output.rstrip().split("\n")
    cut = len(lines) - OUTPUT_LINES_MAX
    return lines if cut <= 0 else [f"... {cut} lines before ..."] + lines[cut:]


def digest(output):
    """The lines that say what failed, each with the line behind it; without such lines the last ones."""
    lines = [line for line in output.split("\n") if line.strip() and not line.startswith("ok ")]
    telling = [at for at, line in enumerate(lines) if re.match(r"not ok\b|\[  ERROR   \]|.*(ERROR: |WARNING: |runtime error)", line)]
    said = [lines[at] for at in sorted({one for at in telling for one in (at, at + 1) if one < len(lines)})] or lines[-3:]
    return [line[:DIGEST_CHARACTERS_MAX] for line in said[:DIGEST_LINES_MAX]]


def main():
    folder = sys.argv[1]
    totals = Totals()
    for path in sorted(glob.glob(os.path.join(folder, "*.xml"))):
        add_junit(totals, path)
    for path in sorted(glob.glob(os.path.join(folder, "*.tap"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            add_tap(totals, os.path.splitext(os.path.basename(path))[0], file.read())
    for name, output in totals.failures:
        print(f"\nFAILED {name}")
        print("\n".join("    " + line for line in tail(output)))
    if totals.skipped:
        print("\nskipped:")
    for name, why in totals.skipped:
        print(f"    {name}: {why}")
    phases = os.path.join(folder, "phases.tsv")
    if os.path.exists(phases):
        print("\nphase                       seconds")
        rows = [line.rstrip("\n").split("\t") for line in open(phases, encoding="utf-8")]
        rows = sorted([(int(begin), int(end), name) for name, begin, end in rows])
        for begin, end, name in rows:
            print(f"{name:<24} {end - begin:>10}")
        print(f"{'all':<24} {max(row[1] for row in rows) - rows[0][0]:>10}")
    if totals.failures:
        print("\nfailed:")
    for name, output in totals.failures:
        print("\n".join([f"    {name}", *("        " + line for line in digest(output))]))
    print(f"\n{totals.passed} passed, {totals.failed} failed, {len(totals.skipped)} skipped")
    return 1 if totals.failed or totals.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
