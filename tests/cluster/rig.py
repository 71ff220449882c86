#!/usr/bin/env python3
"""A cluster's machines on this one: etcd and places for workers, to try `leat run --cluster` and its faults by hand.

    ./dev cluster start [--workers N] [--etcd 1|3] [--s3]   N places for workers (3), etcd, and an object store; what to run then
    ./dev cluster run W JOB [FLAG...]                 `leat run JOB --cluster=... [FLAG...]` at the place wW; its log is its own output
    ./dev cluster exec PLACE COMMAND...               any command at w0, w1, ..., e0, ... or hub, from where all are reached
    ./dev cluster cut W [peers|etcd|all]              what it sends there is lost (all: the cable)
    ./dev cluster slow W [RATE]                       2mbit
    ./dev cluster mend                                all ways are as they were
    ./dev cluster status                              what runs, where, and its logs
    ./dev cluster stop                                ends all of it, also after a crash of the rig

Places are network namespaces with addresses 10.77.0.x that nobody outside sees (network.py). Without rights for them they are addresses
127.0.0.x, and `cut` and `slow` are refused. A Kafka that runs when the rig starts (./dev kafka start) is reached from all places at
its own addresses. So is the object store of --s3, a real s3proxy that keeps objects in memory, with a bucket `rig`; `run` and `exec` give its
address and keys to what they start. State and logs lie in build/cluster.
"""

import argparse
import glob
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import etcd
import network

sys.path.append(os.path.join(os.path.dirname(etcd.HERE), "kafka"))
import instance  # noqa: E402
import settings  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(etcd.HERE))
MARK = "LEAT_CLUSTER_RIG"  # in the environment of all processes of the rig: its folder. Tests give a folder of their own by it.
FOLDER = os.environ.get(MARK) or os.path.join(ROOT, "build", "cluster")
STATE = os.path.join(FOLDER, "state.json")
HUB = "hub"


class Failed(Exception):
    pass


def say(text):
    print(f"cluster: {text}", flush=True)


# --- What runs ---

def processes():
    """(pid, words of the command) of all of the rig."""
    mark, found, own = f"{MARK}={FOLDER}".encode(), [], (os.getpid(), os.getppid())
    for path in glob.glob("/proc/[0-9]*/environ"):
        folder = os.path.dirname(path)
        try:
            with open(path, "rb") as file, open(f"{folder}/cmdline", "rb") as command:
                if mark in file.read().split(b"\0") and int(os.path.basename(folder)) not in own:
                    found.append((int(os.path.basename(folder)), command.read().decode(errors="replace").split("\0")[:-1]))
        except OSError:
            continue
    return sorted(found)


def read_state():
    try:
        with open(STATE, encoding="utf-8") as file:
            state = json.load(file)
    except FileNotFoundError:
        raise Failed("nothing runs: ./dev cluster start") from None
    if instance.process_start(state["pid"]) != state["start"]:
        raise Failed("the rig has crashed: ./dev cluster stop removes what is left, then start it again")
    return state


def end_all():
    """By SIGTERM, then by SIGKILL. Returns how many there were."""
    count = len(processes())
    for number, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        until = time.monotonic() + seconds
        for pid, _ in processes():
            try:
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        while processes() and time.monotonic() < until:
            time.sleep(.05)
    return count


# --- Kafka, which listens at 127.0.0.1 of this machine ---

def kafka_ports():
    found = instance.Instance("dev")
    places = {place for place, _, _ in settings.LISTENERS.values()}
    return sorted(ports[place] for ports in found.ports for place in places) if found.running() else []


