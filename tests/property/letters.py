#!/usr/bin/env python3
"""upper() and lower() of every code point, against Python's str.upper and str.lower.

    tests/property/letters.py PATH_OF_LEAT

leat maps one code point to one (Unicode's simple mappings), Python to as many as it takes: where those are several, the
simple mapping is the title case, if that is one code point, or the letter stays. Letters that are newer than Python's
Unicode are left out.
"""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unicodedata

LEAT = os.path.abspath(sys.argv[1])
EACH = 16  # code points of a text
DOTTED_I = "\u0130"  # the only one with several small letters, whose simple mapping no function of Python has
JOB = """
job letters { workers: 1 }
source s = file { path: "in.jsonl", schema: { t: text } }
stream d = s | select t, u = upper(t), l = lower(t)
sink o = file from d { path: "out.jsonl" }
"""


def simple(mapped, letter):
    title = letter.title()
    return mapped if len(mapped) == 1 else title if len(title) == 1 else letter


def upper(letter):
    return simple(letter.upper(), letter)


def lower(letter):
    return "i" if letter == DOTTED_I else letter.lower()


def is_newer(letter):
    return unicodedata.category(letter) == "Cn"


def compare(texts, rows):
    """The number of code points compared, and what differs."""
    compared, wrong = 0, []
    assert len(texts) == len(rows)
    for text, row in zip(texts, rows):
        assert row["t"] == text and len(row["u"]) == len(row["l"]) == len(text), row
        for letter, up, low in zip(text, row["u"], row["l"]):
            if is_newer(letter) or is_newer(up) or is_newer(low):
                continue
            compared += 1
            if (up, low) != (upper(letter), lower(letter)):
                wrong.append(f"U+{ord(letter):04X}: upper U+{ord(up):04X}, lower U+{ord(low):04X}")
    return compared, wrong


def version(text):
    return tuple(int(part) for part in text.split("."))


def main():
    of_leat = re.search(r"Unicode (\d+\.\d+)", subprocess.run([LEAT, "help", "types"], capture_output=True, text=True, check=True).stdout)
    if version(unicodedata.unidata_version)[:2] > version(of_leat.group(1)):
        print(f"Python has Unicode {unicodedata.unidata_version}, newer than leat's {of_leat.group(1)}")
        return 77
    letters = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
    texts = ["".join(letters[i:i + EACH]) for i in range(0, len(letters), EACH)]
    random.Random(1).shuffle(letters)  # beside letters of other lengths in bytes, too
    texts += ["".join(letters[i:i + EACH]) for i in range(0, len(letters) // 10, EACH)]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="utf-8") as file:
            file.write(JOB)
        with open(os.path.join(folder, "in.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"t": text}, ensure_ascii=False) + "\n" for text in texts)
        subprocess.run([LEAT, "run", "job.leat", "--quiet"], cwd=folder, check=True, capture_output=True)
        with open(os.path.join(folder, "out.jsonl"), encoding="utf-8", newline="\n") as file:
            rows = [json.loads(line) for line in file]
    compared, wrong = compare(texts, rows)
    print(f"{'not ok' if wrong else 'ok'} - letters: {compared:,} code points, Unicode {unicodedata.unidata_version} and {of_leat.group(1)}")
    for line in wrong[:20]:
        print(f"#   {line}")
    return 1 if wrong or compared < 280_000 else 0


if __name__ == "__main__":
    sys.exit(main())
