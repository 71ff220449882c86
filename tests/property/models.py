#!/usr/bin/env python3
"""Random streams and random steps: every row that leat gives is compared with a model that is slow and obvious.

    tests/property/models.py --leat build/release/leat [--cases 4000] [--seed 1] [--family NAME] [--operator NAME] [--job N]
                             [--folder DIR]
    tests/property/models.py --planted [NAME]      plants bugs in a copy of the tree; each must be found

A job has two random streams `a` and `b` (history.py: out of order, late, equal times, nulls, duplicates, gaps, bad
records, several partitions and files, some of them idle) and some twenty cases, each a random step or a short chain of
them. leat runs it at a random number of lanes and, by LEAT_TEST_CUT, LEAT_TEST_STATE and LEAT_TEST_PLACEMENT (core/os.h), so that
sixty records have many micro-batches, watermarks and late rows, and state that goes to disk. Rows, late rows, dead letters and all counts of each case must be those of its model. A case
that differs is shrunk, and its files, with what to run, stay in --folder.

A new operator, or new options, in ten minutes: one file tests/property/cases/FAMILY.py with

    random_options(rng) -> {...}     one random choice of everything that the step can be told; plain values, as a failing
                                     case is printed, and made simpler by leaving out elements of lists and by None.
                                     "inputs": 2 where the step reads stream `b` as well
    step(options) -> text            the step as the job has it
    model(options, micro_batches, out)     what it must give, for one micro_batch after the other:
        for micro_batch in micro_batches:
            for row in micro_batch.rows:  row.values {column: value}, row.time (us), row.input (0, or 1 for rows of `b`),
                                     micro_batch.before: the watermark by which rows are late
                out.passed(row, values) | out.late(row) | out.dead(row, "in the reason") | out.count("filtered")
            ...                      what the watermark micro_batch.after lets out: out.emit(values, time)
            out.end(micro_batch)
        out.order = ["k"]            where only rows of equal `k` have an order that the model knows
        out.hold = us                where its watermark stays behind
    HAS_LATE = True                  where it has an output NAME.late; or HAS_LATE(options) -> bool
    sides(options) -> ["rest"]       its other side outputs; the model gives them with out.side("rest", row)
    CHAINS = True                    where all columns go on, so that other steps can follow
    SHUFFLES = True                  and out.order is not None: the order of its rows is not known
    ANY_ORDER = True                 where the step can follow such a one: then it is asked for
                                     random_options(rng, any_order=True), of which no output depends on that order
    BUGS = [...]                     bugs to plant, as in cases/dedup.py: (name, file, code that is there once, the bug)

`in` is counted for the model, and out.key(row, columns) counts null_keys; all other counts are what the calls say. Keep
it quadratic: a list of rows and a loop over it. Aggregates are in aggregates.py. Then `models.py --family FAMILY`, and
break the operator to see it fail.
"""

import argparse
import collections
import concurrent.futures
import os
import random
import shutil
import sys

import history
import planted
import registry
import scenario as scenarios
import shrink

CASES_A_JOB, STAGES_MOST = 20, 56  # a plan has room for 64 stages: each step, each sink
CUTS = [1, 1, 2, 3, 4, 6, 10, 30, history.BATCH_ROWS]
LANES = [1, 2, 3, 5]
STATES = [None, None, 300, 4000]  # bytes of memory for each operator; None: as in the job
CASES_LATE = 150  # among so many some have late rows
SHOWN_MAX = 30  # lines of a file of a failing case
# Registered operators that no family has: by row, or by the rows of one record (nest), each shown by its unit test.
BY_ROW = {"drop", "rename", "cast", "clean", "unnest", "nest", "union", "sample", "bucketize", "hash", "cross"}


def random_case(rng, families, family, before):
    """The family's step, after some that others can follow: of other families, so that all columns have names of their
    own."""
    def has(name, what):
        return getattr(families[name], what, False)

    chained = [name for name in families if has(name, "CHAINS") and name != family]
    names = [*rng.sample(chained, min(before, len(chained))), family]
    steps, any_order = [], False
    for name in names:
        if any_order and not has(name, "ANY_ORDER"):
            return random_case(rng, families, family, before)
        given = {"any_order": True} if any_order else {}
        steps.append({"family": name, "options": families[name].random_options(rng, **given)})
        any_order |= has(name, "SHUFFLES")
    if any(step["options"].get("narrows") for step in steps[:-1]):
        return random_case(rng, families, family, before)
    return {"steps": steps}


def random_scenario(seed, job, families, names):
    rng = random.Random(seed * 1_000_003 + job)
    cases, stages = [], 0
    while len(cases) < CASES_A_JOB and stages < STAGES_MOST:
        cases.append(random_case(rng, families, rng.choice(names), rng.choice([0, 1, 2]) if len(cases) % 4 == 0 else 0))
        stages += len(cases[-1]["steps"]) + 1 + len(scenarios.sides(families, cases[-1]["steps"][-1]))
    return {"streams": history.random_streams(rng), "cut": rng.choice(CUTS), "workers": rng.choice(LANES),
            "state": rng.choice(STATES), "placement": rng.choice([None, 1 + seed]), "cases": cases}


