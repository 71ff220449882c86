"""enrich: each row with the newest row of the other stream that had come, as of the row's event time."""

CHAINS = True
KEYS = [["k"], ["g"], ["b"], ["k", "g"], ["s"]]
# a column's expression over the other stream, as of its values
VALUES = {"n": lambda r: r["n"], "s": lambda r: r["s"], "f * 2.0": lambda r: r["f"] and r["f"] * 2.0, "ts": lambda r: r["ts"],
          "b": lambda r: r["b"], "coalesce(v, 0) = 0": lambda r: (r["v"] or 0) == 0}
BUGS = [
    ("a_later_event_time", "operators/enrich.c", "while (version != NULL && version->time > time) {",
     "while (version != NULL && version->time > time + 1000000) {"),
    ("as_of_is_before", "operators/enrich.c", "while (version != NULL && version->time > time) {",
     "while (version != NULL && version->time >= time) {"),
    ("forgets_too_early", "operators/enrich.c", "valid_until(enrich, version->time) < least",
     "valid_until(enrich, version->time) <= least"),
    ("late_rows_read_what_is_gone", "operators/enrich.c", "if (version->time <= context->watermark)",
     "if (version->time == TIME_MIN)"),
    ("drops_the_last_before_the_watermark", "operators/rows/versions.c", "while (version->time > floor_us && version->before > 0)",
     "while (version->time > floor_us && version->before > 0 && version_before(version)->time > floor_us)"),
    ("the_earlier_of_equals", "operators/rows/versions.c", "after != NULL && after->time > new->time;",
     "after != NULL && after->time >= new->time;"),
    ("never_too_old", "operators/enrich.c", "enrich->within_us == INT64_MAX ? TIME_MAX",
     "enrich->within_us > 5000000 ? TIME_MAX"),
]


def random_options(rng):
    return {"inputs": 2, "on": rng.choice(KEYS), "within": rng.choice(["1ms", "500ms", "3s", "10s", "1m", "forever", "forever"]),
            "values": rng.sample(list(VALUES), rng.choice([1, 2, 4]))}


def names(options):
    return [(f"e{i}", value) for i, value in enumerate(options["values"])]


def step(options, other="b"):
    values = ", ".join(f"{name}: {value}" for name, value in names(options))
    return f"enrich from {other} on {', '.join(options['on'])} within {options['within']} {{ {values} }}"


def model(options, micro_batches, out):
    within = float("inf") if options["within"] == "forever" else out.duration(options["within"])
    versions = []  # (key, time, values), in the order in which they came
    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            key = out.key(row, options["on"])
            mine = [v for v in versions if v[0] == key and None not in key]
            passed = [v[1] for v in mine if v[1] <= micro_batch.before]  # by the watermark
            if row.input == 1:
                if None in key:
                    continue
                if row.time + within < micro_batch.before or any(time > row.time for time in passed):
                    out.count("late_updates")
                    continue
                versions = [v for v in versions if v[:2] != (key, row.time)] + [(key, row.time, row.values)]
                continue
            known = [v for v in mine if v[1] <= row.time and v[1] + within >= max(row.time, micro_batch.before)
                     and v[1] >= max(passed, default=v[1])]
            found = max(known, key=lambda v: v[1])[2] if known else None
            out.passed(row, {**row.values, **{name: found and VALUES[value](found) for name, value in names(options)}})
        out.end(micro_batch)
