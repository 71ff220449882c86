#!/usr/bin/env python3
"""`leat serve --link`: a server that has none of the job's files follows it over a network, through faults of the network, of the
job, and of the server that offers; in the end its answers are those of the job's last checkpoint.

    tests/serve/test_link.py PATH_OF_LEAT
"""

import glob
import os
import random
import re
import signal
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import jobs  # noqa: E402
import stream  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402
from place import FAILED, LEAT, USAGE, Place, time_text  # noqa: E402
from scores import compare  # noqa: E402
from server import Server, tensors  # noqa: E402
from test_follow import COLUMNS, ENDED, FOLLOWED, Asking, Trainer, state_of  # noqa: E402
from wire import Wire  # noqa: E402

ROWS = 2500


class Offer(Server):
    def __init__(self, place, *words, link_port=0):
        super().__init__(place, "--link-listen", f"127.0.0.1:{link_port}", *words)
        self.link_port = int(self.wait_for(r"offering the jobs to mirrors on 127\.0\.0\.1:(\d+)").group(1))


def mirror(place, port, *words, name="mirror", env=None):
    return Server(place, "--link", f"127.0.0.1:{port}", "--link-dir", place.path(name), *words, env=env)


def before_end(server):
    """What it said until the job had ended: afterwards it begins again with the last checkpoint."""
    return re.split(ENDED, "".join(filter(None, server.said)))[0]


def check_end(place, server, model, seconds=PATIENCE_S):
    """Until the answers are those of the job's last checkpoint."""
    asked = place.events[-60:]
    wanted, deadline = place.score(asked), time.monotonic() + seconds
    while True:
        rows, moment = state_of(server, model, asked)
        try:
            compare(rows, wanted)
            return moment
        except AssertionError as differs:
            assert time.monotonic() < deadline, (differs, moment, server.said[-8:])
            time.sleep(0.05)


def check_linked(job, workers, cut=1, count=ROWS, pause_ms=2, trouble=lambda place, wire, trainer: None, look_every="1500"):
    """Followed over a network that is in trouble."""
    with Place(job, count) as place, Offer(place) as offer, Wire(offer.link_port) as wire, \
            mirror(place, wire.port, "--look-every", look_every) as server:
        with Trainer(place, workers=workers, cut=cut, pause_ms=pause_ms) as trainer:
            server.wait_for(FOLLOWED)
            assert not os.path.exists(place.path("mirror/LOCK")) and os.listdir(place.path("mirror/log/followers"))
            trouble(place, wire, trainer)
            trainer.ends()
        server.wait_for(ENDED)
        return check_end(place, server, "steps" if "serve steps" in job else "scores"), wire, server


def test_features():
    moment, _, _ = check_linked(jobs.FEATURES, 2)
    assert int(moment["features"]) > ROWS // 4, moment


def test_deepfm():
    moment, _, _ = check_linked(jobs.learner("deepfm-batch"), 3)
    assert "+" in moment["cut"], moment


def test_labelled():
    check_linked(jobs.LABELLED, 2)


def test_segments():
    """A log of many segments: each is copied to its end, and what is over the budget goes."""
    _, wire, server = check_linked(jobs.FEATURES.replace("every: 1h", "every: 1h, log: 2MiB"), 3, cut=8, count=8000, pause_ms=6, look_every="50")
    assert wire.carried > 600000, wire.carried
    assert "damaged" not in "".join(filter(None, server.said)), server.said


def test_slow():
    """Late answers make scores old, which is said; nothing else."""
    def trouble(_, wire, _trainer):
        wire.delay = 0.1
        time.sleep(2)
        wire.delay = 0
    check_linked(jobs.FEATURES, 2, trouble=trouble)


def test_cuts():
    """Of connections, at any moment: the copy goes on where it was."""
    rng = random.Random(3)

    def trouble(_, wire, trainer):
        for _ in range(5):
            time.sleep(rng.random() * 0.2)
            wire.cut()
            wire.wait_connected()
        assert trainer.process.poll() is None, "the job ended before the network was cut"
    _, wire, server = check_linked(jobs.learner("fm"), 1, pause_ms=6, trouble=trouble)
    said = before_end(server)
    assert wire.cuts >= 5, wire.cuts
    assert said.count("is followed from checkpoint") == 1, "it began again, though nothing was missing"


