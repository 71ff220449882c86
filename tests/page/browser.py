"""A headless Chromium for tests of the page, driven by tests/page/driver.mjs; and the figures that a run streams."""

import contextlib
import glob
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PAGE = os.path.join(ROOT, "page")
SHOTS = os.path.join(ROOT, "build", "page-shots")


def chromium():
    for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return next(iter(glob.glob("/usr/lib/chromium*/chromium-headless-shell")), None)


def missing():
    """Why there is no browser here; None: there is one."""
    lacks = []
    if shutil.which("node") is None:
        lacks.append("node")
    if chromium() is None:
        lacks.append("chromium-headless-shell")
    if not os.path.exists(os.path.join(PAGE, "node_modules", "playwright-core")):
        lacks.append("page/node_modules")
    return f"there is no {' and no '.join(lacks)}: ./dev setup" if lacks else None


class Browser:
    """Calls of driver.mjs are methods of a Tab."""

    def __init__(self):
        os.makedirs(SHOTS, exist_ok=True)
        self.process = subprocess.Popen(["node", os.path.join(HERE, "driver.mjs"), PAGE, chromium()], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.tabs = 0

    def call(self, name, **words):
        self.process.stdin.write(json.dumps({"call": name, **words}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the browser has ended in {name}"
        answer = json.loads(line)
        assert "error" not in answer, (name, words, answer["error"])
        return answer["value"]

    def tab(self, of=None, **words):
        self.tabs += 1
        return Tab(self, self.tabs, of, words)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Tab:
    """of: a tab of the same profile; words: width, height, scheme (light, dark), motion (reduce), listens (for answers())."""

    def __init__(self, browser, number, of, words):
        self.browser, self.number = browser, number
        self.call("open", **({"of": of.number} if of else {}), **words)

    def call(self, name, **words):
        return self.browser.call(name, tab=self.number, **words)

    def goto(self, port, state=""):
        self.call("goto", url=f"http://127.0.0.1:{port}/{state}")

    def shown(self, is_seen=False):
        """(data-key, data-value, text without its unit) of all that is shown; is_seen: without nodes that are off the screen,
        which stand still."""
        return self.call("shown", isSeen=is_seen)

    def values(self):
        """data-key: data-value of all that is shown."""
        return {key: value for key, value, _ in self.shown()}

    def answers(self):
        """The newest answer of each route that a tab with `listens` got; `figures`: the newest three of the stream;
        `histories`: of each node and span (`1h kept/dedup`) `figures`, and the newest two of their `values`."""
        return self.call("answers")

    def close(self):
        self.call("close")

    def evaluate(self, js):
        return self.call("evaluate", js=js)

    def click(self, selector):
        self.call("click", selector=selector)

    def press(self, key):
        self.call("press", key=key)

    def text(self, selector="body"):
        return self.call("text", selector=selector)

    def shot(self, name, whole=False):
        """Kept in build/page-shots, for people to look at."""
        self.call("shot", path=os.path.join(SHOTS, name + ".png"), whole=whole)

    def wait(self, what, is_there, within=PATIENCE_S):
        """Waits until is_there() gives something; returns that."""
        deadline = time.monotonic() + within
        while not (found := is_there()):
            assert time.monotonic() < deadline, (what, self.errors(), self.text()[:1500])
            time.sleep(0.05)
        return found

    def wait_for_value(self, key, wanted=None, within=PATIENCE_S):
        """wanted: a value, or what says whether a value is good; None: any that is known."""
        def look():
            value = self.values().get(key)
            if wanted is None:
                return value not in (None, "null")
            return value is not None and (wanted(value) if callable(wanted) else value == wanted)
        self.wait((key, wanted), look, within)

    def heap(self):
        """Bytes of live objects."""
        return self.call("heap")

    def busy_share(self, seconds, meanwhile=time.sleep):
        """The share of the next seconds that the main thread has work."""
        first = self.call("busy")
        meanwhile(seconds)
        last = self.call("busy")
        return (last["busy"] - first["busy"]) / (last["at"] - first["at"])

    def errors(self):
        return self.call("seen")["errors"]

    def requests(self):
        return self.call("seen")["requests"]


class Stream(threading.Thread):
    """Reads /api/v1/events of a run: all figures that the page may show."""

    def __init__(self, port):
        super().__init__()
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        self.connection.request("GET", "/api/v1/events")
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.status
        self.figures, self.hello = [], None
        self.start()

    def run(self):
        event = ""
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException, AttributeError):
            while line := self.answer.readline().decode():
                name, _, value = line.rstrip("\r\n").partition(": ")
                if name == "event":
                    event = value
                elif name == "data" and event == "figures":
                    self.figures.append(json.loads(value))
                elif name == "data" and event == "hello":
                    self.hello = json.loads(value)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.connection.sock is not None:
            with contextlib.suppress(OSError):
                self.connection.sock.shutdown(2)
        self.join(PATIENCE_S)
        self.connection.close()


def main(module):
    """Runs the tests of a module, its globals(), each with the browser; `--only NAME` one of them. The exit status."""
    if why := missing():
        print(f"ok - page # SKIP {why}")
        return 0
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else None
    with Browser() as browser:
        tests = [(name, test) for name, test in module.items() if name.startswith("test_") and only in (None, name)]
        assert tests, f"there is no {only}"
        return 0 if all([tap.run_one(name, lambda test=test: test(browser)) for name, test in tests]) else 1
