"""Random streams, and what a run makes of them: micro-batches, rows in their one order, watermarks.

A stream is a source of a job: {"name", "delay" (max_delay, ms), "partitions": [[file, ...], ...], "watermark", "jump"}; a
file is a list of records, each a dict of its columns, or a text that is no record. All streams have the columns of SCHEMA.
watermark: None; ["per_key", column, within (ms)]; ["punctuation", drop]: rows whose `b` is true. jump: None, or max_jump (ms).

What engine/run/sequencer/form.c does, said again as plainly as can be: see micro_batches().
"""

import collections
import json

SCHEMA = {"n": "int!", "ts": "time(us)", "k": "int", "g": "text", "b": "bool", "v": "int", "f": "float", "s": "text"}
COLUMNS = list(SCHEMA)
BATCH_ROWS = 1024
TIME_MIN, TIME_MAX = -(1 << 63), (1 << 63) - 1
CLOCK_CHANGES_MS = [1_698_541_190_000, 1_711_846_790_000]  # in Europe, seconds before summer time ends and begins
LAST_MS = 3_000_000_000_000_000  # 95,000 years; farther, no clock is asked, and windows are cut off at the ends of time

# order: (time, partition, record) for what comes from a source; input: which of the step's inputs it is of.
Row = collections.namedtuple("Row", "input order time values place")
# rows: in their one order. before, after: the watermark of the micro_batch before, and of this one.
MicroBatch = collections.namedtuple("MicroBatch", "index rows before after")


def clamp(time):
    return max(TIME_MIN, min(TIME_MAX, time))


def add(time, more):
    """As the engine adds: the ends of time stay where they are."""
    return time if time in (TIME_MIN, TIME_MAX) else clamp(time + more)


# --- random streams

BROKEN = ['{"n": 1, "ts": tomorrow', "hello", '{"n": 1', '{"n": "one", "ts": 5}', '{"n": null, "ts": 5}', '{"n":1}{"n":2}']
WORDS = ["", "a", "b", "ab", "Ω", "long" * 40, "null"]


def random_value(rng, style, column):
    nulls = style["nulls"]
    if column == "k":
        return None if rng.random() < nulls else rng.randrange(style["keys"]) - 1
    if column == "g":
        return None if rng.random() < nulls else rng.choice(WORDS[:style["keys"]])
    if column == "b":
        return rng.choice([None, True, False]) if nulls else rng.random() < 0.5
    if column == "v":
        big = [0, 0, (1 << 63) - 1, -(1 << 63), 1 << 62]
        return None if rng.random() < nulls else rng.choice(big) if rng.random() < style["extremes"] else rng.randrange(-3, 9)
    if column == "f":
        return None if rng.random() < nulls else rng.randrange(-4000, 4000) / 8
    return None if rng.random() < nulls else rng.choice(WORDS) + rng.choice(["", "x", "y"])


def random_times(rng, style, count, clock, delay):
    """Event times in us, in the order in which their records come."""
    for _ in range(count):
        dice = rng.random()
        if dice < style["equal"]:
            pass
        elif dice > 1 - style["gaps"]:
            clock += rng.choice([10_000, 60_000, 3_600_000])
        else:
            clock += int(rng.expovariate(1.0) * style["step"])
        time, dice = clock, rng.random()
        if dice < style["disorder"]:
            time -= rng.randrange(delay + 1)
        elif dice < style["disorder"] + style["late"]:
            time -= delay + rng.choice([1, 1, 500, 3000, 20_000, 90_000])
        time -= time % style["grid"]
        yield time * 1000 + (rng.choice([-1, 1]) if rng.random() < style["beside"] else 0)
    if style["far"]:
        yield 1000 * rng.choice([LAST_MS, -LAST_MS, 253_402_300_799_000, 4_102_444_800_000, 0])


def random_records(rng, style, count, clock, delay):
    records = []
    for time in random_times(rng, style, count, clock, delay):
        record = {"ts": time, **{c: random_value(rng, style, c) for c in COLUMNS[2:]}}
        if records and rng.random() < style["copies"]:
            record = {**rng.choice(records), "ts": rng.choice([record["ts"], records[-1]["ts"]])}
        records.append(record)
    return [rng.choice(BROKEN) if rng.random() < style["broken"] else
            {**r, "ts": None} if rng.random() < style["broken"] else r for r in records]