def segments(place, name):
    """Numbers of the log's segments there."""
    return sorted(int(one.rsplit("-", 1)[1]) for one in os.listdir(place.path(f"{name}/log")) if one.startswith("gen-"))


def test_away():
    """For longer than the log reaches back: it begins again, from a new checkpoint."""
    def trouble(place, wire, trainer):
        wire.cut(is_for_long=True)
        deadline = time.monotonic() + PATIENCE_S
        while segments(place, "state")[0] <= segments(place, "mirror")[-1]:
            assert trainer.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        wire.mend()
    job = jobs.FEATURES.replace("every: 1h", "every: 1h, log: 2MiB")
    _, _, server = check_linked(job, 2, cut=2, count=12000, pause_ms=4, trouble=trouble, look_every="50")
    said = before_end(server)
    assert "is no longer followed: what follows is no longer in the log" in said, said
    assert said.count("is followed from checkpoint") == 2, said


def test_flipped_bits():
    """Are found, and asked for again."""
    def trouble(_, wire, trainer):
        wire.flips = 0.3
        while wire.flipped <= 10:
            assert trainer.process.poll() is None, f"the job ended when {wire.flipped} were flipped"
            time.sleep(0.01)
        wire.flips = 0
    _, _, server = check_linked(jobs.learner("fm"), 2, pause_ms=6, trouble=trouble)
    assert not any("no longer followed: the log is damaged" in (line or "") for line in server.said), server.said


def test_damaged_checkpoint_on_the_way():
    """While the checkpoint comes."""
    with Place(jobs.learner("fm"), 1500) as place:
        place.run()
        with Offer(place) as offer, Wire(offer.link_port) as wire:
            wire.flips = 0.4
            with mirror(place, wire.port) as server:
                deadline = time.monotonic() + PATIENCE_S
                while wire.flipped < 6 and time.monotonic() < deadline:
                    time.sleep(0.01)
                wire.flips = 0
                server.wait_for("answers from checkpoint")
                check_end(place, server, "scores")
                assert wire.flipped >= 6, wire.flipped


def until(place, part):
    place.run("--until", time_text(stream.START_MS + int(1500 * stream.STEP_MS * part)))


def test_damaged_at_the_job():
    """The job's newest checkpoint is damaged on its disk: the mirror says so, keeps the one before, and takes the next."""
    with Place(jobs.learner("fm"), 1500) as place:
        until(place, 0.4)
        with Offer(place) as offer, mirror(place, offer.link_port) as server:
            server.wait_for("link: checkpoint 1-")
            before = state_of(server.ready(), "scores", place.events[-5:])
            offer.kill()
            until(place, 0.6)
            newest = sorted(glob.glob(place.path("state/gen-*/ckpt-*/state.bin")))[-1]
            with open(newest, "r+b") as file:
                file.seek(os.path.getsize(newest) // 2)
                byte = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte ^ 255]))
            with Offer(place, link_port=offer.link_port):
                server.wait_for(r"link: .*does not match its digest \(.*state.bin, offset \d+\); answers stay as they are")
                assert state_of(server, "scores", place.events[-5:])[0] == before[0]
                place.run()
                check_end(place, server, "scores")


def remove_all(path):
    """Whoever follows the job may make a file there meanwhile, which says that it does."""
    deadline = time.monotonic() + PATIENCE_S
    while os.path.exists(path):
        shutil.rmtree(path, ignore_errors=True)
        assert time.monotonic() < deadline, os.listdir(path)


def wait_for_times(server, text, times):
    deadline = time.monotonic() + PATIENCE_S
    while "".join(filter(None, server.said)).count(text) < times:
        assert time.monotonic() < deadline, (text, times, server.said)
        time.sleep(0.02)


