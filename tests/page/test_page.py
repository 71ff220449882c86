#!/usr/bin/env python3
"""The page of `leat run --ui` in a real browser, beside live jobs: it shows what the API says, comes back when the process
does, shares one stream among its tabs, and is not fooled by what data says. Pictures of each view lie in build/page-shots.
Prints TAP.

    tests/page/test_page.py PATH_OF_LEAT [--only TEST]
"""

import contextlib
import http.client
import json
import os
import re
import signal
import sys
import time

from browser import main
from jobs import begin, live, page_of
from patience import PATIENCE_S, stretched
from shown import check_shown

GAP_S = 6  # a silence of the history that is more than five seconds
VIEWS = ("job", "learning", "data", "state", "checkpoints", "serving", "log")


STATES = {  # and how many values of the API each shows at least
    "#/job": {"figures.": 30, "history[": 8, "derived.rate": 10, "derived.lanes.": 2, "derived.dead": 1, "derived.late": 1},
    "#/job/kept%2Fdedup": {"figures.nodes[kept/dedup].": 15, "history[kept/dedup]": 5, "derived.share[kept/dedup]": 2},
    "#/job/kept%2Fdedup?span=12h": {"figures.nodes[kept/dedup].": 15},
    "#/job?as=list": {"figures.": 30, "derived.rate": 10},
    "#/learning": {"figures.nodes[model].": 15, "figures.nodes[amount].": 10, "history[model]": 5, "history[amount]": 3,
                   "figures.nodes[next].": 20, "history[next]": 4},
    "#/learning?x=events": {"figures.nodes[model].": 15, "history[model]": 5},
    "#/data": {"columns[": 60, "dead-letters": 4},
    "#/state?of=kept%2Fdedup&key=5%2C7": {"state.": 3},
    "#/state?learner=model&field=a&value=7": {"model.": 2},
    "#/checkpoints": {"figures.": 4, "checkpoints": 10, "checkpoints.newest.": 3, "history[": 2},
    "#/serving": {"figures.job": 1},
    "#/log": {"log[": 1},
}
WINDOWS = (("light", 2560, 1440), ("dark", 1024, 768), ("light", 360, 740))


def check_look(tab, port, state, scheme, width):
    """Kept as a picture; no serious finding of axe; not wider than the window; nothing from elsewhere; no complaint."""
    name = re.sub(r"[^a-z0-9]+", "-", state).strip("-")
    time.sleep(0.2)
    tab.shot(f"{name}-{scheme}-{width}", whole=True)
    assert not (found := tab.call("audit")), (state, scheme, width, found)
    over = tab.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert over <= 0, (state, width, over)
    moving = "[...document.querySelectorAll('*')].filter(one => parseFloat(getComputedStyle(one).transitionDuration) > 0).length"
    if width == 360:  # whoever asked for less motion sees none
        assert tab.evaluate("document.getAnimations().length + " + moving) == 0, state
    elsewhere = [url for url in tab.requests() if not url.startswith((f"http://127.0.0.1:{port}/", "data:"))]
    assert not elsewhere, elsewhere
    assert not tab.errors(), (state, tab.errors())


def test_views(browser):
    """Every state has a URL, shows values of the API, is sound by axe's rules in light and dark on narrow and wide windows, and
    loads nothing from elsewhere."""
    with live.place(records=1_600_000) as folder, begin(folder, "run.claimed=sleep:1000") as run:  # half an hour's
        run.wait_until_ready("/readyz")
        tabs = [browser.tab(width=width, height=height, scheme=scheme, listens=True,
                        motion="reduce" if width == 360 else "no-preference")
                for scheme, width, height in WINDOWS]
        for state, least in STATES.items():
            for tab in tabs:
                tab.goto(run.port, state)
            tabs[0].call("reload")  # it needs nothing of what was shown before
            for tab, (scheme, width, _) in zip(tabs, WINDOWS, strict=True):
                tab.wait_for_value("state", "running")
                check_shown(tab, state, {} if width == 360 else least)
                check_look(tab, run.port, state, scheme, width)
        for tab in tabs:
            tab.close()


@contextlib.contextmanager
def served():
    """A live job, and the port of the server beside it."""
    with live.place(live.JOB.replace("deadline: 1m }", 'deadline: 1m, listen: "127.0.0.1:0" }')) as folder:
        state = os.path.join(folder, "state")
        try:
            with begin(folder, "run.claimed=sleep:1000", words=("--serve",)) as run:
                run.wait_until_ready("/readyz")
                with open(os.path.join(state, "serve.log"), encoding="utf-8") as file:
                    yield run, int(re.findall(r"listening on http://127\.0\.0\.1:(\d+)", file.read())[-1])
        finally:  # the run that was killed leaves its server
            with contextlib.suppress(OSError), open(os.path.join(state, "SERVE"), encoding="ascii") as file:
                os.kill(int(file.read().split()[0]), signal.SIGKILL)


