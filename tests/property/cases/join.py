"""join: pairs of rows with equal keys and times that go together; a pair is there if, when its second row came, the watermark
was beyond the deadline of neither."""

import shapes
from history import COLUMNS, TIME_MAX, TIME_MIN, add, clamp

HAS_LATE = True
KEYS = [[("k", "k")], [("g", "g")], [("b", "b")], [("k", "k"), ("g", "g")], [("k", "v")], [("v", "k")], [("f", "f")]]
BOUNDS = ["-10s", "-3s", "-500ms", "-1ms", "0s", "1ms", "500ms", "2s", "10s", "1m"]
ORDERS = {"v": [("v", 1)], "desc(v)": [("v", -1)], "desc(f), n": [("f", -1), ("n", 1)], "s, desc(n)": [("s", 1), ("n", -1)]}
BUGS = [
    ("the_lower_bound_is_open", "operators/join/join_match.c", "kept->from >= reach->from &&", "kept->from > reach->from &&"),
    ("the_upper_bound_is_open", "operators/join/join_match.c", "m->reach.from > kept->to)", "m->reach.from >= kept->to)"),
    ("late_at_the_deadline", "operators/join/join_block.c", "if (until < context->watermark)", "if (until <= context->watermark)"),
    ("forgets_at_the_deadline", "operators/join/key_rows.c", "row->until < watermark ||\n", "row->until <= watermark ||\n"),
    ("null_is_a_key", "operators/join/join_block.c", "return prepared->keys.has_null[index] || !has_bound", "return !has_bound"),
    ("goes_on_though_it_met", "operators/join/join_match.c", "? KEY_ROW_MARK : KEY_ROW_STAY", "? KEY_ROW_STAY : KEY_ROW_STAY"),
    ("the_later_of_equals", "operators/join/join_match.c", "return order < 0 ||", "return order <= 0 ||"),
    ("semi_twice", "operators/join/join_match.c", "return stop | KEY_ROW_DROP;", "return stop;"),
    ("the_first_window_only", "operators/join/join_bind.c", "windows_last(&join->windows, time)), -1),",
     "windows_first(&join->windows, time)), -1),"),
]


def random_options(rng):
    kind = rng.choice(["inner", "inner", "left", "anti", "semi"])
    options = {"inputs": 2, "kind": kind, "on": rng.choice(KEYS), "take": "all", "order": None, "shape": None, "unique": None}
    if kind in ("inner", "left"):
        options["take"] = rng.choice(["all", "all", "first", "last", "best"])
        options["order"] = rng.choice(list(ORDERS)) if options["take"] == "best" else None
    reach = rng.random()
    if reach < 0.25:
        options["shape"] = shapes.random_shape(rng)
        return options
    low, high = sorted(rng.sample(range(len(BOUNDS)), 2))
    high = "v * 1s" if rng.random() < 0.25 else BOUNDS[high]
    options["within"] = "forever" if reach < 0.45 else [BOUNDS[low], high]
    options["unique"] = rng.choice([None, None, "right", "left", "both"])
    return options


def step(options, other="b"):
    on = ", ".join(a if a == b else f"{a} = {b}" for a, b in options["on"])
    text = f"join {other} on {on} prefix \"r_\" kind {options['kind']} take {options['take']}"
    if options["order"]:
        text += f" order {options['order']}"
    if options["unique"]:
        text += f" unique {options['unique']}"
    if options["shape"]:
        return f"{text} over {shapes.text(options['shape'])}"
    within = options["within"]
    return f"{text} within {within if within == 'forever' else '[' + ', '.join(within) + ']'}"


def bound(text):
    return -shapes.duration(text[1:]) if text[0] == "-" else shapes.duration(text)


def left_reaches(options, row):
    """[(from, to, until)], one for each window; or a text: why the row is dead; or None: it matches nothing."""
    if options["shape"]:
        ends = [(clamp(start), add(clamp(end), -1)) for start, end in shapes.windows_of(options["shape"], row.time)]
        return [(start, end, min(end, TIME_MAX - 1)) for start, end in ends]
    if options["within"] == "forever":
        return [(TIME_MIN, TIME_MAX, TIME_MAX - 1)]
    low, high = options["within"]
    if high == "v * 1s":
        if row.values["v"] is None:
            return None
        high = row.values["v"] * 1_000_000
        if not TIME_MIN <= high <= TIME_MAX:
            return "integer overflow"
    else:
        high = bound(high)
    return [(add(row.time, bound(low)), add(row.time, high), min(add(row.time, max(high, 0)), TIME_MAX - 1))]


def right_until(options, row):
    if options["shape"]:
        return min(add(clamp(shapes.windows_of(options["shape"], row.time)[-1][1]), -1), TIME_MAX - 1)
    if options["within"] == "forever":
        return TIME_MAX - 1
    return min(add(row.time, max(-bound(options["within"][0]), 0)), TIME_MAX - 1)


def is_better(options, a, b):
    """Whether the right row a is better than b, which came before it."""
    if options["take"] in ("first", "last"):
        return a.time < b.time if options["take"] == "first" else a.time >= b.time
    for column, sign in ORDERS[options["order"]]:
        x, y = a.values[column], b.values[column]
        if (x is None) != (y is None):
            return y is None
        if x != y:
            x, y = (x.encode(), y.encode()) if isinstance(x, str) else (x, y)
            return (x < y) == (sign > 0)
    return False


class Left:
    def __init__(self, row, key, reach):
        self.row, self.key, (self.start, self.end, self.until) = row, key, reach
        self.best, self.has_met, self.is_done = None, False, False  # done: nothing more is looked for