def test_killed_trainer():
    """Restarted with other lanes: what it had published beyond its last checkpoint is forgotten there, too."""
    with Place(jobs.learner("fm"), ROWS) as place, Offer(place) as offer, mirror(place, offer.link_port) as server:
        asking = Asking(server, place.events[-20:])
        for life, workers in enumerate((1, 3, 2), 1):
            with Trainer(place, workers=workers, pause_ms=12) as trainer:
                wait_for_times(server, FOLLOWED, life)
                time.sleep(0.7)
                assert trainer.process.poll() is None, "the job ended before it was killed"
                trainer.kill()
                wait_for_times(server, "is no longer followed", life)  # the job is dead, and nobody has started it again
        with Trainer(place, pause_ms=0) as trainer:
            trainer.ends()
        check_end(place, server, "scores")
        asking.stop()
        assert all(len(outputs) == 1 for outputs in asking.moments.values()), "two answers of one moment differ"


def test_killed_offer_and_mirror():
    """Each comes again by itself; the mirror answers from what it has, at once, and takes no checkpoint twice."""
    with Place(jobs.learner("linear"), ROWS) as place, Trainer(place, pause_ms=4) as trainer:
        offer = Offer(place)
        with mirror(place, offer.link_port) as server:
            server.wait_for(FOLLOWED)
            offer.kill()
            server.wait_for("nothing comes from")
            status, answer = server.client().infer("scores", tensors(place.events[:5], COLUMNS))
            assert status == 200, answer
            server.kill()
        with mirror(place, offer.link_port) as server:
            server.wait_for("answers from checkpoint")
            with Offer(place, link_port=offer.link_port):
                server.wait_for(FOLLOWED)
                assert trainer.process.poll() is None, "the job ended too early"
                trainer.ends()
                server.wait_for(ENDED)
                check_end(place, server, "scores")


def newest(place):
    """The number of the job's newest checkpoint."""
    return max(int(name.split("-")[1]) for name in os.listdir(place.path("state/gen-000001")) if name.startswith("ckpt-"))


def test_another_run():
    """A run that begins anew has checkpoints of the same numbers: the mirror takes them, also when the first try fails."""
    with Place(jobs.learner("deepfm"), ROWS) as place:
        place.run()
        offer = Offer(place)
        with Wire(offer.link_port) as wire, mirror(place, wire.port) as server:
            server.wait_for("answers from checkpoint")
            before = newest(place)
            wire.cut(is_for_long=True)
            for _ in range(5):  # a busy machine may have asked for a checkpoint more, for its publisher or a full log
                remove_all(place.path("state"))
                os.remove(place.path("out.jsonl"))
                place.run()
                if newest(place) == before:
                    break
            assert newest(place) == before, ("the other run numbers differently", before, newest(place))
            wire.rate = 20000
            wire.mend()
            deadline = time.monotonic() + PATIENCE_S
            while not os.path.exists(place.path("mirror/.incoming/gen-000001")):
                assert time.monotonic() < deadline, server.said
                time.sleep(0.01)
            offer.kill()
            wire.rate = 0
            with Offer(place, link_port=offer.link_port):
                server.wait_for("refuses .404.: there is no such pack")
                while not os.path.exists(place.path("mirror/gen-000001")):
                    assert time.monotonic() < deadline, (server.said, "it never takes the other run's checkpoint")
                    time.sleep(0.05)


