#!/usr/bin/env python3
"""Apache Kafka for the tests, on this machine alone; `./dev kafka` calls this.

    broker.py start [--brokers 1|3] [--secure] [--large]
                                                 starts it with the data that is there; returns when it answers
    broker.py start|stop|kill|pause|resume N     one broker; kill: as kill -9 does
    broker.py stop                               ends the brokers, keeps their data
    broker.py reset                              ends the brokers, removes their data
    broker.py topics                             partitions and offsets of each topic
    broker.py install                            fetches what is needed, starts nothing
    broker.py during COMMAND...                  a broker of its own, with security, for as long as the command runs;
                                                 the command's exit status

LEAT_KAFKA_LOG=info: brokers say more in build/kafka/*/broker-*/log.
"""

import argparse
import os
import signal
import subprocess
import sys

import install
from instance import Failed, Instance, process_start

NAME = "dev"


def say(text):
    print(f"kafka: {text}", flush=True)


def count(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


def cmd_start(instance, arguments):
    if arguments.number is not None:
        instance.start_one(arguments.number)
        say(f"broker {arguments.number} answers at {instance.address('PLAIN', arguments.number)}")
        return
    if instance.running() and len(instance.running()) == len(instance.brokers):
        say(f"runs already, at {instance.address()}")
        return
    brokers = arguments.brokers or len(instance.brokers) or 1
    seconds = instance.start(brokers, arguments.secure or instance.is_secure, arguments.large)
    who = f"{count(brokers, 'broker')} {'answer' if brokers > 1 else 'answers'}"
    say(f"{who} at {instance.address()} after {seconds:.1f} s")
    if instance.is_secure:
        say(f"SASL_SSL at {instance.address('SASL')}, mTLS at {instance.address('MTLS')}; "
            f"certificates in {os.path.relpath(install.HOME)}/certificates, users in tests/kafka/settings.py")


def cmd_stop(instance, arguments):
    stopped = instance.stop(arguments.number)
    say(f"{count(stopped, 'broker')} stopped" if stopped else "nothing runs")


def cmd_reset(instance, arguments):
    instance.reset()
    say("stopped; its data is gone")


def cmd_kill(instance, arguments):
    instance.kill(arguments.number)
    say(f"broker {arguments.number} is killed")


def cmd_pause(instance, arguments):
    instance.pause(arguments.number)


def cmd_resume(instance, arguments):
    instance.resume(arguments.number)


def cmd_topics(instance, arguments):
    if not instance.running():
        raise Failed("nothing runs: ./dev kafka start")
    import rig

    cluster = rig.Cluster(instance)
    print(f"{'topic':<40} {'partition':>9} {'begin':>12} {'end':>12}")
    for topic in cluster.topics():
        for partition, (begin, end) in sorted(cluster.offsets(topic).items()):
            print(f"{topic:<40} {partition:>9} {begin:>12} {end:>12}")


def cmd_install(instance, arguments):
    install.everything()


class Stopped(BaseException):
    """By a signal."""


class Stopping:
    """Signals that end `during`: raised, or while something must not be interrupted kept until raise_kept."""

    def __init__(self):
        self.kept, self.is_keeping = [], False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.come)

    def come(self, number, frame):
        self.kept.append(number)
        if not self.is_keeping:
            raise Stopped(number)

    def raise_kept(self):
        self.is_keeping = False
        if self.kept:
            raise Stopped(self.kept[0])


def sweep():
    """Removes what brokers of tests left whose process was killed."""
    for name in os.listdir(install.HOME) if os.path.isdir(install.HOME) else []:
        kind, _, pid = name.rpartition("-")
        if kind.split("-")[0] in ("during", "own") and pid.isdigit() and process_start(pid) is None:
            Instance(name).reset()


def cmd_during(instance, arguments):
    sweep()
    instance = Instance(f"during-{os.getpid()}")
    stopping = Stopping()
    try:
        environment = dict(os.environ, **start_during(instance))
        stopping.is_keeping = True  # or a command that has begun would be nobody's
        command = subprocess.Popen(arguments.command, env=environment)
        try:
            stopping.raise_kept()
            return command.wait()
        except Stopped:
            command.send_signal(signal.SIGTERM)
            command.wait()
            raise
    except Stopped as stopped:
        instance.reset()
        signal.signal(stopped.args[0], signal.SIG_DFL)
        os.kill(os.getpid(), stopped.args[0])  # who waits for us learns what ended us
    finally:
        instance.reset()
    return 1


def start_during(instance):
    """What the command's tests find in their environment (rig.py)."""
    try:
        instance.start(1, is_secure=True, dies_with_us=True)
        return {"LEAT_KAFKA": instance.name}
    except install.Missing as error:
        say(f"skipped: no broker ({error})")
        return {"LEAT_KAFKA": "none", "LEAT_KAFKA_WHY": str(error)}
    except Failed as error:
        say(f"the broker failed: {error}")
        return {"LEAT_KAFKA": "failed", "LEAT_KAFKA_WHY": str(error)}


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./dev kafka", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="name", required=True)
    for name in ("start", "stop", "kill", "pause", "resume"):
        one = commands.add_parser(name)
        one.add_argument("number", type=int, nargs="?" if name in ("start", "stop") else None, help="of the broker")
        if name == "start":
            one.add_argument("--brokers", type=int, choices=(1, 3), help="1 without it")
            one.add_argument("--secure", action="store_true", help="listeners with TLS, users and rights as well")
            one.add_argument("--large", action="store_true", help="for measuring: more memory, Java's second compiler")
    for name in ("reset", "topics", "install"):
        commands.add_parser(name)
    commands.add_parser("during").add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args(arguments)


def main():
    arguments = parse(sys.argv[1:])
    try:
        return globals()[f"cmd_{arguments.name}"](Instance(NAME), arguments) or 0
    except install.Missing as error:
        say(f"skipped: no broker ({error})")
        return 77
    except Failed as error:
        print(f"kafka: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
