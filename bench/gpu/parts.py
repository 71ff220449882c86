"""The parts of `./dev gpu` behind the build. Each goes through its items, passes over those that were found already, and
keeps what it finds; it stops when the time of this call is up."""

import glob
import json
import os
import re
import shutil
import sys

# Tests of device code, by name. `reduced`: beside compute-sanitizer, which is a hundred times slower; `host`: with the host's
# model, where what takes long is tested elsewhere.
ARGUMENTS = {
    "test_batch": {"device": ["--variant", "cuda"], "reduced": ["--variant", "cuda", "--reduced"],
                   "host": ["--variant", "cuda", "--reduced", "--kernel", "fm"]},
    "test_tables": {"device": [], "reduced": ["--reduced"], "host": ["--reduced", "one key"]},
}
OTHERS = {"device": [], "reduced": ["--reduced"], "host": ["--reduced"]}
TEST_S, SANITIZE_S, BENCH_S = 300, 300, 240
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SOAK_PIECES, SOAK_PIECE_S = 10, 60
KILL_PIECES, KILLS = 10, 10
NO_DEVICE = "skipped: no CUDA device"


def arguments(run, name, how):
    return ARGUMENTS.get(name, OTHERS)["host" if run.is_host else how]


def skipped(run, part):
    """Without a device: says so, once a part. The model counts as one."""
    if run.device() is not None:
        run.found["parts"].get(part, {}).pop("all", None)
        return False
    run.keep(part, "all", {"ok": True, "skipped": True, "text": f"{NO_DEVICE}: {run.machine['why']}"})
    return True


def tap(status, output):
    """What a test program said, as a result."""
    good = len(re.findall(r"^ok\b(?!.*# SKIP)", output, re.M))
    passed_over = len(re.findall(r"^ok\b.*# SKIP", output, re.M))
    bad = re.findall(r"^not ok\b.*|^Bail out!.*", output, re.M)
    if bad or status not in (0, 77):
        return {"ok": False, "text": f"status {status}: " + ("; ".join(bad[:3]) or last_line(output))}
    if status == 77 or good == 0:
        return {"ok": True, "skipped": True, "text": "skipped: " + last_line(output)}
    return {"ok": True, "text": f"{good} passed" + (f", {passed_over} skipped" if passed_over else "")}


def last_line(output):
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def test(run):
    if skipped(run, "test"):
        return
    for name in run.programs("test_"):
        if run.item("test", name) is None:
            answer = run.call([run.program(name), *arguments(run, name, "device")], TEST_S, name)
            if answer is None:
                return
            run.keep("test", name, tap(*answer))
    kill(run)


def kill(run):
    """A hundred kills of a job whose learners are on the device, in pieces with seeds of their own."""
    leat = run.leat()
    if leat is None:
        run.keep("test", "kills", {"ok": True, "skipped": True, "text": "not run: there is no build/release/leat that starts here"})
        return
    run.found["parts"].get("test", {}).pop("kills", None)
    pieces, kills, events = (1, 2, 60000) if run.is_host else (KILL_PIECES, KILLS, 120000)
    for seed in range(1, pieces + 1):
        item = f"{kills} kills, seed {seed}"
        if run.item("test", item) is None:
            command = [sys.executable, os.path.join("tests", "crash", "crash.py"), "--leat", leat, "--job", "batches",
                       "--kills", str(kills), "--seed", str(seed), "--events", str(events), "--device", run.library, "--only",
                       "--folder", os.path.join("build", "gpu", f"kills-{seed}")]
            answer = run.call(command, TEST_S, f"kills-{seed}")
            if answer is None:
                return
            run.keep("test", item, tap(*answer))


def find_sanitizer():
    for pattern in ("/usr/local/cuda/bin/compute-sanitizer", "/usr/local/cuda*/bin/compute-sanitizer"):
        for path in glob.glob(pattern):
            if os.access(path, os.X_OK):
                return path
    return shutil.which("compute-sanitizer")


def sanitized(status, output):
    """What compute-sanitizer said; a machine may not let it look at a device."""
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", output)
    has_found = summary is not None and re.match(r"[1-9]", summary.group(1))
    refused = re.search(r".*(not supported|permission|Failed to (attach|initialize)|Unable to).*", output, re.I)
    if refused and not has_found and status != 0:
        return {"ok": True, "skipped": True, "text": "not measured: it may not look here: " + refused.group(0).strip()[:200]}
    if summary is None:
        return {"ok": False, "text": f"status {status}: {last_line(output)}"}
    return {"ok": status == 0 and not has_found, "text": summary.group(1) + (f", status {status}" if status else "")}


def sanitize(run):
    if skipped(run, "sanitize"):
        return
    tool = find_sanitizer()
    if tool is None or run.is_host:
        why = "the host's model has AddressSanitizer and ThreadSanitizer" if run.is_host else "there is no compute-sanitizer"
        run.keep("sanitize", "all", {"ok": True, "skipped": True, "text": f"not measured: {why}"})
        return
    for check in TOOLS:
        for name in run.programs("test_"):
            item = f"{check} {name}"
            if run.item("sanitize", item) is None:
                command = [tool, "--tool", check, "--report-api-errors", "no", "--error-exitcode", "99", run.program(name)]
                answer = run.call(command + arguments(run, name, "reduced"), SANITIZE_S, f"sanitize-{check}-{name}")
                if answer is None:
                    return
                run.keep("sanitize", item, sanitized(*answer))


def soak(run):
    """Ten minutes of each soak program, in pieces with seeds of their own."""
    if skipped(run, "soak"):
        return
    pieces, seconds = (1, 2) if run.is_host else (SOAK_PIECES, SOAK_PIECE_S)
    programs = run.programs("soak_")
    if not programs:
        run.keep("soak", "all", {"ok": True, "skipped": True, "text": "not measured: there is no soak program"})
    for name in programs:
        run.found["parts"].get("soak", {}).pop("all", None)
        for piece in range(1, pieces + 1):
            item = f"{name}, seed {piece}, {seconds} s"
            if run.item("soak", item) is None:
                command = [run.program(name), "--seconds", str(seconds), "--seed", str(piece)]
                answer = run.call(command, seconds * 3 + 60, f"{name}-{piece}")
                if answer is None:
                    return
                run.keep("soak", item, tap(*answer))


def bench_items(run):
    """(item, command): in pieces, so that a call that is cut short loses one of them."""
    tiny = ["--tiny"] if run.is_host else []
    for variant in ("scalar", "avx2", "avx512", "cuda"):
        yield f"kernels, {variant}", [run.program("bench_batch"), *tiny, variant]
    if run.programs("bench_tables"):
        for figure in ("find", "resolve", "step", "tiers", "export"):
            yield f"tables, {figure}", [run.program("bench_tables"), *tiny, figure]
    if run.programs("bench_train"):
        for figure in ("dlrm", "deepfm", "dcnv2", "checkpoints-10", "checkpoints-100"):
            yield f"training, {figure}", [run.program("bench_train"), *tiny, figure]


def bench(run):
    for item, command in bench_items(run):
        if run.item("bench", item) is not None:
            continue
        answer = run.call(command, BENCH_S, "bench-" + item.replace(", ", "-"))
        if answer is None:
            return
        status, output = answer
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        timed = sum(line.get("ms") is not None for line in lines)
        text = (f"{timed} figures measured" if timed else "not measured") if status == 0 else last_line(output)
        run.keep("bench", item, {"ok": status == 0, "text": text, "lines": lines})


PARTS = {"test": test, "sanitize": sanitize, "soak": soak, "bench": bench}
