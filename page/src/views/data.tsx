// The data as it comes in: each column's nulls now and before, its distinct values and distribution; the dead letters.
import type { JSX } from "preact";
import { live } from "../live/live";
import { usePolled } from "../live/polled";
import { changed, route } from "../live/route";
import { useStore } from "../live/store";
import type { Column, Columns, DeadLetter, DeadLetters } from "../api/types";
import { Distribution } from "../charts/distribution";
import { bytes, cut, digits, iso, moment, share, short, type Format } from "../parts/format";
import { Icon } from "../parts/icon";
import { Missing, Notice } from "../parts/notice";
import { Section } from "../parts/section";
import { Value } from "../parts/value";

const TURNED_NULL = 0.5; // share of nulls now, that before was below
const RISE_MIN = 0.2;

/* A column that had values before and has few now. */
export function turnedNull(column: Column): boolean {
    const { null_share_recent: now, null_share_before: before } = column;
    if (now === null || before === null) return false;
    return now - before >= RISE_MIN && (now >= TURNED_NULL || before < 0.01);
}

function Nulls({ column, at }: { column: Column; at: string }): JSX.Element {
    return (
        <>
            <td>
                <Value k={`${at}.null_share_recent`} v={column.null_share_recent} as={share} what="nulls lately" />
            </td>
            <td>
                <Value k={`${at}.null_share_before`} v={column.null_share_before} as={share} what="nulls before" />
            </td>
            <td>
                <Value k={`${at}.nulls`} v={column.nulls} as={short} what="nulls since the start" />
            </td>
        </>
    );
}

/* The minute of a column of times, in UTC; other values by their digits. */
function formatOfColumn(column: Column): Format {
    if (!column.type.startsWith("time")) return digits;
    return (value) => iso(value).slice(0, 16).replace("T", " ");
}

const NUMBERED = 0.5; // of the rows have values of their own
const SHIFT_MIN = 0.25; // of the mean before
const OF_RANGE_MIN = 0.02; // a mean near 0 differs by much of itself

/* The mean now where it differs from that before. */
function shifted(column: Column): boolean {
    const { mean_recent: now, mean_before: before } = column;
    if (now === null || before === null || column.type.startsWith("time")) return false;
    if ((column.distinct ?? 0) > NUMBERED * column.rows) return false; // ids that rise
    const change = Math.abs(now - before);
    const range = (column.max ?? 0) - (column.min ?? 0);
    return change >= SHIFT_MIN * Math.abs(before) && change >= OF_RANGE_MIN * range;
}

function Means({ column, at }: { column: Column; at: string }): JSX.Element {
    const as = formatOfColumn(column);
    const isShifted = shifted(column);
    return (
        <>
            <td>
                <Value k={`${at}.mean_recent`} v={column.mean_recent} as={as} what="mean of the last minute" />
                {isShifted ? (
                    <span class="flag warning">
                        <Icon name="warning" />
                        moved
                    </span>
                ) : null}
            </td>
            <td>
                <Value k={`${at}.mean_before`} v={column.mean_before} as={as} what="mean of the ten minutes before" />
            </td>
        </>
    );
}

function Row({ column, part }: { column: Column; part: string }): JSX.Element {
    const at = `columns[${part}].${column.name}`;
    const isWarned = turnedNull(column);
    const as = formatOfColumn(column);
    return (
        <tr class={isWarned ? "warned" : ""} data-column={column.name}>
            <th scope="row">
                <span class="code" title={column.name}>
                    <bdi>{cut(column.name, 60)}</bdi>
                </span>{" "}
                <span class="muted">
                    <bdi>{column.type}</bdi>
                    {column.measure === "length" ? ", by length" : ""}
                    {column.is_sketched ? "" : ", only nulls are counted"}
                </span>
                {isWarned ? (
                    <span class="flag warning">
                        <Icon name="warning" />
                        turned null
                    </span>
                ) : null}
            </th>
            <Nulls column={column} at={at} />
            <td>
                <Value k={`${at}.distinct`} v={column.distinct} as={short} what="estimate" />
            </td>
            <td>
                <Value k={`${at}.min`} v={column.min} as={as} />
            </td>
            <td>
                <Value k={`${at}.max`} v={column.max} as={as} />
            </td>
            <Means column={column} at={at} />
            <td class="distribution">
                <Distribution column={column} as={as} />
            </td>
        </tr>
    );
}

const HEADS = [
    "column",
    "nulls now",
    "before",
    "nulls, all",
    "distinct",
    "min",
    "max",
    "mean now",
    "before",
    "distribution",
];

function ColumnsTable({ node }: { node: Columns["nodes"][number] }): JSX.Element {
    const aside = <Value k={`columns[${node.part}].rows`} v={node.rows} unit="rows sampled" />;
    return (
        <Section title={node.part} aside={aside}>
            <div class="scroll" tabIndex={0} role="region" aria-label={`Columns of ${node.part}`}>
                <table class="columns">
                    <thead>
                        <tr>
                            {HEADS.map((head, i) => (
                                <th key={i} scope="col">
                                    {head}
                                </th>
                            ))}
                        </tr>
                    </thead>
                    <tbody>
                        {node.columns.map((column) => (
                            <Row key={column.name} column={column} part={node.part} />
                        ))}
                    </tbody>
                </table>
            </div>
        </Section>
    );
}

