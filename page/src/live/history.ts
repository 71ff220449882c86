// The history of nodes as far as something on the page shows it: rings like those of the server, filled once and then
// with what is new. A gap is one entry of NaN.
import { useEffect, useState } from "preact/hooks";
import { get, urlOf } from "../api/client";
import type { History, Span } from "../api/types";
import { live } from "./live";
import type { Polled } from "./polled";

const KEPT_MAX = 48; // nodes and spans
const CAPACITY: Record<Span, number> = { "1h": 3600, "12h": 4320, "30d": 4320 };
const EVERY_MS: Record<Span, number> = { "1h": 1000, "12h": 10_000, "30d": 60_000 };
const RENEW_AFTER = 300; // answers; then all of it is read again, for a clock that was set back

export class HistoryRing {
    readonly times: Float64Array; // seconds
    readonly values: Float64Array[];
    figures: History["figures"] = [];
    count = 0;
    gaps = 0;
    lastTick = -1;

    constructor(readonly span: Span) {
        this.times = new Float64Array(CAPACITY[span]);
        this.values = Array.from({ length: 8 }, () => new Float64Array(CAPACITY[span]));
    }

    get size(): number {
        return Math.min(this.count, this.times.length);
    }

    clear(): void {
        this.count = this.gaps = 0;
        this.lastTick = -1;
    }

    add(history: History): void {
        this.figures = history.figures;
        for (let i = 0; i < history.times.length; i++) {
            const tick = history.ticks[i] ?? 0;
            if (tick <= this.lastTick) continue;
            const at = this.count++ % this.times.length;
            this.times[at] = (history.times[i] ?? 0) / 1000;
            this.values.forEach((ring, f) => (ring[at] = history.values[f]?.[i] ?? NaN));
            this.lastTick = tick;
        }
        this.gaps += history.gaps;
    }

    /* x rises: entries whose time fell are left out. */
    read(names: string[]): [number[], ...(number | null)[][]] {
        const rings = names.map((name) => this.values[this.figures.findIndex((figure) => figure.name === name)]);
        const xs: number[] = [];
        const columns: (number | null)[][] = names.map(() => []);
        for (let i = this.count - this.size; i < this.count; i++) {
            const at = i % this.times.length;
            const x = this.times[at] ?? 0;
            if (xs.length > 0 && x <= (xs[xs.length - 1] ?? 0)) continue;
            xs.push(x);
            rings.forEach((ring, f) => {
                const value = ring?.[at] ?? NaN;
                columns[f]?.push(Number.isNaN(value) ? null : value);
            });
        }
        return [xs, ...columns];
    }

    /* The newest value of a figure; null: not known. */
    last(name: string): number | null {
        const ring = this.values[this.figures.findIndex((figure) => figure.name === name)];
        const value = this.count === 0 ? NaN : (ring?.[(this.count - 1) % this.times.length] ?? NaN);
        return Number.isNaN(value) ? null : value;
    }
}

export interface Kept {
    ring: HistoryRing;
    answer: Polled<History>; // the newest one
    version: number;
    isThere: boolean;
    life: string; // of the process that answered: another one may have begun its history anew
    askedMs: number; // when it was asked for last: several may show it
}

const kept = new Map<string, Kept>();

function keep(part: string | null, span: Span): Kept {
    const key = `${span} ${part ?? ""}`;
    let own = kept.get(key);
    if (own === undefined)
        own = {
            ring: new HistoryRing(span),
            answer: { is: "awaited" },
            version: 0,
            isThere: false,
            life: "",
            askedMs: 0,
        };
    kept.delete(key);
    kept.set(key, own); // the map is ordered: the one that was used longest ago is first
    if (kept.size > KEPT_MAX) kept.delete(kept.keys().next().value as string);
    return own;
}

async function renew(own: Kept, part: string | null, span: Span, signal: AbortSignal): Promise<void> {
    const { ring } = own;
    if (performance.now() - own.askedMs < EVERY_MS[span] * 0.7 && own.askedMs > 0) return;
    own.askedMs = performance.now();
    if (own.version % RENEW_AFTER === 0 || own.life !== live.value.life) own.isThere = false;
    own.life = live.value.life;
    const last = own.isThere && ring.count > 0 ? ring.times[(ring.count - 1) % ring.times.length] : undefined;
    const from = last === undefined ? undefined : String(Math.round(last * 1000) + 1);
    const answer = await get<History>(urlOf("history", { node: part ?? undefined, span, from }), signal);
    if (signal.aborted) return;
    own.version++;
    own.answer = answer;
    if (answer.is !== "here") return;
    if (from === undefined) ring.clear();
    ring.add(answer.value);
    own.isThere = true;
}

/* The history of a node (null: of the run), kept fresh while isOn. The component is drawn again when there is more. */
export function useHistory(part: string | null, span: Span, isOn = true): Kept {
    const own = keep(part, span);
    const [, draw] = useState(0);
    useEffect(() => {
        if (!isOn) return undefined;
        const control = new AbortController();
        let timer: ReturnType<typeof setTimeout>;
        const turn = async () => {
            if (!document.hidden) {
                await renew(own, part, span, control.signal);
                if (control.signal.aborted) return;
                draw((n) => n + 1);
            }
            timer = setTimeout(() => void turn(), EVERY_MS[span]);
        };
        void turn();
        return () => {
            control.abort();
            clearTimeout(timer);
        };
    }, [own, isOn]);
    return own;
}
