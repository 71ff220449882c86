"""The report of `./dev gpu`, as Markdown and JSON, from what was found so far. Nothing is estimated: what was not measured
says so."""

import datetime
import json
import os
import platform
import re
import subprocess

NOT = "not measured"

# The table of what must hold: key of bench_tables or bench_train, what, the best known elsewhere, what must be reached: at
# least so many G keys/s or M samples/s (None: beside others of the same run, or PyTorch's on the same GPU), at most so many
# ms, at least so large a part of a limit of the same run; or of two figures (BESIDE): the first so many times as fast as the
# second, or slower by at most such a part of it.
FIGURES = (
    ("find 0.5", "find, values gathered, dim 64 fp32, 1 M keys an operation, load 0.5",
     "HKV 1.98 G/s on A100, up to 3.9 on H100 NVL (dim not stated)", "rate", 5.0, "5 G/s"),
    ("find 1.0", "the same, load 1.0", "HKV 2.02 G/s on A100", "rate", 5.0, "5 G/s"),
    ("resolve 0.5", "find-or-insert, dim 64, load 0.5, in the deterministic order", "HKV 1.11 G/s on A100", "rate", 2.4,
     "2.4 G/s"),
    ("resolve 1.0", "the same, load 1.0", "HKV 0.61 G/s on A100", "rate", 1.3, "1.3 G/s"),
    ("forward distinct", "10 tables, D=128 fp32, 1,048,570 look-ups, all distinct: forward with probe",
     "FBGEMM TBE 0.347 ms on H100 (distribution not stated)", "ms", 0.30, "0.30 ms"),
    ("backward distinct", "the same: backward + Adam", "TBE 1.005 ms", "ms", 1.05, "1.05 ms"),
    ("forward Zipf", "the same, Zipf ids, half of them distinct: forward with probe", "TBE 0.347 ms", "ms", 0.28, "0.28 ms"),
    ("backward Zipf", "the same: backward + Adam", "TBE 1.005 ms", "ms", 0.65, "0.65 ms"),
    ("tiers", "the same with 10 % of the rows in HBM, Zipf 1.05", "TBE 3.36 + 11.0 ms; dynamicemb 11.3 + 0.97 ms", "ms", 5.0,
     "5 ms in all, or 70 % of the PCIe rate"),
    ("export", "export of 10 % dirty rows of a 20 GB table to pinned memory", "PCIe rate", "share", 0.9,
     "90 % of the copy rate"),
    ("dlrm 65536", "DLRM small (Criteo's shape), batch 64 K, SGD, Zipf ids, columns in host memory, bf16",
     "NVIDIA 4.55 M samples/s on A100 with AMP", "samples", 12.0, "12 M samples/s"),
    ("dlrm 65536, fp32", "the same, IEEE fp32", "-", "samples", None, "what bf16 is beside"),
    ("bf16 against fp32", "bf16 against IEEE fp32, DLRM", "NVIDIA 1.6 times against TF32", "times", 3.0, "3 times"),
    ("deepfm 512", "`deepfm` of the ctr job, batch 512", "PyTorch with CUDA graphs: bench/peers/torch", "samples", None,
     "10 times PyTorch"),
    ("deepfm 4096", "the same, batch 4 K", "likewise", "samples", None, "5 times PyTorch"),
    ("deepfm 65536", "the same, batch 64 K", "likewise", "samples", 30.0, "30 M samples/s, 2 times PyTorch"),
    ("dcnv2 512", "`dcnv2` of the ctr job, batch 512", "likewise", "samples", None, "10 times PyTorch"),
    ("dcnv2 4096", "the same, batch 4 K", "likewise", "samples", None, "5 times PyTorch"),
    ("dcnv2 65536", "the same, batch 64 K", "likewise", "samples", 30.0, "30 M samples/s, 2 times PyTorch"),
    ("pause", "pause at the barrier, 2 GB of dirty rows (DLRM, 20 GB)", "DLRover's flash checkpoint 0.2 s", "ms", 3.0, "3 ms"),
    ("checkpoints 10 %", "throughput with a checkpoint every 10 s, 10 % of 20 GB dirty", "-", "loss", 0.02, "-2 %"),
    ("checkpoints 100 %", "the same, 100 % dirty", "-", "loss", None, "staging bounded, in chunks"),
)
# Rows of two figures: the first is seen beside the second.
BESIDE = {"bf16 against fp32": ("dlrm 65536", "dlrm 65536, fp32"),
          "checkpoints 10 %": ("checkpoints 10 %", "checkpoints 10 %, none"),
          "checkpoints 100 %": ("checkpoints 100 %", "checkpoints 100 %, none")}
