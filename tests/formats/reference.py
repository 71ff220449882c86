#!/usr/bin/env python3
"""Generated schemas, records of them written by encoders of others (fastavro, msgpack-python), and what leat reads.

    tests/formats/reference.py DECODE_CASES [--leat LEAT] [--schemas 2000] [--seed 1] [--only avro|msgpack]

Columns are random: every type, nulls, required ones, lists of values and of records. The encoder's side has more than they
take: fields that nobody reads, of any type and nesting; other orders; unions in any order; types that a column takes by
promotion (an Avro int as float, an enum as text, a date as time; msgpack's many widths). Each value must come back as it
was; a null where a column is required makes the record bad, and no other. `./dev soak schemas` has 100,000. With --leat, jobs
read such files of msgpack and write msgpack again, which msgpack-python reads. Prints TAP.
"""

import argparse
import base64
import datetime
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGES = os.path.join(ROOT, "build", "reference", "python-%d.%d" % sys.version_info[:2])
RECORDS, COLUMNS_MAX = 4, 12
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
LEAST_US, MOST_US = -62135596800 * 10**6, 253402300799 * 10**6  # years 1 to 9999


def packages():
    """The reference encoders, pinned, fetched once. Returns why they cannot be had, or None."""
    mark, wanted = os.path.join(PACKAGES, ".version"), os.path.join(HERE, "requirements.txt")
    with open(wanted, encoding="utf-8") as file:
        version = file.read()
    if not os.path.exists(mark) or open(mark, encoding="utf-8").read() != version:  # pylint: disable=consider-using-with
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--upgrade", "--only-binary", ":all:",
                   "--no-deps", "--target", PACKAGES, "-r", wanted]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            return f"the reference encoders cannot be fetched: {made.stderr.strip()[-200:]}"
        with open(mark, "w", encoding="utf-8") as file:
            file.write(version)
    sys.path.insert(0, PACKAGES)
    return None


# --- columns: what leat is told


class Column:
    def __init__(self, rng, name, depth=0):
        kinds = ["int", "float", "bool", "text", "bytes", "us", "ms"] + (["list", "records"] if depth == 0 else [])
        self.kind, self.name, self.rng = rng.choice(kinds), name, rng
        self.is_required = depth == 0 and rng.random() < 0.15
        self.element = Column(rng, "", 1) if self.kind == "list" else None
        self.fields = [Column(rng, f"{name}_{i}", 1) for i in range(rng.randint(1, 3))] if self.kind == "records" else []

    def declared(self):
        """As harness_schema reads it."""
        return f"{self.name} {self.type()}{'!' if self.is_required else ''}"

    def in_job(self):
        """As the job language has it."""
        names = {"us": "time(us)", "ms": "time(ms)"}
        if self.kind == "list":
            names["list"] = f"list({self.element.in_job()})"
        if self.kind == "records":
            names["records"] = "list({ " + ", ".join(f"{field.name}: {field.in_job()}" for field in self.fields) + " })"
        return names.get(self.kind, self.kind) + ("!" if self.is_required else "")

    def type(self):
        if self.kind == "list":
            return f"[{self.element.type()}]"
        if self.kind == "records":
            return "[{" + ", ".join(field.declared() for field in self.fields) + "}]"
        return self.kind

    def value(self, may_be_null=True):
        rng = self.rng
        if may_be_null and rng.random() < 0.15:
            return None
        if self.kind == "int":
            return integer(rng)
        if self.kind == "float":
            return real(rng)
        if self.kind == "bool":
            return rng.random() < 0.5
        if self.kind == "text":
            return text(rng)
        if self.kind == "bytes":
            return rng.randbytes(rng.choice([0, 1, 3, 40, 300]))
        if self.kind in ("us", "ms"):
            moment = rng.choice([rng.randint(LEAST_US, MOST_US), rng.randint(0, 2 * 10**15), 0, -1])
            return moment // 1000 * 1000 if self.kind == "ms" else moment
        if self.kind == "list":
            return [self.element.value() for _ in range(size(rng))]
        return [{field.name: field.value() for field in self.fields} for _ in range(size(rng))]


def size(rng):
    return rng.choice([0, 0, 1, 2, 3, 17, 70])


