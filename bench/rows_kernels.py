"""Rows of the table: kernels of the CPU, each beside what bounds it, measured in the same run.

A row's figure is the lowest share of all kernels; the notes list those below the target."""

from harness import Figure, median

TARGET = 70.0


def shares(bench, program):
    """Median share in percent, and limit, by the words before them: kernel, variant, and cores where there are any."""
    found = {}
    for run in bench.repeat(lambda: bench.run([bench.program("kernels", program), "--rows"])):
        for line in run.output.splitlines():
            words = line.split(" ")
            at = next(i for i, word in enumerate(words) if "." in word)
            found.setdefault(" ".join(words[:at]), []).append((100.0 * float(words[at]), " ".join(words[at + 1:])))
    return {name: (median([share for share, _ in each]), each[0][1]) for name, each in found.items()}


def figure(what, found):
    lowest = min(found, key=lambda name: found[name][0])
    below = [f"{name} {share:.0f} % of {limit}" for name, (share, limit) in sorted(found.items()) if share < TARGET]
    note = f"Lowest: {lowest}, of {found[lowest][1]}. " + (f"Below: {'; '.join(below)}." if below else "None is below.")
    return Figure(what, "%", found[lowest][0], TARGET, note=note)


def row_kernels(bench):
    found = shares(bench, "bench_kernels")
    return [figure(f"kernels in the L1 cache, {variant}: lowest share of their limits",
                   {name: value for name, value in found.items() if name.endswith(variant)})
            for variant in sorted({name.split(" ")[1] for name in found})]


def row_kernels_memory(bench):
    found = shares(bench, "bench_memory")
    return [figure(f"kernels of a batch over memory, {cores} core{'s' if cores != '1' else ''}: lowest share of their limits",
                   {name: value for name, value in found.items() if name.endswith(f" {cores}")})
            for cores in sorted({name.split(" ")[2] for name in found})]


ROWS = {
    "kernels": ("kernels of the CPU in the L1 cache, beside their limits", row_kernels),
    "kernels-memory": ("kernels of a batch over memory, one core and all", row_kernels_memory),
}
