"""lookup: each row with the columns of a table in a file, by its key."""

import os

CHAINS = True
TABLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tables")
# file, columns of the key, {key: columns}
ITEMS = {(-1,): ("minus", 0.5), (0,): ("zero", None), (2,): (None, -1.25), (3,): ("drei", 3.0)}
WORDS = {("", 0): (True,), ("a", 1): (None,), ("b", -1): (False,), ("long" * 40, 0): (True,)}
CASES = {"items.csv": (["k"], {"name": "text", "price": "float"}, ITEMS),
         "words.jsonl": (["g", "k"], {"is_word": "bool"}, WORDS)}
BUGS = [
    ("null_is_a_key", "engine/core/key.c", "has_null[i] = is_null;", "has_null[i] = false;"),
    ("inner_keeps_all", "operators/lookup/lookup.c", "count += found[i] != NULL;", "count += found[i] != NULL || i == 0;"),
    ("null_is_zero", "operators/lookup/lookup_table.c", "        if (is_null)\n            batch_set_null(batch, column, row);",
     "        if (found[k] == NULL)\n            batch_set_null(batch, column, row);"),
    ("another_text", "operators/lookup/lookup_table.c", "ref.length = (uint32_t)(heap->length - ref.offset);",
     "ref.length = (uint32_t)(heap->length - ref.offset) / 2;"),
]


def random_options(rng):
    return {"table": rng.choice(list(CASES)), "kind": rng.choice(["left", "inner"])}


def step(options):
    keys, columns, _ = CASES[options["table"]]
    on = ", ".join(f"{key} = key_{key}" for key in keys)
    return (f'lookup "{os.path.normpath(os.path.join(TABLES, options["table"]))}" on {on} kind {options["kind"]} '
            f"{{ {', '.join(f'{name}: {kind}' for name, kind in columns.items())} }}")


def model(options, micro_batches, out):
    keys, columns, table = CASES[options["table"]]
    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            key = out.key(row, keys)
            if key not in table and options["kind"] == "inner":
                out.count("filtered")
                continue
            found = table.get(key, (None,) * len(columns))
            out.passed(row, {**row.values, **dict(zip(columns, found))})
        out.end(micro_batch)
