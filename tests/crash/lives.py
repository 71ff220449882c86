"""The lives of one job: how one begins, is stopped and killed, and what it has read by then.

A life is not killed from within: at each passage of its failpoint (LEAT_FAILPOINTS="NAME=stop") it stops and says so,
and this end lets it go on until it may be killed there, when nothing of it moves. What it has read is then told by the
system: how far its input files are read (/proc/PID/fdinfo).
"""

import bisect
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

LANES = [1, 2, 3, 7]
KILL_POINTS = [
    "ckpt.barrier", "ckpt.write", "ckpt.order", "ckpt.manifest", "ckpt.fsync", "ckpt.fsync_directory", "ckpt.pre_rename",
    "ckpt.rename", "ckpt.post_rename", "ckpt.fsync_parent", "ckpt.published", "ckpt.prune", "ckpt.database",
    "sink.write", "sink.fsync", "sink.create", "sink.rename", "sink.truncate", "sink.reopen", "spill.write", "state.evict",
    "state.load", "restore.begin", "restore.end",
]
# Passed where key groups move between lanes (leat run --move).
MOVE_POINTS = ["move.announce", "move.base", "move.take_base", "move.give", "move.given", "move.take", "move.taken"]
# The same of operators that move as a whole, such as learners.
WHOLE_POINTS = ["move.stage", "move.stage_taken"]
MOVE_POINTS += WHOLE_POINTS
# Passed while a life begins, before it can have published anything: what came before it must have.
AT_THE_START = ("restore.begin", "restore.end", "sink.truncate", "sink.reopen")
CHECKPOINTS_LEAST = 3  # of a round, before a life of it is killed


class Failure(Exception):
    pass


class Inputs:
    """The recorded files, and where their records begin."""

    def __init__(self, folder):
        self.folder, self.ends = folder, {}
        for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
            with open(path, "rb") as f:
                data = f.read()
            self.ends[path] = [m.end() for m in re.finditer(b"\n", data)]
        self.total = sum(len(ends) for ends in self.ends.values())

    def records_before(self, path, offset):
        """Whole records within the first `offset` bytes."""
        return bisect.bisect_right(self.ends[path], offset)


def checkpoints(state):
    """(generation, epoch) of all published checkpoints, by name alone."""
    found = []
    for path in glob.glob(os.path.join(state, "gen-*", "ckpt-*")):
        match = re.search(r"gen-(\d+)/ckpt-(\d+)$", path)
        if match:
            found.append((int(match[1]), int(match[2])))
    return sorted(found)


