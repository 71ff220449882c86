"""Runs a module's functions named test_*: a TAP line for each, with the line and text of what failed. A test that cannot
be made here returns why."""

import concurrent.futures
import os
import shutil
import traceback


def run(module, threads=1):
    """module: its globals(). threads: that many tests at once, of those that mostly wait. Returns the exit status."""
    tests = [(name, test) for name, test in module.items() if name.startswith("test_")]
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return 0 if all(list(pool.map(lambda one: run_one(*one), tests))) else 1


def run_one(name, test):
    try:
        why = test()
        print(f"ok - {name}" + (f" # SKIP {why}" if why else ""), flush=True)
        return True
    except Exception as error:  # pylint: disable=broad-except
        what = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        frames = traceback.extract_tb(error.__traceback__)[1:]
        place = ", from ".join(f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in reversed(frames))
        what = what if len(what) < 3000 else f"{what[:600]} ... {what[-2400:]}"  # what was said last is at its end
        print(f"not ok - {name}\n#   {place}: {what}", flush=True)
        return False


def for_all_users(program, folder):
    """A copy of the program in the folder that other users may run, too, wherever this checkout lies. Its path."""
    os.chmod(folder, 0o755)
    path = os.path.join(folder, os.path.basename(program))
    if not os.path.exists(path):
        shutil.copy(program, path)
        os.chmod(path, 0o755)
    return path
