"""attribute: each row at its deadline, with 1 if the other stream has an equal key in [time, time + within], else 0."""

from history import TIME_MAX

HAS_LATE, CHAINS, SHUFFLES = True, True, True
KEYS = [["k"], ["g"], ["b"], ["k", "g"], ["f"]]
BUGS = [
    ("at_the_deadline", "operators/attribute/attribute_answers.c", "times[i] <= time_add(from, attribute->within_us)",
     "times[i] < time_add(from, attribute->within_us)"),
    ("from_the_row_on", "operators/attribute/attribute_answers.c", "while (i < count && times[i] < from)",
     "while (i < count && times[i] <= from)"),
    ("late_at_the_watermark", "operators/attribute/attribute_wait.c", "attribute->within_us) < context->watermark)\n            late",
     "attribute->within_us) <= context->watermark)\n            late"),
    ("thins_answers_too_much", "operators/attribute/attribute_answers.c", "times[i + 1] > time_add(times[i - 1], within_us)",
     "times[i + 1] > time_add(times[i - 1], 2 * within_us)"),
    ("forgets_answers_early", "operators/attribute/attribute_answers.c", "if (last_deadline < context->watermark) {",
     "if (last_deadline <= context->watermark) {"),
    ("null_is_a_key", "engine/core/key.c", "has_null[i] = is_null;", "has_null[i] = false;"),
]


def random_options(rng):
    return {"inputs": 2, "on": rng.choice(KEYS), "within": rng.choice(["1ms", "500ms", "1s", "3s", "10s", "1m"])}


def step(options, other="b"):
    return f"attribute {other} on {', '.join(options['on'])} within {options['within']} as label"


def model(options, micro_batches, out):
    within = out.duration(options["within"])
    held, answers, arrived = [], [], 0
    out.hold, out.order = within, options["on"]
    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            key = out.key(row, options["on"])
            if row.input == 1:
                if None not in key and row.time + within < micro_batch.before:
                    out.count("late_updates")
                elif None not in key:
                    answers.append((key, row.time))
            elif row.time + within < micro_batch.before:
                out.late(row)
            else:
                held.append((min(row.time + within, TIME_MAX - 1), arrived, key, row))
                arrived += 1
        for entry in sorted(e for e in held if e[0] < micro_batch.after):
            deadline, _, key, row = entry
            held.remove(entry)
            answered = any(key == k and row.time <= time <= deadline for k, time in answers)
            out.passed(row, {**row.values, "label": int(answered)})
        out.end(micro_batch)