def run_job(arguments, families, names, job):
    """(what failed, as text, or None; {family: Counter})"""
    scenario = random_scenario(arguments.seed, job, families, names)
    folder = os.path.join(arguments.folder, f"job-{job}")
    wrong, outputs = scenarios.check(arguments.leat, scenario, families, folder)
    if wrong:
        return failure(arguments, families, scenario, wrong, job), {}
    totals = collections.defaultdict(collections.Counter)
    for micro_batch, case in enumerate(scenario["cases"]):
        last = outputs[micro_batch][-1]
        totals[case["steps"][-1]["family"]].update(cases=1, rows=len(last.rows), late=len(last.lates or []), dead=len(last.deads))
        totals["operators"].update(families[s["family"]].step(s["options"]).split()[0] for s in case["steps"])
    shutil.rmtree(folder, ignore_errors=True)
    return None, totals


def failure(arguments, families, scenario, wrong, job):
    """The smallest scenario that still fails, and how to run it."""
    if arguments.quick:
        return f"seed {arguments.seed}, job {job}: {next(iter(wrong.values()))}".splitlines()[0]
    folder = os.path.join(arguments.folder, f"failed-{arguments.seed}-{job}")
    scenario, what = shrink.shrink(lambda s: scenarios.check(arguments.leat, s, families, folder)[0], scenario, wrong)
    scenarios.check(arguments.leat, scenario, families, folder)
    lines = [f"{', '.join(s['family'] for c in scenario['cases'] for s in c['steps'])}: seed {arguments.seed}, job {job}: {what}",
             f"again: cd {folder} && {' '.join(f'{name}={value}' for name, value in scenarios.knobs(scenario).items())} "
             f"{arguments.leat} run job.leat --workers {scenario['workers']}"]
    shown = ("job.leat", "a-", "b-", *(["c0"] if len(scenario["cases"]) == 1 else []))
    for name in sorted(name for name in os.listdir(folder) if name.startswith(shown)):
        with open(f"{folder}/{name}", encoding="utf-8") as file:
            text = file.read().splitlines()
        lines += [f"--- {name}", *text[:SHOWN_MAX]]
    for name in os.listdir(folder):  # so that it can be run again
        if not (name.startswith(("a-", "b-")) or name == "job.leat"):
            os.unlink(f"{folder}/{name}")
    return "\n#   ".join(line[:400] for text in lines for line in text.splitlines())


def run_all(arguments, families, names):
    jobs = [arguments.job] if arguments.job is not None else range(arguments.cases)
    totals, failed, done = collections.defaultdict(collections.Counter), 0, 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for wrong, found in pool.map(lambda job: run_job(arguments, families, names, job), jobs):
            done += 1
            for family, counts in found.items():
                totals[family].update(counts)
            if wrong:
                failed += 1
                print(f"not ok - models: {wrong}", flush=True)
            elif done % 20 == 0:
                cases = sum(totals[name]["cases"] for name in names)
                print(f"ok - models: {done} jobs, {cases} cases", flush=True)
            if failed >= arguments.failures or sum(totals[name]["cases"] for name in names) >= arguments.cases:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    for family in names if not failed and arguments.job is None else []:
        t = totals[family]
        is_good = t["cases"] > 0 and t["rows"] >= t["cases"] and (t["late"] > 0 or t["cases"] < CASES_LATE or not hasattr(families[family], "HAS_LATE"))
        failed += not is_good
        print(f"{'ok' if is_good else 'not ok'} - models: {family}: {t['cases']} cases, {t['rows']} rows, {t['late']} late, "
              f"{t['dead']} dead", flush=True)
    missing = [name for name in registry.operators() if name not in totals["operators"] and name not in BY_ROW]
    for name in missing if not failed and len(names) == len(families) and arguments.job is None else []:
        failed += 1
        print(f"not ok - models: no model says what `{name}` must give: add tests/property/cases/{name}.py", flush=True)
    return 1 if failed else 0


def shows(family, operator):
    """Whether a step of the family is the operator's."""
    rng = random.Random(1)
    return any(family.step(family.random_options(rng)).split()[0] == operator for _ in range(200))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", default="build/release/leat")
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", help="cases of this one alone")
    parser.add_argument("--operator", help="cases of the families that show this operator")
    parser.add_argument("--job", type=int, help="this one of the seed alone")
    parser.add_argument("--failures", type=int, default=3, help="end after so many")
    parser.add_argument("--quick", action="store_true", help="a failing case is not shrunk")
    parser.add_argument("--folder", default="build/models")
    parser.add_argument("--planted", nargs="?", const="", metavar="NAME")
    arguments = parser.parse_args()
    arguments.leat, arguments.folder = os.path.abspath(arguments.leat), os.path.abspath(arguments.folder)
    families = scenarios.load_families()
    if arguments.planted is not None:
        return planted.main(families, arguments.planted)
    names = [arguments.family] if arguments.family else list(families)
    if arguments.operator:
        names = [name for name in names if shows(families[name], arguments.operator)]
        if not names and arguments.operator in BY_ROW:
            print(f"ok - models: `{arguments.operator}` works by row: its unit test shows it")
            return 0
        if not names:
            print(f"not ok - models: no model says what `{arguments.operator}` must give: add tests/property/cases/{arguments.operator}.py")
            return 1
    return run_all(arguments, families, names)


if __name__ == "__main__":
    sys.exit(main())
