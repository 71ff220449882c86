#!/usr/bin/env python3
"""Three faults of live jobs that somebody who has never seen the page finds by clicking alone, from `/` on: a node that holds
the job back, a record that no schema fits, a column that turned null. Each walk clicks what stands on the screen, and ends
where the cause stands there in words; pictures of its steps lie in build/page-shots. Prints TAP.

    tests/page/test_walks.py PATH_OF_LEAT [--only TEST]
"""

import sys
import time

from browser import main
from jobs import KEPT, fed, record

NULLS_AFTER_S = 10  # a slot of what columns count
POISON = '{"id": "seventeen", "ts": 1700000000017}'


class Walk:
    """Steps of one walk: what is clicked must be a link or a button that can be seen."""

    def __init__(self, browser, run, name):
        self.tab, self.name, self.steps = browser.tab(), name, 0
        self.tab.goto(run.port)
        self.tab.wait_for_value("state", "running")

    def look(self):
        self.tab.shot(f"walk-{self.name}-{self.steps}")
        self.steps += 1

    def click(self, text, within="body"):
        self.look()
        self.tab.click(f'{within} :is(a, button):visible:is(:text-is("{text}"), :has(:text-is("{text}")))')

    def reads(self, *words):
        """Whether these words stand together in what is on the screen."""
        return self.tab.call("apply", to=words, js="""(words) => [...document.querySelectorAll('main *')].some((one) => {
            const box = one.getBoundingClientRect();
            const isSeen = box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
            return isSeen && box.height < innerHeight && words.every((word) => one.innerText?.includes(word));
        })""")

    def ends_at(self, *words):
        """Scrolls down, as one does, until the words are there."""
        self.tab.wait(words, lambda: self.reads(*words) or self.tab.call("wheel", by=200))
        self.look()
        self.tab.close()


def test_a_column_turned_null(browser):
    """The data's own view names it, with its share of nulls now and before."""
    with fed(KEPT) as (run, feeder):
        feeder.row, feeder.rows = (lambda n: record(n, b=n % 9)), 5
        time.sleep(NULLS_AFTER_S)
        feeder.row = lambda n: record(n, b="null")
        walk = Walk(browser, run, "null-column")
        walk.click("data")
        walk.tab.wait("it is noticed", lambda: walk.tab.text("main").count("turned null") >= 1)
        walk.ends_at("Column", "b", "of s turned null", "of its rows lately")


def test_a_bottleneck(browser):
    """The first view says which node holds the job back, as a link to what is known of it."""
    with fed(points="sink.write=sleep:200") as (run, feeder):
        feeder.rows = 3000
        walk = Walk(browser, run, "bottleneck")
        walk.tab.wait_for_value("figures.bottleneck", lambda text: "`sink/out`" in text)
        walk.click("sink/out", ".sentence")
        walk.ends_at("sink/out", "of lane", "what comes before it waits")


def test_a_poison_record(browser):
    """Dead rows are counted on the first view; behind the word are the record, where it was, and what is wrong with it."""
    with fed() as (run, feeder):
        feeder.rows = 5
        walk = Walk(browser, run, "poison")
        feeder.texts.append(POISON)
        walk.tab.wait_for_value("derived.dead", "1")
        walk.click("dead rows")
        walk.ends_at("s", POISON, "`id`: an int was expected, not a text")


if __name__ == "__main__":
    sys.exit(main(globals()))
