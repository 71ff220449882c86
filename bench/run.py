#!/usr/bin/env python3
"""The speed table: each figure beside the machine's own limit or a peer, measured in the same run.

    LEAT=build/release/leat bench/run.py [--quick] [--turns N] [--turn SECONDS] [--list] [ROW...]

Rows are measured `repeats` times (5; 3 with --quick), what is compared in turns; the figure is the median. Times are
CPU seconds (user + system) of the whole process unless a row says otherwise: on a machine where others work too, wall
time depends on them. Every timed run's output is compared with an untimed run's. Writes build/bench/report.json and
report.md. Ends with status 1 when an output is wrong or a row fails; a missed target is reported, but is no failure.
"""

import argparse
import json
import os
import platform
import sys
import time

import cluster_workers
import kafka_broker
import rows_attention
import rows_cluster
import rows_cluster_flink
import rows_engine
import rows_follow
import rows_kafka
import rows_items
import rows_kernels
import rows_learn
import rows_load
import rows_next
import rows_nexmark
import rows_see
import rows_serve
import rows_state
import rows_torch
import rows_towers
from harness import ROOT, Bench, Broken, Skip

# Programs of one part alone; they print tables of their own, and run only when named.
TOOLS = {
    "expr": ("expressions: nanoseconds a row", ("expr", "expr_bench")),
    "bench_kernels": ("each kernel in each variant, in the L1 cache, beside its limit", ("kernels", "bench_kernels")),
    "bench_attention": ("the attention kernels by length, beside matmul", ("kernels", "bench_attention")),
    "bench_kv_cache": ("encoding with a cache of keys and values, beside full passes", ("kernels", "bench_kv_cache")),
    "bench_memory": ("the kernels of a batch over memory, on one core and all", ("kernels", "bench_memory")),
}
ROWS = {**rows_engine.ROWS, **rows_state.ROWS, **rows_learn.ROWS, **rows_torch.ROWS, **rows_kernels.ROWS,
        **rows_attention.ROWS, **rows_items.ROWS, **rows_next.ROWS, **rows_towers.ROWS, **rows_nexmark.ROWS, **rows_kafka.ROWS,
        **rows_cluster.ROWS, **rows_cluster_flink.ROWS, **rows_serve.ROWS, **rows_load.ROWS, **rows_follow.ROWS, **rows_see.ROWS}
GROUPS = {"kafka": list(rows_kafka.ROWS), "nexmark": list(rows_nexmark.ROWS), "serve": [*rows_serve.ROWS, *rows_load.ROWS],
          "follow": list(rows_follow.ROWS), "cluster": [*rows_cluster.ROWS, *rows_cluster_flink.ROWS]}


def machine():
    model = "unknown CPU"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def number(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def cells(name, figure):
    measured = [f"{peer.name} {number(peer.figure)}" for peer in figure.peers]
    ratio = f"{figure.value / figure.peers[0].figure:.2f}" if figure.peers and figure.peers[0].figure else "-"
    quality = "" if figure.quality is None else f"{figure.quality:.4f} (<= {figure.quality_target})"
    target = f"{'<=' if figure.is_upper else '>='} {number(figure.target)}"
    return [name, figure.what, f"{number(figure.value)} {figure.unit}", "; ".join(measured), ratio, quality, target,
            "reached" if figure.is_reached() else "MISSED"]


HEAD = ["row", "figure", "leat", "limits and peers", "ratio to the first", "logloss", "target", ""]


def table(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def markdown(report, lines):
    out = [f"Machine: {report['machine']}. {report['when']}, {report['repeats']} runs of each.", "",
           "| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    out += ["| " + " | ".join(line) + " |" for line in lines]
    for row in report["rows"]:
        if "skipped" in row or "failed" in row:
            out.append(f"\n`{row['row']}`: " + row.get("skipped", row.get("failed")))
        for figure in row.get("figures", []):
            out.append(f"\n`{row['row']}`, {figure['what']}: {figure['note']} Checked: {figure['checked']}.")
    return "\n".join(out) + "\n"


def measure(bench, name):
    """The row's part of the report, and its lines of the table."""
    print(f"==> {name}: {ROWS[name][0]}", file=sys.stderr, flush=True)
    began = time.monotonic()
    try:
        figures = ROWS[name][1](bench)
    except Skip as why:
        print(f"    {why}", file=sys.stderr, flush=True)
        return {"row": name, "skipped": f"skipped: {why}"}, [[name, f"skipped: {why}"[:100]] + [""] * (len(HEAD) - 2)]
    except (Broken, OSError) as why:
        return {"row": name, "failed": f"FAILED: {why}"}, [[name, f"FAILED: {why}"[:100]] + [""] * (len(HEAD) - 2)]
    row = {"row": name, "seconds": time.monotonic() - began, "figures": [figure.as_json() for figure in figures]}
    return row, [cells(name, figure) for figure in figures]


def run_tool(bench, name):
    try:
        print(bench.run([bench.program(*TOOLS[name][1])]).output)
    except (Skip, Broken) as why:
        print(f"{name}: {why}")
        return 1
    return 0


def arguments_of_command_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 runs of each row, smaller inputs")
    parser.add_argument("--turns", type=int, metavar="N", help="how many turns of a latency must count (60; 4 with --quick)")
    parser.add_argument("--turn", type=float, default=1.0, metavar="SECONDS", help="how long such a turn is (1)")
    parser.add_argument("--list", action="store_true", help="names the rows")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    arguments = parser.parse_args()
    if arguments.list:
        for name, (what, _) in {**ROWS, **TOOLS}.items():
            print(f"{name:20} {what}")
        for name, rows in GROUPS.items():
            print(f"{name:20} {', '.join(rows)}")
        sys.exit(0)
    arguments.rows = [one for name in arguments.rows for one in GROUPS.get(name, [name])]
    if (arguments.turns is not None and not 1 <= arguments.turns <= 1000) or not 0.1 <= arguments.turn <= 60:
        parser.error("expected --turns from 1 to 1000 and --turn from 0.1 to 60 seconds")
    unknown = [name for name in arguments.rows if name not in ROWS and name not in TOOLS]
    if unknown:
        parser.error(f"no row {', '.join(unknown)}; there are: {', '.join([*ROWS, *TOOLS, *GROUPS])}")
    return arguments


def main():
    arguments = arguments_of_command_line()
    bench = Bench(os.environ.get("LEAT", os.path.join(ROOT, "build/release/leat")), arguments.quick,
                  arguments.turns, arguments.turn)
    tools = [name for name in arguments.rows if name in TOOLS]
    failures = sum(run_tool(bench, name) for name in tools)
    rows = [name for name in arguments.rows if name in ROWS] or ([] if tools else list(ROWS))
    if not rows:
        return 1 if failures else 0
    report = {"machine": machine(), "when": time.strftime("%Y-%m-%d %H:%M"), "repeats": bench.repeats,
              "quick": arguments.quick, "rows": []}
    lines = []
    try:
        for name in rows:
            row, more = measure(bench, name)
            report["rows"].append(row)
            lines += more
            print(table([HEAD] + more), flush=True)
            with open(bench.path("report.json"), "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
            with open(bench.path("report.md"), "w", encoding="utf-8") as file:
                file.write(markdown(report, lines))
    finally:
        kafka_broker.close()
        cluster_workers.close()
    print("\n" + table([HEAD] + lines))
    print(f"report: {bench.path('report.json')} and report.md")
    return 1 if failures or any("failed" in row for row in report["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
