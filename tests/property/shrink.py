"""Makes a failing scenario smaller, as long as it fails: fewer cases, records, steps, columns; simpler options."""

import copy
import json
import re
import time

SECONDS_MAX = 40


class Shrinking:
    def __init__(self, check, scenario, wrong):
        self.check, self.best = check, scenario
        self.number, self.what = next(iter(wrong.items()))  # of the case; None: the job fails
        self.deadline = time.monotonic() + SECONDS_MAX

    def take(self, scenario):
        """Whether this one fails as well: then it is the best so far."""
        if time.monotonic() > self.deadline:
            return False
        try:
            wrong = self.check(scenario)
        except Exception:  # a scenario that makes no sense any more; pylint: disable=broad-except
            return False
        number = self.number if len(scenario["cases"]) == len(self.best["cases"]) or self.number is None else 0
        if number not in wrong or not is_like(wrong[number], self.what):
            return False
        self.best, self.number, self.what = scenario, number, wrong[number]
        return True

    def change(self, make):
        """make(copy) changes it in place; False: there is nothing to change."""
        scenario = copy.deepcopy(self.best)
        return make(scenario) is not False and scenario != self.best and self.take(scenario)


def is_like(text, what):
    """A job that leat refuses, or for another reason, is no smaller case of one that it runs wrongly."""
    def kind(t):
        return re.findall(r"ended with -?\d+|E\d{4}", t)[:2]
    return kind(text) == kind(what)


def records_of(scenario):
    return [(s, p, f, r) for s, stream in enumerate(scenario["streams"]) for p, files in enumerate(stream["partitions"])
            for f, records in enumerate(files) for r in range(len(records))]


def without(scenario, places):
    gone = set(places)
    for s, stream in enumerate(scenario["streams"]):
        for p, files in enumerate(stream["partitions"]):
            for f, records in enumerate(files):
                files[f] = [record for r, record in enumerate(records) if (s, p, f, r) not in gone]


def drop_records(shrinking):
    """Halves, quarters ... single ones, as long as something can go."""
    size = max(1, len(records_of(shrinking.best)) // 2)
    while True:
        at, is_smaller = 0, False
        while at < len(records_of(shrinking.best)):
            places = records_of(shrinking.best)[at:at + size]
            if shrinking.change(lambda s, places=places: without(s, places)):
                is_smaller = True
            else:
                at += size
        if size == 1 and not is_smaller:
            return
        size = max(1, size // 2)


def drop_files(scenario):
    for stream in scenario["streams"]:
        stream["partitions"] = [[[record for file in files for record in file]] for files in stream["partitions"] if any(files)] or [[[]]]


def simpler_options(scenario):
    """Copies in which an option of a step is None, or a list has an element less."""
    for c, case in enumerate(scenario["cases"]):
        for s, step in enumerate(case["steps"]):
            for key, value in step["options"].items():
                if key == "inputs":  # what reads two streams cannot do with one
                    continue
                values = [None] if value is not None and not isinstance(value, list) else []
                if isinstance(value, list) and len(value) > 1:
                    values = [value[:i] + value[i + 1:] for i in range(len(value))]
                for new in [*values, False] if value is True else values:
                    changed = copy.deepcopy(scenario)
                    changed["cases"][c]["steps"][s]["options"][key] = new
                    yield changed


def simplify(shrinking):
    for case in range(len(shrinking.best["cases"][0]["steps"]) - 1):
        shrinking.change(lambda s, case=case: s["cases"][0]["steps"].pop(case) and None)
    is_simpler = True
    while is_simpler:
        is_simpler = any(shrinking.take(s) for s in simpler_options(shrinking.best))
    for column in ("k", "g", "b", "v", "f", "s"):
        def clear(scenario, column=column):
            for stream in scenario["streams"]:
                for record in (r for files in stream["partitions"] for file in files for r in file):
                    if isinstance(record, dict):
                        record[column] = None
        shrinking.change(clear)
    for stream in range(len(shrinking.best["streams"])):
        shrinking.change(lambda s, stream=stream: s["streams"][stream].update(delay=0))
        shrinking.change(lambda s, stream=stream: s["streams"][stream].update(watermark=None))
        shrinking.change(lambda s, stream=stream: s["streams"][stream].update(jump=None))


def shrink(check, scenario, wrong):
    """(the smallest found, what is wrong with it)"""
    shrinking = Shrinking(check, scenario, wrong)
    numbers = range(len(scenario["cases"])) if shrinking.number is None else [shrinking.number]
    any(shrinking.change(lambda s, n=n: s.update(cases=[s["cases"][n]])) for n in numbers)
    for field, value in (("workers", 1), ("placement", None), ("state", None), ("cut", 1), ("cut", 2)):
        if json.dumps(shrinking.best[field]) != json.dumps(value):
            shrinking.change(lambda s, field=field, value=value: s.update({field: value}))
    drop_records(shrinking)
    shrinking.change(drop_files)
    simplify(shrinking)
    drop_records(shrinking)
    return shrinking.best, shrinking.what
