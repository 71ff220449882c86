"""Places where processes of a test run, so that a test can cut the ways between them.

    network.enter()                          # first of all: what follows runs in namespaces of its own, where there are rights for them
    with network.Network(["w0", "w1"]) as net:
        w0, w1 = net.places
        subprocess.Popen([*w0.prefix, PROGRAM, ...])     # it runs at w0.address
        w0.block([w1]); net.mend()

With rights (root, or user namespaces) each place is a network namespace with an address 10.77.0.x, on a bridge in the namespace that enter()
made; this process is at 10.77.0.1. Nothing of it shows outside, and all of it goes when the last process in it ends, however that
happens. Without them a place is an address 127.0.0.x, and nothing can be cut: `why_not` says so.
"""

import contextlib
import os
import subprocess
import sys

INSIDE = "LEAT_NETWORK"  # set by enter(): "yes", or why there are no namespaces
HUB, FIRST = "10.77.0.1", 20


def run(*words):
    subprocess.run(words, check=True, capture_output=True, text=True)


def unshare_words():
    """How a command gets namespaces of its own."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--"]


def why_not():
    """Why there are no namespaces here; None: there are."""
    found = os.environ.get(INSIDE, "the test has not asked for them")
    return None if found == "yes" else found


def enter():
    """Begins this program again, in namespaces of its own; returns there, or at once where there are none."""
    if INSIDE in os.environ:
        return
    tried = None
    with contextlib.suppress(FileNotFoundError):
        tried = subprocess.run([*unshare_words(), "sh", "-c", "mount -t tmpfs none /run && ip link add name hub type bridge && ip netns add a"],
                               capture_output=True, text=True, check=False)
    if tried is None or tried.returncode != 0:
        os.environ[INSIDE] = "no network namespaces: " + ((tried.stderr.strip() or "refused") if tried else "unshare is not installed")
        return
    os.environ[INSIDE] = "yes"
    sys.stdout.flush()
    os.execvp("unshare", [*unshare_words(), sys.executable, *sys.argv])


class Place:
    """A namespace with one address, or an address 127.0.0.x."""

    def __init__(self, name, number):
        self.name, self.number, self.is_real = name, number, why_not() is None
        self.address = f"10.77.0.{number}" if self.is_real else f"127.0.0.{number}"
        self.path = f"/run/netns/{name}"
        self.prefix = ["nsenter", f"--net={self.path}", "--"] if self.is_real else []

    def make(self):
        port = f"to-{self.name}"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", "name", port, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", port, "master", "hub", "up")
        run("ip", "-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            run("ip", "-n", self.name, "link", "set", link, "up")

    def block(self, others):
        """What is sent from here to the others is lost; what they send arrives, but they get no answer."""
        for other in others:
            run("ip", "-n", self.name, "route", "replace", "blackhole", f"{other.address}/32")

    def unplug(self):
        """The cable: this place and its port on the bridge tell nobody anything."""
        run("ip", "link", "set", f"to-{self.name}", "down")

    def slow(self, rate="2mbit"):
        """What is sent from here takes that rate at most, 400 ms of it wait, the rest is lost."""
        run(*self.prefix, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "32kbit", "latency", "400ms")

    def mend(self):
        run("ip", "link", "set", f"to-{self.name}", "up")
        run("ip", "-n", self.name, "route", "flush", "type", "blackhole")
        with contextlib.suppress(subprocess.CalledProcessError):  # where it was not slow there is nothing to take away
            run(*self.prefix, "tc", "qdisc", "del", "dev", "eth0", "root")


class Network:
    """The bridge and its places. Use it in a `with`, after enter()."""

    def __init__(self, names):
        self.places = [Place(name, FIRST + i) for i, name in enumerate(names)]

    def __enter__(self):
        if why_not() is None:
            run("mount", "-t", "tmpfs", "none", "/run")  # this process's own, for the names of namespaces
            run("ip", "link", "set", "lo", "up")
            run("ip", "link", "add", "name", "hub", "type", "bridge")
            run("ip", "addr", "add", f"{HUB}/24", "dev", "hub")
            run("ip", "link", "set", "hub", "up")
            for place in self.places:
                place.make()
        return self

    def __exit__(self, *_):
        if why_not() is None:
            for place in self.places:
                run("ip", "netns", "del", place.name)
            run("ip", "link", "del", "hub")
            run("umount", "--lazy", "/run")

    def mend(self):
        for place in self.places:
            if place.is_real:
                place.mend()
