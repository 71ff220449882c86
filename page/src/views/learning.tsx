// How the learners do: loss of all together, each one's metrics over time or over events, and its table.
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { useHistory, type Kept } from "../live/history";
import { choosesItems, learnersOf, listLength, longestList, metricOf } from "../live/learners";
import { live } from "../live/live";
import { changed, href, route } from "../live/route";
import { useStore } from "../live/store";
import type { FiguresNode, Span } from "../api/types";
import { Chart } from "../charts/chart";
import { merge, overEvents, type Curve } from "../charts/merge";
import { bytes, digits, fine, share, short, words, type Format } from "../parts/format";
import { Icon } from "../parts/icon";
import { Notice } from "../parts/notice";
import { Choice, Section } from "../parts/section";
import { Fact, Value } from "../parts/value";

const TOGETHER_MAX = 8;
const TABLE = [
    "rows",
    "rows_cold",
    "rows_loaded",
    "rows_evicted",
    "rows_expired",
    "occurrences_waiting",
    "table_bytes",
];

type X = "time" | "events";

const OF_ITEMS = ["items", "users", "history_events", "history_bytes", "items_bytes", "unnumbered"];

function formatOfMetric(name: string): Format {
    if (name.endsWith("examples") || name === "misses") return short;
    return listLength(name) !== null || /(^|\.)(auc|calibration)$/.test(name) ? fine : digits;
}

/* hr_10 is called hr@10. */
function nameOfMetric(name: string): string {
    const list = listLength(name);
    return list === null ? words(name) : `${list.figure}@${list.k}`;
}

const LOSSES = ["logloss", "rmse", "step loss"] as const;

/* logloss, else rmse; of a learner that chooses items, the last step's: what the server's history has as `loss`. */
function lossName(node: FiguresNode): (typeof LOSSES)[number] {
    if (choosesItems(node)) return "step loss";
    return metricOf(node.report.window, "logloss") === null && metricOf(node.report.run, "logloss") === null
        ? "rmse"
        : "logloss";
}

/* A figure of the learner's history, over time or over the events that it had learned then. */
function curveOf(kept: Kept, figure: string, node: FiguresNode, x: X): Curve {
    const [times, values = [], learned = []] = kept.ring.read([figure, "rows_learned"]);
    return x === "time" ? [times, values] : [overEvents(times, learned, node.counts.absorbed), values];
}

/* Always as many hooks as there may be lines, because their number may not change. */
function Losses({ nodes, span, x, metric }: { nodes: FiguresNode[]; span: Span; x: X; metric: string }): JSX.Element {
    const drawn = nodes.slice(0, TOGETHER_MAX);
    const all = Array.from({ length: TOGETHER_MAX }, (_, i) =>
        useHistory(nodes[i]?.part ?? null, span, nodes[i] !== undefined),
    );
    const versions = all.map((one) => one.version).join();
    const data = useMemo(
        () => merge(drawn.map((node, i) => curveOf(all[i] as Kept, "loss", node, x))),
        [versions, x, nodes.map((node) => node.part).join("\n")],
    );
    const lines = nodes
        .slice(0, TOGETHER_MAX)
        .map((node) => ({ name: node.part, key: `history[${node.part}].loss` }));
    return (
        <Chart
            title={drawn.length === 1 ? `${metric} of ${drawn[0]?.part}` : metric}
            unit={`of the last ${metric === "step loss" ? "step" : "window"}, ${x === "time" ? "by time" : "by events learned"}`}
            lines={lines}
            data={data}
            x={x}
            height={220}
            isTight
            as={digits}
        />
    );
}

const OF_WINDOW = ["loss", "auc", "calibration", "hr", "ndcg", "coverage"];

/* What the charts of a learner's figures are called. */
function titlesOf(node: FiguresNode): Record<string, string> {
    const k = longestList(node);
    const at = k === null ? "" : `@${k}`;
    return { loss: lossName(node), auc: "AUC", hr: `hr${at}`, ndcg: `ndcg${at}`, coverage: `coverage${at}` };
}

/* The metrics of the learner's windows; those that it has never had are left out. */
function Metrics({ node, kept, x, span }: { node: FiguresNode; kept: Kept; x: X; span: Span }): JSX.Element {
    const curves = useMemo(() => OF_WINDOW.map((figure) => curveOf(kept, figure, node, x)), [kept.version, kept, x]);
    const names = titlesOf(node);
    return (
        <>
            {OF_WINDOW.map((figure, i) => {
                const [xs, ys] = curves[i] ?? [[], []];
                if (ys.every((y) => y === null)) return null;
                const title = names[figure] ?? figure;
                return (
                    <Chart
                        key={figure}
                        title={title}
                        unit={x === "time" ? `last ${span}` : `last ${span}, by events learned`}
                        x={x}
                        as={figure === "loss" ? digits : fine}
                        isTight
                        data={[xs, ys]}
                        lines={[{ name: title, key: `history[${node.part}].${figure}` }]}
                    />
                );
            })}
        </>
    );
}

