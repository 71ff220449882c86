#!/usr/bin/env python3
"""No global name of leat is defined twice: of two static libraries the linker takes whichever comes first, and says nothing.
Looks into what was built: each library, and the objects of the program itself. Prints TAP.

    tests/tidy/twins.py BUILD_FOLDER
"""

import os
import subprocess
import sys
from collections import defaultdict

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
STRONG = set("ABCDGRST")  # nm's letters; weak ones (V, W, u) are C++'s, which may be there many times
PROGRAM = os.path.join("engine", "cli", "CMakeFiles", "leat.dir")
LIBRARIES_LEAST, NAMES_LEAST = 10, 1000


def twins(lines):
    """{name: objects} of those that several objects define, and how many names there are, from lines of `nm -A`."""
    places = defaultdict(set)
    for line in lines:
        place, rest = line.rsplit(":", 1)
        *_, kind, name = rest.split()
        if kind in STRONG:
            places[name].add(place)
    return {name: sorted(where) for name, where in places.items() if len(where) > 1}, len(places)


def files():
    """The libraries and the program's objects, without those of tests, which may stand in for leat's."""
    libraries, objects = [], []
    for folder, folders, names in os.walk(BUILD):
        if folder == BUILD:
            folders[:] = [name for name in folders if name not in ("tests", "bench")]
        libraries += [os.path.join(folder, name) for name in names if name.endswith(".a")]
        if os.path.relpath(folder, BUILD).startswith(PROGRAM):
            objects += [os.path.join(folder, name) for name in names if name.endswith(".o")]
    return libraries, objects


def test_planted_ones_are_found():
    lines = ["a.a:x.o:0000000000000010 T log_since", "b.a:y.o:0000000000000000 T log_since", "b.a:y.o:0000000000000000 D own",
             "a.a:x.o:0000000000000000 W weak", "b.a:y.o:0000000000000000 W weak", "a.a:x.o:0000000000000008 C table",
             "c.o:0000000000000000 R table"]
    assert twins(lines) == ({"log_since": ["a.a:x.o", "b.a:y.o"], "table": ["a.a:x.o", "c.o"]}, 3), twins(lines)


def test_each_name_is_defined_once():
    libraries, objects = files()
    assert len(libraries) >= LIBRARIES_LEAST and objects, (libraries, objects)
    said = subprocess.run(["nm", "-A", "-g", "--defined-only", *libraries, *objects], capture_output=True, text=True, check=True)
    found, names = twins(line for line in said.stdout.split("\n") if len(line.split()) > 2)
    assert names >= NAMES_LEAST, names
    assert not found, found


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
