"""split and route: rows go to named outputs by conditions."""

import aggregates

CONDITIONS = {
    "b": lambda v: v["b"],
    "v > 2": lambda v: v["v"] is not None and v["v"] > 2,
    "f < 0.0": lambda v: v["f"] is not None and v["f"] < 0,
    "g is null": lambda v: v["g"] is None,
    "100 / v > 20": lambda v: aggregates.quotient(v) is not None and aggregates.quotient(v) > 20,
}
BUGS = [
    ("null_goes_on", "operators/sides.h", "else if (!bit_get(failed, row))", "else if (!bit_get(failed, row) && false)"),
    ("first_is_all", "operators/route.c", "if (route->match != ROUTE_FIRST)", "if (true)"),
    ("failed_rows_go_on", "operators/route.c", "if (!bit_get(errors.rows, taken[i][k]))", "if (true)"),
]


def random_options(rng):
    count = rng.choice([0, 0, 1, 2, 3])  # 0: split
    return {"conditions": rng.sample(list(CONDITIONS), max(count, 1)), "is_split": count == 0, "all": rng.random() < 0.4}


def sides(options):
    return ["rest"] if options["is_split"] else [f"o{i}" for i in range(len(options["conditions"]))]


def step(options):
    if options["is_split"]:
        return f"split where {options['conditions'][0]}"
    entries = ", ".join(f"o{i}: {text}" for i, text in enumerate(options["conditions"]))
    return f"route {'match all ' if options['all'] else ''}{{ {entries} }}"


def taken_by(options, values):
    """The outputs that take the row; raises Dead."""
    found = []
    for name, text in zip(sides(options), options["conditions"]):
        if CONDITIONS[text](values):
            found.append(name)
            if not options["all"]:
                break
    return found


def model(options, micro_batches, out):
    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            try:
                if options["is_split"]:
                    is_in = CONDITIONS[options["conditions"][0]](row.values)
                    if is_in:
                        out.passed(row, row.values)
                    else:
                        out.count("filtered")
                        out.side("rest", row)
                    continue
                names = taken_by(options, row.values)
            except aggregates.Dead as dead:
                out.dead(row, dead)
                continue
            if names:
                out.count("filtered")
            else:
                out.passed(row, row.values)
            for name in names:
                out.side(name, row)
        out.end(micro_batch)