# What is measured depends on the device's memory, or on how much of it the rows took: the line says it.
SAYS_WHAT = ("tiers", "pause", "checkpoints 10 %", "checkpoints 100 %")
GROUPS = ("tables", "training")
# Which limit each figure moves against.
LIMIT = {"tiers": "from pinned memory", "export": "to pinned memory"}


def lines_of(run):
    return [line for result in run.found["parts"].get("bench", {}).values() for line in result.get("lines", [])]


def limits(lines):
    """{(variant, limit): GB/s}"""
    return {(l["variant"], l["figure"]): l["gbs"] for l in lines if l["group"] == "limits" and "gbs" in l}


def share(line, known):
    limit = known.get((line["variant"], LIMIT.get(line["figure"], "copy")))
    return line["gbs"] / limit if limit and "gbs" in line else None


def percent(part):
    return "-" if part is None else f"{100 * part:.0f} %"


def is_reached(kind, target, line, part, beside=None):
    """beside: the line of the other figure, where there are two."""
    if kind == "rate":
        return line.get("rate", 0) >= target
    if kind == "samples":
        return 1e3 * line.get("rate", 0) >= target
    if kind == "times":
        return line["rate"] / beside["rate"] >= target
    if kind == "loss":
        return 1 - line["rate"] / beside["rate"] <= target
    if kind == "ms":
        return line["ms"] <= target or (line["figure"] == "tiers" and part is not None and part >= 0.7)
    return part is not None and part >= target


def measured(kind, line, beside):
    if kind == "rate":
        return f"{line['rate']:.2f} {line['unit']}"
    if kind == "samples":
        return f"{1e3 * line['rate']:.2f} M samples/s"
    if kind == "times":
        return f"{line['rate'] / beside['rate']:.2f} times"
    if kind == "loss":
        return f"{100 * (line['rate'] / beside['rate'] - 1):+.1f} %"
    return f"{line['ms']:.3f} ms"


def figure_rows(lines, known):
    rows = []
    for key, what, best, kind, target, text in FIGURES:
        names = BESIDE.get(key, (key,))
        found = [next((l for l in lines if l["group"] in GROUPS and l["figure"] == name and l.get("ms") is not None), None)
                 for name in names]
        line, beside = found[0], found[-1]
        row = {"figure": key, "what": what, "best known": best, "must reach": text}
        if None in found:
            why = next((l["missing"] for l in lines if l["group"] in GROUPS and l["figure"] in names and "missing" in l), "")
            rows.append({**row, "measured": NOT, "why": why, "ratio": "-", "reached": "-"})
            continue
        if key in SAYS_WHAT:
            row["what"] = f"{what}: {line['what']}"
        part = None if key in BESIDE else share(line, known)
        reached = target is not None and is_reached(kind, target, line, part, beside)
        rows.append({**row, "measured": measured(kind, line, beside), "ms": line["ms"], "ratio": percent(part),
                     "reached": "-" if target is None else "reached" if reached else "MISSED"})
    return rows


def kernel_rows(lines, known):
    rows = []
    for line in lines:
        if line["group"] != "kernels":
            continue
        row = {"kernel": line["figure"], "what": line.get("what", line.get("missing", "")), "variant": line["variant"]}
        if line.get("ms") is None:
            rows.append({**row, "measured": NOT, "GB/s": "-", "ratio": "-"})
        else:
            rows.append({**row, "measured": f"{line['ms']:.4g} ms", "GB/s": f"{line['gbs']:.4g}" if "gbs" in line else "-",
                         "ratio": percent(share(line, known))})
    return rows


