"""rate_limit: a row goes on unless an interval of length `per` would hold too many of those that went on."""

HAS_LATE, CHAINS = True, True
KEYS = [["k"], ["g"], ["b"], ["k", "g"]]
BUGS = [
    ("one_too_many", "operators/rate_limit.c", "uint32_t most = (uint32_t)limit->most;", "uint32_t most = (uint32_t)limit->most + 1;"),
    ("interval_is_closed", "operators/rate_limit.c", "if (time_add(begin, limit->per_us) > end)", "if (time_add(begin, limit->per_us) >= end)"),
    ("sees_only_what_was_before", "operators/rate_limit.c", "first <= at && first + most <= count; first++)",
     "first <= at && first + most <= MIN(at, count); first++)"),
    ("forgets_too_early", "operators/rate_limit.c", "lower_bound(times, count, passed + 1)",
     "lower_bound(times, count, time_add(passed, limit->per_us))"),
    ("late_a_moment_later", "operators/rate_limit.c", "limit->per_us) <= context->watermark)", "limit->per_us) < context->watermark)"),
]


def random_options(rng):
    return {"most": rng.choice([1, 1, 2, 3, 5]), "per": rng.choice(["1ms", "500ms", "1s", "3s", "10s", "1m"]), "by": rng.choice(KEYS)}


def sides(options):
    return ["rest"]


def step(options):
    return f"rate_limit {options['most']} per {options['per']} by {', '.join(options['by'])}"


def model(options, micro_batches, out):
    per, went_on = out.duration(options["per"]), []  # (key, time)
    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            key = out.key(row, options["by"])
            if row.time + per <= micro_batch.before:
                out.late(row)
                continue
            times = [time for k, time in went_on if k == key] + [row.time]
            starts = [time for time in times if row.time - per < time <= row.time]
            if any(sum(start <= time < start + per for time in times) > options["most"] for start in starts):
                out.count("filtered")
                out.side("rest", row)
            else:
                went_on.append((key, row.time))
                out.passed(row, row.values)
        out.end(micro_batch)
