#!/usr/bin/env python3
"""`leat serve` beside a trainer that is killed, whose checkpoints come every moment and are pruned, or are damaged: clients
see no failed request, and in the end scores are those of `leat score`.

    tests/serve/test_serve_faults.py PATH_OF_LEAT [--kills N] [--seed N] [--only TEST]
"""

import argparse
import contextlib
import glob
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import jobs  # noqa: E402
import stream  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402
from place import LEAT, ROWS, Place, time_text  # noqa: E402
from server import Client, Server, rows_of, tensors  # noqa: E402

COLUMNS = ["id", "ts", "user", "item", "price", "tags"]
OFTEN = jobs.learner("fm").replace("every: 1h", "every: 10ms, keep: { last: 2 }")
POINTS = ["ckpt.published", "ckpt.pre_rename", "ckpt.rename", "ckpt.post_rename", "ckpt.prune", "ckpt.fsync_parent"]
REFUSED_503 = "has no checkpoint yet"


def start_trainer(place, workers, failpoints="", *words):
    text = OFTEN.replace("workers: 1", f"workers: {workers}")
    place.write("job.leat", text)
    return subprocess.Popen([LEAT, "run", "--quiet", *words, place.path("job.leat"), *place.settings()], stderr=subprocess.PIPE,
                            stdout=subprocess.DEVNULL, env={**os.environ, "LEAT_TEST_CUT": "1", "LEAT_FAILPOINTS": failpoints})


class Clients:
    """Ask without a pause until stopped; keep what they were answered."""

    def __init__(self, server, asked, count=2):
        self.asked, self.is_stopped, self.failures, self.cuts, self.answers = asked, False, [], set(), 0
        self.threads = [threading.Thread(target=self.ask, args=(server.client(),)) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def ask(self, client):
        request = tensors(self.asked, COLUMNS)
        while not self.is_stopped:
            try:
                status, answer = client.infer("scores", request, ["prediction", "_status"])
            except OSError as failure:
                self.failures.append(repr(failure))
                return
            if status == 200:
                self.cuts.add(answer["parameters"]["cut"])
                self.answers += 1
            elif REFUSED_503 not in answer.get("error", ""):
                self.failures.append((status, answer))

    def wait_answered(self, place):
        """Until a client was answered, if there is a checkpoint."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.cuts and glob.glob(os.path.join(place.path("state"), "gen-*", "ckpt-*[0-9]")):
            assert time.monotonic() < deadline, "nobody is answered"
            time.sleep(0.02)

    def stop(self):
        self.is_stopped = True
        for thread in self.threads:
            thread.join(PATIENCE_S)
        assert not self.failures, (len(self.failures), self.failures[:3])


def settled(server, place):
    """Waits until the server answers from the newest checkpoint."""
    newest = newest_checkpoint(place)
    server.wait_for(rf"answers from checkpoint {newest}$")


def newest_checkpoint(place):
    paths = [path.split(os.sep)[-2:] for path in glob.glob(os.path.join(place.path("state"), "gen-*", "ckpt-*[0-9]"))]
    generation, epoch = max((int(folder[4:]), int(name[5:])) for folder, name in paths)
    return f"{generation}-{epoch}"


def check_scores(server, place, asked):
    status, answer = server.client().infer("scores", tensors(asked, COLUMNS), ["prediction"])
    assert status == 200, answer
    scored = [row.get("prediction") for row in place.score(asked)]
    assert [row.get("prediction") for row in rows_of(answer)] == scored


def test_killed_trainer():
    """The trainer is killed while it publishes, and started again with other lanes."""
    rng, killed = random.Random(ARGUMENTS.seed), 0
    with Place(OFTEN, rows=5000 * ARGUMENTS.kills) as place:
        asked = place.events[-20:]
        with Server(place) as server:
            clients = Clients(server, asked)
            for _ in range(ARGUMENTS.kills):
                point = f"sink.write=sleep:20,{rng.choice(POINTS)}=kill@{rng.randrange(1, 4)}"
                with start_trainer(place, rng.choice([1, 2, 3]), point) as trainer:
                    trainer.communicate(timeout=PATIENCE_S)
                    killed += trainer.returncode == -signal.SIGKILL
                clients.wait_answered(place)
            assert killed >= ARGUMENTS.kills * 3 // 4, f"only {killed} lives were killed"
            with start_trainer(place, 2) as trainer:
                said = trainer.communicate(timeout=PATIENCE_S)[1]
                assert trainer.returncode == 0, said[-900:]
            settled(server, place)
            clients.stop()
            assert len(clients.cuts) >= 2 and clients.answers > 0, clients.cuts
            check_scores(server, place, asked)


def damage(path):
    """One byte of the checkpoint's largest file is another."""
    largest = max((os.path.join(path, name) for name in os.listdir(path) if os.path.isfile(os.path.join(path, name))),
                  key=os.path.getsize)
    copy = largest + ".copy"  # files of checkpoints share inodes
    shutil.copyfile(largest, copy)
    os.replace(copy, largest)
    with open(largest, "r+b") as file:
        file.seek(os.path.getsize(largest) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 255]))