def integer(rng, bits=64):
    edge = 1 << (bits - 1)
    return rng.choice([rng.randint(-edge, edge - 1), rng.randint(-200, 200), edge - 1, -edge, rng.randint(-(1 << 31), 1 << 31) if bits > 32 else 0])


def real(rng):
    return rng.choice([rng.gauss(0, 1), rng.uniform(-1e300, 1e300), 0.0, -0.0, 5e-324, 1.7976931348623157e308, float(rng.randint(-9, 9)),
                       math.inf, -math.inf, math.nan, struct.unpack("<f", struct.pack("<f", rng.gauss(0, 1)))[0]])


def text(rng):
    alphabet = rng.choice(["ab", "äöß€𝄞", "\"\\\n\t\u0000\u001f", "abcdefghij "])
    return "".join(rng.choice(alphabet) for _ in range(rng.choice([0, 1, 5, 31, 32, 33, 255, 256, 300])))


# --- what leat says: JSON, and what it should


def is_same(column, found, wanted):
    if wanted is None:
        return found is None
    if column.kind == "float":
        if not math.isfinite(wanted):  # no JSON: shown as null
            return found is None
        return found is not None and float(found) == wanted
    if found is None:
        return False
    if column.kind == "bytes":
        return base64.b64decode(found) == wanted
    if column.kind in ("us", "ms"):
        return moment_of(found) == wanted
    if column.kind == "list":
        return len(found) == len(wanted) and all(is_same(column.element, f, w) for f, w in zip(found, wanted))
    if column.kind == "records":
        return len(found) == len(wanted) and all(is_same(field, f.get(field.name), w[field.name])
                                                 for f, w in zip(found, wanted) for field in column.fields)
    return type(found) is type(wanted) and found == wanted


def moment_of(shown):
    date, _, fraction = shown.rstrip("Z").partition(".")
    whole = datetime.datetime.strptime(date, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc) - EPOCH
    return (whole.days * 86400 + whole.seconds) * 10**6 + int((fraction or "0").ljust(6, "0"))


def check(case, lines):
    """What differs, or None."""
    if len(lines) != len(case.records):
        return f"{len(lines)} lines for {len(case.records)} records: {lines[:3]}"
    for line, wanted in zip(lines, case.records):
        must_be_bad = any(column.is_required and wanted[column.name] is None for column in case.columns)
        if line.startswith("!") or must_be_bad:
            if not (line.startswith("!") and must_be_bad):
                return f"{'is good and should be bad' if must_be_bad else 'is bad'}: {line[:300]}; {wanted}"
            continue
        found = json.loads(line)
        for column in case.columns:
            if not is_same(column, found[column.name], wanted[column.name]):
                return f"{column.declared()}: {found[column.name]!r:.300} and not {wanted[column.name]!r:.300}"
    return None


# --- Avro


