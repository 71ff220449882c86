#!/usr/bin/env python3
"""./dev gpu: builds, tests, checks, soaks and measures the device side on a machine with a GPU, and writes one report.

    ./dev gpu [PART...]          build, test, sanitize, soak, bench; without any: all, in this order
        --limit SECONDS          stop before this time has passed (default 480); the same command then goes on
        --again                  forget the results so far
        --on-host LIBRARY        exercise the command with the host's model of a GPU: tiny sizes, nothing is measured

Needs CMake, gcc, python3 and an nvcc of CUDA 13; no network. Results lie in build/gpu/state.json until the device
library or a program changes; each report has all results: bench/reports/DATE-MACHINE.md and .json. Ends with 0, with 1 if
a part failed, with 3 if parts are left: then the same command goes on where this one stopped.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import parts
import report

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build", "alone")
STATE = os.path.join(ROOT, "build", "gpu")
DEVICE = os.path.join(BUILD, "device")
OK, FAILED, LEFT = 0, 1, 3
HOST_TIMES = 8  # a command may take so many times its limit with the host's model, on a machine that has other work, too


class Run:
    """One call of the command: where things lie, how much time is left, and what was found, by part and item."""

    def __init__(self, arguments):
        self.end = time.monotonic() + arguments.limit
        self.is_host = bool(arguments.on_host)
        self.library = os.path.abspath(arguments.on_host) if self.is_host else os.path.join(BUILD, "leat_cuda.so")
        self.path = os.path.join(STATE, "on-host.json" if self.is_host else "state.json")
        self.device_folder = DEVICE
        self.found = {"key": None, "parts": {}}
        self.machine = {"devices": [], "why": "nothing is built yet"}
        self.is_cut_short = False
        if not arguments.again and os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                self.found = json.load(file)

    def left_s(self):
        return self.end - time.monotonic()

    def program(self, name):
        return os.path.join(DEVICE, name)

    def programs(self, prefix):
        names = os.listdir(DEVICE) if os.path.isdir(DEVICE) else []
        return sorted(name for name in names if name.startswith(prefix) and os.access(self.program(name), os.X_OK))

    def leat(self):
        """The whole program, which needs more than a GPU's machine may have; None: it does not start here."""
        path = os.path.join(ROOT, "build", "release", "leat")
        try:
            return path if subprocess.run([path, "--version"], check=False, capture_output=True).returncode == 0 else None
        except OSError:
            return None

    def call(self, command, limit_s, log):
        """(status, output) of a command; None: time was up before its own limit was, so it has to be run again."""
        limit_s *= HOST_TIMES if self.is_host else 1
        allowed = min(limit_s, self.left_s())
        if allowed < min(limit_s, 10):
            self.is_cut_short = True
            return None
        environment = {**os.environ, "LEAT_CUDA_LIBRARY": self.library}
        with subprocess.Popen(command, cwd=ROOT, env=environment, errors="replace", start_new_session=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8") as process:
            try:
                output, _ = process.communicate(timeout=allowed)
                status = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # what it started would go on, on the device
                output, _ = process.communicate()
                if allowed < limit_s:
                    self.is_cut_short = True
                    return None
                status, output = 124, output + f"\nran past {limit_s} s\n"
            except KeyboardInterrupt:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        with open(os.path.join(STATE, log + ".log"), "w", encoding="utf-8") as file:
            file.write(" ".join(command) + "\n" + output)
        return status, output

    def item(self, part, name):
        return self.found["parts"].get(part, {}).get(name)

    def keep(self, part, name, result):
        """result: {"ok": bool, "text": what is said of it, ...}."""
        self.found["parts"].setdefault(part, {})[name] = result
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.found, file, indent=1)
        os.replace(self.path + ".new", self.path)
        print(f"{'ok' if result['ok'] else 'not ok'} - {part}: {name}: {result['text']}", flush=True)

    def device(self):
        """The first usable device, or None."""
        return next((d for d in self.machine["devices"] if d["usable"]), None)


