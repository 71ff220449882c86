#!/usr/bin/env python3
"""`leat help device`: what is said of this machine's CPU, of devices that are there, and why one cannot be used.

    tests/help/test_help_device.py PATH_OF_LEAT PATH_OF_FAKE_LIBRARY
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import tap  # noqa: E402

LEAT, FAKE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
with open(os.path.join(ROOT, "kernels", "gpu.h"), encoding="utf-8") as header:
    VERSION = int(re.search(r"GPU_API_VERSION = (\d+)", header.read())[1])


def device(*arguments, fake=None, library=None, leat=LEAT, **environment):
    """Status, output and errors of `leat help device ARGUMENT...` with a fake library, another, or the built one."""
    environment = {**os.environ, **environment, "LEAT_CUDA_LIBRARY": FAKE if fake else library or "",
                   "LEAT_FAKE_DEVICES": fake or ""}
    result = subprocess.run([leat, "help", "device", *arguments], capture_output=True, text=True, check=False,
                            env=environment)
    return result.returncode, result.stdout, result.stderr


def words(text):
    return re.sub(r"\s+", " ", text)


def said(*arguments, **options):
    status, text, errors = device(*arguments, **options)
    assert status == 0 and not errors, (status, errors)
    assert all(len(line) <= 100 for line in text.split("\n") if "/" not in line), text
    return text


def test_devices_that_are_there():
    text = said(fake="two")
    head, rest = text.split("\n\n")[:2]
    assert head == "device: what kernels run on, as found on this machine"
    assert [line.split()[0] for line in rest.split("\n") if line[2] != " "] == ["cpu", "cuda", "cuda(0)", "cuda(1)"], text
    assert "device library of CUDA 13.0, driver for 13.1" in words(text)
    assert "cuda(0) A device of 2022, sm_90, 141.0 GiB, 140.0 of them free" in words(text), text
    assert "cuda(1) A device of 2016, not usable: too old. It has compute capability 6.1." in words(text), text
    assert text == said(fake="two") and "device: " in subprocess.run([LEAT, "help"], capture_output=True, text=True,
                                                                     check=True).stdout


def test_one_device():
    assert said("cuda(0)", fake="two") == """device cuda(0): A device of 2022

  capability  9.0 (sm_90); at least 8.0 is needed
  memory      141.0 GiB, 140.0 of them free
  cores       132 multiprocessors, 50 MiB of second-level cache
  library     of CUDA 13.0; the driver supports CUDA up to 13.1
  usable      yes
"""
    assert said("cuda(1)", fake="two").endswith("  usable      no: too old\n\n  It has compute capability 6.1.\n")
    assert said("cuda(0)", fake="busy").endswith("  usable      no: failed\n\n  Somebody has it for himself.\n")
    text = said("cuda", fake="two")
    assert FAKE in text and "supports CUDA up to 13.1" in text and "devices     2\n" in text, text


def test_unknown_devices():
    for name in ("cuda(2)", "cuda(-1)", "cuda(0", "cuda(0)x", "cuda( 0)", "gpu", ""):
        status, text, errors = device(name, fake="two")
        assert status == 2 and text == "" and f"error[E1001]: there is no device `{name}`" in errors, (name, errors)
        assert "`leat help device` lists" in errors
    status, _, errors = device("cuda", "0", fake="two")
    assert status == 2 and "at most" in errors


def test_why_there_is_none():
    for fake, failure, why in (("none", "no such device", "shows no device"), ("driver", "no driver", "up to 12.4"),
                               ("version", "no device library", f"interface version {VERSION} was expected, {VERSION + 1} found")):
        for arguments in ((), ("cuda",), ("cuda(0)",)):
            text = words(said(*arguments, fake=fake))
            assert failure in text and why in text, (fake, arguments, text)
        assert "cuda(0)" not in said(fake=fake)
        assert "supported" in said("cpu", fake=fake)


def test_libraries_that_are_none():
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.so")
        with open(text, "w", encoding="utf-8") as file:
            file.write("no library")
        other = shutil.copy("/proc/self/exe", os.path.join(folder, "program"))
        for library in (os.path.join(folder, "nothing.so"), text, other):
            assert "not usable: no device library. " in words(said(library=library)), library
        # Beside the program there is none.
        alone = shutil.copy(LEAT, os.path.join(folder, "leat"))
        found = words(said(leat=alone))
        assert "leat_cuda.so is not there" in found or "was built without CUDA" in found, found
        # There is one, and the program finds it by itself.
        shutil.copy(FAKE, os.path.join(folder, "leat_cuda.so"))
        assert "cuda(0) A device of 2022, not usable" in words(said(leat=alone)), said(leat=alone)


def test_this_machine():
    text = words(said())
    assert re.search(r"cuda (not usable: [a-z ]+\. |device library of CUDA 1)", text), text
    built = os.path.join(os.path.dirname(LEAT), "leat_cuda.so")
    if os.path.exists(built) and not os.path.exists("/dev/nvidiactl"):
        assert "not usable: no driver. There is no NVIDIA driver on this machine" in text, text


def test_cpu():
    text = said("cpu")
    assert [line.split()[0] for line in text.split("\n") if line[:3] == "  s" or line[:3] == "  a"] == [
        "scalar", "avx2", "avx512"], text
    assert text.count("supported, and used") == 1 and said().count("(used)") == 1
    assert re.search(r"scalar +supported, and used", said("cpu", LEAT_KERNELS="scalar"))
    assert "scalar (used)" in said(LEAT_KERNELS="scalar")
    status, _, errors = device(LEAT_KERNELS="mmx")
    assert status == 2 and "LEAT_KERNELS: not a kernel variant" in errors, errors


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
