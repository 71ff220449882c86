// Lines over time, or over events, drawn by uPlot on a canvas. Nulls are gaps. A table of the newest values stands beside
// it for those who do not see the canvas, and the values under the pointer are shown in the legend.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useStore } from "../live/store";
import { UNKNOWN, bytes, digits, iso, short, type Format } from "../parts/format";
import { colours } from "../parts/theme";
import { useVisible } from "../parts/visible";
import { newestOf } from "./merge";
import { colour, lineClass, lineColour, lineDash } from "./palette";

export interface Line {
    name: string;
    key: string; // data-key of its newest value
}

interface ChartProps {
    title: string;
    unit?: string;
    lines: Line[];
    data: [number[], ...(number | null)[][]];
    x?: "time" | "events";
    as?: Format;
    height?: number;
    isTight?: boolean; // the y axis begins where the values do, not at 0
    marks?: number[]; // x at which the process was another one
}

const BYTE_STEPS = Array.from({ length: 50 }, (_, i) => 2 ** i);
const EDGE = 26; // pixels: half of a name
const FONT = "11px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif";

/* The browser's local time; of a span of days their dates. */
function clock(seconds: number, span: number): string {
    const date = new Date(seconds * 1000);
    const two = (value: number) => String(value).padStart(2, "0");
    if (span > 2 * 86_400) return `${date.getMonth() + 1}-${two(date.getDate())}`;
    const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
    return span < 600 ? `${minutes}:${two(date.getSeconds())}` : minutes;
}

/* Dashed upright lines where the process was restarted. */
function drawMarks(u: uPlot, marks: number[]): void {
    const { left, top, width, height } = u.bbox;
    u.ctx.save();
    u.ctx.strokeStyle = colour("--warning");
    u.ctx.setLineDash([4, 4]);
    for (const mark of marks) {
        const x = u.valToPos(mark, "x", true);
        if (x < left || x > left + width) continue;
        u.ctx.beginPath();
        u.ctx.moveTo(x, top);
        u.ctx.lineTo(x, top + height);
        u.ctx.stroke();
    }
    u.ctx.restore();
}

/* A name there would lie over those of y, or be cut. */
function isAtEdge(u: uPlot, x: number): boolean {
    const at = u.valToPos(x, "x");
    return at < EDGE || at > u.over.clientWidth - EDGE + 8; // of the padding
}

function axes(props: ChartProps, format: Format): uPlot.Axis[] {
    const look = { stroke: colour("--muted"), font: FONT, ticks: { show: false } };
    const grid = { stroke: colour("--rule"), width: 1 };
    const clocks = (splits: number[]) => splits.map((value) => clock(value, (splits.at(-1) ?? 0) - (splits[0] ?? 0)));
    const names = (u: uPlot, splits: number[]) =>
        (props.x === "events" ? splits.map(short) : clocks(splits)).map((name, i) =>
            isAtEdge(u, splits[i] ?? 0) ? "" : name,
        );
    const bottom: uPlot.Axis = { ...look, grid: { show: false }, size: 20, gap: 3, space: 70, values: names };
    const incrs = format === bytes ? BYTE_STEPS : undefined;
    const left = { ...look, grid, size: 52, gap: 4, space: 26, values: (_: uPlot, at: number[]) => at.map(format) };
    return [bottom, incrs ? { ...left, incrs } : left];
}

function above(high: number | null): number {
    return (high ?? 0) > 0 ? (high ?? 0) * 1.08 : 1;
}

/* The values with a little room, so that small changes are seen. */
function around(low: number | null, high: number | null): [number, number] {
    if (low === null || high === null) return [0, 1];
    const room = Math.max((high - low) * 0.12, Math.abs(high) * 0.002, 1e-9);
    return [low - room, high + room];
}

