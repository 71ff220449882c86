// The learners of a job, and their metrics.
import type { Figures, FiguresNode, Report } from "../api/types";

/* A metric of a report; of several labels (`label.auc`): the first one's. */
export function metricOf(report: Report, metric: string): number | null {
    const own = report[metric];
    if (typeof own === "number") return own;
    for (const [name, value] of Object.entries(report))
        if (name.endsWith("." + metric) && typeof value === "number") return value;
    return null;
}

export function learnersOf(figures: Figures): FiguresNode[] {
    return figures.nodes.filter((node) => node.tag === "learner");
}
