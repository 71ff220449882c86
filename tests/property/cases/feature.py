"""feature: each row with the aggregates of its group as of then, of its own stream or of another."""

import aggregates

CHAINS = True
KEYS = [["k"], ["g"], ["b"], ["k", "g"], ["s"]]
# every, windows that are multiples of it
PANES = [("1ms", ["1ms", "500ms"]), ("500ms", ["500ms", "2s", "10s"]), ("1s", ["1s", "2s", "3s", "1m"]), ("10s", ["10s", "1m"])]
BUGS = [
    ("a_pane_too_few", "operators/window/feature.c", "first = MAX(first, alive);", "first = MAX(first + 1, alive);"),
    ("reads_what_is_gone", "operators/window/feature.c", "pane_of(passed - 1, feature->every_us)", "pane_of(passed, feature->every_us)"),
    ("forever_leaves_out_what_is_closed", "operators/window/all_time.c", "MAX(pane_of(time, all->every_us), last_closed(all, watermark))",
     "pane_of(time, all->every_us)"),
    ("forever_sees_open_slices", "operators/window/all_time.c", "int64_t last = MAX(", "int64_t last = 1 + MAX("),
    ("sees_itself", "operators/window/feature.c", "if (feature->including != 0)\n            update_row",
     "if (feature->including >= 0)\n            update_row"),
    ("later_panes_too", "operators/window/feature.c", "pane = pane_of(time, feature->every_us), last = pane;",
     "pane = pane_of(time, feature->every_us), last = pane + 1;"),
    ("last_takes_the_earlier_of_equals", "operators/aggregate/last.c", "if (!p->has || time >= p->time)",
     "if (!p->has || time > p->time)"),
    ("since_last_may_be_negative", "operators/aggregate/last.c", "-p->time), 0);", "-p->time), -INT64_MAX);"),
    ("first_of_a_later_pane", "operators/aggregate/last.c", "(!a->has || b->time < a->time)", "true"),
]


def random_options(rng, inputs=None):
    every, windows = rng.choice(PANES)
    inputs = inputs or rng.choice([1, 2])
    over = rng.sample(windows, rng.choice([1, 1, len(windows)]))
    if rng.random() < 0.35:
        over = rng.choice([["forever"], ["forever", *over], [*over, "forever"]])
    body = aggregates.random_body(rng, is_feature=True)
    if "forever" in over:  # where `distinct_exact` is refused
        body = [[column, "distinct" if name == "distinct_exact" else name, argument] for column, name, argument in body]
    return {"inputs": inputs, "by": rng.choice(KEYS), "every": every, "over": over, "self": inputs == 1 and rng.random() < 0.4,
            "body": body}


def step(options, other="b"):
    over = options["over"][0] if len(options["over"]) == 1 else f"[{', '.join(options['over'])}]"
    return (f"feature{f' from {other}' if options['inputs'] == 2 else ''} by {', '.join(options['by'])} over {over} every "
            f"{options['every']}{' including self' if options['self'] else ''} {aggregates.text(options['body'])}")


def model(options, micro_batches, out):
    every = out.duration(options["every"])
    overs = [None if over == "forever" else out.duration(over) for over in options["over"]]
    ending = [over for over in overs if over is not None]
    groups = {}  # key -> [(pane, time, arguments)], in the order in which they came
    body = options["body"]
    for micro_batch in micro_batches:
        # The first pane that the windows which end still have, and the last one that the watermark has passed.
        alive = (micro_batch.before - max(ending) - 1) // every if ending else None
        closed = micro_batch.before // every - 1

        def update(row, key, arguments):
            groups.setdefault(key, []).append((row.time // every, row.time, arguments, not ending or row.time // every >= alive))
            if not groups[key][-1][3]:
                out.count("late_updates")

        for row in micro_batch.rows:
            key, pane, arguments = out.key(row, options["by"]), row.time // every, None
            if options["inputs"] == 1 or row.input == 1:
                try:
                    arguments = aggregates.arguments(body, row.values)
                except aggregates.Dead as dead:
                    out.count("in", row.input)
                    out.dead(row, dead)
                    continue
            if row.input == 1:
                update(row, key, arguments)
                continue
            if options["self"]:
                update(row, key, arguments)
            values = dict(row.values)
            found = {}
            for over, name in zip(overs, options["over"]):
                if over is None:
                    rows = [(time, given) for at, time, given, _ in groups.get(key, []) if at <= max(pane, closed)]
                else:
                    rows = [(time, given) for at, time, given, is_taken in groups.get(key, [])
                            if is_taken and max(pane - over // every, alive) <= at <= pane]
                found[name] = aggregates.compute(body, rows, row.time)
            for i, (column, _, _) in enumerate(body):
                for name in options["over"]:
                    values[column if len(overs) == 1 else f"{column}_{name}"] = found[name][i]
            out.passed(row, values)
            if options["inputs"] == 1 and not options["self"]:
                update(row, key, arguments)
        out.end(micro_batch)
