#!/usr/bin/env python3
"""State that a running job is asked for, by key (/api/v1/state, /api/v1/model): it equals what `leat state get` shows of a
checkpoint after the same micro-batch; asking changes nothing; and what cannot be answered is refused in words. Prints TAP.

    tests/cli/test_peek.py PATH_OF_LEAT
"""

import contextlib
import hashlib
import http.client
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
import urllib.parse

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, "metrics")]
import live  # noqa: E402
import tap  # noqa: E402
import test_run_control as control  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
KEYS_MAX, WAITING_MAX = 100, 64
PAUSE_MS = 300  # before each micro-batch
CHECKPOINTS = 6
# Users 0 to 39, of whom some are often there; every third record is a click.
RECORDS, USERS = 100_000, 40
RECORDS_FEW = 40_000  # of two whole runs, whose state is on disk: still many micro-batches, and some thousand keys asked for
EVERYTHING = """job everything { workers: WORKERS, memory: 256MiB, checkpoint: { every: 1h, keep: { last: 20 }, dir: "state" } }
source s = file { path: "data.jsonl", schema: { id: int!, ts: time(ms), user: int, item: text, price: float, click: int }, event_time: ts }
stream clicks = s | where click = 1
stream once = s | dedup by user, item within 10s
stream kept = s | dedup by item within forever keep last emit on_change
stream features = s | feature by user over [1m, 10m] every 10s { n: count(), spend: sum(price) }
stream ever = s | feature by user over forever every 1m { all: count(), most: max(price) }
stream minutes = s | window by user over tumbling(1m) { n: count() }
stream sessions = s | window by user, item over session(2s) { n: count() }
stream pairs = s | join clicks on user within [0s, 5s] prefix "c_"
stream known = s | enrich from clicks on user within 1h { at: ts }
stream found = s | attribute clicks on user within 20s emit at_once as was_clicked
stream later = s | attribute clicks on user within 20s as was_later
stream steps = s | pattern by user within 20s { cheap: price < 3.0, dear: price > 7.0 }
stream best = s | top_n 3 by user order desc(price), ts over tumbling(1m)
stream filled = s | fill_forward price by user within 1h
stream few = s | rate_limit 5 per 10s by user
stream sorted = s | sort within 5s
learner model = fm from features { label: click, sparse: [user, item], dense: [log1p(n_1m)], embedding: { dim: 4 }, window: 1000 }
learner plain = linear from s { label: click, sparse: [user, item], dense: [price], ids: { admit_after: 3, expire_after: 1h }, window: 1000 }
"""
SINKS = "once kept features ever minutes sessions pairs known found later steps best filled few sorted"


def job(workers):
    text = EVERYTHING.replace("WORKERS", str(workers))
    for name in SINKS.split() + ["model.predictions", "plain.predictions"]:
        text += f'sink {name.replace(".", "_")}_out = file from {name} {{ path: "{name}.jsonl" }}\n'
    return text


def write_records(path, count):
    with open(path, "w", encoding="ascii") as file:
        for i in range(count):
            user = i * i % 97 % USERS
            file.write('{"id":%d,"ts":%d,"user":%s,"item":"item %d","price":%s,"click":%d}\n' %
                       (i, 1700000000000 + i * 20, "null" if i % 501 == 7 else user, i * 7 % 13,
                        "null" if i % 11 == 3 else f"{i * 13 % 100 / 10}", i % 3 == 0))


@contextlib.contextmanager
def place(workers=2, records=RECORDS, text=None):
    with live.place(job(workers) if text is None else text, 0) as folder:
        write_records(os.path.join(folder, "data.jsonl"), records)
        yield folder


