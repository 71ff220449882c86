#!/usr/bin/env python3
"""What `./dev gpu` makes of what programs say: TAP, compute-sanitizer, lines of benchmarks, what is left for the next call."""

import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(os.path.dirname(HERE)), "bench", "gpu")]
import parts  # noqa: E402
import report  # noqa: E402
import tap  # noqa: E402


class FakeRun:
    """Stands for a call of the command: programs that answer from a table, in at most `calls` calls."""

    def __init__(self, answers, calls=1000, found=None):
        self.answers, self.calls, self.made = answers, calls, []
        self.found = found or {"key": "", "parts": {}}
        self.machine = {"devices": [{"name": "D", "sm": 90, "memory_gib": 1.0, "usable": True}], "why": ""}
        self.is_host, self.library, self.whole = False, "", None

    def device(self):
        return self.machine["devices"][0] if self.machine["devices"] else None

    def programs(self, prefix):
        return sorted(name for name in self.answers if name.startswith(prefix))

    def program(self, name):
        return name

    def leat(self):
        return self.whole

    def item(self, part, name):
        return self.found["parts"].get(part, {}).get(name)

    def keep(self, part, name, result):
        self.found["parts"].setdefault(part, {})[name] = result

    def call(self, command, _limit_s, _log):
        if self.calls == 0:
            return None
        self.calls -= 1
        self.made.append(command)
        return self.answers[next(word for word in command if word in self.answers)]


def test_tap():
    assert parts.tap(0, "ok - a\nok - b # SKIP none\nnoise ok\n") == {"ok": True, "text": "1 passed, 1 skipped"}
    assert parts.tap(0, "")["skipped"] and parts.tap(77, "ok - cuda # SKIP no device: none\n")["skipped"]
    for status, output in ((1, "ok - a\n"), (-11, "ok - a\n"), (0, "ok - a\nnot ok - b\n"), (0, "Bail out! no memory\n"),
                           (124, "ok - a\nran past 300 s\n")):
        assert not parts.tap(status, output)["ok"], (status, output)


def test_compute_sanitizer():
    assert parts.sanitized(0, "ok - a\n========= ERROR SUMMARY: 0 errors\n")["ok"]
    assert parts.sanitized(0, "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n")["ok"]
    for status, output in ((99, "========= ERROR SUMMARY: 3 errors\n"), (1, "not ok - a\n========= ERROR SUMMARY: 0 errors\n"),
                           (0, "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n"),
                           (139, "Segmentation fault\n"), (0, "")):
        result = parts.sanitized(status, output)
        assert not result["ok"] and "skipped" not in result, (status, output, result)
    refused = parts.sanitized(1, "========= Error: Device not supported. Please refer to the documentation\n")
    assert refused["ok"] and refused["text"].startswith("not measured: "), refused


def test_what_is_left_is_done_by_the_next_call():
    answers = {"test_a": (0, "ok - x\n"), "test_b": (0, "not ok - x\n"), "test_c": (0, "ok - x\n")}
    first = FakeRun(answers, calls=2)
    parts.test(first)
    assert list(first.found["parts"]["test"]) == ["test_a", "test_b"]
    second = FakeRun(answers, found=first.found)
    parts.test(second)
    assert second.made == [["test_c"]]
    assert {name: result["ok"] for name, result in second.found["parts"]["test"].items()} == {
        "test_a": True, "test_b": False, "test_c": True, "kills": True}
    assert second.found["parts"]["test"]["kills"]["text"].startswith("not run")
    soak = FakeRun({"soak_a": (0, "ok - x\n")}, calls=3)
    parts.soak(soak)
    parts.soak(soak)
    assert len(soak.made) == 3
    soak.calls = 100
    parts.soak(soak)
    assert [int(command[-1]) for command in soak.made] == list(range(1, parts.SOAK_PIECES + 1))
    assert sum(int(command[2]) for command in soak.made) == 600, "ten minutes"


def test_kills():
    run = FakeRun({"leat": (0, "ok - crash: batches: 10 kills\n")}, calls=3)
    run.whole = "leat"
    parts.test(run)
    run.calls = 100
    parts.test(run)
    assert [command[command.index("--seed") + 1] for command in run.made] == [str(s + 1) for s in range(parts.KILL_PIECES)]
    assert parts.KILL_PIECES * parts.KILLS >= 100 and len(run.found["parts"]["test"]) == parts.KILL_PIECES


def test_no_device():
    run = FakeRun({"test_a": (0, "ok - x\n")})
    run.machine = {"devices": [], "why": "no driver."}
    for name in ("test", "sanitize", "soak"):
        parts.PARTS[name](run)
        assert run.found["parts"][name]["all"]["text"] == "skipped: no CUDA device: no driver."
    assert not run.made


def line(group, figure, ms, **more):
    return {"group": group, "figure": figure, "what": figure, "variant": "cuda", "ms": ms, **more}


def measured(*lines):
    run = types.SimpleNamespace(found={"parts": {"bench": {"all": {"ok": True, "text": "", "lines": list(lines)}}}},
                                machine={"devices": [], "why": "none"}, is_host=False, device=lambda: None)
    made = report.make(run, HERE)
    return {row["figure"]: row for row in made["figures"]}, made, report.markdown(made)


