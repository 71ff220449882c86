// The charts of a node's history, or of the run's: each figure in its own, the shares of the lanes' time in one.
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { useHistory } from "../live/history";
import { live } from "../live/live";
import { useStore } from "../live/store";
import type { History, Span } from "../api/types";
import { Missing, Notice } from "../parts/notice";
import { bytes, digits, moment, seconds, share, short, words, type Format } from "../parts/format";
import { Chart } from "./chart";

interface Group {
    title: string;
    unit: string;
    names: string[];
}

/* Figures of one unit that is a share of the lanes' time go together. */
function groupsOf(figures: History["figures"]): Group[] {
    const groups: Group[] = [];
    for (const figure of figures) {
        const isLanes = figure.unit === "share of the lanes' time";
        const before = groups.find((group) => isLanes && group.unit === figure.unit);
        if (before !== undefined) before.names.push(figure.name);
        else groups.push({ title: isLanes ? "lanes" : words(figure.name), unit: figure.unit, names: [figure.name] });
    }
    return groups;
}

function formatOfUnit(unit: string): Format {
    if (unit.startsWith("share")) return share;
    if (unit.startsWith("seconds")) return seconds;
    if (unit.startsWith("bytes")) return bytes;
    return unit.includes("logloss") ? digits : short;
}

const NONE: [] = [];

function One({
    group,
    data,
    part,
    marks,
}: {
    group: Group;
    data: [number[], ...(number | null)[][]];
    part: string | null;
    marks: number[];
}): JSX.Element {
    const lines = group.names.map((name) => ({ name: words(name), key: `history[${part ?? ""}].${name}` }));
    return (
        <Chart
            title={group.title}
            unit={group.unit}
            lines={lines}
            data={data}
            as={formatOfUnit(group.unit)}
            marks={marks}
        />
    );
}

export function HistoryCharts({
    part,
    span,
    only,
}: {
    part: string | null;
    span: Span;
    only?: string[];
}): JSX.Element {
    const kept = useHistory(part, span);
    const restarts = useStore(live, (now) => now.restarts);
    const marks = useMemo(() => restarts.map((ms) => ms / 1000), [restarts]);
    const { ring } = kept;
    const groups = useMemo(() => groupsOf(ring.figures), [ring.figures.map((figure) => figure.name).join()]);
    const drawn = groups.filter((group) => only === undefined || group.names.some((name) => only.includes(name)));
    const read = useMemo(() => drawn.map((group) => ring.read(group.names)), [kept.version, ring, drawn.length]);
    const unknown = drawn.filter((_, i) => read[i]?.slice(1).every((ys) => ys.every((y) => y === null)));
    const gapAt = ring.gaps > 0 ? lastGap(read[0]) : null;
    return (
        <div class="charts">
            {kept.answer.is === "awaited" ? null : <Missing answer={kept.answer} what="The history" />}
            {gapAt !== null ? (
                <Notice icon="waiting">
                    The process was away or stood still until {moment(gapAt * 1000)}: the gap in the charts.
                </Notice>
            ) : null}
            {drawn.map((group, i) =>
                unknown.includes(group) ? null : (
                    <One key={group.title} group={group} data={read[i] ?? [NONE]} part={part} marks={marks} />
                ),
            )}
            {unknown.length > 0 && ring.size > 0 ? (
                <p class="muted small">Not known of it: {unknown.map((group) => group.title).join(", ")}.</p>
            ) : null}
        </div>
    );
}

/* Where the newest gap ends: the first time with a value behind an entry that has none. null: there is none. */
function lastGap(data: [number[], ...(number | null)[][]] | undefined): number | null {
    const [xs, ys] = data ?? [];
    for (let i = (xs?.length ?? 0) - 1; i > 1; i--)
        if (ys?.[i] !== null && ys?.[i - 1] === null && ys?.[i - 2] !== null) return xs?.[i] ?? null;
    return null;
}
