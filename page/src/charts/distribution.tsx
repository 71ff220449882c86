// How the values of a column are distributed: a small histogram of numbers, or the most frequent values of texts.
import type { JSX } from "preact";
import type { Column } from "../api/types";
import { cut, share, whole, type Format } from "../parts/format";

const WIDTH = 132;
const HEIGHT = 28;
const TOP_MAX = 3;

const CROWDED = 0.04; // of the axis; where half of the values lie within that, it is logarithmic

/* Where the bins are between 0 and 1, and how dense the values are in them, of the densest. */
export function placesOf(bins: Column["histogram"]): { isLog: boolean; at: [number, number, number][] } {
    const first = bins[0]?.from ?? 0;
    const last = bins[bins.length - 1]?.to ?? 0;
    const narrowest = Math.min(...bins.map((bin) => bin.to - bin.from).filter((width) => width > 0));
    if (!(last > first) || !Number.isFinite(narrowest)) return { isLog: false, at: bins.map(() => [0, 1, 1]) };
    const all = bins.reduce((sum, bin) => sum + bin.count, 0);
    const near = bins.filter((bin) => (bin.from + bin.to) / 2 - first <= CROWDED * (last - first));
    const isLog = near.reduce((sum, bin) => sum + bin.count, 0) >= all / 2;
    const scale = (x: number) => (isLog ? Math.log1p((x - first) / narrowest) : x - first);
    const at = bins.map((bin): [number, number, number] => {
        const from = scale(bin.from) / scale(last);
        const to = scale(bin.to) / scale(last);
        return [from, to, bin.count / Math.max(to - from, 1e-9)];
    });
    const most = Math.max(...at.map(([, , density]) => density));
    return { isLog, at: at.map(([from, to, density]) => [from, to, density / most]) };
}

function Histogram({ bins, as }: { bins: Column["histogram"]; as: Format }): JSX.Element {
    const { isLog, at } = placesOf(bins);
    const range = `${as(bins[0]?.from ?? 0)} to ${as(bins[bins.length - 1]?.to ?? 0)}`;
    const label = `histogram from ${range}, ${bins.length} bins${isLog ? ", on a logarithmic axis" : ""}`;
    return (
        <svg class="histogram" width={WIDTH} height={HEIGHT} role="img" aria-label={label}>
            {bins.map((bin, i) => {
                const [from, to, density] = at[i] ?? [0, 0, 0];
                const height = bin.count === 0 ? 0 : Math.max(1, density * HEIGHT);
                const width = Math.max((to - from) * WIDTH - 0.5, 1);
                return (
                    <rect key={i} x={from * WIDTH} y={HEIGHT - height} width={width} height={height}>
                        <title>{`${as(bin.from)} to ${as(bin.to)}: ${whole(bin.count)}${isLog ? " (log axis)" : ""}`}</title>
                    </rect>
                );
            })}
        </svg>
    );
}

export function Distribution({ column, as }: { column: Column; as: Format }): JSX.Element | null {
    if (column.histogram.length > 0 && column.top.length === 0) return <Histogram bins={column.histogram} as={as} />;
    if (column.top.length === 0) return null;
    return (
        <ul class="top">
            {column.top.slice(0, TOP_MAX).map((one, i) => (
                <li key={i} title={cut(one.value, 300)}>
                    <bdi>{cut(one.value, 24)}</bdi> <span class="muted">{share(one.share)}</span>
                </li>
            ))}
        </ul>
    );
}
