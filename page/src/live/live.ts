// What is known of the process now: the newest figures, rates from the two newest, whether it is reached, and when it
// was another process.
import { startStream, unlockStream, type Message, type Phase } from "../api/stream";
import { setToken } from "../api/client";
import type { Figures, FiguresNode, LogLine } from "../api/types";
import { Store } from "./store";

export interface Live {
    phase: Phase;
    since: number; // browser's time, of the phase
    why: string;
    figures: Figures | null;
    facts: Map<string, Facts>; // by part
    rate: number | null; // records/s of the run
    life: string;
    restarts: number[]; // server's times at which another process was met
    logNews: number; // how many lines of the log came with the stream
    logGaps: number; // how often lines may have been said that did not come
}

/* A node at this moment. null: not known. */
export interface Facts {
    node: FiguresNode;
    rate: number | null; // rows in, a second
    deadRate: number | null; // dead and late rows, a second
    share: number;
    behindMs: number | null;
    lagSeconds: number | null;
    lagRecords: number | null;
    isBottleneck: boolean;
    isHolder: boolean; // it holds the watermark back
}

const RESTARTS_MAX = 50;
const LOG_MAX = 1000;

export const live = new Store<Live>({
    phase: "connecting",
    since: Date.now(),
    why: "",
    figures: null,
    facts: new Map(),
    rate: null,
    life: "",
    restarts: [],
    logNews: 0,
    logGaps: 0,
});

/* Lines that came with the stream, oldest first. */
export const streamedLog: LogLine[] = [];

const numberOf = (value: unknown): number | null => (typeof value === "number" ? value : null);

/* The run goes on no longer. */
export function hasEnded(figures: Figures | null): boolean {
    return figures !== null && figures.state !== "running";
}

function factsOf(figures: Figures, before: Figures | null): Map<string, Facts> {
    const seconds = before === null || hasEnded(figures) ? 0 : figures.seconds - before.seconds;
    const earlier = new Map(before?.nodes.map((node) => [node.part, node]));
    const facts = new Map<string, Facts>();
    for (const node of figures.nodes) {
        const was = seconds > 0 ? earlier.get(node.part)?.counts : undefined;
        const bad = node.counts.dead + node.counts.late;
        facts.set(node.part, {
            node,
            rate: was === undefined ? null : Math.max(0, node.counts.in - was.in) / seconds,
            deadRate: was === undefined ? null : Math.max(0, bad - was.dead - was.late) / seconds,
            share: node.lane_share,
            behindMs: node.time.behind_ms,
            lagSeconds: numberOf(node.report.run["lag_seconds"]),
            lagRecords: numberOf(node.report.run["lag_records"]),
            isBottleneck: node.part === figures.bottleneck_node,
            isHolder: node.tag === "source" && figures.watermark?.source === node.name,
        });
    }
    return facts;
}

function takeFigures(figures: Figures): void {
    const was = live.value.figures;
    const before =
        was !== null && was.seconds <= figures.seconds && was.fingerprint === figures.fingerprint ? was : null;
    if (before !== null && before.seconds === figures.seconds && before.state === figures.state) return;
    const seconds = before === null ? 0 : figures.seconds - before.seconds;
    const rate =
        before === null || hasEnded(figures)
            ? null
            : Math.max(0, figures.records_life - before.records_life) / seconds;
    live.set({ ...live.value, figures, facts: factsOf(figures, before), rate });
}

function take(message: Message): void {
    const now = live.value;
    if (message.is === "figures") takeFigures(message.figures);
    else if (message.is === "phase")
        live.set({ ...now, phase: message.phase, since: message.since, why: message.why });
    else if (message.is === "hello") {
        const isOther = now.life !== "" && now.life !== message.hello.life;
        const restarts = isOther ? [...now.restarts, message.hello.now].slice(-RESTARTS_MAX) : now.restarts;
        if (isOther) streamedLog.length = 0; // its lines are numbered anew
        const logGaps = now.logGaps + 1; // what was said while the stream was away
        const known = isOther ? { figures: null, facts: new Map<string, Facts>(), rate: null } : {};
        live.set({ ...now, life: message.hello.life, restarts, logGaps, ...known });
    } else if (message.line.left_out !== undefined) live.set({ ...now, logGaps: now.logGaps + 1 });
    else {
        streamedLog.push(message.line);
        if (streamedLog.length > LOG_MAX) streamedLog.splice(0, streamedLog.length - LOG_MAX);
        live.set({ ...now, logNews: now.logNews + 1 });
    }
}

export function begin(): void {
    startStream(take);
}

export function unlock(token: string): void {
    setToken(token);
    unlockStream();
}
