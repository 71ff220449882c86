"""The names of all operators, from their descriptors, as operators/CMakeLists.txt finds them."""

import glob
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def operators():
    names = []
    for path in glob.glob(os.path.join(ROOT, "operators", "**", "*.c"), recursive=True):
        with open(path, encoding="utf-8") as file:
            names += re.findall(r"^const struct operator_kind operator_(\w+) =", file.read(), re.M)
    return sorted(names)
