#!/usr/bin/env python3
"""Payloads that only a schema explains, from the real broker by the source `kafka`: schemas from a registry, that
change, that come late, that cannot be had; a schema from a file.

    tests/kafka/test_payload.py PATH_OF_LEAT
"""

import contextlib
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # noqa: E402
from test_source import counts, job, of  # noqa: E402

REGISTRY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "unit", "formats", "registry.py")


@contextlib.contextmanager
def registry(**what):
    """Its address. schemas: {number: schema}."""
    process = subprocess.Popen([sys.executable, REGISTRY, json.dumps(what)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.stdin.close()
        process.stdout.read()
        process.wait()


def record(*fields):
    return {"schema": json.dumps({"type": "record", "name": "Click", "fields": [
        {"name": name, "type": kind} for name, kind in fields]})}


def number(value):
    """Avro's int or long."""
    bits, out = value << 1 if value >= 0 else (-value << 1) - 1, b""
    while bits > 127:
        out, bits = out + bytes([bits & 127 | 128]), bits >> 7
    return out + bytes([bits])


def text(value):
    return number(len(value)) + value.encode()


def framed(schema, body):
    return b"\0" + schema.to_bytes(4, "big") + body


def test_schemas_change_and_come_late():
    kafka = rig.shared()
    topic = kafka.create_topic("payload-avro", partitions=3)
    records, wanted, bad = [], [], 0
    for n in range(3000):
        if n % 100 == 7:
            value, bad = (b"noise" if n % 200 == 7 else framed(9, b"x")), bad + 1
        elif n % 3 == 0:
            value = framed(1, number(n) + text(f"u{n}"))
            wanted.append({"n": n, "user": f"u{n}", "price": None})
        else:
            value = framed(2, b"\x02" + number(n // 2) + number(n) + b"\0")
            wanted.append({"n": n, "user": None, "price": n // 2})
        records.append({"value": value, "partition": n % 3})
    kafka.produce(topic, records)
    schemas = {"1": record(("n", "int"), ("user", "string")),
               "2": record(("price", ["null", "int"]), ("n", "long"), ("user", ["null", "string"]))}
    with registry(schemas=schemas, late={"2": 2}, fail=2) as url:
        more = f', format: avro, registry: {{ url: "{url}" }}'
        with job(of(kafka, topic, more), schema="{ n: int!, user: text, price: float }") as j:
            c = counts(j.finish())
            assert c["dead"] == bad and c["in"] == 3000, c
            assert sorted(j.rows(), key=lambda row: row["n"]) == wanted
            reasons = {row["reason"] for row in j.rows("dead.jsonl")}
            assert reasons == {"the payload does not begin with a Schema Registry's header: 0, schema number, at byte 0",
                               "the registry does not have the payload's schema, at byte 0"}, reasons


def test_registry_is_away():
    kafka = rig.shared()
    topic = kafka.create_topic("payload-away", partitions=1)
    kafka.produce(topic, [{"value": framed(1, number(n))} for n in range(10)])
    schema = "{ n: int }"
    more = ', format: avro, registry: { url: "http://127.0.0.1:1", wait: 300ms }'
    with job(of(kafka, topic, more), schema=schema) as j:
        j.refused("E0615", f"{topic}/0, offset 0: schema 1 cannot be fetched from the registry", "no record was lost")
        with registry(schemas={"1": record(("n", "long"))}) as url:
            j.write(of(kafka, topic, f', format: avro, registry: {{ url: "{url}" }}'), schema=schema)
            j.finish()
            assert [row["n"] for row in j.rows()] == list(range(10))
        with registry(schemas={"1": record(("n", "string"))}) as url:
            j.write(of(kafka, topic, f', format: avro, registry: {{ url: "{url}" }}'), schema=schema)
            j.refused("E0614", f"{topic}/0, offset 0: the field `n` of schema 1 is string")


def test_schema_from_a_file():
    kafka = rig.shared()
    topic = kafka.create_topic("payload-protobuf", partitions=1)
    kafka.produce(topic, [{"value": b"\x08" + bytes([n]) + b"\x12\x01x"} for n in range(100)] + [{"value": b"\x08"}])
    with job("", schema="") as j:
        with open(j.at("click.proto"), "w", encoding="utf-8") as file:
            file.write('syntax = "proto3"; message Click { int32 n = 1; string s = 2; }')
        j.write(of(kafka, topic, f', format: protobuf, schema_file: "{j.at("click.proto")}"'), schema="{ n: int, s: text }")
        assert counts(j.finish())["dead"] == 1
        assert j.rows() == [{"n": n, "s": "x"} for n in range(100)]


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
