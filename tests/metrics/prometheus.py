#!/usr/bin/env python3
"""A real Prometheus for tests: on loopback, in a folder of the test's own.

    tests/metrics/prometheus.py install    unpacks Debian's package into build/prometheus, if there is no `prometheus` yet

Unpacked and not installed: the package would start a service that listens on all addresses, and bring a quarter of a
gigabyte of scripts for a page that no test opens.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UNPACKED = os.path.join(ROOT, "build", "prometheus")
FOLDERS = os.pathsep.join([os.environ.get("PATH", ""), os.path.join(UNPACKED, "usr", "bin")])
PROGRAMS = ("prometheus", "promtool")
AT = re.compile(r'msg="Listening on" address=127\.0\.0\.1:(\d+)')


def program(name):
    return shutil.which(name, path=FOLDERS)


def missing():
    """Why tests cannot have one; None: they can."""
    lacks = [name for name in PROGRAMS if program(name) is None]
    return f"there is no {' and no '.join(lacks)}: ./dev setup" if lacks else None


def promtool(*words, text=None):
    """Fails with what promtool says about the text or files."""
    done = subprocess.run([program("promtool"), *words], input=text, capture_output=True, text=True, timeout=PATIENCE_S,
                          check=False)
    assert done.returncode == 0 and not done.stderr.strip(), (words, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


class Prometheus:
    """targets: {name of the scrape job: port}. rules: path of a file of rules, or None."""

    def __init__(self, targets, interval="500ms", rules=None):
        self.folder = tempfile.TemporaryDirectory()
        config = {"global": {"scrape_interval": interval, "evaluation_interval": interval},
                  "rule_files": [rules] if rules else [],
                  "scrape_configs": [{"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
                                     for name, port in targets.items()]}
        path = os.path.join(self.folder.name, "prometheus.yml")
        with open(path, "w", encoding="ascii") as file:
            json.dump(config, file)  # JSON is YAML
        self.said, self.port = [], None
        self.process = subprocess.Popen(
            [program("prometheus"), "--config.file", path, "--storage.tsdb.path", os.path.join(self.folder.name, "data"),
             "--web.listen-address", "127.0.0.1:0"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for line in self.process.stderr:
            self.said.append(line)
            if AT.search(line):
                self.port = int(AT.search(line)[1])
                break
        self.reader = threading.Thread(target=lambda: self.said.extend(self.process.stderr))
        self.reader.start()

    def ask(self, path, **words):
        """`data` of an answer of its API."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, text):
        """[(labels, value)] of now."""
        return [(one["metric"], float(one["value"][1])) for one in self.ask("query", query=text)["result"]]

    def wait_for(self, text, alive=lambda: True):
        """What a query gives, as soon as it gives anything."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if found := self.query(text):
                    return found
            except urllib.error.HTTPError as error:
                assert error.code == 503, (text, error.read())  # it begins
            assert time.monotonic() < deadline and alive(), (text, "".join(self.said)[-1500:])
            time.sleep(0.1)

    def __enter__(self):
        assert self.port is not None, self.said
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)
        self.process.stderr.close()
        self.folder.cleanup()


def install():
    if missing() is None:
        return 0
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        print("no apt-get: install `prometheus` by hand", file=sys.stderr)
        return 1
    os.makedirs(UNPACKED, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # apt-get fetches as a user of its own where it is started by root
        done = subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", "prometheus"], cwd=folder,
                              check=False)
        packages = [name for name in os.listdir(folder) if name.endswith(".deb")]
        if done.returncode != 0 or len(packages) != 1:
            print("apt-get download prometheus: failed", file=sys.stderr)
            return 1
        subprocess.run(["dpkg-deb", "-x", os.path.join(folder, packages[0]), UNPACKED], check=True)
    return 0 if missing() is None else 1


if __name__ == "__main__":
    sys.exit(install() if sys.argv[1:] == ["install"] else __doc__)