def test_tables():
    """Of operators: a LOG that was replaced by one of the same length is taken, and what is no longer there goes."""
    def tables(log, *versions):
        shutil.rmtree(place.path("state/tables"), ignore_errors=True)
        for version in versions:
            os.makedirs(place.path(f"state/tables/9/{version}"))
            place.write(f"state/tables/9/{version}/items.csv", f"{version}\n")
        place.write("state/tables/9/LOG", log)

    def mirrored():
        files = {}
        for folder, _, names in os.walk(place.path("mirror/tables")):
            for name in names:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    files[os.path.relpath(os.path.join(folder, name), place.path("mirror/tables/9"))] = file.read()
        return files, sorted(os.listdir(place.path("mirror/tables/9")))

    with Place(jobs.learner("fm"), 200) as place:
        place.run()
        tables("1 a\n2 b\n", "a", "b")
        with Offer(place) as offer, Wire(offer.link_port) as wire, mirror(place, wire.port) as server:
            server.wait_for("answers from checkpoint")
            assert mirrored() == ({"LOG": "1 a\n2 b\n", "a/items.csv": "a\n", "b/items.csv": "b\n"}, ["LOG", "a", "b"])
            wire.cut(is_for_long=True)
            remove_all(place.path("state"))
            os.remove(place.path("out.jsonl"))
            place.run()
            tables("2 b\n3 c\n", "b", "c")
            wire.mend()
            wanted = {"LOG": "2 b\n3 c\n", "b/items.csv": "b\n", "c/items.csv": "c\n"}, ["LOG", "b", "c"]
            deadline = time.monotonic() + 30
            while mirrored() != wanted:
                assert time.monotonic() < deadline, (mirrored(), server.said)
                time.sleep(0.05)


def test_directory_removed():
    """A job that begins anew in a directory that was removed sees who follows it, on this machine and on another one."""
    with Place(jobs.learner("fm"), ROWS) as place, Offer(place) as offer, mirror(place, offer.link_port) as server:
        with Trainer(place) as trainer:
            for one in (server, offer):
                one.wait_for(FOLLOWED)
            trainer.kill()
        for one in (server, offer):
            one.wait_for("no longer followed")
            with one.has_said:
                one.said.clear()
        remove_all(place.path("state"))
        with Trainer(place, pause_ms=4) as trainer:
            for one in (server, offer):
                one.wait_for(FOLLOWED)
            trainer.ends()
        check_end(place, server, "scores")


def test_nobody_writes():
    """A mirror of a mirror that began again asks a few times a second, not as fast as it can."""
    with Place(jobs.FEATURES, ROWS) as place, Trainer(place, pause_ms=6) as trainer:
        offer = Offer(place)
        middle = mirror(place, offer.link_port, "--link-listen", "127.0.0.1:0")
        port = int(middle.wait_for(r"offering the jobs to mirrors on 127\.0\.0\.1:(\d+)").group(1))
        with mirror(place, port, name="second") as server:
            server.wait_for(FOLLOWED)
            trainer.kill()
            offer.kill()
            middle.kill()
            with mirror(place, offer.link_port, "--link-listen", f"127.0.0.1:{port}"):
                deadline, name = time.monotonic() + PATIENCE_S, 'leat_link_answers_total{job="parity"}'
                first = server.client().metrics()[name]
                while server.client().metrics()[name] < first + 4:
                    assert time.monotonic() < deadline, server.said
                    time.sleep(0.05)
                first = server.client().metrics()[name]
                time.sleep(2)
                asked = server.client().metrics()[name] - first
                assert asked < 120, f"{asked} answers in two seconds, with nothing to tell"


def test_mirror_of_a_mirror():
    """A mirror is offered again."""
    with Place(jobs.FEATURES, ROWS) as place, Offer(place) as offer, \
            mirror(place, offer.link_port, "--link-listen", "127.0.0.1:0") as middle:
        port = int(middle.wait_for(r"offering the jobs to mirrors on 127\.0\.0\.1:(\d+)").group(1))
        with mirror(place, port, name="second") as server, Trainer(place) as trainer:
            server.wait_for(FOLLOWED)
            trainer.ends()
            server.wait_for(ENDED)
            check_end(place, server, "steps")


def test_mirror_of_a_mirror_without_a_log():
    """Of a job that cannot be followed: newer checkpoints come through both."""
    job = jobs.FEATURES
    for old, new in (('"TABLE" on item', '"TABLE" on item refresh 1h'), ("every: 1h, dir", "every: 200ms, dir"), ("100 / n_10m", "100 / (n_10m + 1)")):
        assert old in job
        job = job.replace(old, new)
    with Place(job, 800) as place, Offer(place) as offer, \
            mirror(place, offer.link_port, "--link-listen", "127.0.0.1:0") as middle:
        port = int(middle.wait_for(r"offering the jobs to mirrors on 127\.0\.0\.1:(\d+)").group(1))
        with mirror(place, port, name="second") as server, Trainer(place) as trainer:
            server.wait_for("answers from checkpoint")
            middle.wait_for("answers from checkpoint")
            trainer.ends()
            check_end(place, middle, "steps", seconds=30)
            check_end(place, server, "steps", seconds=30)


