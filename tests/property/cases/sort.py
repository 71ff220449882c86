"""sort: a row waits until the watermark is more than `within` beyond its event time; who comes behind that is late."""

from history import add

HAS_LATE, CHAINS, SHUFFLES = True, True, True
BUGS = [
    ("late_at_the_bound", "operators/sort.c", "return time_add(watermark, -sort->within_us);",
     "return time_add(watermark, 1 - sort->within_us);"),
    ("out_too_early", "operators/sort.c", "time_queue_pop(sort->queue, left_before(sort, watermark), &record)",
     "time_queue_pop(sort->queue, watermark, &record)"),
]


def random_options(rng):
    return {"within": rng.choice(["0s", "1ms", "500ms", "3s", "10s", "1m"]), "by": rng.choice([None, None, ["k"], ["g", "b"]])}


def step(options):
    return f"sort within {options['within']}" + (f" by {', '.join(options['by'])}" if options["by"] else "")


def model(options, micro_batches, out):
    within, held = out.duration(options["within"]), []
    out.hold, out.order = within, options["by"]
    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            if row.time < add(micro_batch.before, -within):
                out.late(row)
            else:
                held.append(row)
        due = [row for row in held if row.time < add(micro_batch.after, -within)]
        held = [row for row in held if row not in due]
        for row in sorted(due, key=lambda row: row.time):  # a stable sort: of equal times the earlier record first
            out.passed(row, row.values)
        out.end(micro_batch)
