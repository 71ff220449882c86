#!/usr/bin/env python3
"""The page of a job on several workers in a real browser: that of the leader shows all workers, that of another one says that it shows
its own part; all values are the API's, in light and dark. Pictures lie in build/page-shots.

    test_workers_page.py LEAT
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "page"))
import browser  # noqa: E402
import test_cluster as cluster  # noqa: E402
import test_commands as commands  # noqa: E402
from shown import check_shown  # noqa: E402
from test_page import check_look  # noqa: E402

WINDOWS = (("light", 1600, 1000), ("dark", 1024, 768), ("light", 360, 740))


def test_page():
    with cluster.Job() as job, browser.Browser() as chromium:
        workers = [job.start(3, "--ui=127.0.0.1:0", failpoints="run.claimed=sleep:400") for _ in range(3)]
        job.progress(1)
        leader, others = job.leader(workers)
        commands.figures_of_all(job, commands.url(job, leader))
        for process, name in ((leader, "leader"), (others[0], "part")):
            port = int(commands.url(job, process).rpartition(":")[2])
            for scheme, width, height in WINDOWS:
                tab = chromium.tab(width=width, height=height, scheme=scheme, listens=True,
                                   motion="reduce" if width == 360 else "no-preference")
                tab.goto(port, "#/job")
                tab.wait_for_value("state", "running")
                rows = 3 if process is leader else 1
                least = {"figures.cluster.": 4 + 10 * rows} if width == 1600 else {}
                check_shown(tab, "#/job", least)
                check_look(tab, port, f"#/job-{name}", scheme, width)
                text = tab.text().lower()
                assert "key groups" in text and ("this is one worker of 3" in text) == (process is not leader), text
                assert tab.evaluate("document.querySelectorAll('tr[data-worker]').length") == rows
                tab.close()


if __name__ == "__main__":
    if browser.missing():
        print(f"ok - page # SKIP {browser.missing()}")
        sys.exit(77)
    sys.exit(cluster.main({"test_page": test_page}))