def test_full_disk():
    """Of the mirror, while the link is well: it is said once, and the checkpoint comes when there is room."""
    with Place(jobs.learner("fm"), 300) as place:
        place.run()
        with Offer(place) as offer:
            with mirror(place, offer.link_port, env={"LEAT_FAILPOINTS": "ckpt.rename=error:ENOSPC"}) as server:
                server.wait_for("a checkpoint cannot be put in place in .*: No space left on device; it is tried again")
                time.sleep(2)
                said = [line for line in server.said if line and ("put in place" in line or "is linked to" in line)]
                assert len(said) <= 2, said
            with mirror(place, offer.link_port) as server:
                server.wait_for("answers from checkpoint")
                check_end(place, server, "scores")


def test_pruned_while_it_comes():
    """Checkpoints every 50 ms, of which one is kept, over a slow network."""
    job = jobs.learner("deepfm").replace("every: 1h", "every: 50ms, keep: { last: 1 }")
    with Place(job, ROWS) as place, Offer(place) as offer, Wire(offer.link_port) as wire, Trainer(place, pause_ms=3) as trainer:
        wire.rate = 100000
        with mirror(place, wire.port) as server:
            server.wait_for("answers from checkpoint")
            server.wait_for(FOLLOWED)
            wire.rate = 0
            trainer.ends()
            check_end(place, server, "scores")


def test_nothing_to_follow():
    """A job that a server cannot follow: each newer checkpoint is mirrored."""
    job = jobs.learner("fm").replace("every: 1h", "every: 100ms")
    with Place(job, ROWS) as place:
        os.makedirs(place.path("state"))
        place.write("state/log", "a file")  # nobody can follow
        with Offer(place) as offer, mirror(place, offer.link_port) as server:
            with Trainer(place) as trainer:
                trainer.ends()
            offer.wait_for("job parity cannot be followed for others")
            check_end(place, server, "scores")
            assert sum("cannot be followed for others" in (line or "") for line in offer.said) == 1, offer.said


