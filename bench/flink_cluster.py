"""Flink as a cluster on this machine: a JobManager and TaskManagers, each a JVM of its own, started from Maven's jars without the
scripts of Flink's distribution. peers/flink/README.md says why each setting is what it is."""

import json
import os
import signal
import subprocess
import time
import urllib.request

import java_peers
import kafka_broker as broker
from cluster_workers import etcd
from harness import Broken, Run, busy_cores, peak_rss_mb, process_seconds, remove

START_SECONDS = 600
JOBMANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASKMANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
# Of 10 s, which a busy machine may need; Flink's own option for it reaches another one of Pekko's.
PATIENT = "-Dpekko.remote.classic.startup-timeout=300s"
# Flink's scripts would derive these from the size of a process.
JVM = {JOBMANAGER: ["-XX:+UseSerialGC", "-Xms384m", "-Xmx384m"],
       TASKMANAGER: ["-XX:+UseSerialGC", "-Xms640m", "-Xmx640m", "-XX:MaxDirectMemorySize=320m"]}
MEMORY = {"task.heap.size": "512m", "framework.heap.size": "128m", "task.off-heap.size": "64m", "framework.off-heap.size": "128m",
          "network.min": "64m", "network.max": "64m", "managed.size": "256m", "jvm-metaspace.size": "256m",
          "jvm-overhead.min": "192m", "jvm-overhead.max": "192m"}
CLUSTER = {
    "jobmanager.rpc.address": "127.0.0.1", "rest.address": "127.0.0.1", "rest.bind-address": "127.0.0.1", "taskmanager.host": "127.0.0.1",
    "taskmanager.cpu.cores": "1.0", "taskmanager.numberOfTaskSlots": "1",
    # A busy machine needs longer than the defaults to start a JVM.
    "pekko.ask.timeout": "120s", "pekko.tcp.timeout": "120s", "web.timeout": "120000",
    **{f"taskmanager.memory.{name}": size for name, size in MEMORY.items()}}
JOB = {
    "pipeline.object-reuse": "true", "execution.buffer-timeout.interval": "10ms", "execution.checkpointing.interval": "1s",
    "execution.checkpointing.mode": "EXACTLY_ONCE", "execution.checkpointing.storage": "filesystem",
    "execution.checkpointing.incremental": "true", "state.backend.type": "rocksdb", "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000", "restart-strategy.fixed-delay.delay": "100ms"}


class Flink:
    """A JobManager and `count` TaskManagers of one slot, of which a job takes as many as its parallelism."""

    def __init__(self, bench, parallelism, count, settings=()):
        self.bench, self.jobs, self.names = bench, 0, 0
        self.java = java_peers.command(bench, "flink", "Flink")
        self.folder = bench.path("flink-cluster")
        remove(self.folder)
        os.makedirs(self.folder)
        rpc, self.rest = etcd.free_ports(2)
        cluster = {**CLUSTER, "jobmanager.rpc.port": rpc, "rest.port": self.rest, "io.tmp.dirs": os.path.join(self.folder, "tmp"),
                   **dict(settings)}
        with open(os.path.join(self.folder, "config.yaml"), "w", encoding="utf-8") as file:
            file.writelines(f"{name}: {value}\n" for name, value in cluster.items())
        self.job = {**JOB, "parallelism.default": parallelism}
        self.all = []  # processes; the JobManager first
        try:
            self.start(JOBMANAGER)
            for _ in range(count):
                self.start(TASKMANAGER)
            self.wait()
        except BaseException:
            self.close()
            raise

    def start(self, entry):
        self.names += 1
        name = f"manager-{self.names}"
        log = os.path.join(self.folder, f"{name}.log")
        command = [self.java[0], *JVM[entry], QUIET, PATIENT, *self.java[1:], entry, "--configDir", self.folder]
        command += [f"-Dtaskmanager.resource-id={name}"] if entry == TASKMANAGER else []
        with open(log, "wb") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                       preexec_fn=lambda: etcd.LIBC.prctl(etcd.DIE_WITH_PARENT, signal.SIGKILL))
        process.name, process.log = name, log
        self.all.append(process)

    def ask(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.rest}{path}", timeout=10) as answer:
            return json.load(answer)

    def is_ready(self):
        """All TaskManagers that run are registered, and no other one is; jobs have made a checkpoint, or have ended."""
        if {one["id"] for one in self.ask("/taskmanagers")["taskmanagers"]} != {one.name for one in self.all[1:]}:
            return False
        running = [job["jid"] for job in self.ask("/jobs/overview")["jobs"] if job["state"] != "FINISHED"]
        return all(self.ask(f"/jobs/{job}/checkpoints")["counts"]["completed"] > 0 for job in running)

    def wait(self):
        until, is_ready = time.monotonic() + START_SECONDS, False
        while not is_ready:
            ended = [one for one in self.all if one.poll() is not None]
            if ended or time.monotonic() > until:
                with open((ended or self.all)[0].log, encoding="utf-8", errors="replace") as file:
                    causes = [line.strip() for line in file if "Exception: " in line or "Error: " in line]
                raise Broken(f"Flink did not start: {'; '.join(causes)[:800] or f'not within {START_SECONDS} s'}")
            try:
                is_ready = self.is_ready()
            except (OSError, ValueError, KeyError):
                pass  # the REST server is not up yet
            time.sleep(0.1)

    def cpu(self):
        """Seconds that all JVMs have taken since they were started."""
        return sum(process_seconds(one.pid) for one in self.all)

    def submit(self, name, out, until):
        """Gives the cluster a job; with until="latest", waits for its end. That takes a JVM more, which is not counted."""
        self.jobs += 1
        job = {**self.job, "execution.checkpointing.dir": f"file://{self.folder}/state-{self.jobs}"}
        self.bench.run([self.java[0], QUIET, *self.java[1:], "FeatureJob", "127.0.0.1", str(self.rest), broker.cluster().brokers, name,
                        out, until, *[f"{key}={value}" for key, value in job.items()]])

    def passed(self, name, out):
        """The run of a job that reads what the topic has."""
        started, cpu, busy = time.monotonic(), self.cpu(), busy_cores()
        self.submit(name, out, "latest")
        wall, cpu = time.monotonic() - started, self.cpu() - cpu
        others = max(0.0, (busy_cores() - busy - cpu) / wall)
        return Run(wall, cpu, sum(peak_rss_mb(one.pid) for one in self.all), others, {}, "")

    def busy(self):
        """A TaskManager whose slot a job has."""
        taken = {one["id"] for one in self.ask("/taskmanagers")["taskmanagers"] if one["freeSlots"] == 0}
        return next(one for one in self.all[1:] if one.name in taken)

    def kill(self, one):
        one.kill()
        one.wait()
        self.all.remove(one)

    def close(self):
        for one in list(self.all):
            self.kill(one)
        remove(self.folder)
