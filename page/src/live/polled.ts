// Answers that a view asks for again and again while it is shown. The newest one is kept, so that a view that is opened
// again shows something at once.
import { useEffect, useState } from "preact/hooks";
import { get, urlOf, type Answer } from "../api/client";

export type Polled<T> = Answer<T> | { is: "awaited" };

const KEPT_MAX = 64;
const RETRY_MS = 30_000; // of a route that this leat does not have
export const PASSING = [0, 429, 503]; // no answer, busy, being restored: asked again
const PASSING_MS = 3000;
const kept = new Map<string, Answer<unknown>>();

function keep(url: string, answer: Answer<unknown>): void {
    kept.delete(url);
    kept.set(url, answer);
    if (kept.size > KEPT_MAX) kept.delete(kept.keys().next().value as string);
}

/* everyMs 0: once, until `turn` is another. */
function usePolledUrl<T>(url: string, everyMs: number, turn: unknown = 0): Polled<T> {
    const [, draw] = useState(0);
    useEffect(() => {
        const control = new AbortController();
        let timer: ReturnType<typeof setTimeout>;
        const look = async () => {
            let wait = everyMs;
            if (!document.hidden) {
                const answer = await get<T>(url, control.signal);
                if (control.signal.aborted) return;
                keep(url, answer);
                draw((n) => n + 1);
                if (answer.is === "absent") wait = RETRY_MS;
                if (answer.is === "locked") wait = PASSING_MS;
                if (answer.is === "failed" && PASSING.includes(answer.status)) wait = PASSING_MS;
            }
            if (wait > 0) timer = setTimeout(() => void look(), wait);
        };
        void look();
        return () => {
            control.abort();
            clearTimeout(timer);
        };
    }, [url, everyMs, turn]);
    return (kept.get(url) as Answer<T> | undefined) ?? { is: "awaited" };
}

export type Params = Record<string, string | string[] | undefined>;

export function usePolled<T>(route: string, everyMs: number, turn: unknown = 0, params: Params = {}): Polled<T> {
    return usePolledUrl<T>(urlOf(route, params), everyMs, turn);
}