def test_report():
    figures, made, text = measured(
        line("limits", "copy", 1.0, gbs=4000.0), line("limits", "to pinned memory", 1.0, gbs=50.0),
        line("limits", "from pinned memory", 1.0, gbs=50.0),
        line("tables", "find 0.5", 0.2, rate=5.1, unit="G keys/s", gbs=3500.0),
        line("tables", "find 1.0", 0.3, rate=4.9, unit="G keys/s", gbs=3300.0),
        line("tables", "forward distinct", 0.29, gbs=3700.0), line("tables", "backward distinct", 1.06, gbs=3500.0),
        line("tables", "tiers", 9.0, gbs=36.0), line("tables", "export", 50.0, gbs=44.0),
        line("tables", "dedupe distinct", 0.1, gbs=300.0),
        line("training", "dlrm 65536", 5.0, rate=0.0131, unit="G samples/s"),
        line("training", "deepfm 65536", 3.0, rate=0.0218, unit="G samples/s"),
        line("training", "dcnv2 512", 3.0, rate=0.001, unit="G samples/s"),
        line("kernels", "widen", 0.5, gbs=2000.0), line("kernels", "round", None))
    assert figures["find 0.5"]["reached"] == "reached" and figures["find 0.5"]["ratio"] == "88 %"
    assert figures["find 1.0"]["reached"] == "MISSED"
    assert figures["forward distinct"]["reached"] == "reached" and figures["backward distinct"]["reached"] == "MISSED"
    assert figures["tiers"]["reached"] == "reached" and figures["tiers"]["ratio"] == "72 %"
    assert figures["export"]["reached"] == "MISSED" and figures["export"]["ratio"] == "88 %"
    assert figures["dlrm 65536"]["reached"] == "reached" and figures["dlrm 65536"]["measured"] == "13.10 M samples/s"
    assert figures["deepfm 65536"]["reached"] == "MISSED" and figures["dcnv2 512"]["reached"] == "-"
    assert figures["forward Zipf"]["measured"] == "not measured" and figures["forward Zipf"]["reached"] == "-"
    assert made["kernels"][0]["ratio"] == "50 %" and made["kernels"][1]["measured"] == "not measured"
    assert made["others"][0]["figure"] == "dedupe distinct"
    owed = text.split("## Not measured")[1]
    assert "find-or-insert" in owed and "soak: all" in owed and "find, values" not in owed, owed


def test_two_figures():
    """Rows that compare one with another, and that say by their line what was measured."""
    figures, made, text = measured(
        line("training", "dlrm 65536", 4.0, rate=0.0164, unit="G samples/s"),
        line("training", "dlrm 65536, fp32", 12.4, rate=0.0053, unit="G samples/s"),
        line("training", "pause", 2.9, gbs=1400.0) | {"what": "1.9 GB of 19 GB"},
        line("training", "checkpoints 10 %", 4.1, rate=0.0161, unit="G samples/s") | {"what": "2 in 20 s"},
        line("training", "checkpoints 10 %, none", 4.0, rate=0.0164, unit="G samples/s"),
        line("training", "checkpoints 100 %", 6.0, rate=0.0109, unit="G samples/s"),
        line("training", "checkpoints 100 %, none", 4.0, rate=0.0164, unit="G samples/s"))
    assert figures["bf16 against fp32"]["measured"] == "3.09 times" and figures["bf16 against fp32"]["reached"] == "reached"
    assert figures["dlrm 65536, fp32"]["measured"] == "5.30 M samples/s" and figures["dlrm 65536, fp32"]["reached"] == "-"
    assert figures["pause"]["measured"] == "2.900 ms" and figures["pause"]["reached"] == "reached"
    assert figures["pause"]["what"].endswith(": 1.9 GB of 19 GB"), "what it was measured with"
    assert figures["checkpoints 10 %"]["measured"] == "-1.8 %" and figures["checkpoints 10 %"]["reached"] == "reached"
    assert figures["checkpoints 100 %"]["measured"] == "-33.5 %" and figures["checkpoints 100 %"]["reached"] == "-"
    assert "2 in 20 s" in text and {row["figure"] for row in made["others"]} == {"checkpoints 10 %, none", "checkpoints 100 %, none"}
    figures, _, _ = measured(
        line("training", "dlrm 65536", 4.0, rate=0.0164), line("training", "dlrm 65536, fp32", 12.0, rate=0.0055),
        line("training", "pause", 3.1), line("training", "checkpoints 10 %", 4.1, rate=0.0160),
        line("training", "checkpoints 10 %, none", 4.0, rate=0.0164))
    for key in ("bf16 against fp32", "pause", "checkpoints 10 %"):
        assert figures[key]["reached"] == "MISSED", figures[key]
    figures, _, text = measured(line("training", "dlrm 65536", 4.0, rate=0.0164), line("training", "dlrm 65536, fp32", None),
                                line("training", "checkpoints 10 %, none", 4.0, rate=0.0164))
    assert figures["dlrm 65536"]["reached"] == "reached", "without the other one"
    for key in ("bf16 against fp32", "pause", "checkpoints 10 %", "checkpoints 100 %"):
        assert figures[key]["measured"] == "not measured" and figures[key]["reached"] == "-"
        assert figures[key]["what"] in text.split("## Not measured")[1]


def test_items_of_bench():
    run = FakeRun({"bench_batch": (0, ""), "bench_tables": (0, ""), "bench_train": (0, "")})
    parts.bench(run)
    assert [command[-1] for command in run.made if "bench_train" in command] == [
        "dlrm", "deepfm", "dcnv2", "checkpoints-10", "checkpoints-100"]
    assert len(run.found["parts"]["bench"]) == len(run.made) == 14, "each is an item of its own"


def test_nothing_is_estimated():
    figures, made, text = measured(line("tables", "find 0.5", None), line("limits", "copy", None),
                                   {"group": "tables", "figure": "tiers", "variant": "cuda", "missing": "not there yet"})
    assert all(row["measured"] == "not measured" and row["ratio"] == "-" for row in figures.values())
    assert made["limits"] == [{"limit": "copy", "variant": "cuda", "GB/s": "not measured"}]
    assert figures["tiers"]["why"] == "not there yet" and "reached |" in text and "| reached |\n|---" in text


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
