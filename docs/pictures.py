#!/usr/bin/env python3
"""Makes the pictures of the README from a real run: docs/live-view.svg and docs/learning-curve.svg.

    docs/pictures.py LEAT [EVENTS]

Runs jobs/ctr.leat in a terminal of its own (100 columns), keeps the picture that stands at half of the way, and draws the
progressive logloss of the predictions it wrote.
"""

import html
import json
import math
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
JOB = os.path.join(HERE, "..", "jobs", "ctr.leat")
COLUMNS, LINE, CHARACTER = 100, 17, 7.85


def run_in_terminal(command, folder):
    """Everything the program wrote to its terminal."""
    master, slave = pty.openpty()
    import fcntl, struct, termios
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    process = subprocess.Popen(command, cwd=folder, stdin=slave, stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    output = b""
    while True:
        ready, _, _ = select.select([master], [], [], 0.2)
        if ready:
            try:
                output += os.read(master, 65536)
            except OSError:
                break
        elif process.poll() is not None:
            break
    if process.wait() != 0:
        sys.exit(output.decode("utf-8", "replace")[-2000:])
    return output.decode("utf-8", "replace")


def frames(output):
    """The pictures that the view drew, each a list of lines."""
    drawn = re.split(r"\x1b\[\d+A\r", output)
    clean = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame).replace("\r", "").rstrip("\n").split("\n") for frame in drawn]
    return [frame for frame in clean if len(frame) > 3]


def text_svg(lines):
    width = COLUMNS * CHARACTER + 24
    height = len(lines) * LINE + 24
    body = "".join(
        f'<text x="12" y="{24 + i * LINE}" xml:space="preserve">{html.escape(line)}</text>\n' for i, line in enumerate(lines))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
            f'viewBox="0 0 {width:.0f} {height}">\n'
            f'<rect width="100%" height="100%" rx="8" fill="#1b1f24"/>\n'
            f'<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13" fill="#d6dde6">\n{body}</g>\n</svg>\n')


def losses(path):
    with open(path) as f:
        for line in f:
            row = json.loads(line)
            p = min(max(row["prediction"], 1e-7), 1 - 1e-7)
            yield -math.log(p if row["clicked"] else 1 - p)


def curve_svg(path, truth):
    """Running mean over the last seventh of the events, between the two limits."""
    values = list(losses(path))
    window = max(1, len(values) // 7)  # with a million events a day, so that the hours even out
    sums, total, points = 0.0, [], []
    for i, value in enumerate(values):
        sums += value - (values[i - window] if i >= window else 0)
        if i + 1 >= window and i % max(1, len(values) // 400) == 0:
            points.append((i / len(values), sums / window))
    base, bayes = truth["base_rate_logloss"], truth["bayes_logloss"]
    low, high = bayes - 0.01, max(base, max(y for _, y in points)) + 0.01
    width, height, left, top = 760, 300, 64, 20

    def place(x, y):
        return left + x * (width - left - 20), top + (high - y) / (high - low) * (height - top - 44)

    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in (place(x, y) for x, y in points))
    marks = ""
    for y, name in ((base, "knows the click rate alone"), (bayes, "knows each probability")):
        a, b = place(0, y)
        marks += (f'<line x1="{left}" y1="{b:.1f}" x2="{width - 20}" y2="{b:.1f}" stroke="#8a94a0" stroke-dasharray="4 4"/>'
                  f'<text x="{width - 24}" y="{b - 6:.1f}" text-anchor="end" fill="#6a7480">{name}: {y:.4f}</text>\n')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
            f'<rect width="100%" height="100%" fill="#ffffff"/>\n<g font-family="sans-serif" font-size="12">\n{marks}'
            f'<polyline points="{line}" fill="none" stroke="#2563c9" stroke-width="2"/>\n'
            f'<text x="{left}" y="{height - 12}" fill="#444">0</text>'
            f'<text x="{width - 20}" y="{height - 12}" text-anchor="end" fill="#444">{len(values):,} events</text>'
            f'<text transform="translate(16 {height / 2 - 10:.0f}) rotate(-90)" text-anchor="middle" fill="#444">logloss before learning</text>\n'
            f'</g>\n</svg>\n')


def main():
    leat = os.path.abspath(sys.argv[1])
    events = sys.argv[2] if len(sys.argv) > 2 else "1000000"
    folder = tempfile.mkdtemp()
    try:
        subprocess.run([leat, "generate", "ctr", "--events", events, "--out", "data/ctr", "--duplicates", "0.01",
                        "--malformed", "0.001"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        pictures = frames(run_in_terminal([leat, "run", os.path.abspath(JOB)], folder))
        with open(os.path.join(HERE, "live-view.svg"), "w") as f:
            f.write(text_svg(pictures[len(pictures) * 3 // 4]))
        with open(os.path.join(folder, "data", "ctr", "truth.json")) as f:
            truth = json.load(f)
        with open(os.path.join(HERE, "learning-curve.svg"), "w") as f:
            f.write(curve_svg(os.path.join(folder, "out", "scored.jsonl"), truth))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