class Avro:
    """The writer's schema of some columns, and more."""

    def __init__(self, rng, columns):
        self.rng, self.names, self.columns = rng, 0, columns
        self.promoted, self.never_null = {}, set()  # by a column's id
        fields = [{"name": column.name, "type": self.of(column)} for column in columns]
        fields += [{"name": self.name("unread"), "type": self.any(0)} for _ in range(rng.choice([0, 0, 1, 3]))]
        rng.shuffle(fields)
        self.schema = {"type": "record", "name": "R", "fields": fields}
        if rng.random() < 0.3:
            self.schema["namespace"] = "some.where"

    def name(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def of(self, column):
        """Of a nullable one a union with null, before or behind; of a required one often not."""
        rng, plain = self.rng, self.plain(column)
        if column.is_required and rng.random() < 0.5:
            self.never_null.add(id(column))
            return plain
        return ["null", plain] if rng.random() < 0.6 else [plain, "null"]

    def plain(self, column):
        rng = self.rng
        if column.kind == "int":
            if rng.random() < 0.3:
                self.promoted[id(column)] = "int"
                return "int"
            return "long"
        if column.kind == "float":
            choice = rng.choice(["double", "double", "float", "int", "long"])
            if choice != "double":
                self.promoted[id(column)] = choice
            return choice
        if column.kind == "text":
            if rng.random() < 0.2:
                symbols = [f"S{i}" for i in range(rng.randint(1, 5))]
                self.promoted[id(column)] = symbols
                return {"type": "enum", "name": self.name("E"), "symbols": symbols}
            return "string"
        if column.kind == "bytes":
            if rng.random() < 0.3:
                length = rng.choice([0, 1, 16])
                self.promoted[id(column)] = length
                return {"type": "fixed", "name": self.name("F"), "size": length}
            return "bytes"
        if column.kind == "bool":
            return "boolean"
        if column.kind in ("us", "ms"):
            return {"type": "long", "logicalType": "timestamp-micros" if column.kind == "us" else "timestamp-millis"}
        if column.kind == "list":
            return {"type": "array", "items": self.of(column.element)}
        return {"type": "array", "items": {"type": "record", "name": self.name("T"),
                                           "fields": [{"name": field.name, "type": self.of(field)} for field in column.fields]}}

    def any(self, depth):
        """A type that nobody reads."""
        rng = self.rng
        simple = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
        choice = rng.choice(simple + (["array", "map", "record", "union", "enum", "fixed"] if depth < 3 else []))
        if choice == "array":
            return {"type": "array", "items": self.any(depth + 1)}
        if choice == "map":
            return {"type": "map", "values": self.any(depth + 1)}
        if choice == "record":
            return {"type": "record", "name": self.name("U"),
                    "fields": [{"name": f"f{i}", "type": self.any(depth + 1)} for i in range(rng.randint(0, 3))]}
        if choice == "union":
            return rng.sample(["null", "boolean", "long", "string", {"type": "map", "values": "string"}], rng.randint(1, 4))
        if choice == "enum":
            return {"type": "enum", "name": self.name("V"), "symbols": ["A", "B"]}
        if choice == "fixed":
            return {"type": "fixed", "name": self.name("W"), "size": rng.choice([0, 3, 20])}
        return choice

    def fit(self, column, value):
        """The value, as the writer's type can have it."""
        rng, promoted = self.rng, self.promoted.get(id(column))
        if value is None:
            return self.fit(column, column.value(False)) if id(column) in self.never_null else None
        if column.kind == "int" and promoted:
            return integer(rng, 32)
        if column.kind == "float" and promoted == "float":
            return struct.unpack("<f", struct.pack("<f", rng.choice([rng.gauss(0, 1), 1e30, math.inf, math.nan, -0.0])))[0]
        if column.kind == "float" and promoted:
            return float(rng.randint(-(1 << 31), (1 << 31) - 1) if promoted == "int" else rng.randint(-(1 << 53), 1 << 53))
        if column.kind == "text" and promoted:
            return rng.choice(promoted)
        if column.kind == "bytes" and promoted is not None:
            return rng.randbytes(promoted)
        if column.kind == "list":
            return [self.fit(column.element, item) for item in value]
        if column.kind == "records":
            return [{field.name: self.fit(field, item[field.name]) for field in column.fields} for item in value]
        return value

    def written(self, column, value):
        """As fastavro takes it."""
        promoted = self.promoted.get(id(column))
        if value is None:
            return None
        if column.kind == "float" and promoted in ("int", "long"):
            return int(value)
        if column.kind == "ms":
            return value // 1000
        if column.kind == "list":
            return [self.written(column.element, item) for item in value]
        if column.kind == "records":
            return [{field.name: self.written(field, item[field.name]) for field in column.fields} for item in value]
        return value

    def any_value(self, schema):
        rng = self.rng
        if isinstance(schema, list):
            return self.any_value(rng.choice(schema))
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "array":
            return [self.any_value(schema["items"]) for _ in range(size(rng) % 20)]
        if kind == "map":
            return {text(rng): self.any_value(schema["values"]) for _ in range(size(rng) % 20)}
        if kind == "record":
            return {field["name"]: self.any_value(field["type"]) for field in schema["fields"]}
        if kind == "enum":
            return rng.choice(schema["symbols"])
        if kind == "fixed":
            return rng.randbytes(schema["size"])
        return {"null": lambda: None, "boolean": lambda: True, "int": lambda: integer(rng, 32), "long": lambda: integer(rng),
                "float": lambda: rng.gauss(0, 1), "double": lambda: real(rng), "bytes": lambda: rng.randbytes(5),
                "string": lambda: text(rng)}[kind]()


class AvroCase:
    format = "avro"

    def __init__(self, rng):
        import fastavro

        self.columns = [Column(rng, f"c{i}") for i in range(rng.randint(1, COLUMNS_MAX))]
        avro = Avro(rng, self.columns)
        self.schema = json.dumps(avro.schema)
        parsed = fastavro.parse_schema(json.loads(self.schema))
        plain = strip_logical(avro.schema)
        self.records, pieces = [], []
        writer = fastavro.parse_schema(plain)
        for _ in range(RECORDS):
            record = {column.name: avro.fit(column, column.value()) for column in self.columns}
            row = {column.name: avro.written(column, record[column.name]) for column in self.columns}
            row.update({field["name"]: avro.any_value(field["type"]) for field in avro.schema["fields"] if field["name"].startswith("unread")})
            out = Bytes()
            fastavro.schemaless_writer(out, writer, row)
            pieces.append(struct.pack("<I", len(out.data)) + out.data)
            self.records.append(record)
        assert parsed is not None
        self.payloads = b"".join(pieces)


def strip_logical(schema):
    """Times are written as the numbers they are: fastavro's datetimes end at years that leat's do not."""
    if isinstance(schema, list):
        return [strip_logical(item) for item in schema]
    if isinstance(schema, dict):
        return {key: strip_logical(value) for key, value in schema.items() if key != "logicalType"}
    return schema


class Bytes:
    def __init__(self):
        self.data = b""

    def write(self, data):
        self.data += data


# --- msgpack


class MsgpackCase:
    format, schema = "msgpack", ""

    def __init__(self, rng):
        import msgpack

        self.columns = [Column(rng, f"c{i}") for i in range(rng.randint(1, COLUMNS_MAX))]
        self.records, self.payloads = [], b""
        for _ in range(RECORDS):
            record = {column.name: column.value() for column in self.columns}
            row = [(column.name, self.written(column, record[column.name])) for column in self.columns
                   if record[column.name] is not None or rng.random() < 0.5]  # a null may be missing
            row += [(f"unread{i}", self.any(rng, 0)) for i in range(rng.choice([0, 0, 1, 3]))]
            rng.shuffle(row)
            self.payloads += msgpack.packb(dict(row), use_single_float=False)
            self.records.append(record)

    def written(self, column, value):
        if value is None:
            return None
        if column.kind == "ms":
            return value // 1000
        if column.kind == "float" and math.isfinite(value) and value == int(value) and abs(value) < 2**53 and math.copysign(1, value) > 0:
            return int(value)  # a float column takes whole numbers
        if column.kind == "list":
            return [self.written(column.element, item) for item in value]
        if column.kind == "records":
            return [{field.name: self.written(field, item[field.name]) for field in column.fields} for item in value]
        return value

    def any(self, rng, depth):
        kind = rng.choice(["null", "bool", "int", "float", "text", "bytes"] + (["list", "map"] if depth < 3 else []))
        if kind == "list":
            return [self.any(rng, depth + 1) for _ in range(size(rng) % 20)]
        if kind == "map":
            return {text(rng): self.any(rng, depth + 1) for _ in range(size(rng) % 20)}
        return {"null": None, "bool": False, "int": integer(rng), "float": real(rng), "text": text(rng), "bytes": rng.randbytes(70)}[kind]


# --- whole files


def is_same_packed(column, found, wanted):
    """What msgpack-python reads of the file that leat wrote: times as microseconds."""
    if wanted is None or found is None:
        return found is wanted
    if column.kind == "float":
        return math.isnan(found) if math.isnan(wanted) else found == wanted
    if column.kind == "list":
        return len(found) == len(wanted) and all(map(lambda f, w: is_same_packed(column.element, f, w), found, wanted))
    if column.kind == "records":
        return len(found) == len(wanted) and all(is_same_packed(field, f[field.name], w[field.name])
                                                 for f, w in zip(found, wanted) for field in column.fields)
    return found == wanted


def through_leat(leat, folder, case):
    """What differs between what went in and what came out, or None."""
    import msgpack

    job = os.path.join(folder, "job.leat")
    schema = ", ".join(f"{column.name}: {column.in_job()}" for column in case.columns)
    with open(os.path.join(folder, "in.msgpack"), "wb") as file:
        file.write(case.payloads)
    with open(job, "w", encoding="utf-8") as file:
        file.write(f"""job packed {{}}
source s = file {{ path: "{folder}/in.msgpack", schema: {{ {schema} }} }}
sink o = file from s {{ path: "{folder}/out.msgpack", times: us, overwrite: true }}
""")
    ran = subprocess.run([leat, "run", job, "--quiet"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if ran.returncode != 0:
        return f"status {ran.returncode}: {ran.stderr[-500:]}"
    with open(os.path.join(folder, "out.msgpack"), "rb") as file:
        found = list(msgpack.Unpacker(file, strict_map_key=False))
    wanted = [record for record in case.records if not any(column.is_required and record[column.name] is None for column in case.columns)]
    if len(found) != len(wanted):
        return f"{len(found)} rows of {len(wanted)}"
    for row, record in zip(found, wanted):
        for column in case.columns:
            if not is_same_packed(column, row[column.name], record[column.name]):
                return f"{column.declared()}: {row[column.name]!r:.200} and not {record[column.name]!r:.200}"
    return None


def check_files(leat, schemas, seed):
    wrong = []
    with tempfile.TemporaryDirectory(prefix="leat-reference-") as folder:
        for number in range(schemas):
            what = through_leat(leat, folder, MsgpackCase(random.Random(f"{seed} files {number}")))
            if what:
                wrong.append(what)
                print(f"not ok - files: schema {number}: {what}", flush=True)
    print(f"{'not ok' if wrong else 'ok'} - files: msgpack through {schemas} jobs", flush=True)
    return bool(wrong)


# --- the program


class Decoder:
    """decode_cases, asked a case at a time."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, case):
        parts = [case.format, ", ".join(column.declared() for column in case.columns), case.schema, str(RECORDS)]
        question = b"".join(struct.pack("<I", len(part.encode())) + part.encode() for part in parts)
        question += struct.pack("<I", len(case.payloads)) + case.payloads
        # Both pipes may be full at once.
        writer = threading.Thread(target=self.send, args=(question,))
        writer.start()
        lines = []
        for line in self.process.stdout:
            if line == b"=\n":
                break
            lines.append(line.decode())
        writer.join()
        if self.process.poll() is not None:
            raise AssertionError(f"the decoder ended with {self.process.returncode}")
        return lines

    def send(self, question):
        self.process.stdin.write(question)
        self.process.stdin.flush()

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


CASES = {"avro": AvroCase, "msgpack": MsgpackCase}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("decoder")
    parser.add_argument("--leat")
    parser.add_argument("--schemas", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted(CASES))
    arguments = parser.parse_args()
    why = packages()
    if why:
        print(f"ok - reference # SKIP {why}")
        return 0
    status = 0
    for name in [arguments.only] if arguments.only else sorted(CASES):
        decoder, records, bad, wrong = Decoder(arguments.decoder), 0, 0, []
        for number in range(arguments.schemas):
            case = CASES[name](random.Random(f"{arguments.seed} {name} {number}"))
            lines = decoder.ask(case)
            what = check(case, lines)
            records += len(case.records)
            bad += sum(line.startswith("!") for line in lines)
            if what and len(wrong) < 5:
                wrong.append(f"schema {number}: {what}")
                print(f"not ok - {name}: {wrong[-1]}\n#   {case.schema[:600]}", flush=True)
            if sys.stderr.isatty() and number % 500 == 0:
                print(f"\r{name}: {number} of {arguments.schemas} schemas", end="", file=sys.stderr, flush=True)
        ended = decoder.close()
        is_good = not wrong and ended == 0
        status |= not is_good
        print(f"{'ok' if is_good else 'not ok'} - {name}: {arguments.schemas} schemas, {records} records, {bad} of them bad as they should be; "
              f"the decoder ended with {ended}", flush=True)
    if arguments.leat:
        status |= check_files(arguments.leat, max(arguments.schemas // 25, 1), arguments.seed)
    return status


if __name__ == "__main__":
    sys.exit(main())
