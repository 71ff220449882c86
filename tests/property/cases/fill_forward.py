"""fill_forward: a null becomes the newest value of its key's column that had come, as of the row's event time."""

CHAINS = True
KEYS = [["k"], ["g"], ["b"], ["k", "g"]]
COLUMNS = ["v", "f", "s", "g", "b"]
BUGS = [
    ("a_later_event_time", "operators/fill_forward.c", "values[i].time <= time &&\n", "values[i].time != TIME_MIN &&\n"),
    ("one_moment_too_old", "operators/fill_forward.c", "valid_until(fill, values[i].time) >= MAX(", "valid_until(fill, values[i].time) > MAX("),
    ("late_rows_read_what_is_gone", "operators/fill_forward.c", "MAX(time, context->watermark)", "MAX(time, MIN(context->watermark, TIME_MIN))"),
    ("the_earlier_of_equals", "operators/fill_forward.c", "values[i].time <= time;", "values[i].time < time;"),
    ("older_values_replace_newer", "operators/fill_forward.c", "column_is_valid(column, row) && values[i].time <= time;",
     "column_is_valid(column, row);"),
    ("forgets_the_other_columns", "operators/fill_forward.c", "int64_t kept = is_newer[i] ? time : values[i].time;",
     "int64_t kept = is_newer[i] ? time : TIME_MIN;"),
]


def random_options(rng):
    by = rng.choice(KEYS)
    free = [c for c in COLUMNS if c not in by]
    return {"columns": rng.sample(free, rng.choice([1, 1, 2, len(free)])), "by": by,
            "within": rng.choice(["1ms", "500ms", "3s", "10s", "1m", "forever"])}


def step(options):
    return f"fill_forward {', '.join(options['columns'])} by {', '.join(options['by'])} within {options['within']}"


def model(options, micro_batches, out):
    within = float("inf") if options["within"] == "forever" else out.duration(options["within"])
    newest = {}  # (key, column): (time, value)
    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            key, values = out.key(row, options["by"]), dict(row.values)
            for column in options["columns"]:
                time, value = newest.get((key, column), (float("-inf"), None))
                if values[column] is None and time <= row.time and max(row.time, micro_batch.before) <= time + within:
                    values[column] = value
                if row.values[column] is not None and row.time >= time:
                    newest[key, column] = (row.time, row.values[column])
            out.passed(row, values)
        out.end(micro_batch)