def newest_path(place):
    return max(glob.glob(os.path.join(place.path("state"), "gen-*", "ckpt-*[0-9]")))


def test_damaged():
    """The newest checkpoint is damaged: at the start an older one answers; later the one before goes on."""
    with Place(jobs.learner("linear")) as place:
        for part in (0.3, 0.5):
            place.run("--until", time_text(stream.START_MS + int(ROWS * stream.STEP_MS * part)))
        older, newer = sorted(glob.glob(os.path.join(place.path("state"), "gen-*", "ckpt-*[0-9]")))[-2:]
        assert os.path.dirname(older) != os.path.dirname(newer), (older, newer)
        damage(newer)
        with Server(place) as server:
            server.wait_for(rf"answers from checkpoint {int(os.path.dirname(older)[-6:])}-")
            asked = place.events[-5:]
            first = server.client().infer("scores", tensors(asked, COLUMNS), ["prediction"])[1]
            # A newer one that is damaged when the server looks, and one that is not.
            server.process.send_signal(signal.SIGSTOP)
            place.run("--until", time_text(stream.START_MS + int(ROWS * stream.STEP_MS * 0.6)))
            damage(newest_path(place))
            server.process.send_signal(signal.SIGCONT)
            server.wait_for("E0702")
            assert server.client().infer("scores", tensors(asked, COLUMNS), ["prediction"])[1]["outputs"] == first["outputs"]
            place.run("--until", time_text(stream.START_MS + int(ROWS * stream.STEP_MS * 0.7)))
            settled(server, place)
            check_scores(server, place, asked)