function Flow({ node }: { node: FiguresNode }): JSX.Element {
    const { run } = node.report;
    const at = `figures.nodes[${node.part}].report.run`;
    const isFrozen = run["is_frozen"] === 1;
    const learned = typeof run["learned"] === "number" ? run["learned"] : node.counts.absorbed;
    return (
        <>
            {isFrozen ? <Notice tone="warning">Frozen: it does not learn from what it sees.</Notice> : null}
            <dl class="facts">
                <Fact name="learned" k={`${at}.learned`} v={learned} as={short} />
                {[
                    "predicted",
                    "sampled_out",
                    "weightless",
                    "frozen",
                    "scored",
                    "unlabelled",
                    "rejected",
                    "without_history",
                ]
                    .filter((name) => name in run)
                    .map((name) => (
                        <Fact key={name} name={words(name)} k={`${at}.${name}`} v={run[name]} as={short} />
                    ))}
                {[...TABLE, ...(choosesItems(node) ? OF_ITEMS : [])]
                    .filter((name) => name in run)
                    .map((name) => (
                        <Fact
                            key={name}
                            name={TABLE_NAMES[name] ?? words(name)}
                            k={`${at}.${name}`}
                            v={run[name]}
                            as={name.endsWith("_bytes") ? bytes : short}
                        />
                    ))}
                <Fact
                    name="share of the fullest lane"
                    k={`figures.nodes[${node.part}].lane_share`}
                    v={node.lane_share}
                    as={share}
                />
            </dl>
        </>
    );
}

const TABLE_NAMES: Record<string, string> = {
    rows: "table rows in memory",
    occurrences_waiting: "waiting for admission",
    rows_expired: "rows expired",
};

function MetricTable({ node }: { node: FiguresNode }): JSX.Element {
    const { run, window } = node.report;
    const names = [...new Set([...Object.keys(window), ...Object.keys(run).filter((name) => name in window)])];
    const at = `figures.nodes[${node.part}].report`;
    return (
        <table class="metrics">
            <thead>
                <tr>
                    <th scope="col">metric</th>
                    <th scope="col">last window</th>
                    <th scope="col">whole run</th>
                </tr>
            </thead>
            <tbody>
                {names.map((name) => (
                    <tr key={name}>
                        <th scope="row">
                            <bdi>{nameOfMetric(name)}</bdi>
                        </th>
                        <td>
                            <Value k={`${at}.window.${name}`} v={window[name]} as={formatOfMetric(name)} />
                        </td>
                        <td>
                            <Value k={`${at}.run.${name}`} v={run[name]} as={formatOfMetric(name)} />
                        </td>
                    </tr>
                ))}
            </tbody>
        </table>
    );
}

function Learner({ node, x, span }: { node: FiguresNode; x: X; span: Span }): JSX.Element {
    const kept = useHistory(node.part, span);
    const rows = useMemo(() => kept.ring.read(["table_rows"]), [kept.version, kept]);
    const aside = <a href={href({ view: "job", part: node.part })}>in the graph</a>;
    return (
        <Section title={`${node.part} (${node.kind})`} aside={aside}>
            <div class="learner" data-part={node.part}>
                <div>
                    <MetricTable node={node} />
                </div>
                <div>
                    <Flow node={node} />
                </div>
                <div class="charts">
                    <Metrics node={node} kept={kept} x={x} span={span} />
                    {choosesItems(node) ? null : (
                        <Chart
                            title="table rows"
                            unit={`in memory and on disk, last ${span}`}
                            lines={[{ name: "table rows", key: `history[${node.part}].table_rows` }]}
                            data={rows}
                            as={short}
                        />
                    )}
                </div>
            </div>
        </Section>
    );
}

export function Learning(): JSX.Element {
    const figures = useStore(live, (now) => now.figures);
    const { span, query } = useStore(route, (now) => now);
    const x: X = query.get("x") === "events" ? "events" : "time";
    if (figures === null) return <Notice icon="waiting">The figures of the run are awaited …</Notice>;
    const learners = learnersOf(figures);
    if (learners.length === 0) return <Notice>This job has no learner.</Notice>;
    const aside = (
        <Choice
            label="What the charts run over"
            chosen={x}
            options={[
                { key: "time", name: "by time", href: changed({ query: { x: "" } }) },
                { key: "events", name: "by events", href: changed({ query: { x: "events" } }) },
            ]}
        />
    );
    const kinds = LOSSES.map((metric) => ({
        metric,
        nodes: learners.filter((n) => lossName(n) === metric),
    }));
    const all = learners.length > TOGETHER_MAX;
    return (
        <>
            <Section title="All learners" aside={aside}>
                {kinds
                    .filter(({ nodes }) => nodes.length > 0)
                    .map(({ metric, nodes }) => (
                        <Losses key={metric + span} nodes={nodes} span={span} x={x} metric={metric} />
                    ))}
                {all ? (
                    <p class="muted">
                        <Icon name="warning" /> The charts have the first {TOGETHER_MAX} learners of a loss.
                    </p>
                ) : null}
            </Section>
            {learners.map((node) => (
                <Learner key={node.part} node={node} x={x} span={span} />
            ))}
        </>
    );
}