def copy(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (one, other):
            end.close()


def join(client, address, family):
    try:
        server = socket.socket(family)
        server.connect(address)
    except OSError:
        client.close()
        return
    threading.Thread(target=copy, args=(client, server), daemon=True).start()
    copy(server, client)


def relay(listener, address, family):
    """All who call are connected to the address, by threads of their own."""
    def accept():
        while True:
            client, _ = listener.accept()
            threading.Thread(target=join, args=(client, address, family), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()


def relay_out(ports):
    """From a socket in the folder to the port of this machine."""
    for port in ports:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{FOLDER}/kafka-{port}")
        listener.listen()
        relay(listener, ("127.0.0.1", port), socket.AF_INET)


def relay_in(place, ports):
    """From that port of the place to the socket in the folder. In a thread, which is at that place from then on."""
    if place is not None:
        with open(place.path, "rb") as file:
            assert etcd.LIBC.setns(file.fileno(), 0) == 0
    for port in ports:
        relay(socket.create_server(("127.0.0.1", port)), f"{FOLDER}/kafka-{port}", socket.AF_UNIX)


# --- The object store, which listens at 127.0.0.1 of this machine ---

def objects_rig():
    """tests/objects/rig.py, which has this file's name."""
    if "objects_rig" not in sys.modules:
        spec = importlib.util.spec_from_file_location("objects_rig", os.path.join(os.path.dirname(etcd.HERE), "objects", "rig.py"))
        sys.modules["objects_rig"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["objects_rig"]


def start_s3():
    """Its server, to be kept: as long as that is, its files, with its log, lie in the rig's folder. It ends with the rig's other processes."""
    tempfile.tempdir = FOLDER
    objects = objects_rig()
    server = objects.Server()
    status, body = objects.sign_and_send(server.port, "PUT", "/rig")
    if status != 200:
        raise Failed(f"s3proxy makes no bucket: {status} {body}")
    return server


def environment_of(state):
    """What a command at a place gets besides."""
    if not state["s3"]:
        return {}
    objects = objects_rig()
    return {"AWS_ACCESS_KEY_ID": objects.KEY, "AWS_SECRET_ACCESS_KEY": objects.SECRET, "AWS_REGION": objects.REGION,
            "AWS_ENDPOINT_URL_S3": f"http://localhost:{state['s3']}"}  # the name by which it knows itself


# --- The rig's own processes: one outside, and its child, in the namespaces ---

def keep(workers, members, has_s3):
    kafka, server = kafka_ports(), start_s3() if has_s3 else None
    s3 = server.port if server else 0
    relay_out([*kafka, *([s3] if has_s3 else [])])
    inside = subprocess.Popen([sys.executable, os.path.abspath(__file__), "inside", *map(str, [workers, members, s3, *kafka])],
                              preexec_fn=lambda: etcd.LIBC.prctl(etcd.DIE_WITH_PARENT, signal.SIGKILL))
    signal.signal(signal.SIGTERM, lambda *_: inside.terminate())
    return inside.wait()


def keep_inside(workers, members, s3, kafka):
    network.enter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    names = [f"e{i}" for i in range(members)] + [f"w{i}" for i in range(workers)]
    with network.Network(names) as net, \
            etcd.Etcd(os.path.join(FOLDER, "etcd"), members, is_fast=True, places=net.places[:members]) as servers:
        for place in [None, *net.places] if network.why_not() is None else []:
            thread = threading.Thread(target=relay_in, args=(place, [*kafka, *([s3] if s3 else [])]))
            thread.start()
            thread.join()
        state = {"pid": os.getpid(), "start": instance.process_start(os.getpid()), "endpoints": servers.endpoints(),
                 "why_not": network.why_not(), "kafka": kafka, "s3": s3, "places": {place.name: place.address for place in net.places}}
        with open(f"{STATE}.new", "w", encoding="utf-8") as file:
            json.dump(state, file)
        os.rename(f"{STATE}.new", STATE)
        while True:
            signal.pause()


def words_at(state, place):
    """How a command gets to a place."""
    if state["why_not"]:
        return []
    user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    words = ["nsenter", f"--target={state['pid']}", *user, "--net", "--mount", f"--wd={os.getcwd()}", "--"]
    return words if place == HUB else [*words, "nsenter", f"--net=/run/netns/{place}", "--"]


def go(state, words):
    """Becomes that command."""
    os.environ.update({MARK: FOLDER, **environment_of(state)})
    sys.stdout.flush()
    os.execvp(words[0], words)


# --- Commands ---

def tell(state):
    say(f"etcd at {state['endpoints']}")
    for name, address in state["places"].items():
        if name.startswith("w"):
            say(f"{name} at {address}: ./dev cluster run {name[1:]} JOB [FLAG...]")
    say("Kafka at 127.0.0.1:" + ", ".join(map(str, state["kafka"])) + ", from all places" if state["kafka"] else
        "no Kafka: `./dev kafka start` before `./dev cluster start` makes one that all places reach")
    if state["s3"]:
        say(f"objects: `store: \"s3://rig/JOB\"` in a job; at localhost:{state['s3']}, from all places")
    say(f"who is there: ./dev cluster exec {HUB} build/release/leat cluster status etcd://{state['endpoints']}/rig")
    if state["why_not"]:
        say(f"places are 127.0.0.x: {state['why_not']}; faults of ways (cut, slow) cannot be made, and tests of them are skipped")


def cmd_start(arguments):
    if etcd.missing():
        raise Failed(etcd.missing())
    if processes():
        raise Failed("it runs already, or a part of it: ./dev cluster status, ./dev cluster stop")
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    begin = time.monotonic()
    with open(os.path.join(FOLDER, "log"), "wb") as log:
        rig = subprocess.Popen([sys.executable, os.path.abspath(__file__), "keep", str(arguments.workers), str(arguments.etcd),
                                *(["--s3"] if arguments.s3 else [])],
                               stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env={**os.environ, MARK: FOLDER})
    while not os.path.exists(STATE):
        if rig.poll() is not None or time.monotonic() - begin > etcd.PATIENCE_S:
            end_all()
            with open(os.path.join(FOLDER, "log"), encoding="utf-8", errors="replace") as file:
                raise Failed(f"it does not start: {file.read()[-2000:]}")
        time.sleep(.05)
    say(f"started in {time.monotonic() - begin:.1f} s; log: {os.path.relpath(FOLDER)}/log")
    tell(read_state())


def cmd_stop(_):
    count = end_all()
    shutil.rmtree(FOLDER, ignore_errors=True)
    say(f"stopped, {count} processes" if count else "nothing runs")


def cmd_status(_):
    state = read_state()
    tell(state)
    for pid, words in processes():
        if os.path.basename(words[0]) in ("leat", "etcd"):
            say(f"pid {pid}: {' '.join(words)[:120]}")
    for log in [*glob.glob(f"{FOLDER}/etcd/*.log"), *glob.glob(f"{FOLDER}/leat-s3-*/log")]:
        say(f"log: {os.path.relpath(log)}")


def place_of(state, name):
    name = f"w{name}" if name.isdigit() else name
    if name != HUB and name not in state["places"]:
        raise Failed(f"there is no place {name}; there are: {' '.join(state['places'])} {HUB}")
    return name


def cmd_run(arguments):
    state = read_state()
    name = place_of(state, arguments.worker)
    leat = os.environ.get("LEAT", os.path.join(ROOT, "build", "release", "leat"))
    workers = sum(place.startswith("w") for place in state["places"])
    nodes = [] if any(flag.startswith("--nodes=") for flag in arguments.flags) else [f"--nodes=1:{workers}"]
    go(state, [*words_at(state, name), leat, "run", arguments.job, f"--cluster=etcd://{state['endpoints']}/rig",
               f"--listen={state['places'][name]}:0", *nodes, *arguments.flags])


def cmd_exec(arguments):
    state = read_state()
    go(state, [*words_at(state, place_of(state, arguments.place)), *arguments.command])


def cmd_fault(arguments):
    state = read_state()
    if state["why_not"]:
        raise Failed(f"the ways cannot be touched: {state['why_not']}")
    what = [place_of(state, arguments.worker), arguments.how] if arguments.name != "mend" else []
    subprocess.run([*words_at(state, HUB), sys.executable, os.path.abspath(__file__), "at-hub", arguments.name, *what], check=True,
                   env={**os.environ, network.INSIDE: "yes"})


def fault_at_hub(name, worker=None, how=None):
    with open(STATE, encoding="utf-8") as file:
        addresses = json.load(file)["places"]
    places = {one: network.Place(one, int(address.rsplit(".", 1)[1])) for one, address in addresses.items()}
    if name == "mend":
        for place in places.values():
            place.mend()
    elif name == "slow":
        places[worker].slow(how)
    elif how == "all":
        places[worker].unplug()
    else:
        places[worker].block([place for one, place in places.items() if one != worker and one[0] == ("w" if how == "peers" else "e")])


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./dev cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="name", required=True)
    start = commands.add_parser("start")
    start.add_argument("--workers", type=int, default=3, choices=range(1, 65), metavar="N")
    start.add_argument("--etcd", type=int, default=3, choices=(1, 3))
    start.add_argument("--s3", action="store_true")
    for name in ("stop", "status", "mend"):
        commands.add_parser(name)
    one = commands.add_parser("run")
    one.add_argument("worker")
    one.add_argument("job")
    one.add_argument("flags", nargs=argparse.REMAINDER)
    one = commands.add_parser("exec")
    one.add_argument("place")
    one.add_argument("command", nargs=argparse.REMAINDER)
    one = commands.add_parser("cut")
    one.add_argument("worker")
    one.add_argument("how", nargs="?", default="all", choices=("peers", "etcd", "all"))
    one = commands.add_parser("slow")
    one.add_argument("worker")
    one.add_argument("how", nargs="?", default="2mbit", metavar="RATE")
    return parser.parse_args(arguments)


def main():
    own = sys.argv[1:2]
    if own == ["keep"]:
        return keep(int(sys.argv[2]), int(sys.argv[3]), "--s3" in sys.argv)
    if own == ["inside"]:
        return keep_inside(*map(int, sys.argv[2:5]), list(map(int, sys.argv[5:])))
    if own == ["at-hub"]:
        return fault_at_hub(*sys.argv[2:])
    arguments = parse(sys.argv[1:])
    name = "fault" if arguments.name in ("cut", "slow", "mend") else arguments.name
    try:
        return globals()[f"cmd_{name}"](arguments) or 0
    except Failed as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