def test_lost_directory():
    """The checkpoints vanish under the server: it goes on, and takes the new ones when the job runs again."""
    with Place(jobs.learner("linear")) as place:
        place.run("--until", time_text(stream.START_MS + ROWS * stream.STEP_MS // 3))
        asked = place.events[-5:]
        with Server(place).ready() as server:
            clients = Clients(server, asked)
            shutil.rmtree(place.path("state"))
            time.sleep(0.1)
            place.run("--until", time_text(stream.START_MS + ROWS * stream.STEP_MS // 2))
            server.wait_for(rf"answers from checkpoint {newest_checkpoint(place)}$")
            clients.stop()
            assert clients.answers > 0


def test_killed_server():
    """kill -9 of the server: the trainer does not notice, and a new one answers."""
    with Place(OFTEN) as place:
        first = Server(place)
        with start_trainer(place, 2, "ckpt.published=sleep:20") as trainer:
            first.ready()
            first.process.kill()
            first.process.wait(PATIENCE_S)
            said = trainer.communicate(timeout=PATIENCE_S)[1]
            assert trainer.returncode == 0, said[-900:]
        with Server(place).ready() as server:
            settled(server, place)
            check_scores(server, place, place.events[-5:])


def test_disconnect():
    """Clients that leave in the middle, and signals: the server goes on for the others."""
    with Place(jobs.learner("linear")) as place:
        place.run("--until", time_text(stream.START_MS + ROWS * stream.STEP_MS // 3))
        with Server(place).ready() as server:
            clients = Clients(server, place.events[-5:])
            for _ in range(200):
                leaver = server.client()
                leaver.connection.connect()
                leaver.connection.sock.sendall(b"POST /v2/models/scores/infer HTTP/1.1\r\nHost: localhost\r\n"
                                               b"Content-Length: 4000\r\n\r\n{")
                leaver.connection.close()
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(0.2)
            server.process.send_signal(signal.SIGCONT)
            clients.stop()
            figures = server.client().metrics()
            assert figures["leat_net_memory_bytes"] < 100_000, figures


def port_beside(place):
    with open(place.path("state/serve.log"), encoding="utf-8") as file:
        return int(re.findall(r"listening on http://127.0.0.1:(\d+)", file.read())[-1])


def holder(place):
    with open(place.path("state/SERVE"), encoding="ascii") as file:
        return int(file.read().split()[0])


def run_beside(words, failpoints=""):
    return subprocess.run([LEAT, "run", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
                          timeout=PATIENCE_S, env={**os.environ, "LEAT_TEST_CUT": "1", "LEAT_FAILPOINTS": failpoints})


def test_beside():
    """`leat run --serve`: the server survives a run that is killed, the next run finds it, and ends it in order."""
    with Place(OFTEN, rows=30000) as place:
        text = OFTEN.replace("deadline: 1m }", 'deadline: 1m, listen: "127.0.0.1:0" }')
        run = ["--serve", "--quiet", place.write("beside.leat", text), *place.settings()]
        first = run_beside(run, "ckpt.published=kill@3")
        assert first.returncode == -signal.SIGKILL and "serves; its messages are in" in first.stderr, first.stderr
        pid = holder(place)
        try:
            client = Client(port_beside(place))
            deadline = time.monotonic() + PATIENCE_S
            while client.get("/v2/health/ready")[0] != 200:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert client.infer("scores", tensors(place.events[-5:], COLUMNS))[0] == 200
            second = run_beside(run, "sink.write=sleep:20,ckpt.published=kill@2")
            assert second.returncode == -signal.SIGKILL and "serves already" in second.stderr, second.stderr
            assert holder(place) == pid
            place.write("beside.leat", text.replace("deadline: 1m", "deadline: 2m"))
            changed = run_beside(run, "sink.write=sleep:20,ckpt.published=kill@2")
            assert changed.returncode == -signal.SIGKILL, changed.stderr
            assert "another version of the job ends" in changed.stderr and holder(place) != pid, changed.stderr
            ended, pid = pid, holder(place)
            assert not os.path.exists(f"/proc/{ended}") or is_zombie(ended), "the old server has not ended"
            last = run_beside(run)
            assert last.returncode == 0 and "serves already" in last.stderr, last.stderr
            assert not os.path.exists(f"/proc/{pid}") or is_zombie(pid), "the server has not ended"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        third = run_beside(run)
        assert third.returncode == 0 and "serves already" not in third.stderr, third.stderr


def is_zombie(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


def test_beside_refused():
    """The port is taken, or the job serves nothing: said at the start, and nothing runs."""
    with Place(OFTEN) as place, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f'deadline: 1m, listen: "127.0.0.1:{taken.getsockname()[1]}" }}'
        place.write("job.leat", OFTEN.replace("deadline: 1m }", listen))
        refused = place.leat("run", "--serve", "--quiet")
        assert refused.returncode == 1 and "ended before it listened" in refused.stderr, refused.stderr
        assert not glob.glob(os.path.join(place.path("state"), "gen-*")), "the run began"
        place.write("job.leat", OFTEN.replace("serve scores", "# serve scores"))
        nothing = place.leat("run", "--serve", "--quiet")
        assert nothing.returncode == 1 and "serves nothing" in nothing.stderr, nothing.stderr


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("leat")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="test_")
    ARGUMENTS = parser.parse_args()
    sys.exit(tap.run({name: test for name, test in globals().items() if name.startswith(ARGUMENTS.only)}))