class Round:
    """Lives of one job until it is through."""

    def __init__(self, job, rng, number):
        self.job, self.rng, self.inputs = job, rng, job.inputs
        self.place = f"round-{number}"
        self.state = os.path.join(job.folder, f"state-{number}")
        self.kills = 0
        self.read = 0  # records, by all lives
        self.epoch_max = 0  # records from a checkpoint to the next, or to what was read when that began
        self.positions = {}  # of checkpoints seen: {(generation, epoch): {path: records}}
        self.log, self.points = [], set()
        self.published = 0  # by all lives
        self.summary = None

    def life(self, point, is_killed):
        """One life; True when the job is through. point: the failpoint to kill it at; None: a random moment."""
        if self.published < self.job.checkpoints_least and point in AT_THE_START:
            point = None
        lanes, every = self.rng.choice(LANES), self.rng.choice(["10ms", "20ms", "40ms"])
        points = [point] if point else []
        watched = {p for p in ("state.evict", "state.load") if is_killed and self.job.spills and p != point}
        self.begin = checkpoints(self.state)
        if is_killed and point and not self.begin:  # a life from the first record on, if it comes through, comes to all that there are
            others = KILL_POINTS + MOVE_POINTS if point in MOVE_POINTS else KILL_POINTS
            watched |= set(others) - {point, *AT_THE_START} - self.job.points_seen
        device = self.rng.choice(self.job.devices)
        environment = dict(self.job.environment)
        if self.rng.random() < 0.5:  # key groups here and there, not in ranges
            environment["LEAT_TEST_PLACEMENT"] = str(self.rng.randrange(1, 100))
        own = [environment["LEAT_FAILPOINTS"]] if "LEAT_FAILPOINTS" in environment else []
        environment["LEAT_FAILPOINTS"] = ",".join(own + [f"{p}=stop" for p in points] + [f"{p}=stop@1" for p in sorted(watched)])
        move = self.rng.choice([0, self.rng.randrange(1, 1000)])
        if point in MOVE_POINTS:
            lanes, move = max(lanes, 2), self.rng.randrange(1, 1000)
        command = self.job.command(self.place, lanes, self.state, every, device, move)
        errors = os.path.join(self.job.folder, "stderr")
        output = os.path.join(self.job.folder, "stdout")
        with open(errors, "w", encoding="utf-8") as err, open(output, "w", encoding="utf-8") as out:
            process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        self.log.append([device, lanes, every, move, point if is_killed else "to the end"])
        self.passed, self.cuts = {}, {}  # cuts: records read when the epoch after a checkpoint was over
        status = self.watch(process, point, is_killed, errors)
        with open(errors, encoding="utf-8") as f:
            said = f.read()
        self.check_start(said)
        self.published += len(self.new_checkpoints())
        self.job.points_seen |= set(re.findall(r"leat: stopped at (\S+)", said))
        self.log[-1] += [status, checkpoints(self.state)[-1:]]
        if status == -signal.SIGKILL:
            self.kills += 1
            if point:
                self.points.add(point)
            return False
        if status != 0:
            raise Failure(f"a life failed with {status}:\n{said[-3000:]}\n{self.log}")
        if is_killed and point:  # what it did not come to is not worth another life, nor what a whole one of many checkpoints did not
            is_whole = not self.begin and len(self.new_checkpoints()) >= CHECKPOINTS_LEAST
            self.job.never_passed |= ({point} | (watched if is_whole else set())) - self.job.points_seen
        with open(output, encoding="utf-8") as f:
            self.summary = f.read()
        found, expected = json.loads(self.summary)["records_life"], self.inputs.total - sum(self.start().values())
        if found != expected:
            raise Failure(f"a life says that it read {found} records, from its checkpoint on there are {expected}: {self.log}")
        self.read += found
        self.note_epochs(self.start())
        return True

    # --- one life

    def watch(self, process, point, is_killed, errors):
        """Until it ends, or is killed; its exit status as subprocess has it."""
        deadline, moment, stopped = time.monotonic() + PATIENCE_S, None, 0.0
        extra = self.rng.randrange(2) if point not in AT_THE_START else 0
        while True:
            pid, status = os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)
            if pid != 0 and not os.WIFSTOPPED(status):
                process.returncode = os.waitstatus_to_exitcode(status)
                return process.returncode
            if pid != 0:
                name = self.stopped_at(errors)
                self.passed[name] = self.passed.get(name, 0) + 1
                if name == point and self.may_be_killed(point):
                    extra -= 1
                    if extra < 0:
                        return self.kill(process)
                os.kill(process.pid, signal.SIGCONT)
                stopped = time.monotonic()
                continue
            if is_killed:
                self.note_cut(process.pid)
            if is_killed and point is None and self.may_be_killed(None):
                moment = moment or time.monotonic() + self.rng.random() * 0.04
                if time.monotonic() >= moment:
                    os.kill(process.pid, signal.SIGSTOP)
                    return self.kill(process)
            if time.monotonic() > deadline:
                self.end(process)
                raise Failure(f"a life hangs: {self.log}")
            if time.monotonic() > stopped + 0.002:
                time.sleep(0.001)

    @staticmethod
    def stopped_at(errors):
        with open(errors, encoding="utf-8") as f:
            return re.findall(r"leat: stopped at (\S+)", f.read())[-1]

    def new_checkpoints(self):
        """Published by this life, and not pruned yet."""
        begun = self.begin[-1] if self.begin else (0, 0)
        newest = checkpoints(self.state)
        return range(newest[-1][1] - begun[1]) if newest and newest[-1][0] > begun[0] else []

    def may_be_killed(self, point):
        if point in AT_THE_START:
            return self.published >= self.job.checkpoints_least
        own = len(self.new_checkpoints())
        if own == 0 or self.published + own < self.job.checkpoints_least:
            return False
        return not self.job.spills or {"state.evict", "state.load"} <= set(self.passed)

    def end(self, process):
        """kill -9, and its exit status. (Popen.kill looks after an ended process, and would take its status away.)"""
        os.kill(process.pid, signal.SIGKILL)
        _, status = os.waitpid(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode

    def kill(self, process):
        """A life that stands still, or will at once: notes what it has read, and ends it."""
        while not self.stands_still(process.pid):
            time.sleep(0.0005)
        if self.state_of(process.pid) in "ZX":  # it was through before
            return self.end(process)
        begun = self.start()
        far = self.read_so_far(process.pid, begun)
        done = (self.positions_of(checkpoints(self.state)[-1]) if self.new_checkpoints() else None) or {}
        if any(far[path] < done[path] for path in done):
            raise Failure(f"a checkpoint has {done} records done, where the system says that {far} were read: {self.log}")
        self.read += sum(max(0, far[path] - begun[path]) for path in begun)
        status = self.end(process)
        self.note_epochs(begun)
        self.note_cuts()
        return status

    @staticmethod
    def state_of(pid):
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0]

    def stands_still(self, pid):
        return self.state_of(pid) in "TtZX"

    # --- what was read

    def positions_of(self, checkpoint):
        """{path: records} at a checkpoint, by `leat checkpoint show`; None where it is gone."""
        if checkpoint not in self.positions:
            result = subprocess.run([self.job.leat, "checkpoint", "show", self.state, f"{checkpoint[0]}-{checkpoint[1]}"],
                                    capture_output=True, text=True, timeout=PATIENCE_S)
            found = dict((m[2], int(m[1])) for m in
                         re.finditer(r"^  source .* (\d+) records  at .*?  (/\S+)$", result.stdout, re.M))
            if set(found) != set(self.inputs.ends):
                return None
            self.positions[checkpoint] = found
        return self.positions[checkpoint]

    def start(self):
        """{path: records} that were done when this life began."""
        if not self.begin:
            return {path: 0 for path in self.inputs.ends}
        found = self.positions_of(self.begin[-1])
        if found is None:
            raise Failure(f"`leat checkpoint show` does not say where {self.begin[-1]} goes on: {self.log}")
        return found

    def read_so_far(self, pid, begun):
        """{path: records} by how far the process has read its input; a file that is closed was read to its end."""
        is_reading = not any(p in self.passed for p in AT_THE_START) or self.new_checkpoints()
        far = {path: len(ends) if is_reading else begun[path] for path, ends in self.inputs.ends.items()}
        for link in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                path = os.readlink(link)
                if path in far:
                    with open(f"/proc/{pid}/fdinfo/{os.path.basename(link)}", encoding="utf-8") as f:
                        read = self.inputs.records_before(path, int(re.search(r"pos:\s*(\d+)", f.read())[1]))
                        far[path] = max(begun.get(path, 0), read)  # a file that was through is opened, and not read
            except FileNotFoundError:
                continue
        return far

    def note_epochs(self, begun):
        """The records between checkpoints of this life, as far as they are still there."""
        last, before = sum(begun.values()), None
        for checkpoint in checkpoints(self.state):
            found = self.positions_of(checkpoint)
            if found is None or (self.begin and checkpoint <= self.begin[-1]):
                continue
            if before is None and checkpoint[1] == (self.begin[-1][1] if self.begin else 0) + 1:
                before = last
            if before is not None:
                self.epoch_max = max(self.epoch_max, sum(found.values()) - before)
            before = sum(found.values())

    def note_cut(self, pid):
        """How far a life has read when the next checkpoint begins: a slow disk may keep it from being published for long."""
        if not self.new_checkpoints():
            return
        generation, epoch = checkpoints(self.state)[-1]
        next_one = os.path.join(self.state, f"gen-{generation:06}", f"ckpt-{epoch + 1:012}.tmp")
        if (generation, epoch) not in self.cuts and os.path.exists(next_one):
            self.cuts[generation, epoch] = sum(self.read_so_far(pid, {}).values())

    def note_cuts(self):
        """Epochs of this life by what was read when they were over, the one that a kill left half written among them."""
        for checkpoint, cut in self.cuts.items():
            found = self.positions_of(checkpoint)
            if found is not None:
                self.epoch_max = max(self.epoch_max, cut - sum(found.values()))

    def check_start(self, said):
        match = re.search(r"resuming from checkpoint (\d+)-(\d+): (\d+) records", said)
        begun = (int(match[1]), int(match[2])) if match else None
        expected = self.begin[-1] if self.begin else None
        is_early = begun is None and any(p in self.passed for p in AT_THE_START)
        if begun != expected and not is_early:
            raise Failure(f"a life began at {begun} although {expected} is whole: {self.log}")
        if begun and int(match[3]) != sum(self.start().values()):
            raise Failure(f"a life says that {match[3]} records are done, its checkpoint {self.start()}: {self.log}")
