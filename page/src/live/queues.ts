// How full the queue of each stage is. The figures do not have it, the history does: one node of a stage is asked, a few
// stages each second, in turn.
import { useEffect } from "preact/hooks";
import { get, urlOf } from "../api/client";
import type { History, Plan } from "../api/types";
import { Store } from "./store";

const EACH_TIME = 4;
const EVERY_MS = 1000;
const RECENT_MS = 20_000;

export const queues = new Store<Map<number, number>>(new Map());

async function look(part: string, stage: number, signal: AbortSignal): Promise<void> {
    const from = String(Date.now() - RECENT_MS);
    const answer = await get<History>(urlOf("history", { node: part, span: "1h", from }), signal);
    if (answer.is !== "here" || signal.aborted) return;
    const at = answer.value.figures.findIndex((figure) => figure.name === "queue");
    const value = answer.value.values[at]?.at(-1);
    const next = new Map(queues.value);
    if (typeof value === "number") next.set(stage, value);
    else next.delete(stage);
    queues.set(next);
}

/* Keeps `queues` fresh while the component is shown. */
export function useQueues(plan: Plan | null): void {
    useEffect(() => {
        if (plan === null) return undefined;
        const stages = plan.stages.flatMap((stage, index) => {
            const node = stage.sort === "sources" ? undefined : plan.nodes.find((one) => one.stage === index);
            return node === undefined ? [] : [{ stage: index, part: node.part }];
        });
        const control = new AbortController();
        let next = 0;
        const timer = setInterval(() => {
            if (document.hidden || stages.length === 0) return;
            for (let i = 0; i < Math.min(EACH_TIME, stages.length); i++) {
                const one = stages[next++ % stages.length];
                if (one !== undefined) void look(one.part, one.stage, control.signal);
            }
        }, EVERY_MS);
        return () => {
            clearInterval(timer);
            control.abort();
        };
    }, [plan]);
}
