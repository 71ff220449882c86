// The windows of metrics of each learner, as they were seen since the page was opened: a ring of an hour of seconds. The
// server's history keeps the loss alone; AUC and calibration over time are known from here.
import type { Figures, FiguresNode, Report } from "../api/types";

const SECONDS = 3600;
const LEARNERS_MAX = 64;
export const METRICS = ["logloss", "rmse", "auc", "calibration"] as const;
export type Metric = (typeof METRICS)[number];

export class LearnerRing {
    readonly times = new Float64Array(SECONDS); // server's, in seconds
    readonly events = new Float64Array(SECONDS); // examples since the run began
    readonly values: Record<Metric, Float64Array>;
    count = 0; // all that were kept, those that were overwritten too

    constructor() {
        const ring = () => new Float64Array(SECONDS);
        this.values = { logloss: ring(), rmse: ring(), auc: ring(), calibration: ring() };
    }

    push(time: number, events: number, window: Report): void {
        const at = this.count++ % SECONDS;
        this.times[at] = time;
        this.events[at] = events;
        for (const metric of METRICS) this.values[metric][at] = metricOf(window, metric) ?? NaN;
    }

    /* From the oldest to the newest: x and a metric; null: not known. A silence is one null. */
    read(x: "time" | "events", metric: Metric): [number[], (number | null)[]] {
        const xs: number[] = [];
        const ys: (number | null)[] = [];
        const length = Math.min(this.count, SECONDS);
        let before = NaN;
        for (let i = this.count - length; i < this.count; i++) {
            const at = i % SECONDS;
            const time = this.times[at] ?? NaN;
            const own = (x === "time" ? this.times : this.events)[at] ?? NaN;
            if (x === "time" && time - before > 5) {
                xs.push(before + 0.5);
                ys.push(null);
            }
            before = time;
            const last = xs[xs.length - 1];
            if (last !== undefined && own <= last) continue; // no new window, or the process began anew
            const value = this.values[metric][at] ?? NaN;
            xs.push(own);
            ys.push(Number.isNaN(value) ? null : value);
        }
        return [xs, ys];
    }
}

/* A metric of a report; of several labels (`label.auc`): the first one's. */
export function metricOf(report: Report, metric: string): number | null {
    const own = report[metric];
    if (typeof own === "number") return own;
    for (const [name, value] of Object.entries(report))
        if (name.endsWith("." + metric) && typeof value === "number") return value;
    return null;
}

export const learnerRings = new Map<string, LearnerRing>();

export function learnersOf(figures: Figures): FiguresNode[] {
    return figures.nodes.filter((node) => node.tag === "learner");
}

export function keepLearners(figures: Figures): void {
    for (const node of learnersOf(figures).slice(0, LEARNERS_MAX)) {
        let ring = learnerRings.get(node.part);
        if (ring === undefined) learnerRings.set(node.part, (ring = new LearnerRing()));
        const time = (figures.now ?? Date.now()) / 1000;
        ring.push(time, metricOf(node.report.run, "examples") ?? node.counts.absorbed, node.report.window);
    }
}