def refused(place, *words, status=FAILED, settings=True):
    result = subprocess.run([LEAT, "serve", place.path("job.leat"), "--listen", "127.0.0.1:0", *words,
                             *(place.settings() if settings else [])], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert result.returncode == status, (result.returncode, result.stderr)
    return result.stderr


def test_refusals():
    with Place(jobs.learner("fm"), 100) as place, Offer(place) as offer:
        with Place(jobs.learner("ffm"), 100) as other, mirror(other, offer.link_port) as server:
            server.wait_for("refuses .409.: the job here is of another version .fingerprint [0-9a-f]{32}.: use the same job file")
        renamed = jobs.learner("fm").replace("job parity", "job another")
        with Place(renamed, 100) as other, mirror(other, offer.link_port) as server:
            server.wait_for("refuses .404.: no job `another` is offered here")
        with mirror(place, offer.port, name="no-link") as server:  # the port of scores
            server.wait_for("refuses .404.")
        client = offer.client()
        client.connection.port = offer.link_port
        for path in ("/", "/link/v2/log?job=parity", "/link/v1/log", "/link/v1/log?job", "/link/v1/file?job=parity&file=-1",
                     "/link/v1/log?job=parity&segment=99999999999999999999", "/link/v1/checkpoint?job=parity&have=1"):
            assert client.ask("GET", path)[0] in (404, 409), path
        assert client.ask("POST", "/link/v1/log?job=parity", "x")[0] == 404
        assert "has files, and is no mirror" in refused(place, "--link", "127.0.0.1:1", "--link-dir", place.folder.name)
        with mirror(place, offer.link_port):
            assert "another process mirrors into" in refused(place, "--link", "127.0.0.1:1", "--link-dir", place.path("mirror"))
        assert "would not be encrypted" in refused(place, "--link", "10.0.0.1:7000")
        assert "would not be encrypted" in refused(place, "--link-listen", "0.0.0.0:0")
        assert "expected a host with a port, found `nowhere`" in refused(place, "--link", "nowhere")
        assert "go with --link" in refused(place, "--link-dir", "x", status=USAGE)
        assert "go together" in refused(place, "--link", "127.0.0.1:1", "--link-key", "x", status=USAGE)


def openssl(folder, *words):
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def certificates(folder):
    """An authority, what it signed for a server, a client and an old client; and another authority's client."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for name in ("authority", "stranger"):
        openssl(folder, "req", "-x509", *key, "-days", "3", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    for name, authority, days in (("server", "authority", 3), ("client", "authority", 3), ("foreign", "stranger", 3), ("old", "authority", 0)):
        openssl(folder, "req", *key, "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout",
                f"{name}.key", "-out", f"{name}.csr")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial",
                "-copy_extensions", "copy", "-days", str(days), "-out", f"{name}.pem")


def test_certificates():
    """Both sides show one; without a good one nothing is offered."""
    if shutil.which("openssl") is None:
        return "openssl is not installed"
    with tempfile.TemporaryDirectory() as folder, Place(jobs.learner("fm"), ROWS) as place:
        certificates(folder)
        time.sleep(1.1)  # the old one's life is over

        def words(*names):
            return [word if word.startswith("-") else os.path.join(folder, word) for word in names]
        place.write("token", "0123456789")
        said = refused(place, "--link-listen", "0.0.0.0:0", "--token-file", place.path("token"),
                       *words("--certificate", "server.pem", "--key", "server.key"))
        assert "anybody could send requests" in said and "hint: give an authority for clients' certificates (--clients)" in said, said
        with Offer(place, *words("--certificate", "server.pem", "--key", "server.key", "--clients", "authority.pem")) as offer:
            own = ["--link-authority", "authority.pem", "--link-certificate"]
            for number, (bad, said) in enumerate(((own[:2], "nothing comes from"), ([*own, "foreign.pem", "--link-key", "foreign.key"], "nothing comes from"),
                                                  ([*own, "old.pem", "--link-key", "old.key"], "nothing comes from"),
                                                  (["--link-authority", "stranger.pem"], "certificate"))):
                with mirror(place, offer.link_port, *words(*bad), name=f"bad{number}") as server:
                    server.wait_for(said)
                    assert not os.path.exists(place.path(f"bad{number}/gen-000001"))
            with mirror(place, offer.link_port, *words(*own, "client.pem", "--link-key", "client.key")) as server, Trainer(place) as trainer:
                server.wait_for(FOLLOWED)
                trainer.ends()
                server.wait_for(ENDED)
                check_end(place, server, "scores")
    return None


def test_stopped_while_it_waits():
    """Ctrl-C ends a mirror within some seconds, with nobody at the other end, and in the middle of a checkpoint."""
    with Place(jobs.learner("deepfm"), ROWS) as place:
        with mirror(place, 1) as server:
            server.wait_for("nothing comes from")
            begin = time.monotonic()
            server.process.send_signal(signal.SIGINT)
            server.process.wait(PATIENCE_S)
            assert time.monotonic() - begin < 6
        place.run()
        with Offer(place) as offer, Wire(offer.link_port) as wire:
            wire.rate = 20000
            with mirror(place, wire.port) as server:
                time.sleep(1)
                begin = time.monotonic()
                server.process.send_signal(signal.SIGINT)
                server.process.wait(PATIENCE_S)
                assert time.monotonic() - begin < 6
            assert "nothing comes from" not in "".join(filter(None, server.said)), server.said
            wire.rate = 0
            with mirror(place, wire.port) as server:
                server.wait_for("answers from checkpoint")
                check_end(place, server, "scores")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), threads=3))
