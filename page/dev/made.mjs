// Answers of the control API's form for routes that a leat does not have yet. Made up, for trying out the page, and
// only here: the page itself makes nothing up.

const HOSTILE = '<img src=x onerror=alert(1)> "\u202Eevil\u202C" \uFFFD';
const born = Date.now();

export function checkpoints() {
    const now = Date.now();
    const list = Array.from({ length: 40 }, (_, i) => ({
        id: `3-${60 - i}`,
        time: now - i * 30_000,
        bytes: i % 10 === 0 ? 48_000_000 + i * 7919 : 900_000 + ((i * 7919) % 400_000),
        total_bytes: 61_000_000 - i * 9000,
        duration_ms: 40 + ((i * 37) % 90),
        stop_ms: 0.4 + ((i * 13) % 17) / 10,
        parents: i % 10 === 0 ? [] : [`3-${59 - i}`],
        kind: i % 10 === 0 ? "full" : "delta",
        micro_batch: 120_000 - i * 300,
    }));
    return {
        directory: "state/ctr",
        newest: "3-60",
        checkpoints: list,
        keep: 3,
        order_log: { micro_batch: 120_000, position: 83_112_300 },
        failed: [
            {
                time: now - 700_000,
                reason: "3-37: write of tables/model.rows: No space left on device; remove files, the next checkpoint tries again",
            },
        ],
    };
}

export function deadLetters(parts) {
    const reasons = ["expected an integer for `a`, found `nonsense` at byte 6", "the event time is null", HOSTILE];
    const letters = Array.from({ length: 24 }, (_, i) => ({
        n: 400 - i,
        time: Date.now() - i * 4100,
        part: parts[i % 2 ? Math.min(1, parts.length - 1) : 0],
        place: i % 2 ? `orders-3 offset ${42_000 - i}` : `data.jsonl:${9001 - i}`,
        reason: reasons[i % 3],
        record: i % 5 === 0 ? HOSTILE.repeat(8) : '{"id":17,"ts":1700000000000,"a":"nonsense","b":12}',
        record_bytes: i % 5 === 0 ? 1_048_576 : 51,
    }));
    return { total: 12_345, letters };
}

export function log() {
    const texts = [
        "the run goes on from checkpoint 3-20",
        "partition orders-7 is idle for 5m",
        "WARNING: nearly all rows of `kept/where` become dead letters",
        HOSTILE,
        "the broker 127.0.0.1:9092 is gone; tried again every second",
    ];
    const lines = Array.from({ length: 120 }, (_, i) => ({
        n: i + 1,
        time: born - (120 - i) * 1700,
        level: i % 9 === 2 ? "warning" : i % 31 === 4 ? "error" : "info",
        text: texts[i % texts.length],
        repeated: i % 7 === 0 ? 12 : 1,
    }));
    return { next: 121, lines };
}

function bell(bins) {
    return Array.from({ length: bins }, (_, i) => ({
        from: i * 10,
        to: i * 10 + 10,
        count: Math.round(9000 * Math.exp(-(((i - bins / 2.4) / (bins / 5)) ** 2))),
    }));
}

export function columns(parts) {
    const number = (name, more = {}) => ({
        name,
        type: "int",
        rows: 50_000,
        nulls: 12,
        null_share_recent: 0.0002,
        null_share_before: 0.0003,
        distinct: 1000.4,
        min: 0,
        max: 999,
        mean: 498.71,
        histogram: bell(24),
        top: [],
        ...more,
    });
    const text = (name, more = {}) =>
        number(name, {
            type: "text",
            min: null,
            max: null,
            mean: null,
            histogram: [],
            top: [
                { value: "mobile", share: 0.61 },
                { value: "desktop", share: 0.33 },
                { value: HOSTILE, share: 0.01 },
            ],
            ...more,
        });
    const list = [
        number("id", { distinct: 49_871.2 }),
        number("a"),
        number("b", { nulls: 24_000, null_share_recent: 0.97, null_share_before: 0.001 }),
        text("device"),
        number("clicked", {
            distinct: 2,
            min: 0,
            max: 1,
            mean: 0.333,
            histogram: [
                { from: 0, to: 0.5, count: 33_000 },
                { from: 0.5, to: 1, count: 17_000 },
            ],
        }),
        text(HOSTILE, { top: [] }),
    ];
    return {
        nodes: parts
            .slice(0, 2)
            .map((part, i) => ({ part, rows: 50_000, columns: i === 0 ? list : list.slice(0, 3) })),
    };
}

export function state(part, keys) {
    return {
        state: part,
        columns: ["a"],
        micro_batch: 1203,
        keys: keys.map((key) => ({
            key: [key],
            state:
                key === "none"
                    ? null
                    : {
                          entries: 2,
                          windows: [
                              { start: "2023-11-14T22:00:00Z", n: 31 },
                              { start: "2023-11-14T22:01:00Z", n: 4 },
                          ],
                          last_seen: "2023-11-14T22:01:17.201Z",
                          note: HOSTILE,
                      },
        })),
    };
}

export function model(learner, field, value) {
    return {
        learner,
        field,
        value,
        micro_batch: 1203,
        row: {
            weight: -0.03125,
            vector: [0.11, -0.2, 0.0041, 0.7],
            count: 812,
            last_seen: "2023-11-14T22:01:17.201Z",
            epoch: 3,
        },
    };
}

export function serves() {
    return [{ name: "scores", requests: 48_213, answered: 48_001, late: 120, refused: 80, failed: 12 }];
}