function options(props: ChartProps, width: number, readout: (index: number | null) => void): uPlot.Options {
    const format = props.as ?? digits;
    return {
        width,
        height: props.height ?? 92,
        padding: [6, 8, 0, 0],
        legend: { show: false },
        cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false } },
        scales: {
            x: { time: props.x !== "events" },
            y: {
                range: (_, low, high) => (props.isTight ? around(low, high) : [Math.min(0, low ?? 0), above(high)]),
            },
        },
        axes: axes(props, format),
        series: [
            {},
            ...props.lines.map(
                (line, i): uPlot.Series => ({
                    label: line.name,
                    stroke: lineColour(i),
                    dash: lineDash(i),
                    width: 1.5,
                    spanGaps: false,
                    points: { show: false },
                }),
            ),
        ],
        hooks: {
            setCursor: [(u) => readout(u.cursor.idx ?? null)],
            draw: [(u) => drawMarks(u, props.marks ?? [])],
        },
    };
}

/* Makes the uPlot anew when lines, colours or the kind of x are others; afterwards only its data are set. */
function usePlot(props: ChartProps, isVisible: boolean) {
    const place = useRef<HTMLDivElement>(null);
    const legend = useRef<HTMLUListElement>(null);
    const plot = useRef<uPlot | null>(null);
    const latest = useRef(props);
    latest.current = props;
    const look = useStore(colours, (n) => n);
    const made = `${look} ${props.x} ${props.lines.map((line) => line.name).join("\n")} ${(props.marks ?? []).join()}`;
    const readout = (index: number | null) => {
        const { data, as = digits } = latest.current;
        legend.current?.querySelectorAll(".under").forEach((element, i) => {
            const value = index === null ? null : newestOf(data[i + 1] ?? [], index);
            element.textContent = index === null ? "" : " · here " + (value === null ? UNKNOWN : as(value));
        });
    };
    useEffect(() => {
        const element = place.current;
        if (element === null) return undefined;
        const u = new uPlot(
            options(latest.current, Math.max(element.clientWidth, 120), readout),
            latest.current.data,
            element,
        );
        plot.current = u;
        const resized = new ResizeObserver((entries) => {
            const width = Math.floor(entries[0]?.contentRect.width ?? 0);
            if (width > 0 && width !== u.width) u.setSize({ width, height: u.height });
        });
        resized.observe(element);
        return () => {
            resized.disconnect();
            u.destroy();
            plot.current = null;
        };
    }, [made]);
    useEffect(() => {
        if (isVisible) plot.current?.setData(props.data);
    }, [props.data, isVisible, made]);
    return { place, legend };
}

export function Chart(props: ChartProps): JSX.Element {
    const box = useRef<HTMLElement>(null);
    const isVisible = useVisible(box);
    const { place, legend } = usePlot(props, isVisible);
    const [xs, ...columns] = props.data;
    const format = props.as ?? digits;
    const isEmpty = columns.every((ys) => ys.every((y) => y === null || y === undefined));
    const spoken = props.lines.map((line, i) => {
        const value = newestOf(columns[i] ?? []);
        return `${line.name} ${value === null ? "not known" : format(value)}`;
    });
    const last = xs[xs.length - 1];
    return (
        <figure class="chart" ref={box}>
            <div class="chart-head">
                <figcaption>
                    <span class="chart-title">{props.title}</span>
                    {props.unit ? <span class="muted chart-unit"> {props.unit}</span> : null}
                </figcaption>
                <ul class={"legend" + (props.lines.length === 1 ? " one" : "")} ref={legend}>
                    {props.lines.map((line, i) => {
                        const value = newestOf(columns[i] ?? []);
                        return (
                            <li key={line.name}>
                                {props.lines.length > 1 ? (
                                    <span class={"swatch " + lineClass(i)} aria-hidden="true" />
                                ) : null}
                                {props.lines.length > 1 ? <span>{line.name} </span> : null}
                                <span
                                    class="value"
                                    data-key={line.key}
                                    data-value={value ?? "null"}
                                    title={String(value ?? "not known")}
                                    data-time={
                                        props.x === "events" || last === undefined ? undefined : iso(last * 1000)
                                    }>
                                    {value === null ? UNKNOWN : format(value)}
                                </span>
                                <span class="under muted" />
                            </li>
                        );
                    })}
                </ul>
            </div>
            <div class="plot" ref={place} role="img" aria-label={`${props.title}, newest: ${spoken.join(", ")}`} />
            {isEmpty ? <p class="plot-empty muted">nothing known in this span</p> : null}
        </figure>
    );
}
