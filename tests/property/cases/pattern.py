"""pattern: a sequence of rows of a key, in the order of records; with `unless`, one that nothing follows."""

from history import TIME_MIN

HAS_LATE = True
KEYS = [["k"], ["g"], ["b"], ["k", "g"]]
STEPS = {
    "v > 2": lambda v: v["v"] is not None and v["v"] > 2,
    "v < 4": lambda v: v["v"] is not None and v["v"] < 4,
    "b": lambda v: v["b"],
    "not b": lambda v: v["b"] is False,
    "f > 0.0": lambda v: v["f"] is not None and v["f"] > 0,
    "s is not null": lambda v: v["s"] is not None,
}
BUGS = [
    ("within_is_open", "operators/pattern/sequence.c", "time <= deadline;", "time < deadline;"),
    ("times_may_fall", "operators/pattern/sequence.c", "time >= beginning->times[steps - 1] && time", "time"),
    ("earliest_beginning", "operators/pattern/sequence.c", "other->times[0] > longer.times[0]", "other->times[0] < longer.times[0]"),
    ("follows_itself", "operators/pattern/sequence.c", "for (uint32_t step = sequence->steps; step-- > 0;) {",
     "for (uint32_t step = 0; step < sequence->steps; step++) {"),
    ("keeps_what_is_used", "operators/pattern/sequence.c", "state->head.begun = 0;", ""),
    ("undone_before_the_last", "operators/pattern/sequence.c", "|| time < match_before.last)", ")"),
    ("out_a_moment_early", "operators/pattern/pattern.c", "time_queue_pop(pattern->queue, watermark, &record)",
     "time_queue_pop(pattern->queue, time_add(watermark, 1), &record)"),
    ("late_a_moment_early", "operators/pattern/pattern.c", "pattern->within_us) < context->watermark)", "pattern->within_us) <= context->watermark)"),
]


def random_options(rng):
    unless = rng.choice([None, None, *STEPS])
    names = rng.sample(list(STEPS), rng.choice([1, 2, 2, 3] if unless else [2, 2, 3, 4]))
    return {"by": rng.choice(KEYS), "within": rng.choice(["1ms", "500ms", "1s", "3s", "10s", "1m"]), "unless": unless,
            "keep": rng.choice([[], [], ["s"], ["n", "g"]]), "steps": names}


def step(options):
    keep = f" keep {', '.join(options['keep'])}" if options["keep"] else ""
    unless = f" unless {options['unless']}" if options["unless"] else ""
    entries = ", ".join(f"t{i}: {text}" for i, text in enumerate(options["steps"]))
    return f"pattern by {', '.join(options['by'])} within {options['within']}{unless}{keep} {{ {entries} }}"


def match_of(options, rows):
    values = dict(rows[-1].values)
    values.update({f"t{i}_time": row.time for i, row in enumerate(rows)})
    values.update({f"t{i}_{c}": row.values[c] for i, row in enumerate(rows[:-1]) for c in options["keep"]})
    return values


def take(options, row, begun, within, before):
    """The row goes through the beginnings of its key, {steps done: rows}; a match, or whether it was of use."""
    count, used = len(options["steps"]), False
    for done in reversed(range(count)):
        rows = begun.get(done, []) if done else []
        follows = not done or (rows and before <= rows[0].time + within and rows[-1].time <= row.time <= rows[0].time + within)
        if not follows or not STEPS[options["steps"][done]](row.values):
            continue
        longer = [*rows, row]
        if done + 1 == count:
            begun.clear()
            return longer
        if done + 1 not in begun or begun[done + 1][0].time <= longer[0].time:
            begun[done + 1], used = longer, True
    return used


def model(options, micro_batches, out):
    within, begun, waiting = out.duration(options["within"]), {}, []
    out.hold = within if options["unless"] else 0
    out.order = options["by"] if options["unless"] else None
    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            key = out.key(row, options["by"])
            if micro_batch.before != TIME_MIN and row.time + within < micro_batch.before:
                out.late(row)
                continue
            met = [w for w in waiting if w[0] == key and w[1][0].time <= row.time <= w[1][0].time + within]
            if met:
                rows = met[0][1]
                is_undone = STEPS[options["unless"]](row.values) and row.time >= rows[-1].time
                out.count("filtered")
                if is_undone:
                    out.count("absorbed")
                    waiting.remove(met[0])
                continue
            found = take(options, row, begun.setdefault(key, {}), within, micro_batch.before)
            if found is True:
                out.count("absorbed")
            elif not found:
                out.count("filtered")
            elif options["unless"]:
                waiting.append((key, found))
            else:
                out.passed(row, match_of(options, found))
        due = [w for w in waiting if w[1][0].time + within < micro_batch.after]
        for entry in sorted(due, key=lambda w: w[1][0].time):
            waiting.remove(entry)
            out.passed(entry[1][-1], match_of(options, entry[1]))
        out.end(micro_batch)
