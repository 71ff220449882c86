"""attribute with columns of the answers, and rows before their deadline."""

from history import TIME_MAX

HAS_LATE, CHAINS, SHUFFLES = True, True, True
KEYS = [["k"], ["g"], ["b"], ["k", "g"]]
MODES = ["take first", "take last", "take all", "emit at_once", "emit fake_negative"]
BUGS = [
    ("first_is_last", "operators/attribute/attribute_wait.c", "attribute->take == ATTRIBUTE_LAST ?", "attribute->take != ATTRIBUTE_LAST ?"),
    ("before_the_row", "operators/attribute/attribute_answers.c", "!= NULL && before->time >= from)", "!= NULL && before->time >= from - 1000)"),
    ("one_answer_too_few", "operators/attribute/attribute_wait.c", "answer == newest ||", "answer == newest || version_after(answer) == newest ||"),
    ("once_more_at_the_deadline", "operators/attribute/attribute_early.c", "    versions_remove(attribute->waiting, slots[1], first, last);\n",
     "    if (count > 1)\n        versions_remove(attribute->waiting, slots[1], first, last);\n"),
    ("answered_before_it_came", "operators/attribute/attribute_early.c", "const struct version *answer = has_null ? NULL :",
     "const struct version *answer = has_null || is_fake ? NULL :"),
    ("not_given_again", "operators/attribute/attribute_early.c", "context->counters.emitted += is_fake && answer != NULL;",
     "context->counters.emitted += 0 * is_fake;"),
]


def random_options(rng):
    return {"inputs": 2, "on": rng.choice(KEYS), "within": rng.choice(["1ms", "500ms", "3s", "10s", "1m"]), "mode": rng.choice(MODES)}


def step(options, other="b"):
    return (f"attribute {other} on {', '.join(options['on'])} within {options['within']} as labelled {options['mode']} "
            "{ answer: n, answered: s }")


def model(options, micro_batches, out):
    within, mode = out.duration(options["within"]), options["mode"].split()[1]
    is_early = mode in ("at_once", "fake_negative")
    held, answers, arrived = [], [], 0
    out.hold, out.order = within, options["on"]

    def give(row, answer, is_again=False):
        values = answer.values if answer else {"n": None, "s": None}
        values = {**row.values, "labelled": int(answer is not None), "answer": values["n"], "answered": values["s"]}
        if not is_again:
            out.passed(row, values)
        else:
            out.count("emitted")
            out.given.append(row._replace(values=values, input=0))

    def answers_of(row, key):
        """By time, equal ones as they came."""
        return sorted((a for k, a in answers if k == key and row.time <= a.time <= row.time + within), key=lambda a: a.time)

    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            key = out.key(row, options["on"])
            if row.input == 1:
                if None in key:
                    continue
                if row.time + within < micro_batch.before:
                    out.count("late_updates")
                    continue
                answers.append((key, row))
                for entry in sorted(e for e in held if is_early and e[2] == key and e[3].time <= row.time <= e[3].time + within):
                    held.remove(entry)
                    give(entry[3], row, mode == "fake_negative")
            elif row.time + within < micro_batch.before:
                out.late(row)
            else:
                found = [] if not is_early or None in key else answers_of(row, key)
                if mode == "fake_negative":
                    give(row, None)
                if found:
                    give(row, found[0], mode == "fake_negative")
                else:
                    held.append((min(row.time + within, TIME_MAX - 1), arrived, key, row))
                    arrived += 1
        for entry in sorted(e for e in held if e[0] < micro_batch.after):
            held.remove(entry)
            found = [] if is_early or None in entry[2] else answers_of(entry[3], entry[2])
            if mode != "fake_negative":
                chosen = {"first": found[:1], "last": found[-1:], "all": found}.get(mode) or [None]
                for i, answer in enumerate(chosen):
                    give(entry[3], answer, i > 0)
        out.end(micro_batch)
