// Curves with x of their own, put over one x.

export type Curve = [number[], (number | null)[]];

/* x rises in each curve. Where a curve has no point at an x, uPlot is told so by undefined, which is no gap: it goes on. */
export function merge(curves: Curve[]): [number[], ...(number | null)[][]] {
    const xs = [...new Set(curves.flatMap(([own]) => own))].sort((a, b) => a - b);
    const places = new Map(xs.map((x, i) => [x, i]));
    const columns = curves.map(([own, ys]) => {
        const column: (number | null | undefined)[] = new Array(xs.length).fill(undefined);
        own.forEach((x, i) => (column[places.get(x) ?? 0] = ys[i] ?? null));
        return column as (number | null)[];
    });
    return [xs, ...columns];
}

/* For each time how many events were learned until then, counted back from `now`, the count at the last time. */
export function overEvents(times: number[], rates: (number | null)[], now: number): number[] {
    const events = new Array<number>(times.length);
    let left = now;
    for (let i = times.length - 1; i >= 0; i--) {
        events[i] = left;
        const step = Math.max((times[i] ?? 0) - (times[i - 1] ?? times[i] ?? 0), 0);
        left = Math.max(left - (rates[i] ?? 0) * step, 0);
    }
    /* uPlot wants x that rise; where nothing was learned they would stand still. */
    for (let i = 1; i < events.length; i++) events[i] = Math.max(events[i] ?? 0, (events[i - 1] ?? 0) + 1e-6);
    return events;
}

/* The value at an index, or at the end. Where a merged curve has no point, it is that of its point before; null: not known. */
export function newestOf(ys: (number | null | undefined)[], index = ys.length - 1): number | null {
    for (let i = index; i >= 0; i--) {
        const value = ys[i];
        if (value !== undefined) return value;
    }
    return null;
}
