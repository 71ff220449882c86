#!/usr/bin/env python3
"""Fuzzes every target of tests/fuzz for long, beside other work: executions are counted in a file and add up over runs.

    ./dev soak fuzz [--until 1e8] [--processes N] [--nice N] [--targets a,b] [--slice SECONDS] [--folder DIR] [--show]

Each target has its turn for a slice of time, the one with the least time behind it first, so that all of them have the same.
The folder (build/fuzz-soak) has everything that a run needs and leaves: a run goes on there, also after `kill -9`.

    counts.json       executions of each target, without those that only read its corpus in again
    corpus/TARGET     inputs that reach something new, merged (the smallest that reach as much) when they have doubled
    found/TARGET      inputs that broke something: each is a finding until the program no longer breaks
    programs, seeds   copies of what was built, so that later builds do not disturb: taken anew at each start
    log               one line a minute

A finding is reported with the command that repeats it, and its target is set aside; once mended, the input belongs into
tests/fuzz/corpus/TARGET. Ctrl-C ends a run cleanly; the status is 1 where there are findings, else 0.
"""

import argparse
import ctypes
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOG_S = 60  # a line to the log each so often
INPUT_S = 60  # an input that takes longer is a finding; beside other work, so not ten
MERGE_S = 600
MERGE_LEAST = 1000  # inputs: a corpus is not merged before
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="./dev soak fuzz", description=__doc__.split("\n")[0],
                                     epilog="\n".join(__doc__.split("\n")[4:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--until", type=lambda text: int(float(text)), default=10**8, metavar="N",
                        help="ends after N executions of all targets, counted over all runs (default: 1e8)")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="number of targets at once (default: 1)")
    parser.add_argument("--nice", type=int, default=19, metavar="N", help="niceness of the targets (default: 19)")
    parser.add_argument("--targets", default="", metavar="A,B", help="only these targets (default: all)")
    parser.add_argument("--slice", type=float, default=300, metavar="SECONDS",
                        help="length of a target's turn (default: 300)")
    parser.add_argument("--folder", default=os.path.join(ROOT, "build", "fuzz-soak"), metavar="DIR",
                        help="folder for counts, inputs and findings (default: build/fuzz-soak)")
    parser.add_argument("--programs", default=os.path.join(ROOT, "build", "fuzz", "fuzzers"), metavar="DIR",
                        help="folder from which the targets are copied (default: build/fuzz/fuzzers)")
    parser.add_argument("--show", action="store_true", help="prints the counts so far, and ends")
    arguments = parser.parse_args()
    if arguments.until < 1 or arguments.processes < 1 or arguments.slice < 1 or not 0 <= arguments.nice <= 19:
        parser.error("--until and --processes are 1 at least, --slice 1 s, --nice 0 to 19")
    return arguments


# --- What a run of libFuzzer says ---

INITED = re.compile(rb"#(\d+)\s+INITED")
EXECUTED = re.compile(rb"(?:^#|^stat::number_of_executed_units:\s*)(\d+)\s", re.M)
TAIL_BYTES = 64 << 10


def counted(log):
    """Executions that its log shows, without those of the corpus that it began with; 0 while it reads that."""
    try:
        with open(log, "rb") as file:
            begun = next((m for m in map(INITED.match, file) if m), None)
            file.seek(max(os.path.getsize(log) - TAIL_BYTES, 0))
            tail = file.read()
    except FileNotFoundError:
        return 0
    last = [int(n) for n in EXECUTED.findall(tail)]
    return max(max(last) - int(begun.group(1)), 0) if begun and last else 0


def what_was_wrong(text):
    said = re.findall(r"(?:not so: |SUMMARY: |runtime error: |Assertion |assertion failed).*", text)
    return said[0][:160] if said else "no reason was said"