const SHOWN_FIRST = 20;

function Letter({ letter }: { letter: DeadLetter }): JSX.Element {
    const at = `dead-letters[${letter.n}]`;
    return (
        <li class="letter" data-n={letter.n}>
            <div class="letter-head">
                <time dateTime={iso(letter.time)} title={iso(letter.time)}>
                    {moment(letter.time)}
                </time>
                <a class="code" href={changed({ query: { node: letter.part } })}>
                    <bdi>{letter.part}</bdi>
                </a>
                <span data-key={`${at}.place`} data-value={letter.place}>
                    <bdi>{cut(letter.place, 300)}</bdi>
                </span>
                <Value
                    k={`${at}.record_bytes`}
                    v={letter.record_bytes}
                    as={bytes}
                    what="bytes of the record; 0: a step rejected the row"
                />
            </div>
            <p class="reason" data-key={`${at}.reason`} data-value={letter.reason}>
                <bdi>{cut(letter.reason, 1000)}</bdi>
            </p>
            <pre class="code record" dir="auto" tabIndex={0} aria-label="The record" role="region">
                {letter.record}
            </pre>
        </li>
    );
}

function Letters(): JSX.Element {
    const { query } = useStore(route, (now) => now);
    const answer = usePolled<DeadLetters>("dead-letters", 2000);
    const examples = useStore(live, (now) => now.figures?.dead_examples) ?? [];
    if (answer.is !== "here")
        return (
            <>
                <Missing answer={answer} what="The newest dead letters" />
                {examples.length > 0 ? (
                    <ul class="plain">
                        {examples.map((text, i) => (
                            <li key={i} class="code">
                                <bdi>{text}</bdi>
                            </li>
                        ))}
                    </ul>
                ) : null}
            </>
        );
    const chosen = query.get("node") ?? "";
    const parts = [...new Set(answer.value.letters.map((letter) => letter.part))].sort();
    const all = answer.value.letters
        .filter((letter) => chosen === "" || letter.part === chosen)
        .sort((a, b) => b.n - a.n);
    const shown = query.get("letters") === "all" ? all : all.slice(0, SHOWN_FIRST);
    return (
        <>
            <nav class="choice" aria-label="Dead letters of one node">
                <a href={changed({ query: { node: "" } })} aria-current={chosen === "" ? "true" : undefined}>
                    all nodes
                </a>
                {parts.map((part) => (
                    <a
                        key={part}
                        href={changed({ query: { node: part } })}
                        aria-current={chosen === part ? "true" : undefined}>
                        <bdi>{part}</bdi>
                    </a>
                ))}
            </nav>
            <p class="muted">
                <Value k="dead-letters.total" v={answer.value.total} /> in all; the newest{" "}
                {answer.value.letters.length} are kept here.
            </p>
            {shown.length === 0 ? <Notice icon="good">None{chosen ? " of this node" : ""}.</Notice> : null}
            <ol class="letters">
                {shown.map((letter) => (
                    <Letter key={letter.n} letter={letter} />
                ))}
            </ol>
            {shown.length < all.length ? (
                <p>
                    <a href={changed({ query: { letters: "all" } })}>Show all {all.length}</a>
                </p>
            ) : null}
        </>
    );
}

/* Each column once, as the first node has it that is nearest to the sources. */
function TurnedNull({ nodes }: { nodes: Columns["nodes"] }): JSX.Element | null {
    const found = new Map<string, { part: string; column: Column; also: string[] }>();
    for (const { part, columns } of nodes)
        for (const column of columns.filter(turnedNull)) {
            const before = found.get(column.name);
            if (before === undefined) found.set(column.name, { part, column, also: [] });
            else before.also.push(part);
        }
    if (found.size === 0) return null;
    return (
        <div>
            {[...found.values()].map(({ part, column, also }) => (
                <Notice key={column.name} tone="warning">
                    Column{" "}
                    <span class="code">
                        <bdi>{cut(column.name, 60)}</bdi>
                    </span>{" "}
                    of <bdi>{part}</bdi> turned null: {share(column.null_share_recent ?? 0)} of its rows lately,{" "}
                    {share(column.null_share_before ?? 0)} before.
                    {also.length > 0 ? (
                        <>
                            {" "}
                            It goes on to <bdi>{also.join(", ")}</bdi>.
                        </>
                    ) : null}
                </Notice>
            ))}
        </div>
    );
}

export function Data(): JSX.Element {
    const columns = usePolled<Columns>("columns", 2000);
    const nodes = columns.is === "here" ? columns.value.nodes : [];
    return (
        <>
            <TurnedNull nodes={nodes} />
            <Missing answer={columns} what="The columns" />
            {nodes.map((node) => (
                <ColumnsTable key={node.part} node={node} />
            ))}
            <Section title="Dead letters">
                <Letters />
            </Section>
        </>
    );
}
