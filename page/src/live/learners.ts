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

/* Whether a learner chooses items: it is measured by the places that items had in its lists. */
export function choosesItems(node: FiguresNode): boolean {
    return "step_loss" in node.report.run;
}

/* hr_10 is hr@10: the figure for lists of ten; null: a metric of another kind. */
export function listLength(name: string): { figure: string; k: number } | null {
    const found = /^(hr|ndcg|mrr|coverage)_(\d+)$/.exec(name);
    return found === null ? null : { figure: found[1] ?? "", k: Number(found[2]) };
}

/* The longest list that a report has figures of: what the server's history has as `hr`, `ndcg`, `coverage`. */
export function longestList(node: FiguresNode): number | null {
    const { run, window } = node.report;
    const all = [...Object.keys(run), ...Object.keys(window)].map((name) => listLength(name)?.k ?? 0);
    const longest = Math.max(0, ...all);
    return longest === 0 ? null : longest;
}
