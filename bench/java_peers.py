"""Peers in Java: their jars come by Maven into build/bench/NAME, their sources lie in peers/NAME/src and peers/java."""

import glob
import os

import kafka_broker as broker
from harness import HERE, Skip, remove


def command(bench, name, what):
    """[java, "-cp", class path] of peers/NAME; fetched and compiled when its pom.xml or its sources have changed."""
    home, source = bench.path(name), os.path.join(HERE, "peers", name)
    pom, jars, classes = (os.path.join(*parts) for parts in ((source, "pom.xml"), (home, "jars"), (home, "classes")))
    try:
        broker.install.fetch(jars, broker.install.digest(pom), ["mvn", "-q", "-B", "-f", pom], f"{what} (Maven)")
        java = broker.install.java()
    except broker.install.Missing as why:
        raise Skip(str(why)) from None
    javac = os.path.join(os.path.dirname(java), "javac")
    if not os.access(javac, os.X_OK):
        raise Skip(f"{javac} is not there: a JDK is needed (./dev setup)")
    sources = glob.glob(os.path.join(source, "src", "*.java")) + glob.glob(os.path.join(HERE, "peers", "java", "*.java"))
    path, mark = os.path.join(jars, "*"), os.path.join(classes, ".version")
    version = broker.install.digest(pom, *sorted(sources))
    if not os.path.exists(mark) or open(mark, encoding="ascii").read() != version:
        remove(classes)
        bench.run([javac, "-nowarn", "-d", classes, "-cp", path, *sources])
        with open(mark, "w", encoding="ascii") as file:
            file.write(version)
    return [java, "-cp", f"{classes}:{path}"]
