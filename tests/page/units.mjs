// The page's parts that need no browser, compiled by esbuild and called here. Prints TAP.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const PAGE = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "page");
const need = createRequire(join(PAGE, "node_modules", "vite", "package.json"));
const { build } = need("esbuild");
const folder = await mkdtemp(join(tmpdir(), "leat-page-"));

/* What modules touch when they are loaded. */
globalThis.document = {
    addEventListener() {},
    hidden: true,
    baseURI: "http://127.0.0.1:1/",
    documentElement: { dataset: {} },
};
globalThis.window = { addEventListener() {} };
globalThis.location = { hash: "" };
globalThis.matchMedia = () => ({ addEventListener() {}, matches: false });

async function load(path) {
    const outfile = join(folder, path.replaceAll("/", "_") + ".mjs");
    await build({
        entryPoints: [join(PAGE, "src", path)],
        outfile,
        bundle: true,
        format: "esm",
        jsx: "automatic",
        jsxImportSource: "preact",
        loader: { ".css": "empty" },
        logLevel: "error",
    });
    return import(pathToFileURL(outfile).href);
}

const tests = {
    async events_arrive_in_any_pieces() {
        const { EventReader } = await load("api/events.ts");
        const text =
            ': hi\n\nevent: hello\r\nid: 7\r\ndata: {"a":1}\r\n\r\ndata: x\ndata:  y\n\nevent: lost\n\nevent: figures\ndata: half';
        const wanted = [
            { event: "hello", data: '{"a":1}' },
            { event: "message", data: "x\n y" },
        ];
        for (let size = 1; size <= text.length; size++) {
            const reader = new EventReader();
            const found = [];
            for (let at = 0; at < text.length; at += size) found.push(...reader.push(text.slice(at, at + size)));
            assert.deepEqual(found, wanted, `pieces of ${size}`);
        }
        assert.throws(() => new EventReader().push("x".repeat((16 << 20) + 1)), /too long/);
    },

    async history_keeps_the_newest_and_its_gaps() {
        const { HistoryRing } = await load("live/history.ts");
        const ring = new HistoryRing("1h");
        const answer = (ticks, at, values) => ({
            figures: [{ name: "lag" }, { name: "rows" }],
            ticks,
            times: at,
            gaps: 0,
            values: [values, values.map((v) => v && -v)],
        });
        ring.add(answer([1, 2, 3], [1000, 2000, 3000], [1, null, 3]));
        ring.add(answer([3, 4], [3000, 4000], [30, 4])); // 3 is known already
        assert.equal(ring.size, 4);
        assert.deepEqual(ring.read(["rows"]), [
            [1, 2, 3, 4],
            [-1, null, -3, -4],
        ]);
        ring.add(answer([5, 6], [2500, 5000], [5, 6])); // the clock was set back
        assert.deepEqual(ring.read(["lag"]), [
            [1, 2, 3, 4, 5],
            [1, null, 3, 4, 6],
        ]);
        assert.equal(ring.last("lag"), 6);
        assert.equal(ring.last("none"), null);
        const many = Array.from({ length: 5000 }, (_, i) => i + 10);
        ring.add(
            answer(
                many,
                many.map((t) => t * 1000),
                many,
            ),
        );
        assert.equal(ring.read(["lag"])[0].length, 3600);
        assert.equal(ring.last("lag"), 5009);
    },

    async curves_share_one_x() {
        const { merge, newestOf, overEvents } = await load("charts/merge.ts");
        assert.deepEqual(
            [newestOf([1, undefined]), newestOf([1, null]), newestOf([]), newestOf([undefined, 2], 0)],
            [1, null, null, null],
        );
        assert.deepEqual(
            merge([
                [
                    [1, 3],
                    [10, null],
                ],
                [
                    [2, 3],
                    [5, 6],
                ],
            ]),
            [
                [1, 2, 3],
                [10, undefined, null],
                [undefined, 5, 6],
            ],
        );
        const events = overEvents([10, 11, 13], [0, 100, 50], 1000);
        assert.deepEqual(events.map(Math.round), [800, 900, 1000]);
        const still = overEvents([1, 2, 3], [0, 0, 0], 7);
        assert.ok(still[0] < still[1] && still[1] < still[2]);
    },

    async learners_of_several_labels_are_read() {
        const { metricOf } = await load("live/learners.ts");
        assert.equal(metricOf({ "click.auc": 0.7, "buy.auc": 0.6 }, "auc"), 0.7);
        assert.equal(metricOf({ auc: null }, "auc"), null);
    },

    async figures_of_lists_are_read() {
        const { choosesItems, listLength, longestList } = await load("live/learners.ts");
        assert.deepEqual(listLength("hr_10"), { figure: "hr", k: 10 });
        for (const name of ["hr", "hr_", "hr_1x", "hour_10", "step_loss", "hr_10_window"])
            assert.equal(listLength(name), null, name);
        const node = (run, window) => ({ report: { run, window } });
        assert.equal(longestList(node({ ndcg_5: 0.1, hr_100: 0.4, hr_20: 0.2 }, { hr_9: 0 })), 100);
        assert.equal(longestList(node({ logloss: 0.3 }, {})), null);
        assert.ok(choosesItems(node({ step_loss: null }, {})) && !choosesItems(node({ logloss: 0.3 }, {})));
    },

    async histograms_are_drawn_where_their_bins_are() {
        const { placesOf } = await load("charts/distribution.tsx");
        const even = placesOf([
            { from: 10, to: 20, count: 5 },
            { from: 20, to: 25, count: 5 },
            { from: 30, to: 50, count: 5 },
        ]);
        assert.deepEqual(even, {
            isLog: false,
            at: [
                [0, 0.25, 0.5],
                [0.25, 0.375, 1],
                [0.5, 1, 0.25],
            ],
        });
        const wide = placesOf([
            { from: 0, to: 1, count: 3 },
            { from: 500, to: 1000, count: 3 },
        ]);
        assert.ok(wide.isLog && wide.at[1][0] > 0.8 && wide.at[1][1] === 1, JSON.stringify(wide));
        assert.deepEqual(placesOf([{ from: 7, to: 7, count: 3 }]).at, [[0, 1, 1]]);
    },

    async lists_of_flat_objects_are_tables() {
        const { columnsOf } = await load("parts/json.tsx");
        assert.deepEqual(columnsOf([{ a: 1 }, { b: null, a: "x" }]), ["a", "b"]);
        for (const other of [[], [1], [null], [[1]], [{}], [{ a: 1 }, { a: [] }], { a: 1 }, "x", null])
            assert.equal(columnsOf(other), null, JSON.stringify(other));
    },

    async a_run_ends_in_three_ways() {
        const { hasEnded } = await load("live/live.ts");
        assert.deepEqual(
            [hasEnded(null), ...["running", "finished", "stopped", "failed"].map((state) => hasEnded({ state }))],
            [false, false, true, true, true],
        );
    },

    async each_state_has_a_url() {
        const { parse, href } = await load("live/route.ts");
        const url = href({
            view: "job",
            part: "a/b#%?",
            span: "12h",
            query: { as: "list", x: "" },
        });
        assert.equal(url, "#/job/a%2Fb%23%25%3F?span=12h&as=list");
        const back = parse(url);
        assert.deepEqual(
            [back.view, back.part, back.span, back.query.toString()],
            ["job", "a/b#%?", "12h", "as=list"],
        );
        assert.deepEqual(
            [parse("#/nothing/%E0%A4%A").view, parse("").span, parse("#/job?span=9y").span],
            ["job", "1h", "1h"],
        );
    },

    async the_picture_is_stretched_inside_of_boxes_alone() {
        const { geometryOf, endOf } = await load("views/job/geometry.ts");
        const stages = [
            { x: 0, y: 0, width: 100, height: 84 },
            { x: 0, y: 150, width: 100, height: 84 },
        ];
        const { y, path, box, height } = geometryOf({
            stages,
            nodes: [],
            arrows: [],
        });
        assert.equal(y(0), 0);
        assert.ok(y(84) > 84 && Math.abs(y(150) - y(84) - 66) < 1e-9); // the gap between them keeps its height
        assert.equal(box(stages[1]).height, y(234) - y(150));
        assert.ok(height >= y(234));
        assert.equal(
            path("M10.0 84.0V100.0C10.0 110.0 -20.5 120.0 -20.5 143.0"),
            `M10.0 ${y(84).toFixed(1)}V${y(100).toFixed(1)}C10.0 ${y(110).toFixed(1)} -20.5 ${y(120).toFixed(1)} -20.5 ${y(143).toFixed(1)}`,
        );
        assert.deepEqual(endOf("M1 2V3C1 2 3 4 5.5 6"), [5.5, 6]);
    },

    async texts_of_figures() {
        const format = await load("parts/format.ts");
        assert.equal(format.bytes(1047552), "1023\u202fKiB");
        assert.equal(format.bytes(999.7 * 1024), "1000\u202fKiB"); // not 1.00e+3
        assert.equal(format.short(999_960), "1.00\u202fM");
        assert.equal(format.short(999_600), "1.00\u202fM");
        assert.equal(format.short(999_400), "999\u202fk");
        assert.equal(format.share(0.0004), "<\u202f0.1\u202f%");
        assert.equal(format.seconds(192.3), "3\u202fmin 12\u202fs");
        assert.equal(format.seconds(10.46), "10\u202fs"); // rounded once
        assert.equal(format.seconds(9.97), "10.0\u202fs");
        assert.equal(format.milliseconds(0.41), "410\u202fµs");
        assert.equal(format.moment(NaN), format.UNKNOWN);
    },

    async keys_and_columns_are_judged() {
        const { keysOf } = await load("views/state.tsx");
        assert.deepEqual(keysOf(' 42, a b \n["x", 3]\n\n7'), ["42", "a b", '["x", 3]', "7"]);
        const { turnedNull } = await load("views/data.tsx");
        const judge = (now, before) => turnedNull({ null_share_recent: now, null_share_before: before });
        assert.deepEqual(
            [
                judge(0.97, 0.001),
                judge(0.3, 0.001),
                judge(0.1, 0.001),
                judge(0.9, 0.8),
                judge(null, 0),
                judge(1, null),
            ],
            [true, true, false, false, false, false],
        );
    },

    async arrow_keys_go_along_edges() {
        const { neighbour } = await load("views/job/graph.tsx");
        const plan = {
            nodes: [[], [0], [1], [1], [3]].map((inputs) => ({ inputs })),
        };
        const step = (from, key) => neighbour(plan, from, key);
        assert.deepEqual(
            [
                step(0, "ArrowDown"),
                step(1, "ArrowDown"),
                step(3, "ArrowUp"),
                step(2, "ArrowRight"),
                step(3, "ArrowLeft"),
            ],
            [1, 2, 1, 3, 2],
        );
        assert.deepEqual(
            [step(0, "ArrowUp"), step(4, "ArrowDown"), step(2, "x"), step(9, "ArrowUp"), step(2, "End")],
            [-1, -1, -1, -1, 4],
        );
    },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
    try {
        await test();
        console.log(`ok - ${name}`);
    } catch (error) {
        failed++;
        console.log(`not ok - ${name}\n#   ${String(error.stack).split("\n").slice(0, 12).join("\n#   ")}`);
    }
}
await rm(folder, { recursive: true });
process.exit(failed > 0 ? 1 : 0);
