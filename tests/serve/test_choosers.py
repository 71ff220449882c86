#!/usr/bin/env python3
"""As test_parity.py, for learners that choose items for a query: a request is answered by the list that the row gets when it
comes, bit for bit, by the run and by a follower. So is one that goes through a whole funnel: retrieve, unnest, features, a
ranker's `score`, nest. There the rows to score are of the records that teach, too, and come first; and features of the elements do not
see their own record.

    tests/serve/test_choosers.py PATH_OF_LEAT PATH_OF_ASK
"""

import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import jobs  # noqa: E402
import tap  # noqa: E402
from test_parity import Asked, equal, written  # noqa: E402

ROWS, LISTS_LEAST = 2400, 1900
NEW_USERS = {"item2vec": 900, "item2vec-like": 900}  # rows of them have no list

KINDS = {
    "two_tower": "query: [user, tags], item: item, items: rated, item_features: [stars], learn: clicked = 1 or liked = 1, "
                 "batch: 24, refresh: 50, towers: [16, 8], embedding: { dim: 8, expire_after: 20m }",
    "two_tower-plain": "query: [user, tags], item: item, item_features: [liked], batch: 40, towers: [], normalize: false, "
                       "embedding: { dim: 8 }, loss: sampled_softmax { negatives: 8 }, score: asked",
    "mf_rank": "user: user, item: item, batch: 16, loss: warp, embedding: { dim: 8, expire_after: 10m }, refresh: 5",
    "item2vec": "by: user, item: item, history: 6, batch: 60, negatives: 4, subsample: 0.02, seen: dropped, "
                "embedding: { dim: 8, expire_after: 20m }",
    "item2vec-like": "by: user, item: item, like: case when first(tags) < 10 then concat(\"i\", text(first(tags))) end, items: rated, "
                     "learn: clicked = 1 or liked = 1, batch: 100, occurrences_min: 1, "
                     "embedding: { dim: 8 }, score: asked",
}


def job_of(name):
    """Requests have no item, so they have no rank; a step before the model, and one behind it."""
    return jobs.HEAD + f"""
stream examples = events | where price is null or price < 29.0
stream asked = events | where id % 9 = 1 | select ts, user, tags
stream rated = ratings | with _op = case when stars = 1 then "delete" else "insert" end
learner model = {name.split("-")[0]} from examples {{ top: 7, {KINDS[name]} }}
stream lists = model.top | drop rank, tags | with n = len(top)
serve lists {{ from: lists, request: events, deadline: 1m }}
sink all = file from lists {{ path: out, overwrite: true }}
"""


def test_funnel():
    with tempfile.TemporaryDirectory() as folder:
        asked = Asked(folder, written(folder, jobs.FUNNEL, ROWS, 3))
    found = [answer for answer in asked.answers if "_status" not in answer]
    assert len(asked.answers) == ROWS and len(found) >= len(asked.trained) >= LISTS_LEAST, (len(found), len(asked.trained))
    at = 0
    for number, row in enumerate(asked.trained):
        while at < len(found) and found[at]["id"] != row["id"]:
            at += 1
        assert at < len(found), f"row {number} was not answered: {row}"
        equal(found[at], row, number)
        at += 1
    assert sum(len(row["best"]) == 7 for row in asked.trained) >= LISTS_LEAST, len(asked.trained)


def check(name):
    with tempfile.TemporaryDirectory() as folder:
        asked = Asked(folder, written(folder, job_of(name), ROWS, 2))
    found = [answer for answer in asked.answers if "_status" not in answer]
    assert len(asked.answers) == ROWS and len(found) >= LISTS_LEAST, (len(asked.answers), len(found))
    at, lists = 0, 0
    for number, row in enumerate(asked.trained):
        while at < len(found) and found[at]["id"] != row["id"]:
            at += 1
        assert at < len(found), f"row {number} was not answered: {row}"
        needed = ("item", "user") if name.startswith("item2vec") else ("item",)
        if all(row[each] is not None for each in needed):  # others get an answer, and are rejected when they come to be learned
            equal(found[at], row, number)
            lists += row["top"] is not None and len(row["top"]) == 7
        at += 1
    print(f"# {name}: {lists} lists")
    assert lists >= LISTS_LEAST - NEW_USERS.get(name, 0), lists


def add(name):
    globals()["test_" + name.replace("-", "_")] = lambda: check(name)


for each in KINDS:
    add(each)

if __name__ == "__main__":
    sys.exit(tap.run(globals()))
