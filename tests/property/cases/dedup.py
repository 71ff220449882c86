"""dedup: a row is a duplicate if its event time is less than `within` from the one that is remembered."""

from history import TIME_MAX

CHAINS = True
KEYS = [["k"], ["g"], ["k", "b"], ["k", "g"], ["f"]]
BUGS = [
    ("at_the_bound", "operators/dedup.c", "if (time <= slot->expire_us)", "if (time < slot->expire_us)"),
    ("before_the_bound", "operators/dedup.c", "return time > time_add(first", "return time >= time_add(first"),
    ("null_is_an_identity", "operators/dedup.c", "if (keys.has_null[i] || !is_dup", "if (!is_dup"),
    ("remembers_what_is_dead", "operators/dedup.c", "if (expire >= context->watermark)", "if (expire >= MIN(context->watermark, TIME_MIN))"),
    ("forgets_too_early", "operators/dedup.c", "if (expire >= context->watermark)", "if (expire > time_add(context->watermark, 1000))"),
    ("last_is_the_earlier_of_equals", "operators/dedup.c", "ordering_compare(&dedup->latest, &own, &key) <= 0;",
     "ordering_compare(&dedup->latest, &own, &key) < 0;"),
]


def HAS_LATE(options):  # pylint: disable=invalid-name
    return options["keep"] == "last" and options["within"] != "forever"


def random_options(rng):
    keep = rng.choice(["first", "last"])
    emit = rng.choice(["final", "on_change"]) if keep == "last" else None
    withins = ["1ms", "500ms", "1s", "3s", "10s", "1h", "forever"]
    return {"by": rng.choice(KEYS), "within": "forever" if emit == "final" else rng.choice(withins), "keep": keep, "emit": emit,
            "narrows": keep == "last"}  # narrows: nothing can follow


def step(options):
    keep = f" keep last emit {options['emit']}" if options["keep"] == "last" else rest_of(options)
    return f"dedup by {', '.join(options['by'])} within {options['within']}{keep}"


def rest_of(options):
    return " keep first" if len(options["by"]) == 2 else ""


def model(options, micro_batches, out):
    within = TIME_MAX if options["within"] == "forever" else out.duration(options["within"])
    (keep_last if options["keep"] == "last" else keep_first)(options, within, micro_batches, out)


def keep_first(options, within, micro_batches, out):
    """The first record of an identity; one row is remembered for each."""
    remembered = {}
    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            key = out.key(row, options["by"])
            seen = remembered.get(key)
            if within == TIME_MAX and None not in key and seen is not None:
                out.count("duplicate")
                continue
            if seen is not None and seen + within - 1 < micro_batch.before:
                seen = None
            if None in key or seen is None or row.time >= seen + within:
                out.passed(row, row.values)
                if row.time + within - 1 >= micro_batch.before or within == TIME_MAX:
                    remembered[key] = row.time
            elif row.time <= seen - within:
                out.passed(row, row.values)
            else:
                out.count("duplicate")
        out.end(micro_batch)


def keep_last(options, within, micro_batches, out):
    """The row with the latest event time of each first occurrence, of equal times the last record."""
    latest = {}  # (key, time of the first occurrence) -> row
    changes, out.order = options["emit"] == "on_change", options["by"]
    for micro_batch in micro_batches:
        changed, alive = {}, micro_batch.before - within + 1
        for row in micro_batch.rows:
            key = out.key(row, options["by"])
            if None in key:
                out.passed(row, {**row.values, "_op": "insert"} if changes else row.values)
                continue
            near = [f for k, f in sorted(latest, key=lambda p: p[1]) if k == key and f >= alive and abs(f - row.time) < within]
            first = 0 if within == TIME_MAX else near[0] if near else row.time
            if within != TIME_MAX and first + within - 1 < micro_batch.before:
                out.late(row)
                continue
            out.count("absorbed")
            before = latest.get((key, first))
            if before is None or row.time >= before.time:
                changed.setdefault((key, first), "insert" if before is None else "update")
                latest[key, first] = row
        for place in sorted(changed, key=lambda p: p[1]) if changes else []:
            out.emit({**latest[place].values, "_op": changed[place]}, latest[place].time)
        for place in latest if micro_batch.after == TIME_MAX and not changes else []:
            out.emit(latest[place].values, latest[place].time)
        out.end(micro_batch)