def dies_with_parent():
    """What was started ends when its parent does, however that ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Soak:
    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = os.path.abspath(arguments.folder)
        self.begin = time.monotonic()
        self.running = {}  # target -> its Popen, log, and when it began
        self.stops = False
        self.counts = {"targets": {}, "open": {}}
        self.log_at = 0.0
        self.prefix = []
        if subprocess.run(["setarch", "-R", "true"], capture_output=True, check=False).returncode == 0:
            self.prefix = ["setarch", "-R"]  # the sanitizers of clang 14 and newer kernels

    def at(self, *parts):
        return os.path.join(self.folder, *parts)

    # --- The file of counts ---

    def load(self):
        try:
            with open(self.at("counts.json"), encoding="utf-8") as file:
                self.counts = json.load(file)
        except FileNotFoundError:
            pass
        # Of runs that were killed: what their logs show belongs to the counts, once.
        for target, log in sorted(self.counts["open"].items()):
            self.add(target, counted(log), 0.0)
        self.counts["open"] = {}

    def save(self):
        """As one file or the other, never half of one: with it a log stops to be open when its runs are counted."""
        with open(self.at("counts.json.new"), "w", encoding="utf-8") as file:
            json.dump(self.counts, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.at("counts.json.new"), self.at("counts.json"))

    def target(self, name):
        return self.counts["targets"].setdefault(name, {"executions": 0, "seconds": 0.0, "slices": 0, "merged": 0,
                                                        "findings": []})

    def add(self, name, executions, seconds):
        counts = self.target(name)
        counts["executions"] += executions
        counts["seconds"] = round(counts["seconds"] + seconds, 1)

    def executions(self, name=None):
        """Also those of the logs that are being written."""
        names = [name] if name else self.counts["targets"]
        return sum(self.target(n)["executions"] + (counted(self.counts["open"][n]) if n in self.counts["open"] else 0)
                   for n in names)

    # --- Beginning ---

    def prepare(self):
        wanted = [name for name in self.arguments.targets.split(",") if name]
        built = sorted(os.listdir(self.arguments.programs)) if os.path.isdir(self.arguments.programs) else []
        missing = [name for name in wanted if name not in built]
        if missing or not built:
            sys.exit(f"soak fuzz: {self.arguments.programs} has no {', '.join(missing) or 'targets'}; there are: {' '.join(built)}")
        for name in wanted or built:
            self.target(name)
            for folder in ("corpus", "found", "unrepeated"):
                os.makedirs(self.at(folder, name), exist_ok=True)
            os.makedirs(self.at("programs"), exist_ok=True)
            shutil.copy2(os.path.join(self.arguments.programs, name), self.at("programs", name + ".new"))
            os.replace(self.at("programs", name + ".new"), self.at("programs", name))
        self.names = wanted or built
        self.options = {name: self.options_of(name) for name in self.names}
        for name in self.names:
            self.look_again(name)
        self.save()

    def options_of(self, name):
        """Those of `./dev fuzz`, which copies seeds and words into this soak's folder."""
        said = subprocess.run([os.path.join(ROOT, "dev"), "fuzz-options", name, os.path.abspath(self.at("seeds", name))],
                              stdout=subprocess.PIPE, text=True, check=True)
        return said.stdout.splitlines()

    def command(self, name, *more):
        return [*self.prefix, "nice", "-n", str(self.arguments.nice), self.at("programs", name), *self.options[name],
                f"-timeout={INPUT_S}", "-rss_limit_mb=2048", *more]

    def start(self, name, log, command):
        with open(log, "wb") as out:
            return subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=self.folder,
                                    start_new_session=True, preexec_fn=dies_with_parent)

    # --- Findings ---

    def breaks(self, name, path):
        """(whether the program breaks on that input, what it says)."""
        command = [*self.prefix, self.at("programs", name), f"-timeout={INPUT_S}", "-rss_limit_mb=2048", path]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, cwd=self.folder,
                              preexec_fn=dies_with_parent)
        return done.returncode != 0, done.stdout + done.stderr

    def look_again(self, name):
        """Findings that no longer break are mended: their inputs join the corpus."""
        left = []
        for finding in self.target(name)["findings"]:
            if finding["input"].endswith(".log") or not os.path.exists(finding["input"]):
                continue
            if self.breaks(name, finding["input"])[0]:
                left.append(finding)
                continue
            self.say(f"{name}: mended: {finding['what']}: {finding['input']}")
            shutil.move(finding["input"], self.at("corpus", name, os.path.basename(finding["input"])))
        self.target(name)["findings"] = left

    def collect(self, name, log, status):
        """What a run that failed left in found/, beside the findings that are known."""
        known = {finding["input"] for finding in self.target(name)["findings"]}
        with open(log, encoding="utf-8", errors="replace") as file:
            text = file.read()
        if not set(self.inputs_found(name)) - known:
            kept = self.at(f"{name}.failed.log")
            shutil.copyfile(log, kept)
            self.target(name)["findings"].append({"input": kept, "what": f"status {status}, without an input"})
            self.say(f"FOUND  {name}: status {status}, without an input: {kept}")
        for path in self.inputs_found(name):
            file = os.path.basename(path)
            if path in known:
                continue
            is_broken, said = self.breaks(name, path)
            if not is_broken:
                self.say(f"{name}: not repeated, so kept aside: {what_was_wrong(text)}: {file}")
                shutil.move(path, self.at("unrepeated", name, file))
                continue
            self.target(name)["findings"].append({"input": path, "what": what_was_wrong(said)})
            self.say(f"FOUND  {name}: {what_was_wrong(said)}")
            self.say(f"       again: {self.at('programs', name)} {path}")

    def inputs_found(self, name):
        return [self.at("found", name, file) for file in sorted(os.listdir(self.at("found", name)))
                if not file.startswith("slow-unit-")]

    # --- A turn ---

    def begin_turn(self, name):
        counts = self.target(name)
        log = self.at(f"{name}.{counts['slices']}.log")
        counts["slices"] += 1
        # Every second turn looks at compared values, too: slower, and finds what stands behind a comparison.
        profile = counts["slices"] % 2
        self.counts["open"][name] = log
        if os.path.exists(log):
            os.remove(log)
        self.save()
        self.running[name] = (self.start(name, log, self.command(
            name, f"-use_value_profile={profile}", f"-max_total_time={max(int(self.arguments.slice), 1)}",
            "-print_final_stats=1", f"-artifact_prefix={self.at('found', name)}/", self.at("corpus", name),
            self.at("seeds", name))), log, time.monotonic())

    def end_turn(self, name):
        process, log, begin = self.running.pop(name)
        self.add(name, counted(log), time.monotonic() - begin)
        del self.counts["open"][name]
        if process.returncode != 0 and not self.stops:
            self.collect(name, log, process.returncode)
        self.save()
        os.replace(log, self.at(f"{name}.log"))
        self.merge(name)

    def merge(self, name):
        """The corpus, when it has doubled: the smallest inputs that reach as much."""
        counts, corpus = self.target(name), self.at("corpus", name)
        inputs = len(os.listdir(corpus))
        if self.stops or inputs < MERGE_LEAST or inputs < 2 * counts["merged"]:
            return
        smaller = self.at("corpus", name + ".merged")
        shutil.rmtree(smaller, ignore_errors=True)
        os.makedirs(smaller)
        process = self.start(name, self.at(f"{name}.merge.log"), self.command(
            name, "-merge=1", f"-max_total_time={MERGE_S}", "-use_value_profile=1",
            f"-artifact_prefix={self.at('found', name)}/", smaller, corpus))
        while process.poll() is None and not self.stops:
            time.sleep(0.2)
            self.report()
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.returncode == 0 and len(os.listdir(smaller)) > 0:
            shutil.rmtree(corpus)
            os.replace(smaller, corpus)
            counts["merged"] = len(os.listdir(corpus))
            self.say(f"{name}: corpus merged: {counts['merged']:,} of {inputs:,} inputs")
        else:
            counts["merged"] = inputs  # tried again when it has doubled
        shutil.rmtree(smaller, ignore_errors=True)
        self.save()

    # --- What is said ---

    def say(self, text):
        if sys.stdout.isatty():
            print("\r\033[K" + text, flush=True)
        else:
            print(text, flush=True)
        with open(self.at("log"), "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}  {text}\n")

    def line(self):
        done, found = self.executions(), sum(len(self.target(n)["findings"]) for n in self.names)
        return (f"{done:,} of {self.arguments.until:,} executions ({100 * done / self.arguments.until:.1f} %), "
                f"{len(self.names)} targets, now {' '.join(sorted(self.running)) or 'none'}, {found} findings")

    def report(self):
        now = time.monotonic()
        if sys.stdout.isatty():
            print("\r\033[K" + self.line()[:shutil.get_terminal_size().columns - 1], end="", flush=True)
        if now >= self.log_at:
            self.log_at = now + LOG_S
            if sys.stdout.isatty():
                with open(self.at("log"), "a", encoding="utf-8") as file:
                    file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}  {self.line()}\n")
            else:
                self.say(self.line())
            self.save()

    def table(self):
        print(f"{'target':<20} {'executions':>15} {'hours':>8} {'turns':>6} {'corpus':>8}  findings")
        for name, counts in sorted(self.counts["targets"].items()):
            corpus = len(os.listdir(self.at("corpus", name))) if os.path.isdir(self.at("corpus", name)) else 0
            print(f"{name:<20} {self.executions(name):>15,} {counts['seconds'] / 3600:>8.2f} {counts['slices']:>6} "
                  f"{corpus:>8,}  {len(counts['findings'])}")
            for finding in counts["findings"]:
                print(f"    {finding['what']}\n    again: {self.at('programs', name)} {finding['input']}")
        print(f"{'all':<20} {self.executions():>15,}")

    # --- All of it ---

    def next_target(self):
        free = [n for n in self.names if n not in self.running and not self.target(n)["findings"]]
        return min(free, key=lambda n: (self.target(n)["seconds"], n), default=None)

    def stop(self, *_):
        self.stops = True

    def end_all(self):
        self.stops = True
        for process, _, _ in self.running.values():
            process.send_signal(signal.SIGINT)
        until = time.monotonic() + 5
        for name in list(self.running):
            process = self.running[name][0]
            try:
                process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self.end_turn(name)

    def run(self):
        signal.signal(signal.SIGINT, self.stop)
        signal.signal(signal.SIGTERM, self.stop)
        try:
            while not self.stops and self.executions() < self.arguments.until:
                while len(self.running) < self.arguments.processes and (name := self.next_target()) is not None:
                    self.begin_turn(name)
                if not self.running:
                    self.say("every target is set aside: mend what was found")
                    break
                time.sleep(0.5)
                for name in [n for n, (process, _, _) in self.running.items() if process.poll() is not None]:
                    self.end_turn(name)
                self.report()
        finally:
            self.end_all()
            self.save()


def main():
    arguments = parse_arguments()
    soak = Soak(arguments)
    if arguments.show:
        if not os.path.isfile(soak.at("counts.json")):
            sys.exit(f"soak fuzz: nothing is counted in {soak.folder} yet")
        with open(soak.at("counts.json"), encoding="utf-8") as file:
            soak.counts = json.load(file)
        soak.table()
        return 0
    os.makedirs(soak.folder, exist_ok=True)
    with open(soak.at("lock"), "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"soak fuzz: another soak is at work in {soak.folder}; --show says how far it is")
        soak.load()
        soak.prepare()
        soak.run()
        if sys.stdout.isatty():
            print("\r\033[K", end="")
        soak.say(soak.line())
        soak.table()
    return 1 if any(counts["findings"] for counts in soak.counts["targets"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
