#!/usr/bin/env python3
"""Draws the pictures of docs/cluster.md: docs/cluster-event.svg, docs/cluster-death.svg, docs/cluster-round.svg.

    docs/cluster_pictures.py [--check]

--check: changes nothing, and fails where a picture would be another.
"""

import sys

from serving_pictures import arrow, box, draw, svg, text


def event():
    """One event's way: the owner of its partition, the leader, the worker of its key."""
    body = []
    for x, width, name in ((20, 270, "worker 1: owns the partition"), (320, 230, "worker 0: leads"), (580, 300, "worker 2: has the key's group")):
        body += [f'<rect class="room" x="{x}" y="24" width="{width}" height="236" rx="8"/>', text(x + 12, 42, name, "more", "start")]
    body += box(36, 60, 238, 38, "reads and decodes", "box", ["a partition has one owner"])
    body += box(336, 60, 198, 38, "chooses micro-batch n", "cut", ["which rows, of all partitions"])
    body += box(36, 126, 238, 38, "cuts the rows of n")
    body += box(336, 126, 198, 38, "watermarks of n", "cut", ["stages may run n now"])
    body += box(596, 126, 268, 38, "features, windows, joins", "state", ["as many instances as there are lanes"])
    body += box(596, 196, 268, 46, "sink", "box", ["holds n back until a head covers it"])
    body += box(36, 196, 238, 46, "rows by key group", "box", ["720 groups, each on one worker"])
    body += [arrow(276, 74, 333, 74), text(305, 68, "offers", "more"), arrow(333, 92, 276, 132), arrow(276, 145, 333, 145),
             text(305, 139, "slice", "more"), arrow(155, 166, 155, 193, "data"), arrow(536, 145, 593, 145), arrow(730, 166, 730, 193, "data"),
             f'<path class="data" d="M276 222H565V158H593" marker-end="url(#tip)"/>', text(440, 216, "rows go straight to the key's worker", "more")]
    body += [text(450, 286, "Every worker has all three parts at once: this is the way of one event. The order of the leader is that of a run that is alone.",
                  "more")]
    return svg(900, 302, "The way of one event through three workers", body)


def death():
    """A death, second by second."""
    left, scale = 96, 100
    body = []

    def x(second):
        return left + second * scale
    for name, y in (("worker 0", 76), ("worker 1", 136), ("worker 2", 196), ("etcd", 256)):
        body += [text(20, y + 5, name, "bold", "start"), f'<path class="axis" d="M{left} {y}H{x(7.6)}"/>']
    for second in range(8):
        body.append(text(x(second), 40, f"{second} s", "more"))
    for y in (76, 136):
        body += box(x(0), y - 14, 2 * scale, 28, "incarnation 7") + box(x(2.1), y - 14, 1.5 * scale, 28, "back to the head", "lost")
        body += box(x(3.7), y - 14, 3.7 * scale, 28, "incarnation 8, from head 41", "state")
    body += box(x(0), 182, 2 * scale, 28, "incarnation 7") + box(x(2.5), 182, 1.1 * scale, 28, "starts, joins", "cut")
    body += box(x(3.7), 182, 3.7 * scale, 28, "incarnation 8: its own disk has its part", "state")
    body += [f'<path class="axis" d="M{x(2)} 48V276" stroke-dasharray="4 4"/>', text(x(2) + 6, 55, "kill -9 of worker 2", "bold", "start")]
    for second, name in ((0.6, "head 40"), (1.5, "head 41"), (5.0, "head 42"), (6.0, "head 43")):
        body += box(x(second) - 30, 242, 60, 28, name, "cut")
    body += [text(x(1.75), 294, "behind head 41: done, and not committed", "more"), text(x(5.2), 294, "done again; sinks commit with head 42", "more")]
    body += [text(left, 318, "The kernel tells of a killed process within milliseconds. A cut cable, or a stopped process, is known by its lease, 3 s "
                  "later.", "more", "start"),
             text(left, 333, "Where it does not come back, the others begin without it 3 s later, and share its key groups and partitions.", "more",
                  "start")]
    return svg(900, 348, "The death of a worker, second by second", body)


def rounds():
    """Key groups before and after a round with another number of workers."""
    body = [text(30, 40, "incarnation 8: two workers", "bold", "start"), text(480, 40, "incarnation 9: three workers", "bold", "start")]
    for x, parts in ((30, (("worker 0", 195), ("worker 1", 195))), (480, (("worker 0", 130), ("worker 1", 130), ("worker 2", 130)))):
        for name, width in parts:
            body += box(x, 56, width - 6, 44, name, "state", ["key groups"])
            x += width
    body += box(180, 150, 240, 52, "head 57: a manifest", "cut", ["names the parts of workers 0 and 1"])
    body += [arrow(130, 102, 240, 147, "data"), arrow(320, 102, 300, 147, "data")]
    for x in (540, 670, 800):
        body.append(f'<path class="data" d="M422 176H{x}V104" marker-end="url(#tip)"/>')
    body += [text(640, 196, "each reads what its groups need, from whatever part has them", "more"),
             text(30, 236, "A round begins with a head, at any number of workers. Partitions of sources are shared anew as well.", "more", "start"),
             text(30, 251, "A learner or a file sink, which have one home, may get another one: so all workers must see the sink's directory.", "more",
                  "start")]
    return svg(900, 266, "A round begins with another number of workers", body)


if __name__ == "__main__":
    sys.exit(draw("cluster_pictures.py", {"cluster-event": event, "cluster-death": death, "cluster-round": rounds}))