class Join:
    def __init__(self, options, out, columns):
        self.options, self.out, self.columns = options, out, columns
        self.kind, self.take, self.unique = options["kind"], options["take"], options["unique"] or "none"
        self.waits = self.kind in ("left", "anti") or self.take != "all"
        self.is_single = not options["shape"] or options["shape"]["kind"] == "tumbling"
        self.lefts, self.rights = [], []  # what is kept, as it came
        self.shared = [b for a, b in options["on"] if a == b]

    def values(self, left, right):
        """Of a row: its columns, then those of the other stream, but for keys of the same name."""
        return {**left, **{f"r_{c}": None if right is None else right[c] for c in COLUMNS if c not in self.shared}}

    def make(self, left, right, place):
        values = dict(left.row.values)
        if self.kind in ("inner", "left"):
            values = self.values(values, right and right.values)
        if self.options["shape"]:
            values |= {"window_start": left.start, "window_end": add(left.end, 1)}
        self.out.given.append(place._replace(values=values, input=0))

    def late(self, row):
        self.out.count("late")
        left = row.values
        if row.input == 1:
            left = {c: None for c in self.columns} | {a: row.values[b] for a, b in self.options["on"] if a == b}
        self.out.lates.append(self.values(left, row.values if row.input == 1 else None))

    def left(self, row, key, micro_batch):
        reaches = left_reaches(self.options, row)
        if isinstance(reaches, str):
            self.out.dead(row, reaches)
            return
        if (row.time if reaches is None else reaches[-1][2]) < micro_batch.before:
            self.late(row)
            return
        if reaches is None or None in key:
            self.alone(row, reaches or [(0, 0, TIME_MAX)], micro_batch)
            return
        if self.unique in ("left", "both") and self.partners(key, micro_batch):
            self.out.dead(row, "`unique`")
            return
        became, made = None, 0
        for reach in reaches:
            if reach[2] >= micro_batch.before:
                became, pairs = self.left_in(Left(row, key, reach), micro_batch)
                made += pairs
        self.count_left(became, made)

    def partners(self, key, micro_batch):
        return [e for e in self.lefts if e.key == key and e.until >= micro_batch.before and not e.is_done]

    def alone(self, row, reaches, micro_batch):
        if self.kind not in ("left", "anti"):
            self.out.count("filtered")
            return
        made = [self.make(Left(row, None, reach), None, row) for reach in reaches if reach[2] >= micro_batch.before]
        self.count_left("passed", len(made))

    def count_left(self, became, made):
        if not self.is_single:
            became = "absorbed"
        self.out.count(became)
        self.out.count("emitted", made - (became == "passed"))

    def left_in(self, left, micro_batch):
        """In one window: what became of it, and how many rows it made."""
        partners = [r for r in self.rights if r[1] == left.key and r[2] >= micro_batch.before]
        met = [r[0] for r in partners if left.start <= r[0].time <= left.end]
        if self.unique in ("left", "both"):
            self.rights = [r for r in self.rights if r not in partners]
        made = 0
        if self.take == "all" and self.kind in ("inner", "left"):
            for right in met:
                self.make(left, right, left.row)
            made = len(met)
        if self.kind == "semi" and met:
            self.make(left, None, left.row)
            return "passed", 1
        if self.kind == "anti" and met:
            return "filtered", 0
        if self.take == "all" and self.unique in ("right", "both") and partners:
            if met:
                return "passed", made
            if not self.waits:
                return "filtered", 0
        for right in met if self.take != "all" else []:
            if left.best is None or is_better(self.options, right, left.best):
                left.best = right
        left.has_met = bool(met)
        self.lefts.append(left)
        return ("held" if self.waits else "absorbed"), made

    def right(self, row, key, micro_batch):
        until = right_until(self.options, row)
        if until < micro_batch.before:
            self.late(row)
        elif None in key:
            self.out.count("filtered")
        elif self.unique in ("right", "both") and any(r[1] == key and r[2] >= micro_batch.before for r in self.rights):
            self.out.dead(row, "`unique`")
        else:
            self.out.count("absorbed")
            partners = self.partners(key, micro_batch)
            for left in [e for e in partners if e.start <= row.time <= e.end]:
                self.meet(left, row)
            if not (self.unique in ("left", "both") and partners):
                self.rights.append((row, key, until))

    def meet(self, left, right):
        left.has_met = True
        if self.take != "all":
            if left.best is None or is_better(self.options, right, left.best):
                left.best = right
            return
        if self.kind != "anti":
            self.make(left, right, right)
            self.out.count("emitted")
        left.is_done = self.kind in ("semi", "anti") or self.unique in ("right", "both")

    def settle(self, micro_batch):
        """At the deadline of what waits."""
        due = [e for e in self.lefts if e.until < micro_batch.after]
        for left in sorted(due, key=lambda e: e.until) if self.waits else []:
            met = left.best is not None if self.take != "all" else left.has_met
            comes = (met or self.kind == "left") if self.take != "all" else not met
            if comes:
                self.make(left, left.best, left.row)
            if not self.is_single:
                self.out.count("emitted", int(comes))
                continue
            self.out.count("held", -1)
            self.out.count("passed" if comes else "absorbed" if self.kind == "left" else "filtered")
        self.lefts = [e for e in self.lefts if e.until >= micro_batch.after]


def model(options, micro_batches, out):
    lefts = [row for micro_batch in micro_batches for row in micro_batch.rows if row.input == 0]
    join = Join(options, out, lefts[0].values if lefts else COLUMNS)
    out.order = [a for a, _ in options["on"]]
    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            out.count("in", row.input)
            key = out.key(row, [pair[row.input] for pair in options["on"]])
            (join.right if row.input == 1 else join.left)(row, key, micro_batch)
        join.settle(micro_batch)
        out.end(micro_batch)
    if not lefts:
        out.lates = None  # who knows what columns its rows would have