def ask_server(port, path, names=()):
    """The status of an answer; names: asks for scores, with these columns."""
    body = json.dumps({"inputs": [{"name": name, "shape": [1], "datatype": "INT64", "data": [5]} for name in names]})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request(*(("POST", path, body) if names else ("GET", path)))
    status = connection.getresponse().status
    connection.close()
    return status


def test_serving(browser):
    """The requests of the server beside the run by what became of them, and their shares."""
    with served() as (run, port):
        tab = browser.tab(listens=True)
        tab.goto(run.port, "#/serving")
        tab.wait("the server has a model", lambda: ask_server(port, "/v2/health/ready") == 200)
        for names, status in [(("id", "ts", "a", "b", "clicked"), 200)] * 5 + [(("none",), 400)] * 2:
            assert ask_server(port, "/v2/models/scores/infer", names) == status, (names, status)
        tab.wait_for_value("figures.serves[scores].requests", "7")
        check_shown(tab, "#/serving", {"figures.serves[scores].": 4, "derived.share[scores]": 3})
        shares = [float(value) for key, value in tab.values().items() if key.startswith("derived.share[scores]")]
        assert sorted(shares)[-2:] == [2 / 7, 5 / 7], shares
        tab.shot("serving")
        tab.close()


def test_the_process_comes_back(browser):
    """Killed and begun again at the same port: the page says so, connects again, and keeps the history."""
    with live.place() as folder:
        with begin(folder) as run:
            run.wait_until_ready("/readyz")
            port, tab = run.port, browser.tab(listens=True)
            tab.goto(port)
            tab.wait_for_value("state", "running")
            time.sleep(4)
        gone = time.monotonic()
        tab.wait_for_value("state", "reconnecting")
        tab.shot("reconnecting")
        time.sleep(max(0, GAP_S - time.monotonic() + gone))
        with begin(folder, port=port) as run:
            tab.wait_for_value("state", "running")
            tab.wait_for_value("restarted")
            answer = json.loads(run.ask("/api/v1/history")[2])
            assert answer["gaps"] >= 1 and len(answer["ticks"]) >= 4, answer
            tab.wait("the gap is marked", lambda: "The process was away or stood still until" in tab.text("main"))
            tab.call("reload")  # a page that knows nothing of before
            tab.wait("what was before it is kept", lambda: len(tab.answers().get("history", {"ticks": []})["ticks"]) >= 6)
            tab.wait("the gap is marked", lambda: "The process was away or stood still until" in tab.text("main"))
            tab.shot("restarted")
            tab.close()


def test_eight_tabs(browser):
    """All tabs of a browser share one stream: HTTP/1.1 has six connections a host."""
    with page_of(browser) as (run, first, _):
        tabs = [first] + [browser.tab(of=first) for _ in range(7)]
        for tab in tabs[1:]:
            tab.goto(run.port)
        for tab in tabs:
            tab.wait_for_value("state", "running")
            tab.wait_for_value("figures.records_life")
        seen = {tab.number: tab.values()["figures.records_life"] for tab in tabs}
        for tab in tabs:
            tab.wait_for_value("figures.records_life", lambda value, old=seen[tab.number]: value != old)
        streams = sum(url.endswith("/api/v1/events") for tab in tabs for url in tab.requests())
        assert streams == 1, streams
        first.close()  # who has the stream goes: another takes it
        seen = tabs[1].values()["figures.records_life"]
        tabs[1].wait_for_value("figures.records_life", lambda value: value != seen)
        for tab in tabs[2:]:
            tab.close()
        first.number = tabs[1].number


def test_keyboard(browser):
    """Without a mouse: to a node, along the edges, into its panel, and back."""
    with page_of(browser) as (_, tab, _):
        tab.wait("the graph", lambda: tab.evaluate("document.querySelectorAll('.graph [data-part]').length"))
        for _ in range(60):
            tab.press("Tab")
            if part := tab.evaluate("document.activeElement?.dataset.part ?? ''"):
                break
        assert part, "Tab does not come to a node"
        assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle !== 'none'"), "no focus is seen"
        tab.press("ArrowDown")
        other = tab.evaluate("document.activeElement?.dataset.part ?? ''")
        assert other and other != part, (part, other)
        tab.press("Enter")
        tab.wait("its URL", lambda: other.replace("/", "%2F") in tab.evaluate("location.hash"))
        tab.wait("its panel", lambda: other in tab.text(".panel h2"))
        tab.press("Escape")
        tab.wait("the panel is closed", lambda: tab.text(".panel h2").startswith("The run"))
        for _ in range(60):  # on to the views, all round
            tab.press("Tab")
            if tab.evaluate("document.activeElement?.textContent === 'learning'"):
                break
        tab.press("Enter")
        tab.wait("another view", lambda: tab.evaluate("location.hash").startswith("#/learning"))