def random_style(rng):
    return {
        "step": rng.choice([3, 50, 300, 300, 1000]), "grid": rng.choice([1, 1, 100, 500, 1000]),
        "equal": rng.choice([0, 0.2, 0.6]), "gaps": rng.choice([0, 0, 0.02, 0.1]), "disorder": rng.choice([0, 0.2, 0.7]),
        "beside": rng.choice([0, 0.1, 0.4]), "late": rng.choice([0, 0.1, 0.3]), "far": rng.random() < 0.06, "nulls": rng.choice([0, 0.05, 0.3]),
        "keys": rng.choice([1, 3, 4, 7]), "extremes": rng.choice([0, 0, 0.2]), "copies": rng.choice([0, 0.1]),
        "broken": rng.choice([0, 0, 0.03]),
    }


def random_stream(rng, name, base, count):
    """Several partitions, of very different densities, some of them idle or of several files."""
    style, delay = random_style(rng), rng.choice([0, 0, 500, 1000, 5000])
    watermarks = [None, None, None, ["per_key", rng.choice("kg"), rng.choice([500, 3000, 60_000])], ["punctuation", rng.random() < 0.5]]
    stream = {"name": name, "delay": delay, "partitions": [], "watermark": rng.choice(watermarks),
              "jump": rng.choice([None, None, 1000, 5000])}
    for part in range(rng.choice([1, 1, 2, 3])):
        many = count if part == 0 else rng.choice([0, 1, 3, count // 2, count])
        records = random_records(rng, style, many, base + rng.choice([0, 0, 2000, 30_000]), delay)
        places = sorted(rng.randrange(len(records) + 1) for _ in range(rng.choice([0, 0, 1, 3])))
        stream["partitions"].append([records[i:j] for i, j in zip([0, *places], [*places, len(records)])])
    micro_batch = 0
    for record in all_records(stream):
        if isinstance(record, dict):
            record["n"] = micro_batch
            micro_batch += 1
    return stream


def random_streams(rng):
    base = rng.choice([1_700_000_000_000, 1_700_000_000_000, 1_699_999_199_000, 0, -5_000, *CLOCK_CHANGES_MS])
    count = rng.choice([4, 12, 30, 60, 60, 120])
    return [random_stream(rng, "a", base, count), random_stream(rng, "b", base, rng.choice([1, count // 3, count]))]


def all_records(stream):
    return [record for files in stream["partitions"] for records in files for record in records]


def line_of(record):
    return json.dumps({c: record[c] for c in COLUMNS}, ensure_ascii=False) if isinstance(record, dict) else record


def is_bad(record):
    return not isinstance(record, dict) or record["ts"] is None


def is_mark(stream, record):
    return (stream.get("watermark") or [""])[0] == "punctuation" and not is_bad(record) and record["b"] is True


def is_dropped(stream, record):
    return is_mark(stream, record) and stream["watermark"][1]


def jumps(stream, records):
    """Places of the records of a partition that are too far ahead of the newest before them, where the two behind them do
    not agree. The first one has nothing before it: one behind it must agree, if there is one."""
    found, newest, jump = set(), None, (stream.get("jump") or 0) * 1000
    for i, record in enumerate(records if jump else []):
        if is_bad(record):
            continue
        time = record["ts"]
        if newest is None or time > add(newest, jump):
            behind = records[i + 1:i + 3]
            agree = sum(not is_bad(r) and r["ts"] <= add(time, jump) and time <= add(r["ts"], jump) for r in behind)
            if agree < (min(len(behind), 1) if newest is None else 2):
                found.add(i)
                continue
        if not is_dropped(stream, record):
            newest = time if newest is None else max(newest, time)
    return found


def fates(stream):
    """Of each record of a stream, by (partition, place): "bad", "dropped" or "row"."""
    found = {}
    for part, files in enumerate(stream["partitions"]):
        records = [record for records in files for record in records]
        far = jumps(stream, records)
        for i, record in enumerate(records):
            is_gone = is_bad(record) or i in far
            found[part, i] = "bad" if is_gone else "dropped" if is_dropped(stream, record) else "row"
    return found


# --- the sequencer


class Partition:
    def __init__(self, micro_batch, stream, local, files):
        self.micro_batch, self.stream, self.local = micro_batch, stream["name"], local
        self.records = [record for records in files for record in records]
        far = jumps(stream, self.records)
        self.is_good = [not is_bad(record) and i not in far for i, record in enumerate(self.records)]
        self.is_mark = [good and is_mark(stream, record) for good, record in zip(self.is_good, self.records)]
        self.is_row = [good and not is_dropped(stream, record) for good, record in zip(self.is_good, self.records)]
        self.watermark, self.delay = stream.get("watermark"), stream["delay"] * 1000
        self.marked, self.newest, self.is_over = TIME_MIN, {}, False
        # Behind the last record of each batch: a file ends one, and so do BATCH_ROWS records of it.
        self.ends, begin = [], 0
        for records in files:
            self.ends += [begin + i for i in range(BATCH_ROWS, len(records), BATCH_ROWS)] + [begin + len(records)]
            begin += len(records)
        self.at, self.since_cut, self.order, running = 0, 0, [], TIME_MIN
        for record, is_good in zip(self.records, self.is_good):
            if is_good:
                running = max(running, record["ts"])
            self.order.append(running)

    def batch(self):
        """The head's batch: its begin and end."""
        end = min(e for e in self.ends if e > self.at)
        return max([e for e in self.ends if e <= self.at], default=0), end

    def head_end(self, cut):
        end = min(self.batch()[1], self.at + cut - self.since_cut)
        return next((i + 1 for i in range(self.at, end) if self.is_mark[i]), end)

    def take(self, end):
        """What the records up to there say for the watermark."""
        for i in range(self.at, end):
            time = self.records[i]["ts"] if self.is_good[i] else None
            if self.is_mark[i]:
                self.marked = max(self.marked, time)
            if self.is_good[i] and self.watermark and self.watermark[0] == "per_key":
                key = self.records[i][self.watermark[1]]
                if key is not None:
                    self.newest[key] = max(self.newest.get(key, time), time)

    def says(self, bound):
        """What it allows its stream's watermark to be, at a cut; None: it has ended, and has no say."""
        kind = self.watermark[0] if self.watermark else None
        if kind == "punctuation":
            return None if self.is_over else add(self.marked, -self.delay)
        time = bound
        if kind == "per_key" and not self.is_over and bound != TIME_MIN:
            since = add(bound, -self.watermark[2] * 1000)
            time = min([bound, *(t for t in self.newest.values() if t >= since)])
        return add(time, -self.delay)


def cut_number(partitions, cut):
    """Takes the rows of one micro_batch. Returns them, and whether it ends at a cut."""
    heads = [p for p in partitions if p.at < len(p.records)]
    last = min(heads, key=lambda p: (p.order[p.head_end(cut) - 1], p.micro_batch))
    bound = last.order[last.head_end(cut) - 1]
    taken = []
    for p in heads:
        end = p.at
        while p is not last and end < p.batch()[1] and (p.order[end] < bound or (p.order[end] == bound and p.micro_batch < last.micro_batch)):
            end += 1
        begin, end = p.at, last.head_end(cut) if p is last else end
        for i in range(begin, end):
            if p.is_row[i]:
                record = p.records[i]
                values = {c: record[c] for c in COLUMNS}
                taken.append((p.stream, (p.order[i], p.micro_batch, i), values))
        first, batch_end = p.batch()
        p.take(end)
        p.at, p.since_cut = end, p.since_cut + end - begin
        if p is last:
            is_cut = p.since_cut == cut or p.is_mark[end - 1] or (end == batch_end and end - first == BATCH_ROWS)
            p.since_cut = 0 if is_cut else p.since_cut
    return taken, is_cut


def advance(streams, partitions, before):
    """Watermarks after a cut. A stream that nobody speaks for any more keeps pace with the slowest other one."""
    bound = max((p.order[p.at - 1] for p in partitions if p.at > 0), default=TIME_MIN)
    marks = {}
    for stream in streams:
        says = [s for s in (p.says(bound) for p in partitions if p.stream == stream["name"]) if s is not None]
        if says:
            marks[stream["name"]] = max(before[stream["name"]], min(says))
    slowest = min(marks.values(), default=TIME_MIN)
    return {name: marks.get(name, max(mark, slowest)) for name, mark in before.items()}


def micro_batches(streams, cut):
    """All micro-batches of a run: [(rows as (stream's name, order, values), {stream: watermark after it})]."""
    partitions, out = [], []
    for stream in streams:
        for local, files in enumerate(stream["partitions"]):
            partitions.append(Partition(len(partitions), stream, local, files))
    marks = {stream["name"]: TIME_MIN for stream in streams}
    while any(p.at < len(p.records) for p in partitions):
        for p in partitions:
            p.is_over = p.at == len(p.records)
        taken, is_cut = cut_number(partitions, cut)
        if is_cut:
            marks = advance(streams, partitions, marks)
        out.append((sorted(taken, key=lambda t: t[1]), marks))
    return out + [([], {stream["name"]: TIME_MAX for stream in streams})]


def inputs(history, names):
    """What a step with these streams as inputs sees: [MicroBatch]."""
    out, before = [], TIME_MIN
    for index, (taken, marks) in enumerate(history):
        rows = [Row(names.index(stream), order, values["ts"], values, (stream, values["n"])) for stream, order, values in taken
                if stream in names]
        after = min(marks[name] for name in names)
        out.append(MicroBatch(index, rows, before, after))
        before = after
    return out
