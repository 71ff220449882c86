#!/usr/bin/env python3
"""Draws the pictures of docs/serving.md: docs/serving-request.svg, docs/serving-follow.svg, docs/serving-join.svg,
docs/serving-link.svg.

    docs/serving_pictures.py [--check]

--check: changes nothing, and fails where a picture would be another.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

STYLE = """<style>
text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:13px;fill:#1f2328}
.more{font-size:11px;fill:#6e7781}.bold{font-weight:600}.paper{fill:#f6f7f9}.room{fill:#eceff3;stroke:#d0d7de}
.box{fill:#fff;stroke:#8b949e}.state{fill:#d9eee7;stroke:#1f8a70}.cut{fill:#e3ebfb;stroke:#3a6fd8}.lost{fill:#fbe3e3;stroke:#cf3b3b}
.arrow{stroke:#57606a;stroke-width:1.5;fill:none}.data{stroke:#1f8a70;stroke-width:2;fill:none}.axis{stroke:#8b949e}
.head{fill:#57606a}
@media(prefers-color-scheme:dark){text{fill:#e6e9ed}.more{fill:#98a2ad}.paper{fill:#14171b}.room{fill:#1b1f24;stroke:#2c3239}
.box{fill:#22272e;stroke:#7d8792}.state{fill:#1d3a33;stroke:#35b897}.cut{fill:#1f2c49;stroke:#6c9cf5}.lost{fill:#472323;stroke:#f07070}
.arrow{stroke:#98a2ad}.head{fill:#98a2ad}}
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>"""


def svg(width, height, title, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
            f'<title>{title}</title>\n{STYLE}\n<rect class="paper" width="100%" height="100%"/>\n' + "\n".join(body) + "\n</svg>\n")


def text(x, y, words, kind="", anchor="middle"):
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def box(x, y, width, height, words, kind="box", more=()):
    lines = [words, *more]
    first = y + height / 2 + 4.5 - 7.5 * (len(lines) - 1)
    return [f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>',
            *[text(x + width / 2, first + 15 * i, line, "more" if i else "") for i, line in enumerate(lines)]]


def arrow(x, y, to_x, to_y, kind="arrow"):
    return f'<path class="{kind}" d="M{x} {y}L{to_x} {to_y}" marker-end="url(#tip)"/>'


def request():
    """What a request goes through, and what it reads."""
    body = ['<rect class="room" x="250" y="24" width="626" height="206" rx="8"/>', text(262, 42, "leat serve: one thread", "more", "start")]
    clients = [("HTTP/1.1", 50), ("HTTP/2", 110), ("gRPC", 170)]
    for name, y in clients:
        body += box(24, y, 110, 40, name) + [arrow(136, y + 20, 263, 130)]
    body.append(text(196, 44, "one port", "more"))
    steps = [("queue", ["deadline", "shedding"]), ("batch", ["up to 1,024 rows,", "no timer"]), ("features", ["read, change", "nothing"]),
             ("model", ["predict"]), ("answer", ["JSON or", "protobuf"])]
    for number, (name, more) in enumerate(steps):
        x = 270 + number * 120
        body += box(x - 4, 100, 104, 62, name, "box", more)
        if number:
            body.append(arrow(x - 18, 131, x - 6, 131))
    for number, (name, more) in ((2, ("windows, tables", [])), (3, ("rows, weights", []))):
        x = 270 + number * 120
        body += box(x - 8, 190, 112, 28, name, "state", more) + [arrow(x + 48, 188, x + 48, 165, "data")]
    body += [text(470, 258, "Phases of /metrics and --slow: queue, compute (features and model), write", "more")]
    return svg(900, 274, "The way of a request through leat serve", body)


def follow():
    """What a job publishes, and what the server does with it."""
    body = ['<rect class="room" x="20" y="24" width="330" height="230" rx="8"/>', text(32, 42, "leat run", "more", "start"),
            '<rect class="room" x="640" y="24" width="250" height="230" rx="8"/>', text(652, 42, "leat serve", "more", "start")]
    body += box(28, 60, 104, 40, "micro-batch n")
    for lane, y in ((1, 60), (2, 108)):
        body += box(160, y, 76, 40, f"feature", "state", [f"lane {lane}"]) + [arrow(134, 80, 158, y + 20)]
    body += box(262, 84, 74, 40, "learner", "cut") + [arrow(238, 80, 260, 100), arrow(238, 128, 260, 108)]
    body += box(380, 60, 230, 34, "rows that the features got, n", "state")
    body += box(380, 100, 230, 34, "watermarks behind n", "box")
    body += box(380, 140, 230, 34, "cut: what the learner changed", "cut", ["every 20 ms, or 2 % of its time"])
    body += [text(495, 48, "CHECKPOINTS/log: one entry a stage and lane", "more"), arrow(338, 104, 376, 104, "data"), arrow(612, 104, 656, 104, "data")]
    body += box(660, 84, 100, 40, "same steps", "state", ["one instance"]) + box(776, 84, 100, 40, "rows, weights", "cut", ["as they are"])
    body += box(660, 160, 216, 40, "requests read both", "box", ["between two entries"])
    body += [arrow(710, 126, 740, 157, "data"), arrow(826, 126, 796, 157, "data")]
    body += box(36, 196, 300, 36, "checkpoint", "box", ["where following begins"])
    body += [f'<path class="arrow" d="M338 214H650" marker-end="url(#tip)"/>', text(495, 208, "restored once", "more")]
    return svg(910, 274, "What a running job publishes and how leat serve follows", body)


def join():
    """Joining, and beginning again after the job was killed."""
    left, scale = 60, 72
    x = lambda number: left + number * scale
    body = []
    for name, y in (("leat run", 70), ("the log", 140), ("leat serve", 210)):
        body += [text(16, y - 22, name, "more", "start"), f'<path class="axis" d="M{x(0)} {y}H{x(11)}"/>']
    for number in range(11):
        body += box(x(number) + 14, 56, 44, 28, f"{number - 2}'" if number >= 8 else str(number), "lost" if number in (6, 7) else "box")
    body += [text(x(8) + 2, 30, "killed", "bold"), f'<path class="axis" d="M{x(8)} 36V226" stroke-dasharray="4 4"/>']
    for number in (2, 3, 4, 5, 6, 7, 8, 9, 10):
        body += box(x(number) + 14, 126, 44, 28, "", "lost" if number in (6, 7) else "cut")
    body += [text(x(2) + 36, 120, "published from 2 on", "more", "start")]
    body += [arrow(x(4), 86, x(4), 194, "data"), text(x(4) + 6, 104, "checkpoint behind 3", "more", "start")]
    body += [arrow(x(6), 86, x(6), 100), text(x(6) + 6, 104, "checkpoint behind 5", "more", "start")]
    body += box(x(4), 196, 4 * scale, 28, "begins at 4, follows 4, 5, 6, 7", "state")
    body += box(x(8), 196, 1.4 * scale, 28, "answers stay", "lost")
    body += box(x(9) + 0.4 * scale, 196, 1.6 * scale, 28, "from 7' on", "state")
    body += [arrow(x(9) + 0.4 * scale, 86, x(9) + 0.4 * scale, 194, "data"), text(x(9) + 36, 104, "a new checkpoint", "more", "start")]
    body += [text(left, 250, "6 and 7 were in no checkpoint: the next life decides them anew. What the server had of them is not mixed with "
                  "that: it begins again.", "more", "start")]
    return svg(900, 266, "Joining a running job, and beginning again after it was killed", body)


def link():
    """What a server on another machine has of the job's directory, and how it comes there."""
    body = []
    for x, width, name in ((20, 380, "machine A"), (520, 360, "machine B")):
        body += [f'<rect class="room" x="{x}" y="24" width="{width}" height="246" rx="8"/>', text(x + 12, 42, name, "more", "start")]
    body += box(36, 56, 96, 44, "leat run") + box(36, 190, 96, 60, "leat serve", "box", ["--link-listen"])
    body += box(250, 56, 134, 44, "CHECKPOINTS", "state", ["checkpoints, tables"]) + box(250, 112, 134, 44, "CHECKPOINTS/log", "cut", ["segments"])
    body += [arrow(134, 74, 247, 74, "data"), arrow(134, 86, 247, 128, "data"), text(190, 66, "writes", "more")]
    body += [arrow(262, 158, 134, 206, "data"), text(236, 190, "reads", "more"), arrow(84, 188, 84, 103),
             text(90, 150, "follows in the", "more", "start"), text(90, 164, "mirror's name", "more", "start")]
    body += box(540, 190, 96, 60, "mirror", "box", ["threads of", "leat serve"])
    body += [arrow(537, 210, 136, 214), text(460, 204, "GET: next bytes?", "more"), arrow(134, 238, 536, 234, "data"),
             text(460, 256, "bytes, with a digest", "more")]
    body += box(726, 56, 138, 44, "CHECKPOINTS.link", "state", ["the newest chain"]) + box(726, 112, 138, 44, "log", "cut", ["the same bytes"])
    body += [arrow(620, 188, 722, 86, "data"), arrow(630, 188, 723, 140, "data")]
    body += box(768, 190, 96, 60, "answers", "box", ["as beside", "the job"]) + [arrow(816, 158, 816, 187, "data"),
             '<path class="data" d="M866 78H873V220H867" marker-end="url(#tip)"/>']
    return svg(900, 290, "Serving on another machine: a mirror of the checkpoint directory", body)


def draw(script, pictures):
    """Writes the pictures, functions by the names of their files in docs/; with --check compares them. Returns the exit status."""
    is_good = True
    for name, picture in pictures.items():
        path = os.path.join(HERE, f"{name}.svg")
        if "--check" in sys.argv:
            with open(path, encoding="utf-8") as file:
                is_good &= file.read() == picture()
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(picture())
    print("ok - pictures" if is_good else f"not ok - a picture would be another: run docs/{script}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(draw("serving_pictures.py", {"serving-request": request, "serving-follow": follow, "serving-join": join, "serving-link": link}))
