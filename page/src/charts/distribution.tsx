// How the values of a column are distributed: a small histogram of numbers, or the most frequent values of texts.
import type { JSX } from "preact";
import type { Column } from "../api/types";
import { cut, digits, share, whole } from "../parts/format";

const WIDTH = 132;
const HEIGHT = 28;
const TOP_MAX = 3;

function Histogram({ bins }: { bins: Column["histogram"] }): JSX.Element {
    const most = Math.max(1, ...bins.map((bin) => bin.count));
    const width = WIDTH / bins.length;
    const first = bins[0];
    const last = bins[bins.length - 1];
    const label = `histogram from ${digits(first?.from ?? 0)} to ${digits(last?.to ?? 0)}, ${bins.length} bins`;
    return (
        <svg class="histogram" width={WIDTH} height={HEIGHT} role="img" aria-label={label}>
            {bins.map((bin, i) => {
                const height = bin.count === 0 ? 0 : Math.max(1, (bin.count / most) * HEIGHT);
                return (
                    <rect key={i} x={i * width} y={HEIGHT - height} width={Math.max(width - 1, 0.5)} height={height}>
                        <title>{`${digits(bin.from)} to ${digits(bin.to)}: ${whole(bin.count)}`}</title>
                    </rect>
                );
            })}
        </svg>
    );
}

export function Distribution({ column }: { column: Column }): JSX.Element | null {
    if (column.histogram.length > 0) return <Histogram bins={column.histogram} />;
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
