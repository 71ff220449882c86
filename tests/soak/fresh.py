#!/usr/bin/env python3
"""A fresh machine: a bare Debian in a folder, this checkout in it, and README.md's commands as a newcomer gives them.

    ./dev soak fresh [--tree] [--only demo,test,live] [--suite NAME] [--folder DIR] [--keep]

debootstrap makes the machine, from where apt on this one fetches (its sources, keys, Acquire settings, its own
certificates, pip's and Maven's settings are copied). `./dev demo` and `./dev test` run in it, then the section "Live";
what they print is shown. Processes and mounts are in namespaces of their own: they end with this program, however that
ends. The folder is removed, on Ctrl-C, too. Needs root. Some 45 minutes on two cores.
"""

import argparse
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import planting  # noqa: E402

CHECKOUT = "/root/leat"
SUITE = "bookworm"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What a machine behind a proxy tells its programs; and how many processes build and test.
PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "LEAT_JOBS", "PIP_INDEX_URL",
             "PIP_DEFAULT_TIMEOUT", "TERM")
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.S)


def say(text):
    print(f"\033[1m==> {text}\033[0m" if sys.stdout.isatty() else f"==> {text}", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="./dev soak fresh", description=__doc__.split("\n")[0],
                                     epilog="\n".join(__doc__.split("\n")[4:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", action="store_true", help="takes the working tree instead of the last commit")
    parser.add_argument("--only", default="demo,test,live", metavar="A,B",
                        help="parts to run, of demo, test, live (default: all)")
    parser.add_argument("--suite", default=SUITE, help=f"suite of Debian (default: {SUITE})")
    parser.add_argument("--folder", metavar="DIR",
                        help="folder for the machine; must not exist (default: a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="keeps the folder, for a look with chroot")
    parser.add_argument("--inside", metavar="DIR", help=argparse.SUPPRESS)  # what the namespaces begin with
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    if set(arguments.only) - {"demo", "test", "live"}:
        parser.error("--only takes demo, test and live")
    return arguments


# --- The machine ---

def mirror(suite):
    """Where apt on this machine has the suite from."""
    said = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)"], capture_output=True, text=True,
                          check=True).stdout
    sites = [line.split()[0] for line in said.splitlines() if line.split()[1:] == [suite]]
    if not sites:
        sys.exit(f"soak fresh: apt on this machine has no source of {suite}; --suite names another")
    return sites[0]


def copy_into(machine, pattern, wanted=lambda path: True):
    for path in glob.glob(pattern):
        target = machine + path
        if os.path.isfile(path) and wanted(path):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(path, target)


def only_fetches(path):
    """Whether a part of apt's configuration says nothing but how to fetch."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip() and not line.strip().startswith(("//", "#"))]
    return bool(lines) and all(line.startswith("Acquire::") for line in lines)


def own_certificates():
    """Those that this machine trusts and Debian does not: of whoever stands between it and the world."""
    def read(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            return CERTIFICATE.findall(file.read())
    known = {"".join(c.split()) for path in glob.glob("/usr/share/ca-certificates/**/*.crt", recursive=True)
             for c in read(path)}
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    return [c for c in (read(bundle) if os.path.exists(bundle) else []) if "".join(c.split()) not in known]


def configure(machine):
    os.unlink(machine + "/etc/apt/sources.list")  # debootstrap's; this machine's come instead
    for path in ("/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources",
                 "/etc/apt/trusted.gpg.d/*", "/etc/apt/auth.conf.d/*", "/etc/apt/keyrings/*", "/etc/resolv.conf", "/etc/hosts",
                 "/etc/pip.conf", "/root/.m2/settings.xml"):
        copy_into(machine, path)
    copy_into(machine, "/etc/apt/apt.conf.d/*", only_fetches)
    for i, certificate in enumerate(own_certificates()):
        path = f"{machine}/usr/local/share/ca-certificates/of-this-machine-{i}.crt"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(certificate + "\n")


def check_out(machine, is_tree):
    target = machine + CHECKOUT
    if is_tree:
        planting.make_copy(target)
        return "the working tree"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, target], check=True)
    return subprocess.run(["git", "-C", target, "log", "-1", "--format=%h %s"], capture_output=True, text=True,
                          check=True).stdout.strip()


def mount(machine):
    for arguments in (["-t", "proc", "proc", machine + "/proc"], ["-t", "sysfs", "-o", "ro", "sys", machine + "/sys"],
                      ["--rbind", "/dev", machine + "/dev"], ["-t", "tmpfs", "shm", machine + "/dev/shm"]):
        subprocess.run(["mount", *arguments], check=True)


# --- The newcomer ---

def run(machine, title, command):
    """Runs it as in a shell of the new machine; how it ended, and after how many seconds."""
    environment = {"PATH": PATH, "HOME": "/root", **{name: os.environ[name] for name in PASSED_ON if name in os.environ}}
    say(title)
    begin = time.monotonic()
    status = subprocess.run(["chroot", machine, "/bin/bash", "-c", f"cd {CHECKOUT}\n{command}"], env=environment,
                            stdin=subprocess.DEVNULL, check=False).returncode
    return title, status, time.monotonic() - begin


def live_section():
    """The first block of commands of README.md's section "Live"."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        section = re.search(r"^## Live\n(.*?)^## ", file.read(), re.M | re.S)[1]
    return re.search(r"^```sh\n(.*?)^```$", section, re.M | re.S)[1]


def inside(arguments):
    """In the namespaces: makes the machine, and uses it."""
    machine = arguments.inside
    say(f"debootstrap: {arguments.suite} in {machine}")
    begin = time.monotonic()
    subprocess.run(["debootstrap", "--variant=minbase", arguments.suite, machine, mirror(arguments.suite)],
                   stdout=subprocess.DEVNULL, check=True)
    configure(machine)
    mount(machine)
    results = [("debootstrap", 0, time.monotonic() - begin)]
    say(f"the checkout: {check_out(machine, arguments.tree)}")
    if "demo" in arguments.only:
        results.append(run(machine, "./dev demo", "./dev demo"))
    if "test" in arguments.only:
        results.append(run(machine, "./dev test", "./dev test"))
    if "live" in arguments.only:
        built = "" if {"demo", "test"} & set(arguments.only) else "./dev setup && ./dev build >/dev/null && "
        results.append(run(machine, "README.md's section Live",
                           f'{built}export PATH=$PWD/build/release:$PATH\nset -ex\n{live_section()}'))
    for title, status, seconds in results:
        print(f"{'ok' if status == 0 else 'not ok'} - soak fresh: {title}: {seconds:.0f} s"
              + (f", status {status}" if status else ""), flush=True)
    return 1 if any(status for _, status, _ in results) else 0


def first_process(work):
    """What the first process of a PID namespace does: processes whose parents have ended become its children, and
    would stay as zombies if nobody waited for them. `work` runs in a child; returns its status."""
    worker = os.fork()
    if worker == 0:
        os._exit(work())
    while True:
        pid, status = os.wait()
        if pid == worker:
            return os.waitstatus_to_exitcode(status)


def main():
    arguments = parse_arguments()
    if os.geteuid() != 0:
        sys.exit("soak fresh: needs root, to make a Debian in a folder: sudo ./dev soak fresh")
    if arguments.inside:
        return first_process(lambda: inside(arguments))
    missing = [name for name in ("debootstrap", "unshare", "chroot") if shutil.which(name, path=PATH) is None]
    if missing:
        sys.exit(f"soak fresh: {' and '.join(missing)} is not installed: apt-get install debootstrap util-linux")
    folder = arguments.folder or tempfile.mkdtemp(prefix="leat-fresh-", dir="/var/tmp")
    if arguments.folder:
        os.makedirs(folder)
    os.chmod(folder, 0o755)  # it is the root directory of the machine's users
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", sys.executable,
               os.path.abspath(__file__), "--inside", os.path.abspath(folder), "--suite", arguments.suite, "--only",
               ",".join(arguments.only)] + ["--tree"] * arguments.tree
    stopped = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stopped.append(number))
    process = subprocess.Popen(command, start_new_session=True)
    try:
        while process.poll() is None and not stopped:
            time.sleep(0.2)
    finally:
        if process.poll() is None:
            process.kill()  # and with it every process in there, and so every mount
        process.wait()
        if arguments.keep:
            say(f"left: {folder}")
        else:
            say(f"removing {folder}")
            shutil.rmtree(folder, ignore_errors=True)
    return 130 if stopped else process.returncode


if __name__ == "__main__":
    sys.exit(main())