def other_rows(lines, known):
    """Figures of tables beside those that have a target: parts of a step, and other mixes of keys."""
    named = {key for key, *_ in FIGURES}  # what stands beside one of these alone is here, too
    return [{"figure": l["figure"], "what": l.get("what", l.get("missing", "")),
             "measured": f"{l['ms']:.4g} ms" if l.get("ms") is not None else NOT,
             "G items/s": f"{l['rate']:.3g}" if "rate" in l else "-", "ratio": percent(share(l, known))}
            for l in lines if l["group"] in GROUPS and l["figure"] not in named]


def limit_rows(lines):
    return [{"limit": l["figure"], "variant": l["variant"], "GB/s": f"{l['gbs']:.4g}" if "gbs" in l else NOT}
            for l in lines if l["group"] == "limits"]


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
        return done.stdout.strip().split("\n")[-1]
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def table(rows, columns):
    if not rows:
        return [NOT, ""]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return lines + ["| " + " | ".join(str(row.get(c, "")).replace("|", "/") for c in columns) + " |" for row in rows] + [""]


def part_rows(run):
    rows = []
    for part in ("build", "test", "sanitize", "soak", "bench"):
        items = run.found["parts"].get(part, {})
        if not items:
            rows.append({"part": part, "item": "all", "": "", "found": NOT + ": it was not run"})
        rows += [{"part": part, "item": name, "": "ok" if result["ok"] else "FAILED", "found": result["text"]}
                 for name, result in items.items()]
    return rows


def make(run, root):
    lines = lines_of(run)
    known = limits(lines)
    device = run.device()
    return {
        "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": first_line("git", "-C", root, "rev-parse", "--short", "HEAD"),
        "cpu": cpu_name(),
        "device": f"{device['name']}, sm_{device['sm']}, {device['memory_gib']:.1f} GiB" if device
                  else f"none: {run.machine['why']}",
        "cuda": f"library {run.machine.get('library', 0)}, driver {run.machine.get('driver', 0)}",
        "is_model": run.is_host,
        "parts": part_rows(run),
        "figures": figure_rows(lines, known),
        "limits": limit_rows(lines),
        "kernels": kernel_rows(lines, known),
        "others": other_rows(lines, known),
    }


def markdown(made):
    owed = [row["what"] for row in made["figures"] if row["measured"] == NOT]
    owed += [f"{row['part']}: {row['item']}" for row in made["parts"] if NOT in row["found"] or "skipped" in row["found"]]
    head = "The host's model of a GPU: nothing here is a measurement." if made["is_model"] else f"Device: {made['device'].rstrip('.')}."
    out = [f"# The device side, {made['when']}", "", head, f"CUDA: {made['cuda']}. CPU: {made['cpu']}. Commit {made['commit']}.",
           "Each ratio is to the copy bandwidth measured in the same run (export, tiers: to that over PCIe).", "",
           "## What must be reached", ""]
    out += table(made["figures"], ("what", "best known", "must reach", "measured", "ratio", "reached"))
    out += ["## Limits of this machine", ""] + table(made["limits"], ("limit", "variant", "GB/s"))
    out += ["## Batch kernels", "",
            "Bytes are those of kernels.def. CPU variants: CPU time of one thread, beside its memcpy.", ""]
    out += table(made["kernels"], ("kernel", "what", "variant", "measured", "GB/s", "ratio"))
    out += ["## Tables and training, other figures", ""] + table(made["others"], ("figure", "what", "measured", "G items/s", "ratio"))
    out += ["## Built, tested, checked", ""] + table(made["parts"], ("part", "item", "", "found"))
    out += ["## Not measured", ""] + ([f"- {line}" for line in owed] or ["Nothing is owed."]) + [""]
    return "\n".join(out)


def write(run, root):
    """Writes both files; the path of the Markdown."""
    made = make(run, root)
    device = run.device()
    name = re.sub(r"[^a-z0-9]+", "-", (device["name"] if device else "no-gpu").lower()).strip("-")
    folder = os.path.join(root, "build", "gpu", "reports") if run.is_host else os.path.join(root, "bench", "reports")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{made['when'][:10]}-{name}")
    with open(path + ".json", "w", encoding="utf-8") as file:
        json.dump(made, file, indent=1)
        file.write("\n")
    with open(path + ".md", "w", encoding="utf-8") as file:
        file.write(markdown(made))
    return path + ".md"
