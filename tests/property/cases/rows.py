"""Steps by row: where, with, select. What is null is not true; what cannot be computed goes to dead letters."""

import aggregates

CHAINS = True
# text of the condition, of the row's values: True, False or None
CONDITIONS = {
    "v > 2": lambda r: None if r["v"] is None else r["v"] > 2,
    "v > 2 or b": lambda r: True if r["b"] or (r["v"] or 0) > 2 else None if None in (r["b"], r["v"]) else False,
    "g is null": lambda r: r["g"] is None,
    "not b": lambda r: None if r["b"] is None else not r["b"],
    "100 / v > 0": lambda r: None if r["v"] is None else aggregates.quotient(r) > 0,
    "n % 3 = 0": lambda r: r["n"] % 3 == 0,
}
COLUMNS = {"v + 1": aggregates.successor, "100 / v": aggregates.quotient, "f * 2.0": lambda r: r["f"] and r["f"] * 2.0}
BUGS = [
    ("null_is_true", "operators/expr/eval.c", "bool is_true = vec_is_valid(&value, row) && bools[row & value.mask] != 0;",
     "bool is_true = !vec_is_valid(&value, row) || bools[row & value.mask] != 0;"),
    ("what_is_dead_is_filtered", "operators/where.c", "count - errors.count;", "count;"),
    ("what_is_dead_goes_on", "operators/expr/compute.c", "count += !bit_get(errors->rows, sel[count]);", "count++;"),
]


def random_options(rng):
    kind = rng.choice(["where", "where", "with", "select"])
    what = rng.choice(list(CONDITIONS if kind == "where" else COLUMNS))
    return {"kind": kind, "what": what, "narrows": kind == "select"}  # narrows: nothing can follow


def step(options):
    return {"where": "where {}", "with": "with y = {}", "select": "select n, ts, y = {}"}[options["kind"]].format(options["what"])


def model(options, micro_batches, out):
    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            try:
                found = {**CONDITIONS, **COLUMNS}[options["what"]](row.values)
            except aggregates.Dead as dead:
                out.dead(row, dead)
                continue
            if options["kind"] != "where":
                kept = row.values if options["kind"] == "with" else {c: row.values[c] for c in ("n", "ts")}
                out.passed(row, {**kept, "y": found})
            elif found:
                out.passed(row, row.values)
            else:
                out.count("filtered")
        out.end(micro_batch)
