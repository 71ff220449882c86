#!/usr/bin/env python3
"""leat_cuda.so as nvcc built it: what it shows, what it needs, and for which devices it has code.

    tests/device/test_library.py [PATH_OF_LEAT_CUDA_SO]
"""

import ctypes
import os
import re
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402

LIBRARY = sys.argv[1] if len(sys.argv) > 1 else None
FATBIN_MAGIC = 0xBA55ED50
PTX, CUBIN = 1, 2


def readelf(*options):
    return subprocess.run(["readelf", "-W", *options, LIBRARY], capture_output=True, text=True, check=True).stdout


def test_it_was_built():
    if LIBRARY is None:
        return "leat_cuda.so was not built: no nvcc, or LEAT_CUDA=OFF; ./dev setup --cuda"
    assert os.path.getsize(LIBRARY) > 100_000
    return None


def test_it_shows_one_symbol():
    if LIBRARY is None:
        return "not built"
    shown = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in shown.splitlines()] == ["leat_gpu_api"], shown
    return None


def test_it_needs_no_library_of_cuda():
    if LIBRARY is None:
        return "not built"
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d"))
    assert "libc.so.6" in needed and not [name for name in needed if re.search("cuda|nv", name)], needed
    assert "RUNPATH" not in readelf("-d") and "RPATH" not in readelf("-d")
    # So that it opens without a GPU, and answers.
    function = ctypes.CDLL(LIBRARY).leat_gpu_api
    function.restype = ctypes.POINTER(ctypes.c_uint32)
    assert function()[0] >= 1
    return None


def codes(data):
    """(kind, architecture, bytes) of what a section .nv_fatbin holds: fat binaries behind each other, each a header (magic,
    version, header's size, size) and entries (kind, version, header's size, size; the architecture is at byte 28)."""
    found, at = [], 0
    while at + 16 <= len(data):
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if magic != FATBIN_MAGIC:
            at += 8  # they are aligned
            continue
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, entry_header, entry_size = struct.unpack_from("<HHIQ", data, entry)
            found.append((kind, struct.unpack_from("<I", data, entry + 28)[0], entry_size))
            entry += entry_header + entry_size
        at = end
    return found


def test_it_has_code_for_hopper_and_ptx():
    if LIBRARY is None:
        return "not built"
    section = re.search(r"\] \.nv_fatbin +\S+ +\S+ (\w+) (\w+)", readelf("-S"))
    assert section, "there is no section .nv_fatbin"
    with open(LIBRARY, "rb") as file:
        file.seek(int(section.group(1), 16))
        found = codes(file.read(int(section.group(2), 16)))
    kinds = {(kind, architecture) for kind, architecture, _ in found}
    assert kinds == {(CUBIN, 90), (PTX, 80)}, kinds
    cubins = [size for kind, _, size in found if kind == CUBIN]
    assert len(cubins) * 2 == len(found) and max(cubins) > 2_000, found
    return None


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
