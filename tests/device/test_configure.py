#!/usr/bin/env python3
"""LEAT_CUDA=AUTO, ON and OFF, with no nvcc, with ones that cannot be used, and with one that can: what CMake says and does.
`kernels` alone is configured, not built."""

import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import tap  # noqa: E402

OLD = "echo 'Cuda compilation tools, release 12.4, V12.4.131'"
NEW = "echo 'Cuda compilation tools, release 13.1, V13.1.5'"
BROKEN = "echo 'cannot find libdevice' >&2; exit 1"
HAS_OWN = os.path.exists("/usr/local/cuda/bin/nvcc")


class Place:
    """A folder with what one configuring sees: programs in PATH, an nvcc of CUDACXX, a toolkit."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {k: v for k, v in os.environ.items() if k != "CUDACXX"}
        self.environment["PATH"] = os.path.join(folder, "bin") + ":" + ":".join(
            path for path in os.environ["PATH"].split(":") if not os.path.exists(os.path.join(path, "nvcc")))

    def nvcc(self, folder, script, has_run_time=True, has_cublas=True):
        path = os.path.join(self.folder, folder, "nvcc")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + script + "\n")
        os.chmod(path, 0o755)
        root = os.path.dirname(os.path.dirname(path))
        for there, name in ((has_run_time, "lib64/libcudart_static.a"), (has_cublas, "include/cublasLt.h")):
            if there:
                os.makedirs(os.path.join(root, os.path.dirname(name)), exist_ok=True)
                open(os.path.join(root, name), "w", encoding="utf-8").close()
        return path

    def configure(self, *options):
        done = subprocess.run(["cmake", "-S", os.path.join(ROOT, "kernels"), "-B", os.path.join(self.folder, "build"),
                               "-DLEAT_CUDA_TOOLKIT=" + os.path.join(self.folder, "toolkit"), *options], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.environment)
        return done.returncode, " ".join(done.stdout.split())


def test_without_an_nvcc():
    if HAS_OWN:
        return "/usr/local/cuda has an nvcc"
    with tempfile.TemporaryDirectory() as folder:
        place = Place(folder)
        status, said = place.configure()
        assert status == 0 and "CUDA: no nvcc; without the device library (`./dev setup --cuda` installs one)" in said, said
        status, said = place.configure("-DLEAT_CUDA=ON")
        assert status != 0 and "LEAT_CUDA=ON, and there is no nvcc of CUDA 13.0 or later" in said, said
        assert "`./dev setup --cuda` installs one" in said, said
        # It is looked for anew: one that was installed since is found.
        place.nvcc("toolkit/lib/python3.9/site-packages/nvidia/cu13/bin", NEW)
        status, said = place.configure("-DLEAT_CUDA=AUTO")
        assert status == 0 and "CUDA 13.1: " in said, said
    return None


def test_those_that_cannot_be_used():
    with tempfile.TemporaryDirectory() as folder:
        place = Place(folder)
        place.nvcc("bin", OLD)
        place.environment["CUDACXX"] = place.nvcc("named", BROKEN)
        if not HAS_OWN:
            status, said = place.configure("-DLEAT_CUDA=ON")
            assert status != 0 and "named/nvcc: cannot be run: cannot find libdevice" in said, said
            assert "bin/nvcc: CUDA 12.4, and 13.0 is needed" in said, said
        place.environment["CUDACXX"] = place.nvcc("other/bin", NEW, has_run_time=False)
        status, said = place.configure("-DLEAT_CUDA=ON")
        assert status != 0 and "but no libcudart_static.a beside it" in said, said
        place.environment["CUDACXX"] = place.nvcc("without/bin", NEW, has_cublas=False)
        status, said = place.configure("-DLEAT_CUDA=ON")
        assert status != 0 and "but no cublasLt.h beside it" in said, said
        status, said = place.configure("-DLEAT_CUDA=yes")
        assert status != 0 and "LEAT_CUDA is yes; it has to be AUTO, ON or OFF" in said, said


def test_which_one_is_taken():
    with tempfile.TemporaryDirectory() as folder:
        place = Place(folder)
        path = place.nvcc("bin", NEW)
        status, said = place.configure("-DLEAT_CUDA=ON")
        assert status == 0 and f"CUDA 13.1: {path}" in said, said
        named = place.environment["CUDACXX"] = place.nvcc("named/bin", NEW)
        status, said = place.configure("-DLEAT_CUDA=ON")
        assert status == 0 and f"CUDA 13.1: {named}" in said, said
        status, said = place.configure("-DLEAT_CUDA=OFF")
        assert status == 0 and "CUDA" not in said, said


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
