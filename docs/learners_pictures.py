#!/usr/bin/env python3
"""Draws the pictures of docs/learners.md: docs/learners-next.svg, docs/learners-window.svg,
docs/learners-funnel.svg.

    docs/learners_pictures.py [--check]

--check: changes nothing, and fails where a picture would be another.
"""

import sys

from serving_pictures import arrow, box, draw, svg, text

HISTORY, EVENTS = 6, 11  # of the second picture


def next_item():
    """What happens to an event: its rank, its list, its place in the history, its step."""
    body = ['<rect class="room" x="20" y="24" width="860" height="250" rx="8"/>', text(32, 42, "learner next = sasrec", "more", "start")]
    body.append(text(126, 64, "history of the user", "more"))
    for i, item in enumerate("ABCD"):
        body += box(40 + 44 * i, 72, 38, 30, item, "state")
    body += box(262, 62, 138, 50, "layers of attention", "box", ["items, `with`, order"]) + [arrow(216, 87, 259, 87, "data")]
    body += box(436, 62, 84, 50, "query", "cut", ["+ context"]) + [arrow(402, 87, 433, 87, "data")]
    body += box(568, 52, 130, 70, "rows of all items", "state", ["a score for each", "seen: dropped leaves out", "A, B, C and D"])
    body += [arrow(522, 87, 565, 87, "data")]
    body += box(742, 52, 124, 32, "top: Q, X, E, ...", "box") + [arrow(700, 74, 739, 68, "data")]
    body += box(742, 92, 124, 32, "rank of X: 2", "box") + [arrow(700, 100, 739, 108, "data")]
    body += box(40, 196, 170, 50, "event: item X", "box", ["by, context, item, with"])
    body += [arrow(124, 194, 124, 106), text(132, 150, "3. X is appended", "more", "start")]
    body += [f'<path class="arrow" d="M212 204H804V128" marker-end="url(#tip)"/>', text(330, 198, "1. only now is the item looked at", "more")]
    body += box(436, 216, 262, 42, "step: rows and weights move", "cut", ["`batch` events, and `rehearse` times older windows"])
    body += [arrow(212, 236, 433, 236), text(322, 230, "2. it waits for its step", "more"), arrow(633, 214, 633, 126, "data"),
             arrow(478, 214, 340, 116, "data")]
    return svg(900, 292, "From a user's history to a list, a rank and a step", body)


def window():
    """Which events are in the window, as they come."""
    left, top, wide, high = 230, 40, 44, 22
    body = [text(left + EVENTS * wide / 2, 24, "events of one user, oldest first", "more")]
    start = 0
    for count in range(1, EVENTS + 1):
        if count - start > HISTORY:
            start += (HISTORY + 1) // 2
            turned = True
        else:
            turned = False
        y = top + (count - 1) * high
        body.append(text(left - 12, y + 15, f"after event {count}" + (": the older half goes" if turned else ""), "more", "end"))
        for i in range(count):
            kind = "state" if i >= start else "lost"
            body.append(f'<rect class="{kind}" x="{left + i * wide}" y="{y + 2}" width="{wide - 4}" height="{high - 4}" rx="3"/>')
            body.append(text(left + i * wide + (wide - 4) / 2, y + 15, str(i + 1), "more"))
    body.append(text(left, top + EVENTS * high + 20, "green: in the window; red: no longer kept", "more", "start"))
    return svg(left + EVENTS * wide + 20, top + EVENTS * high + 34, f"The window of a user with history: {HISTORY}", body)


def funnel():
    """A visit's way to its list, and what is learned from it."""
    body = ['<rect class="room" x="132" y="24" width="754" height="96" rx="8"/>', text(144, 42, "one request, or one row of `visits`", "more", "start")]
    steps = [("two_tower", ["score: the best", "200 of all goods"], "cut"), ("unnest", ["a row for", "each candidate"], "box"),
             ("feature", ["counts of the good,", "of user and good"], "state"), ("deepfm", ["score: how likely", "is each taken"], "cut"),
             ("nest", ["the ten best,", "as one row"], "box")]
    body += box(20, 54, 88, 52, "visit", "box", ["user, country"]) + [arrow(110, 80, 143, 80)]
    for number, (name, more, kind) in enumerate(steps):
        x = 146 + number * 150
        body += box(x, 50, 126, 60, name, kind, more)
        if number:
            body.append(arrow(x - 22, 80, x - 3, 80))
    body += box(146, 168, 126, 44, "catalogue", "state", ["comes, goes"]) + [arrow(180, 166, 180, 113, "data")]
    body += box(446, 168, 126, 44, "bought", "box", ["user, good, time"]) + [arrow(509, 166, 509, 113, "data")]
    body += [f'<path class="data" d="M446 190H300V140H240V113" marker-end="url(#tip)"/>', text(350, 180, "what is chosen", "more")]
    body += box(596, 168, 126, 44, "attribute", "state", ["taken, an hour later"]) + [arrow(574, 190, 593, 190), arrow(659, 166, 659, 113, "data")]
    body += [f'<path class="arrow" d="M548 112V140H620V165" marker-end="url(#tip)"/>', text(700, 144, "learns", "more")]
    body += [text(450, 240, "black: rows; green: what changes the state that a visit reads", "more")]
    return svg(900, 254, "A funnel: retrieve, features, rank", body)


if __name__ == "__main__":
    sys.exit(draw("learners_pictures.py", {"learners-next": next_item, "learners-window": window, "learners-funnel": funnel}))
