#!/usr/bin/env python3
"""Plants a violation of each rule in a temporary tree and expects tidy to find it, at its line; and that a clean
tree has none. Prints TAP."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(1, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import ctext  # noqa: E402
import planting  # noqa: E402
import tidy  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


class TidyTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="leat-tidy-")
        self.addCleanup(self.folder.cleanup)
        with open(os.path.join(HERE, "..", "..", ".clang-format"), encoding="utf-8") as file:
            self.plant(".clang-format", file.read())
        self.plant("engine/core/a.h", "int a(void);\n")
        self.plant("engine/core/README.md", "core\n")

    def plant(self, path, text):
        full = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def found(self, check):
        return [(f.path, f.line) for f in check(tidy.Tree(self.folder.name))]

    def test_clean_tree_passes_every_rule(self):
        self.plant("operators/where.c", '#include "core/a.h"\n\nconst struct operator_kind operator_where = {\n'
                   "    1,\n};\n")
        self.plant("operators/README.md", "operators\n")
        for name, check in tidy.RULES:
            found = check(tidy.Tree(self.folder.name))
            self.assertTrue(isinstance(found, str) or found == [], (name, found))

    def test_file_sizes(self):
        self.plant("state/long.c", "int x;\n" * 601)
        self.plant("state/fits.c", "int x;\n" * 600)
        self.plant("build/long.c", "int x;\n" * 601)
        self.assertEqual(self.found(tidy.check_file_sizes), [("state/long.c", 601)])

    def test_function_sizes(self):
        def function(head, lines):
            return f"{head}\n{{\n" + "    x();\n" * (lines - 3) + "}\n"

        self.plant("state/f.c", "\n" + function("static int fits(int a)", 70) + function("int too_long(void)", 71))
        self.plant("state/g.cpp", 'extern "C" {\nnamespace n {\n' + function("int C::m(int a) const noexcept", 71) + "}\n}\n")
        self.plant("state/h.c", "static const int table[] = {\n" + "    1,\n" * 90 + "};\n"
                   "struct s {\n" + "    int a;\n" * 80 + "};\n" + "/*\n" + "{ (\n" * 80 + "*/\n"
                   + function("__global__ void k(struct s *a,\n              int b)", 71))
        self.assertEqual(self.found(tidy.check_function_sizes),
                         [("state/f.c", 72), ("state/g.cpp", 3), ("state/h.c", 257)])

    def test_scripts(self):
        def function(head, lines, tail="}"):
            return f"{head}\n" + "    x();\n" * (lines - 2) + f"{tail}\n"

        self.plant("page/README.md", "page\n")
        self.plant("page/src/long.ts", "x();\n" * 601)
        self.plant("page/dev/a.mjs", function("export async function fits(a) {", 70) + function("const big = (a) => {", 71, "};"))
        self.plant("page/src/b.tsx", function("function Wide({", 71, "}").replace("    x();\n", "    a,\n}: {\n    a: number;\n}): A {\n", 1)
                   + "class C {\n" + "".join("    " + line + "\n" for line in function("private m(): void {", 71).split("\n")[:-1]) + "}\n"
                   + "const table = {\n" + "    a: 1,\n" * 90 + "};\n")
        self.assertEqual(self.found(tidy.check_file_sizes), [("page/src/long.ts", 601)])
        self.assertEqual(self.found(tidy.check_function_sizes),
                         [("page/dev/a.mjs", 71), ("page/src/b.tsx", 1), ("page/src/b.tsx", 76)])

    def test_page_borders(self):
        self.plant("page/src/main.tsx", 'import { a } from "./views/a";\n')
        self.plant("page/src/views/a.tsx", 'import type { T } from "../api/types";\nimport { b } from "../live/b";\n// fetch (this)\n')
        self.plant("page/src/views/b.tsx", 'import {\n    get,\n} from "../api/client";\nconst a = fetch("x");\n')
        self.plant("page/src/live/b.ts", 'import { get } from "../api/client";\nexport { c } from "../parts/c";\n')
        self.plant("page/src/other/c.ts", "x();\n")
        self.assertEqual(self.found(tidy.check_page_borders),
                         [("page/src/live/b.ts", 2), ("page/src/other/c.ts", 1), ("page/src/views/b.tsx", 1), ("page/src/views/b.tsx", 4)])
        self.assertEqual(self.found(tidy.check_readmes), [("page", 1)])

    def test_function_reader_copes_with_noise(self):
        text = ('#define X(a) \\\n    { a; \\\n    }\nint f(void) // {\n{\n    char c = \'{\'; /* } */\n'
                '    const char *s = "}\\"{";\n    if (c) {\n        for (;;) {\n        }\n    }\n    return 0;\n}\n'
                "struct s *g(int (*h)(void))\n{\n    struct s t = {1};\n}\nauto l() -> int\n{\n}\n")
        self.assertEqual(list(ctext.functions(text)), [("f", 4, 13), ("g", 14, 17), ("l", 18, 20)])

    def test_include_arrows(self):
        forbidden = {
            "engine/core/x.c": "lang/a.h", "kernels/x.cu": "state/a.h", "learners/x.c": "operators/a.h",
            "state/x.c": "operators/a.h", "operators/expr/x.c": "run/a.h", "formats/x.c": "connectors/a.h",
            "connectors/file/x.c": "run/a.h", "engine/lang/x.c": "plan/a.h", "engine/plan/x.c": "run/a.h",
            "engine/run/x.c": "control/a.h", "engine/control/x.c": "cli/a.h", "learners/y.c": "state/a.h",
            "engine/core/y.c": "tests/a.h",
        }
        allowed = {
            "kernels/ok.c": "core/a.h", "learners/ok.c": "kernels/a.h", "operators/ok.c": "state/a.h",
            "operators/expr/ok.c": "operators/a.h", "connectors/ok.c": "formats/a.h", "engine/run/ok.c": "plan/a.h",
            "engine/cli/ok.c": "connectors/a.h", "tests/unit/ok.c": "run/a.h",
        }
        for name in forbidden.values():
            root = name if name.split("/")[0] in ("state", "operators", "connectors", "tests") else "engine/" + name
            self.plant(root, "int a(void);\n")
        for name in ("kernels/a.h", "formats/a.h"):
            self.plant(name, "int a(void);\n")
        for path, name in {**forbidden, **allowed}.items():
            self.plant(path, f'#include <stdio.h>\n#include "{name}"\n/*\n#include "run/a.h"\n*/\n')
        expected = sorted((path, 2) for path in forbidden)
        self.assertEqual(sorted(self.found(tidy.check_include_arrows)), expected)

    def test_include_arrows_see_through_angles_relative_paths_and_lost_names(self):
        self.plant("engine/run/a.h", "int a(void);\n")
        self.plant("operators/a.c", "#include <run/a.h>\n")
        self.plant("operators/b.c", '#include "../engine/run/a.h"\n')
        self.plant("operators/c.c", '#include "no/such.h"\n')
        self.plant("tests/unit/a.h", "int a(void);\n")
        self.plant("tests/fuzz/a.c", '#include "unit/a.h"\n')
        self.plant("operators/d.c", '#include "unit/a.h"\n')
        self.assertEqual(self.found(tidy.check_include_arrows),
                         [("operators/a.c", 1), ("operators/b.c", 1), ("operators/c.c", 1), ("operators/d.c", 1)])

    def test_formatting(self):
        program, why = tidy.clang_format_program()
        if program is None:
            self.skipTest(why)
        self.plant("state/ugly.c", "int a;\nint  b ;\n")
        self.assertEqual(self.found(tidy.check_formatting), [("state/ugly.c", 2)])

    def test_readmes(self):
        self.plant("connectors/file/a.c", "int a;\n")
        self.plant("engine/lang/a.c", "int a;\n")
        self.plant("engine/lang/README.md", "lang\n")
        self.plant("bench/a.c", "int a;\n")
        self.assertEqual(self.found(tidy.check_readmes), [("connectors/file", 1)])

    def test_named_files(self):
        self.plant("state/a.c", "/* As core/a.h has it, and state/gone.c; tests/unit/test_NAME.c. */\n#include <run/b.h>\nint a;\n")
        self.plant("README.md", "`engine/core/a.h`, [core](engine/core), `engine/run/old.c`\n[moved](moved.md), build/core/b.c\n")
        self.assertEqual(self.found(tidy.check_named_files), [("README.md", 1), ("README.md", 2), ("state/a.c", 1)])

    def test_registries(self):
        self.plant("formats/registry.def", "FORMAT(json)\n")
        for folder, kind, name in (("operators", "operator", "where"), ("formats", "format", "json"),
                                   ("connectors/file", "source", "file"), ("connectors/file", "sink", "file"),
                                   ("formats", "format", "csv"), ("learners", "operator", "fm")):
            self.plant(f"{folder}/{kind}_{name}.c", f"int a;\nconst struct {kind}_kind {kind}_{name} = {{\n}};\n")
        self.assertEqual(self.found(tidy.check_registries), [
            ("learners/operator_fm.c", 2), ("connectors/file/sink_file.c", 2),
            ("connectors/file/source_file.c", 2), ("formats/format_csv.c", 2)])

    def test_codes_are_raised(self):
        self.plant("engine/core/diag_codes.def", 'DIAG_CODE(E0101, RAISED, "a")\nDIAG_CODE(E0102, LOST, "b")\n')
        self.plant("engine/lang/a.c", "diag_error(d, DIAG_RAISED, span);\n")
        self.plant("tests/a.c", "DIAG_LOST\n")
        self.assertEqual(self.found(tidy.check_codes_are_raised), [("engine/core/diag_codes.def", 2)])

    def test_tests_are_built(self):
        self.plant("tests/unit/a/test_built.c", "int a;\n")
        self.plant("tests/unit/a/test_lost.c", "int a;\n")
        self.plant("tests/unit/a/helper.c", "int a;\n")
        self.plant("tests/unit/CMakeLists.txt", "add_leat_test(test_built a/test_built.c)\n")
        self.assertEqual(self.found(tidy.check_tests_are_built), [("tests/unit/a/test_lost.c", 1)])

    def test_waits(self):
        self.plant("state/a.c", "/* CLOCK_REALTIME */\nint x = sem_timedwait(&s, &t);\nint y = sem_clockwait(&s, CLOCK_MONOTONIC, &t);\n")
        self.plant("connectors/b.c", "\n\nint z = pthread_cond_timedwait(&c, &m, &t);\n")
        self.plant("engine/core/os.c", "int now = clock_gettime(CLOCK_REALTIME, &t);\n")
        self.plant("tests/c.c", "int now = clock_gettime(CLOCK_REALTIME, &t);\n")
        self.assertEqual(self.found(tidy.check_waits), [("connectors/b.c", 3), ("state/a.c", 2)])

    def test_rooms(self):
        for room in ("base", "order", "lanes"):
            self.plant(f"engine/run/{room}/{room}.h", "int a(void);\n")
            self.plant(f"engine/run/{room}/internal.h", f'#include "run/{room}/{room}.h"\n')
        self.plant("engine/run/run.h", "int b(void);\n")
        self.plant("engine/run/run.c", '#include "run/run.h"\n#include "run/lanes/lanes.h"\n#include "run/lanes/internal.h"\n')
        self.plant("engine/run/trace.h", '#include "run/lanes/lanes.h"\n')
        self.plant("engine/run/order/log.c", '#include "run/order/internal.h"\n#include "run/base/base.h"\n'
                   '#include "run/run.h"\n#include "run/base/internal.h"\n#include "run/lanes/lanes.h"\n')
        self.plant("engine/run/attic/a.c", "int c;\n")
        self.plant("engine/control/a.c", '#include "run/run.h"\n#include "run/base/base.h"\n')
        self.plant("engine/cli/a.c", '#include "run/base/base.h"\n')
        self.assertEqual(self.found(tidy.check_rooms),
                         [("engine/control/a.c", 2), ("engine/run/run.c", 3), ("engine/run/trace.h", 1),
                          ("engine/run/attic/a.c", 1), ("engine/run/order/log.c", 4), ("engine/run/order/log.c", 5)])

    def test_dialect(self):
        self.plant("state/a.h", "#ifndef STATE_A_H\n#define STATE_A_H\nenum { N = sizeof(int) };\n#endif\n")
        self.plant("engine/run/b.h", "#ifndef LEAT_RUN_B_H\n#define LEAT_RUN_B_H\n#endif\n")
        self.plant("state/c.c", "int a;\nint b = (int)sizeof a; /* sizeof a */\n")
        self.plant("tests/unit/d.c", "x = {cmocka_unit_test(test_a),\n     cmocka_unit_test_setup(b, c)};\n")
        self.assertEqual(self.found(tidy.check_dialect), [("state/a.h", 1), ("state/c.c", 2), ("tests/unit/d.c", 2)])

    def test_planted_bugs_apply(self):
        self.plant("state/a.c", "int a;\nint b;\nint b;\n")
        self.plant("tests/cases/a.py", 'BOUND = 1\nBUGS = [\n    ("good", "state/a.c", "int a;", "int c;"),\n'
                   '    ("target", "twice", "state/a.c",\n     "int b;", ""),\n    ("no_file", "state/b.c", "int b;", "int c;"),\n]\n')
        self.assertEqual(self.found(tidy.check_planted_bugs_apply), [("tests/cases/a.py", 4), ("tests/cases/a.py", 6)])

    def test_copy_loses_what_is_gone(self):
        self.plant("copy/old/a.c", "int a;\n")
        self.plant("copy/engine/core/a.h", "int old(void);\n")
        self.plant("copy/build/release/leat", "built\n")
        copy = os.path.join(self.folder.name, "copy")
        planting.mirror(self.folder.name, {"engine/core/a.h", "engine/core/README.md"}, copy)
        self.assertEqual(sorted(tidy.Tree(copy).paths), ["engine/core/README.md", "engine/core/a.h"])
        self.assertEqual(tidy.Tree(copy).read("engine/core/a.h"), "int a(void);\n")
        self.assertTrue(os.path.exists(os.path.join(copy, "build", "release", "leat")))

    def test_left_over_work(self):
        self.plant("state/a.c", "int a;\n// TO" "DO: more\n")
        self.plant("dev", "# FIX" "ME\n")
        self.plant("state/b.c", "int mastodon;\n")
        self.assertEqual(self.found(tidy.check_left_over_work), [("dev", 1), ("state/a.c", 2)])

    def test_exit_status(self):
        argv = sys.argv
        self.addCleanup(setattr, sys, "argv", argv)
        sys.argv = ["tidy.py", self.folder.name]
        with open(os.devnull, "w", encoding="utf-8") as null:
            stdout, sys.stdout = sys.stdout, null
            try:
                clean = tidy.main()
                self.plant("state/a.c", "int a;\n")
                broken = tidy.main()
            finally:
                sys.stdout = stdout
        self.assertEqual((clean, broken), (0, 1))


class TapResult(unittest.TestResult):
    def addSuccess(self, test):
        print(f"ok - {test.id().split('.')[-1]}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"ok - {test.id().split('.')[-1]} # SKIP {reason}")

    def _report(self, test, err):
        print(f"not ok - {test.id().split('.')[-1]}")
        for line in self._exc_info_to_string(err, test).rstrip().split("\n"):
            print("#   " + line)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._report(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self._report(test, err)


if __name__ == "__main__":
    result = TapResult()
    unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__]).run(result)
    sys.exit(0 if result.wasSuccessful() else 1)
