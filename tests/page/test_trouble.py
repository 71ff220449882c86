#!/usr/bin/env python3
"""What goes wrong in a live job shows on its page, in words and by signs: a slow node, what waits for it, late rows,
a failed checkpoint, a store that is gone, a frozen learner. A source that lags: tests/kafka/test_lag.py. Prints TAP.

    tests/page/test_trouble.py PATH_OF_LEAT [--only TEST]
"""

import os
import sys
import tempfile
import time

from browser import Tab, main  # noqa: F401
from jobs import KEPT, SLOWLY, fed, live, page_of, record
from patience import stretched
from shown import check_shown

HEIGHT = 1800  # all nodes are on the screen: only those are kept up to date
SLOW_SINK = "sink.write=sleep:200"
ON_ITS_NODE = "document.querySelector('[data-part=\"sink/out\"]')?.innerText ?? ''"


def check_named(browser, before):
    """before: `a` of the rows that come before those that the sink writes; None: none come."""
    with fed(points=SLOW_SINK) as (run, feeder):
        tab = browser.tab(height=HEIGHT)
        tab.goto(run.port)
        tab.wait_for_value("state", "running")
        if before is not None:
            feeder.row = lambda n: record(n, a=before)
            feeder.rows = 400
        tab.wait_for_value("figures.records_life", (lambda value: int(value) > 20_000) if before else "1")
        tab.wait_for_value("figures.bottleneck", "the lanes wait for records")
        assert "bottleneck" not in tab.evaluate(ON_ITS_NODE)
        feeder.row, feeder.rows = record, 3000
        began = time.monotonic()
        tab.wait_for_value("figures.bottleneck", lambda text: "`sink/out`" in text, stretched(5))
        took = time.monotonic() - began
        assert took < stretched(5), took
        print(f"# named after {took:.1f} s, {'busy' if before else 'idle'} before")
        tab.wait("the node is marked", lambda: "bottleneck" in tab.evaluate(ON_ITS_NODE))
        return_of(tab, feeder)
        tab.close()


def return_of(tab, feeder):
    """Backpressure: what comes before the slow node waits, by the share of its queue and by that of the lanes' time."""
    tab.wait_for_value("figures.bottleneck", lambda text: text.endswith("and what comes before it waits"))
    tab.wait_for_value("figures.nodes[sink/out].queue", lambda text: text != "null" and float(text) >= 0.5)
    tab.wait_for_value("derived.lanes.blocked", lambda text: text != "null" and float(text) > 0.2)
    tab.shot("backpressure", whole=True)
    feeder.rows = 0


def test_a_slow_node_idle_before(browser):
    """A node that is slow when rows come after a silence is named within five seconds, and so is what waits for it."""
    check_named(browser, None)


def test_a_slow_node_busy_before(browser):
    """So is one that becomes slow while rows flow."""
    check_named(browser, 950)


def test_late_rows(browser):
    """Rows behind the watermark are counted and flagged."""
    with fed(KEPT + "\nstream n = kept | window by a over tumbling(1s) { n: count() }\nsink counts = null from n") as (run, feeder):
        tab = browser.tab(height=HEIGHT, listens=True)
        tab.goto(run.port)
        tab.wait_for_value("state", "running")
        feeder.rows = 50
        tab.wait_for_value("figures.records_life", lambda value: int(value) > 5000)
        tab.wait_for_value("derived.late", "0")
        feeder.row = lambda n: record(n, ts=None if n % 2 else 1_600_000_000_000)
        tab.wait_for_value("derived.late", lambda value: int(value) > 100)
        tab.wait("the node is flagged", lambda: "/s bad" in tab.evaluate(
            "document.querySelector('[data-part=\"n/window\"]')?.innerText ?? ''"))
        check_shown(tab, "#/job", {"derived.bad[n/window]": 1})
        tab.shot("late-rows", whole=True)
        tab.close()


def test_a_failed_checkpoint(browser):
    """A checkpoint that the disk does not take is told, with the reason, and the job goes on."""
    with page_of(browser, state="#/checkpoints", points=SLOWLY + ",ckpt.manifest=error:ENOSPC@3") as (_, tab, _):
        tab.wait("what takes one", lambda: "leat ctl checkpoint state\n" in tab.text("main") + "\n")
        tab.wait("the reason", lambda: "Failed at" in tab.text("main") and "No space left on device" in tab.text("main"))
        taken = int(tab.values()["figures.checkpoints"])
        tab.wait_for_value("figures.checkpoints", lambda value: int(value) > taken)
        tab.shot("failed-checkpoint", whole=True)


def test_a_store_that_is_gone(browser):
    """How far the object store is behind, while it cannot be written to; sinks that wait for it."""
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        job = live.JOB.replace('dir: "state"', f'dir: "state", store: "file:{store}", commit: "store"')
        with page_of(browser, job, state="#/checkpoints", listens=True) as (_, tab, _):
            tab.wait_for_value("figures.store.bytes", lambda value: int(value) > 0)
            tab.wait_for_value("figures.store.checkpoints_behind", "0")
            os.rename(store, store + "-gone")
            with open(store, "w", encoding="ascii"):
                pass
            tab.wait_for_value("figures.store.checkpoints_behind", lambda value: int(value) > 2)
            assert "Sinks give away what a checkpoint covers once the store has it." in tab.text("main")
            check_shown(tab, "#/checkpoints", {"figures.store.": 4})
            tab.shot("store-gone", whole=True)
            os.unlink(store)
            os.rename(store + "-gone", store)
            tab.wait_for_value("figures.store.checkpoints_behind", "0")


def test_a_frozen_learner(browser):
    """A learner that does not learn any more, because its labels left their band."""
    steps = ("learner model = linear from s { label: clicked, sparse: [a, b], window: 200, "
             "freeze: { label_mean_max: 0.6, after: 500 } }\nsink out = null from model.predictions")
    with fed(steps) as (run, feeder):
        tab = browser.tab(height=HEIGHT)
        tab.goto(run.port, "#/learning")
        tab.wait_for_value("state", "running")
        feeder.row, feeder.rows = lambda n: record(n, a=n % 50, clicked=n % 2), 20
        tab.wait_for_value("figures.nodes[model].report.run.learned", lambda value: value != "null" and float(value) > 2000)
        assert "Frozen" not in tab.text("main")
        feeder.row = lambda n: record(n, a=n % 50, clicked=1)
        tab.wait("it is said to be frozen", lambda: "Frozen: it does not learn" in tab.text("main"))
        tab.wait_for_value("figures.nodes[model].report.run.frozen", lambda value: float(value) > 0)
        tab.shot("frozen-learner", whole=True)
        tab.close()


if __name__ == "__main__":
    sys.exit(main(globals()))