def fingerprint(run):
    """Of the library and all programs: what was found with others is not what these do."""
    digest = hashlib.sha256()
    for path in [run.library] + [run.program(name) for name in run.programs("")]:
        digest.update(os.path.basename(path).encode())
        if os.path.exists(path):
            with open(path, "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()


def build(run):
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    jobs = os.environ.get("LEAT_JOBS") or str(os.cpu_count())
    options = ["-DLEAT_CUDA=AUTO", "-DLEAT_WERROR=ON"] if run.is_host else ["-DLEAT_CUDA=ON", "-DLEAT_WERROR=OFF"]
    for name, command, limit_s in (
            ("configure", ["cmake", "-S", "cmake/gpu", "-B", BUILD, *options, *generator], 120),
            ("compile", ["cmake", "--build", BUILD, "-j", jobs], 460)):
        begin = time.monotonic()
        answer = run.call(command, limit_s, "build-" + name)
        if answer is None:
            return
        status, output = answer
        text = f"{time.monotonic() - begin:.0f} s" if status == 0 else f"status {status}; see build/gpu/build-{name}.log"
        run.keep("build", name, {"ok": status == 0, "text": text})
        if status != 0:
            print("\n".join("#   " + line for line in output.splitlines()[-30:]))
            return


def look(run):
    """What is built, and which devices there are."""
    if not os.path.exists(run.program("gpu_devices")):
        return False
    answer = run.call([run.program("gpu_devices")], 60, "devices")
    if answer is None or answer[0] != 0:
        run.machine["why"] = "the list of devices cannot be had: " + ("no time is left" if answer is None else answer[1])
        return False
    run.machine = json.loads(answer[1].splitlines()[-1])
    key = fingerprint(run)
    if run.found["key"] != key:
        run.found = {"key": key, "parts": {"build": run.found["parts"].get("build", {})}}
    run.found["machine"] = run.machine
    return True


def read_arguments():
    parser = argparse.ArgumentParser(prog="./dev gpu", description=__doc__.split("\n\n", maxsplit=1)[0],
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog=__doc__.split("\n\n", maxsplit=2)[2])
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help="build, test, sanitize, soak, bench; without PART: all parts")
    parser.add_argument("--limit", type=float, default=480, metavar="SECONDS",
                        help="stop before this time has passed (default: 480)")
    parser.add_argument("--again", action="store_true", help="forget the results so far")
    parser.add_argument("--on-host", metavar="LIBRARY", help="use the host's model of a GPU; nothing is measured")
    arguments = parser.parse_args()
    for part in arguments.parts:
        if part != "build" and part not in parts.PARTS:
            parser.error(f"there is no part {part}: build, {', '.join(parts.PARTS)}")
    return arguments


def main():
    arguments = read_arguments()
    os.makedirs(STATE, exist_ok=True)
    run = Run(arguments)
    wanted = arguments.parts or ["build", *parts.PARTS]
    if "build" in wanted or not run.programs("gpu_devices"):
        build(run)
        if not all(result["ok"] for result in run.found["parts"].get("build", {}).values()):
            return FAILED
    if not look(run):
        print(f"not ok - devices: {run.machine['why']}")
        return LEFT if run.is_cut_short else FAILED
    device = run.device()
    if device is None:
        why = run.machine["why"] or next((d["why"] for d in run.machine["devices"]), "the driver shows none")
        run.machine["why"] = why
        print(f"skipped: no CUDA device: {why}")
    for part in wanted:
        if part != "build":
            parts.PARTS[part](run)
    written = report.write(run, ROOT)
    print(f"report: {os.path.relpath(written, ROOT)}")
    failed = [f"{part}: {name}" for part, items in run.found["parts"].items() for name, result in items.items()
              if not result["ok"]]
    if failed:
        print("failed: " + ", ".join(failed))
        return FAILED
    if run.is_cut_short:
        print(f"the time of this call is up: the same command goes on ({', '.join(wanted)})")
        return LEFT
    return OK


if __name__ == "__main__":
    sys.exit(main())
