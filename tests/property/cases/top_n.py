"""top_n: the best n rows of each group by an order, of all time or of each window.

Of two rows the better is the one with the smaller value of the first expression (the larger in desc), then of the next,
then the earlier record; null is the worst. With `ties all` the rows that equal the n-th one are there too, and equal rows
have one rank.
"""

import functools

import shapes
from history import TIME_MAX, TIME_MIN, clamp

KEYS = [["k"], ["g"], ["b"], ["k", "g"], ["f"]]
ORDERS = ["v", "v", "f", "s", "s", "b", "ts", "n % 3", "v + 1", "length(s)"]
BUGS = [
    ("ties_in_front", "operators/rows/kept.c", "return order < 0 || (order == 0 && kept->options.last_wins);", "return order <= 0;"),
    ("null_first", "operators/rows/ordering.c", "is_null ? UINT64_MAX : word ^ turn", "is_null ? 0 : word ^ turn"),
    ("late_at_the_end", "operators/top_n.c", "if (end <= context->watermark)", "if (end < context->watermark)"),
    ("a_tie_falls_out", "operators/rows/kept.c", "return list->count + 1 - equal >= limit ? equal : 0;", "return equal;"),
    ("says_nothing_of_another_rank", "operators/rows/kept_emit.c", "if (!is_old || is_moved)", "if (!is_old || (is_moved && rank == 0))"),
    ("what_fell_out_stays", "operators/rows/kept_emit.c", "            emit_row(e, kept_bytes(kept, before, i), change->hash, rank, CHANGE_DELETE);",
     "            continue;"),
]


def HAS_LATE(options):  # pylint: disable=invalid-name
    return options["over"] is not None


def random_options(rng):
    over = rng.choice([None, shapes.random_shape(rng, ["tumbling", "sliding", "cumulating"])])
    return {"n": rng.choice([1, 1, 2, 3, 5, 100]), "by": rng.choice(KEYS), "over": over,
            "order": [[text, rng.random() < 0.5] for text in rng.sample(ORDERS, rng.choice([1, 1, 2, 3]))],
            "ties": rng.choice([None, "first", "all"]), "rank": rng.choice([None, "place"]),
            "emit": rng.choice([None, "on_close" if over else "final", "on_change"])}


def step(options):
    over = f" over {shapes.text(options['over'])}" if options["over"] else ""
    order = ", ".join(f"desc({text})" if is_descending else text for text, is_descending in options["order"])
    more = "".join(f" {word} {options[word]}" for word in ("ties", "emit", "rank") if options[word])
    return f"top_n {options['n']} by {', '.join(options['by'])} order {order}{over}{more}"


def value_of(text, values):
    """What the expression is worth; OverflowError where it fails."""
    if text == "n % 3":
        return values["n"] % 3
    if text == "length(s)":
        return None if values["s"] is None else len(values["s"])
    if text == "v + 1":
        if values["v"] == (1 << 63) - 1:
            raise OverflowError
        return None if values["v"] is None else values["v"] + 1
    value = values[text]
    return value.encode() if isinstance(value, str) else value


def compare(order, a, b):
    for (_, is_descending), x, y in zip(order, a, b):
        if (x is None) != (y is None):
            return 1 if x is None else -1
        if x is not None and x != y:
            return -1 if (x < y) != is_descending else 1
    return 0


def best(options, rows):
    """[(rank, row)] of rows, [(keys, row)] as they came."""
    def before(a, b):
        return compare(options["order"], a[0], b[0])

    ranked = sorted(rows, key=functools.cmp_to_key(before))  # stable
    out = []
    for place, one in enumerate(ranked):
        rank = place + 1
        if options["ties"] == "all":
            rank = 1 + sum(before(other, one) < 0 for other in rows)
        if rank <= options["n"]:
            out.append((rank, one[1]))
    return out


def model(options, micro_batches, out):
    groups, given = {}, {}  # (window, key) -> [(keys, row)]; -> what was given last
    out.order = options["by"]
    is_final = options["emit"] == "final" or (options["emit"] is None and options["over"] is None)
    out.hold = TIME_MAX if is_final else 0

    def values_of(row, rank, change=None):
        values = {**row.values, "place": rank} if options["rank"] else row.values
        return {**values, "_op": change} if change else values

    for micro_batch in micro_batches:
        touched = set()
        for row in micro_batch.rows:
            key = out.key(row, options["by"])
            try:
                keys = [value_of(text, row.values) for text, _ in options["order"]]
            except OverflowError:
                out.dead(row, "overflow")
                continue
            windows = shapes.windows_of(options["over"], row.time) if options["over"] else [(TIME_MIN, TIME_MAX)]
            open_ = [w for w in windows if not options["over"] or clamp(w[1]) > micro_batch.before]
            if not open_:
                out.late(row)
                continue
            out.count("absorbed")
            for window in open_:
                groups.setdefault((window, key), []).append((keys, row))
                touched.add((window, key))
        for place in sorted(touched, key=lambda p: p[0]) if options["emit"] == "on_change" else []:
            before, now = given.get(place, []), best(options, groups[place])
            given[place] = now
            for rank, row in before:
                if not any(row is other for _, other in now):
                    out.emit(values_of(row, rank, "delete"), row.time)
            for rank, row in now:
                old = [r for r, other in before if other is row]
                if not old or (options["rank"] and old[0] != rank):
                    out.emit(values_of(row, rank, "update" if old else "insert"), row.time)
        for place in sorted(groups, key=lambda p: (p[0][1], p[0][0])):
            end = clamp(place[0][1])
            if options["emit"] != "on_change" and micro_batch.before < end <= micro_batch.after:
                for rank, row in best(options, groups[place]):
                    out.emit(values_of(row, rank), end - 1 if options["over"] else row.time)
        out.end(micro_batch)