class Run(control.Run):
    """slow: milliseconds before each micro-batch; state: bytes of memory for the state of an operator on a lane, so that most
    of it is on disk."""

    def __init__(self, folder, slow=0, words=(), state=0, points=""):
        super().__init__(folder, *words, points=points or (f"run.claimed=sleep:{slow}" if slow else ""),
                         **({"LEAT_TEST_STATE": str(state)} if state else {}))

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def ask(self, path, method="GET", connection=None, **headers):
        own = connection or self.connect()
        own.request(method, path, headers=headers)
        answer = own.getresponse()
        body = answer.read().decode()
        if connection is None:
            own.close()
        return answer.status, body, answer

    def is_asked(self, path, status, says):
        """An answer of that status whose text has `says`; once the run has begun, and not while its lanes are busy."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found, body, answer = self.ask(path)
            if found == status or found not in (429, 503) or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        assert found == status and re.search(says, body), (path, found, body)
        return answer, body


def leat(folder, *words, expected=0):
    done = subprocess.run([LEAT, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert expected is None or done.returncode == expected, done
    return done


def parts(folder):
    """The parts that can be asked for, and how many texts a key has."""
    found = json.loads(leat(folder, "state", "list", "--json", "state").stdout)["parts"]
    return {part["part"]: part for part in found}


def of_state(part, keys):
    query = "&".join("key=" + urllib.parse.quote(key if isinstance(key, str) else json.dumps(key)) for key in keys)
    return f"/api/v1/state/{urllib.parse.quote(part)}" + (f"?{query}" if query else "")


def keys_of(part):
    """Keys to ask a part for: of users who are there, and of one who is not."""
    users = ["1", "4", "12345"]
    if part["key"] == "FEATURE VALUE":
        return [["user", 1], ["item", "item 3"], ["item", "no such"], ["user", None]]
    names = [one.split(" ")[0] for one in part["key"].split(", ")]
    if names == ["item"]:
        return ["item 3", "item 99"]
    if names == ["user", "item"]:
        return [[user, f"item {item}"] for user in (1, 4) for item in (3, 8)] + [[None, "item 1"]]
    assert names == ["user"], part
    return users + ["null"]


class Watcher:
    """Asks for the state of some parts all the time; seen: {(part, key, micro-batch): state}."""

    def __init__(self, run, folder):
        self.seen, self.wrong, self.is_over = {}, [], False
        self.asked = {name: keys_of(part) for name, part in parts(folder).items() if name not in REFUSED}
        self.threads = [threading.Thread(target=self.watch, args=(run, name, keys)) for name, keys in self.asked.items()]
        for thread in self.threads:
            thread.start()

    def watch(self, run, part, keys):
        connection = run.connect()
        path = of_state(part, keys)
        while not self.is_over:
            try:
                status, body, _ = run.ask(path, connection=connection)
            except (OSError, http.client.HTTPException):
                return
            time.sleep(PAUSE_MS / 6000)
            if status == 429:
                continue
            if status == 503:
                return
            elif status != 200:
                self.wrong.append((path, status, body))
                return
            else:
                for key in json.loads(body)["keys"]:
                    place_of = (part, json.dumps(key["key"]), key["micro_batch"])
                    before = self.seen.setdefault(place_of, key["state"])
                    if before != key["state"]:
                        self.wrong.append((place_of, before, key["state"]))

    def end(self):
        self.is_over = True
        for thread in self.threads:
            thread.join(PATIENCE_S)
        assert not self.wrong, self.wrong[:2]


REFUSED = set()


def words_of(key):
    return ["null" if word is None else str(word) for word in (json.loads(key) if key.startswith("[") else [key])]


def stored(folder, checkpoint, part, key):
    """What `leat state get` shows, without the lines about the checkpoint; None: nothing."""
    which = ["--checkpoint", checkpoint] if checkpoint else []
    done = leat(folder, "state", "get", "--json", *which, "state", part, *words_of(key), expected=None)
    if done.returncode != 0:
        assert done.stdout.startswith("nothing is stored for"), done
        return None
    shown = json.loads(done.stdout)
    for name in ("part", "key_given", "checkpoint", "taken"):
        del shown[name]
    return shown


def compare(folder, seen, checkpoint):
    """Finds the micro-batch after which the checkpoint was taken, where nothing that was seen differs from the checkpoint, and
    more is equal than chance would give: busy keys change in each micro-batch. Returns what was seen there: {(part, key): is
    something stored}; empty: nobody asked just then."""
    shown = {where: stored(folder, checkpoint, *where) for where in {(part, key) for part, key, _ in seen}}
    found = {}
    for number in {number for _, _, number in seen}:
        there = {where: state for where, state in shown.items() if (*where, number) in seen}
        has = [where for where, state in there.items() if state is not None and seen[(*where, number)] == state]
        if len(has) >= 5 and len(has) > len(found) and all(seen[(*where, number)] == state for where, state in there.items()):
            found = {where: state is not None for where, state in there.items()}
    return found


def check_equal(workers, state=0):
    """Takes checkpoints until each part was seen, with something stored and with nothing stored, at the micro-batch of one."""
    global REFUSED  # pylint: disable=global-statement
    with place(workers, 3 * RECORDS) as folder:
        with Run(folder, slow=PAUSE_MS, state=state) as run:
            run.wait_until("/readyz")
            leat(folder, "ctl", "checkpoint", "job.leat")
            known = parts(folder)
            REFUSED = {name for name in known if name.startswith(("later", "sorted"))}
            watcher = Watcher(run, folder)
            for _ in range(CHECKPOINTS):
                time.sleep(2 * PAUSE_MS / 1000)
                leat(folder, "ctl", "checkpoint", "job.leat")
            time.sleep(2 * PAUSE_MS / 1000)
            nodes = json.loads(run.ask("/api/v1/figures")[1])["nodes"]
            evicted = {node["part"] for node in nodes if node["report"]["run"].get("state_evicted", 0) > 0}
            assert len(evicted) > 5 if state > 0 else not evicted, evicted
            watcher.end()
            run.process.kill()
        names = re.findall(r"^\s*(\d+-\d+)", leat(folder, "checkpoint", "list", "state").stdout, re.MULTILINE)
        assert len(names) == CHECKPOINTS + 1, names
        wanted = {(part, has) for part in watcher.asked for has in (True, False)}
        left = set(wanted)
        for name in names:
            left -= {(part, has) for (part, _), has in compare(folder, watcher.seen, name).items()}
            if not left:
                break
        assert not left, f"{len(left)} of {len(wanted)} were not equal to any of {len(names)} checkpoints: {sorted(left)}"


def test_equal_to_a_checkpoint():
    """On one lane with all state in memory."""
    check_equal(1)


def test_equal_to_a_checkpoint_on_disk():
    """On three lanes with state beyond their memory."""
    check_equal(3, state=1024)


def digests(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".jsonl") and name != "data.jsonl":
            with open(os.path.join(folder, name), "rb") as file:
                found[name] = hashlib.sha256(file.read()).hexdigest()
    assert len(found) > 10, found
    return found


def final_state(folder):
    return {(name, str(key)): stored(folder, None, name, key if isinstance(key, str) else json.dumps(key))
            for name, part in parts(folder).items() if part["key"] for key in keys_of(part)[:1]}


def ask_much(run, count):
    """Asks for up to 1,000 keys a second until the run ends. count: {"keys": answered, "busy": requests refused}."""
    keys = [str(user) for user in range(USERS)]
    paths = [of_state(part, keys[:20]) for part in ("features/feature", "minutes/window", "steps/pattern", "few/rate_limit")]
    paths.append(of_state("once/dedup", [[user, f"item {user % 13}"] for user in range(20)]))
    paths.append(of_state("model", [["user", user] for user in range(20)]))
    connection, begun, turn = run.connect(), time.monotonic(), 0
    with contextlib.suppress(OSError, http.client.HTTPException):
        while True:
            status, _, _ = run.ask(paths[turn % len(paths)], connection=connection)
            count["keys"] += 20 if status == 200 else 0
            count["busy"] += status == 429
            turn += 1
            time.sleep(max(0, begun + turn * 20 / 1000 - time.monotonic()))


def without_times(summary):
    """What a run reports of its nodes, without what depends on time, or on which lane helps a learner."""
    return [(node["part"], node["counts"], {name: value for name, value in node["report"]["run"].items()
                                            if not name.endswith(("_per_second", "_seconds", "_us")) and "kernel_calls" not in name})
            for node in summary["nodes"]]


def test_changes_nothing():
    """Output, figures and the last checkpoint, with 1,000 keys a second asked for, and without; most state is on disk."""
    with place(2, RECORDS_FEW) as asked, place(2, RECORDS_FEW) as alone:
        count = {"keys": 0, "busy": 0}
        with Run(asked, state=1024, slow=5) as run:
            run.wait_until("/readyz")
            ask_much(run, count)
            summary = run.ends()
        with Run(alone, state=1024, slow=5) as run:
            plain = run.ends()
        assert count["keys"] >= 200, count
        assert digests(asked) == digests(alone)
        differ = [(a[0], {name: (value, b[2][name]) for name, value in a[2].items() if value != b[2][name]}, a[1] == b[1])
                  for a, b in zip(without_times(summary), without_times(plain)) if a != b]
        assert not differ, differ[0]
        assert any("state_lookups" in report for _, _, report in without_times(summary))
        assert final_state(asked) == final_state(alone)


def test_what_is_refused():
    with place(2) as folder, Run(folder, slow=100) as run:
        run.wait_until("/readyz")
        lists = r"features/feature\n(.*\n)*model\n"
        for path in ("/api/v1/state/", "/api/v1/state/none", "/api/v1/state/features", "/api/v1/state/s/1"):
            run.is_asked(path, 404, lists)
        run.is_asked("/api/v1/model/features/feature?field=a&value=1", 404, "no such learner; there are:\nmodel\nplain\n")
        run.is_asked("/api/v1/state/features/feature/4x", 400, r"not a key of `features/feature`.*user \(int\)")
        run.is_asked("/api/v1/state/features/feature", 400, "expected a key of `features/feature`: a value of user")
        for key in ("7", "[7]", '[7,"a",1]', '[7,["a"]]', '{"user":7}', "[7,", ""):
            run.is_asked(of_state("once/dedup", [key]), 400, "a JSON array of a value of each of user, item")
        run.is_asked(of_state("once/dedup", [["x", "a"]]), 400, r"user \(int\), item \(text\)")
        run.is_asked("/api/v1/state/features/feature?key=1&keys=2", 400, "expected the parameter key")
        run.is_asked("/api/v1/state/features/feature?key=%f", 400, "percent-encoded")
        run.is_asked("/api/v1/state/features/feature?key=%ff", 400, "UTF-8")
        run.is_asked("/api/v1/state/kept/dedup?key=a%00b", 400, "NUL")
        run.is_asked(of_state("features/feature", map(str, range(KEYS_MAX + 1))), 400, "at most 100 keys")
        _, body = run.is_asked(of_state("features/feature", map(str, range(KEYS_MAX))), 200, '"state": null')
        assert len(json.loads(body)["keys"]) == KEYS_MAX
        run.is_asked("/api/v1/model/model?field=user", 400, "field and value")
        run.is_asked("/api/v1/model/model?field=user&value=1&value=2", 400, "once each")
        run.is_asked("/api/v1/model/model?field=no&value=1", 400, "no sparse feature `no`: its sparse features: user, item")
        run.is_asked("/api/v1/model/model?field=user&value=x", 400, "`x` is not a value of type int")
        run.is_asked(of_state("model", ["user"]), 400, "the name of a sparse feature and a value")
        run.is_asked("/api/v1/state/later/attribute/1", 501, "`leat state get` on a checkpoint shows")
        run.is_asked("/api/v1/state/sorted/sort", 501, "`leat state get` on a checkpoint shows")
        assert run.ask("/api/v1/state/features/feature/1", "POST")[0] == 405


def test_answers():
    with place(2) as folder, Run(folder, slow=100) as run:
        run.wait_until("/readyz")
        time.sleep(1)
        answer, body = run.is_asked("/api/v1/state/features/feature/4", 200, "panes")
        shown = json.loads(body)
        assert answer.getheader("cache-control") == "no-store" and answer.getheader("content-type") == "application/json"
        assert shown["state"] == "features/feature" and shown["columns"] == ["user"] and shown["micro_batch"] >= 1, shown
        assert shown["keys"][0]["key"] == ["4"] and len(shown["keys"][0]["state"]["panes"]) >= 1, shown
        shown = json.loads(run.is_asked(of_state("features/feature", ["4", "77777", "null"]), 200, "panes")[1])
        assert [key["state"] is None for key in shown["keys"]] == [False, True, False], shown
        shown = json.loads(run.is_asked(of_state("once/dedup", [[4, "item \u00e9\u2028<b>"], [None, "x"]]), 200, "null")[1])
        assert [key["key"] for key in shown["keys"]] == [[4, "item \u00e9\u2028<b>"], [None, "x"]], shown
        shown = json.loads(run.is_asked("/api/v1/state/kept/dedup/item%203", 200, "kept")[1])
        assert shown["keys"][0]["key"] == ["item 3"] and shown["keys"][0]["state"]["kept"], shown
        shown = json.loads(run.is_asked("/api/v1/model/model?field=item&value=item%203", 200, "vector")[1])
        assert (shown["learner"], shown["field"], shown["value"]) == ("model", "item", "item 3"), shown
        assert len(shown["row"]["vector"]) == 4 and shown["row"]["occurrences"] > 1, shown
        assert json.loads(run.is_asked("/api/v1/model/model?field=item&value=none", 200, "null")[1])["row"] is None


def test_too_much_is_refused():
    """While the only lane sleeps, 64 requests wait and the next are refused; when it wakes, each has its answer."""
    with place(1) as folder, Run(folder, slow=4000) as run:
        run.wait_until("/readyz")
        deadline, has_answered, is_asleep = time.monotonic() + PATIENCE_S, False, False
        while not (has_answered and is_asleep):  # until the lane has begun to sleep since it answered last
            assert time.monotonic() < deadline
            asked, statuses = [run.connect()], []
            asked[0].request("GET", "/api/v1/state/features/feature/4")
            is_asleep = not select.select([asked[0].sock], [], [], 0.5)[0]
            if not (has_answered and is_asleep):
                has_answered, is_asleep = bool(asked[0].getresponse().read()), False
                asked[0].close()
                time.sleep(0.1)
        asked += [run.connect() for _ in range(2 * WAITING_MAX)]
        for connection in asked[1:]:
            connection.request("GET", "/api/v1/state/features/feature/4")
        for connection in asked:
            answer = connection.getresponse()
            statuses.append((answer.status, answer.read().decode(), answer.getheader("retry-after")))
            connection.close()
        refused = [one for one in statuses if one[0] == 429]
        assert {one[0] for one in statuses} == {200, 429}, statuses
        assert len(refused) >= WAITING_MAX / 4, len(refused)
        assert all("1 % of its time" in body and retry == "1" for _, body, retry in refused), refused[0]


def test_restored_and_ended():
    """503 while the run is restored; and who waits when it ends has an answer, too."""
    with place(1) as folder:
        with Run(folder, slow=100) as run:
            run.wait_until("/readyz")
            leat(folder, "ctl", "checkpoint", "job.leat")
            run.process.kill()
        with Run(folder, points="restore.begin=sleep:1500,run.claimed=sleep:400") as run:
            assert run.ask("/api/v1/state/features/feature/4")[0] == 503
            run.is_asked("/api/v1/state/features/feature/4", 200, "panes")
            statuses = []

            def ask_on():
                with contextlib.suppress(OSError, http.client.HTTPException):
                    connection = run.connect()
                    while True:
                        statuses.append(run.ask("/api/v1/state/features/feature/4", connection=connection)[0])

            threads = [threading.Thread(target=ask_on) for _ in range(8)]
            for thread in threads:
                thread.start()
            leat(folder, "ctl", "stop", "job.leat")
            run.ends()
            for thread in threads:
                thread.join(PATIENCE_S)
            assert not any(thread.is_alive() for thread in threads)
            assert set(statuses) <= {200, 429, 503} and 200 in statuses, statuses


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