HOSTILE = ['<img src=x onerror="window.fooled=1">', "\"'`${alert(1)}", "\u202eright to left\u202c", "x" * (1 << 20),
           "\ud7ff\x7f\x1b[31m"]


def test_hostile_values(browser):
    """What data says is text: markup, quotes, marks of direction, a MiB, bytes that are no UTF-8."""
    with live.place("", 10) as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="utf-8") as file:
            file.write("""job hostile { workers: 1, checkpoint: { every: 500ms, dir: "state" } }
source s = file { path: "data.jsonl", schema: { id: int!, ts: time(ms), name: text }, event_time: ts }
stream kept = s | where id >= 0 | dedup by name within 1h
sink out = null from kept
sink dead = file from dead_letters { path: "dead.jsonl" }
""")
        with open(os.path.join(folder, "data.jsonl"), "wb") as file:
            for i in range(200_000):
                text = HOSTILE[i % len(HOSTILE)] if i < 20 or i % 997 == 0 and len(HOSTILE[i % len(HOSTILE)]) < 100 else f"n{i}"
                file.write(json.dumps({"id": i, "ts": 1700000000000 + i, "name": text}).encode() + b"\n")
                if i % 5_000 == 0:
                    file.write(b'{"id": "<img src=x onerror=window.fooled=1>\xff\xfe", "ts": 1}\n')
        with begin(folder, "run.claimed=sleep:100") as run:
            run.wait_until_ready("/readyz")
            tab = browser.tab()
            asked = "#/state?of=kept%2Fdedup&key=%3Cimg%20src%3Dx%20onerror%3D%22window.fooled%3D1%22%3E"
            for state in [*[f"#/{view}" for view in VIEWS], asked]:
                tab.goto(run.port, state)
                tab.wait_for_value("state", "running")
                time.sleep(1.2)
                assert tab.evaluate("window.fooled === undefined && document.querySelectorAll('main img').length === 0"), state
                assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, state
            tab.goto(run.port, "#/data")
            tab.wait("the record is shown as text", lambda: "<img src=x onerror=" in tab.text("main"))
            assert not tab.errors(), tab.errors()
            tab.shot("hostile-data", whole=True)
            tab.close()


# Which nodes change from now on: those on the screen and a little around, and others.
OFF_SCREEN = """(() => {
    window.moved = { seen: new Set(), unseen: new Set() };
    new MutationObserver((changes) => {
        for (const change of changes) {
            const node = change.target.parentElement?.closest("[data-part]");
            const box = node?.getBoundingClientRect();
            const isSeen = box && box.bottom > -200 && box.top < innerHeight + 200;
            if (node) window.moved[isSeen ? "seen" : "unseen"].add(node.dataset.part);
        }
    }).observe(document.querySelector(".graph"), { subtree: true, childList: true, characterData: true, attributes: true });
})()"""


def test_many_nodes(browser):
    """A job of 256 nodes: the first picture comes within two seconds, the main thread is a fifth busy at most, and memory
    does not grow."""
    with live.place(live.wide(253), 400_000) as folder, begin(folder, "run.claimed=sleep:100") as run:
        run.wait_until_ready("/readyz")
        tab = browser.tab()
        began = time.monotonic()
        tab.goto(run.port)
        tab.wait("the picture", lambda: tab.evaluate("document.querySelectorAll('[data-part]').length") >= 20)
        took = time.monotonic() - began
        assert took < stretched(2), took
        tab.wait_for_value("figures.records_life")
        time.sleep(3)
        first = tab.heap()
        tab.evaluate(OFF_SCREEN)
        busy = tab.busy_share(10)
        seen, unseen = tab.evaluate("[[...window.moved.seen], [...window.moved.unseen]]")
        last = tab.heap()
        print(f"# 256 nodes: first picture {took:.2f} s, main thread {busy:.1%} busy, heap {first >> 10} to {last >> 10} KiB, "
              f"{len(seen)} nodes on the screen were updated")
        assert 0 < busy < min(0.2 * stretched(1), 0.8), busy
        assert last < first * 1.3 + (2 << 20), (first, last)
        assert seen and not unseen, (len(seen), unseen[:5])
        tab.shot("many-nodes")
        tab.close()


if __name__ == "__main__":
    sys.exit(main(globals()))
