// Beside the graph: the chosen node with its counts, which add up, its report and its history; the run's if none is chosen.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { live } from "../../live/live";
import { changed } from "../../live/route";
import { useStore } from "../../live/store";
import type { Counts, FiguresNode, PlanNode, Report, Span } from "../../api/types";
import { HistoryCharts } from "../../charts/history";
import { formatOf, milliseconds, share, short, words } from "../../parts/format";
import { Icon } from "../../parts/icon";
import { Notice } from "../../parts/notice";
import { Fact, Value } from "../../parts/value";

const PARTS = ["passed", "filtered", "late", "duplicate", "dead", "absorbed", "held"] as const;
const BESIDE = ["emitted", "late_updates", "null_keys"] as const;

/* in = passed + filtered + late + duplicate + dead + absorbed + held */
function CountsTable({ node }: { node: FiguresNode }): JSX.Element {
    const key = (name: keyof Counts) => `figures.nodes[${node.part}].counts.${name}`;
    const sign =
        node.tag === "learner" ? { ...NAMES, absorbed: "learned", filtered: "not learned", dead: "rejected" } : NAMES;
    return (
        <table class="counts">
            <caption class="hidden">What became of the rows</caption>
            <tbody>
                <tr class="sum">
                    <th scope="row">in</th>
                    <td>
                        <Value k={key("in")} v={node.counts.in} />
                    </td>
                    <td class="muted">=</td>
                </tr>
                {PARTS.map((name) => (
                    <tr key={name} class={node.counts[name] === 0 ? "zero" : ""}>
                        <th scope="row">{sign[name] ?? words(name)}</th>
                        <td>
                            <Value k={key(name)} v={node.counts[name]} />
                        </td>
                        <td class="muted">
                            {node.counts.in > 0 && node.counts[name] > 0 ? (
                                <Value
                                    k={`derived.share[${node.part}].${name}`}
                                    v={node.counts[name] / node.counts.in}
                                    as={share}
                                    what="of the rows in"
                                />
                            ) : null}
                        </td>
                    </tr>
                ))}
                {BESIDE.filter((name) => node.counts[name] > 0).map((name) => (
                    <tr key={name} class="beside">
                        <th scope="row">{words(name)}</th>
                        <td>
                            <Value k={key(name)} v={node.counts[name]} />
                        </td>
                        <td class="muted">beside</td>
                    </tr>
                ))}
            </tbody>
        </table>
    );
}

const NAMES: Partial<Record<keyof Counts, string>> = {};

function ReportFacts({ title, report, at }: { title: string; report: Report; at: string }): JSX.Element | null {
    const entries = Object.entries(report);
    if (entries.length === 0) return null;
    return (
        <>
            <h3>{title}</h3>
            <dl class="facts">
                {entries.map(([name, value]) => (
                    <Fact key={name} name={words(name)} k={`${at}.${name}`} v={value} as={formatOf(name)} />
                ))}
            </dl>
        </>
    );
}

/* What is wrong with the node, in the server's words. */
function Troubles({ node, isBottleneck }: { node: FiguresNode; isBottleneck: boolean }): JSX.Element {
    return (
        <>
            {isBottleneck ? (
                <Notice tone="warning" icon="slow">
                    <bdi>{live.value.figures?.bottleneck}</bdi>
                </Notice>
            ) : null}
            {node.error !== null ? (
                <Notice tone="bad">
                    <bdi>{node.error}</bdi>
                </Notice>
            ) : null}
            {node.warning !== null ? (
                <Notice tone="warning">
                    <bdi>{node.warning}</bdi>
                </Notice>
            ) : null}
        </>
    );
}

function NodePanel({
    node,
    planned,
    span,
}: {
    node: FiguresNode;
    planned: PlanNode | undefined;
    span: Span;
}): JSX.Element {
    const facts = useStore(live, (now) => now.facts.get(node.part));
    const at = `figures.nodes[${node.part}]`;
    return (
        <>
            <header class="panel-head">
                <div>
                    <h2 class="code">
                        <bdi>{node.part}</bdi>
                    </h2>
                    <p class="muted">
                        {node.tag}, {node.kind}
                        {planned?.detail ? ": " : ""}
                        <bdi>{planned?.detail ?? ""}</bdi>
                    </p>
                </div>
                <a class="button" href={changed({ part: "" })} aria-label="Close the panel of the node">
                    <Icon name="close" />
                </a>
            </header>
            <Troubles node={node} isBottleneck={facts?.isBottleneck ?? false} />
            {planned?.settings ? (
                <p class="code settings-all">
                    <bdi>{planned.settings}</bdi>
                </p>
            ) : null}
            <dl class="facts">
                <Fact name="rows in, a second" k={`derived.rate[${node.part}]`} v={facts?.rate} as={short} />
                <Fact name="share of the fullest lane" k={`${at}.lane_share`} v={node.lane_share} as={share} />
                {node.stage > 0 ? <Fact name="queue" k={`${at}.queue`} v={node.queue} as={share} /> : null}
                <Fact name="watermark" k={`${at}.time.watermark`} v={node.time.watermark} />
                <Fact name="watermark behind" k={`${at}.time.behind_ms`} v={node.time.behind_ms} as={milliseconds} />
                {node.time.held_by ? <Fact name="held by" k={`${at}.time.held_by`} v={node.time.held_by} /> : null}
                {node.note ? <Fact name="note" k={`${at}.note`} v={node.note} /> : null}
            </dl>
            <h3>
                Rows
                <span
                    class={"flag " + (node.counts.balanced ? "good" : "bad")}
                    data-key={`${at}.counts.balanced`}
                    data-value={String(node.counts.balanced)}>
                    <Icon name={node.counts.balanced ? "good" : "warning"} />
                    {node.counts.balanced ? "they add up" : "they do not add up now"}
                </span>
            </h3>
            <CountsTable node={node} />
            <ReportFacts title="Last window of metrics" report={node.report.window} at={`${at}.report.window`} />
            <ReportFacts title="Report" report={node.report.run} at={`${at}.report.run`} />
            <h3>Last {span}</h3>
            <HistoryCharts key={node.part + span} part={node.part} span={span} />
        </>
    );
}

const below = matchMedia("(max-width: 1100px)"); // as in style/job.css: the panel stands under the graph

export function Panel({
    part,
    planned,
    span,
}: {
    part: string;
    planned: PlanNode | undefined;
    span: Span;
}): JSX.Element {
    const node = useStore(live, (now) => now.figures?.nodes.find((one) => one.part === part));
    const place = useRef<HTMLElement>(null);
    useEffect(() => {
        if (part !== "" && below.matches) place.current?.scrollIntoView({ block: "start" });
    }, [part]);
    const known = useStore(live, (now) => now.figures !== null);
    if (part !== "" && node !== undefined)
        return (
            <aside class="panel" aria-label={`Node ${part}`} ref={place}>
                <NodePanel node={node} planned={planned} span={span} />
            </aside>
        );
    return (
        <aside class="panel" aria-label="The run">
            {part !== "" && known ? (
                <Notice tone="warning">
                    The job has no node <bdi>{part}</bdi>.
                </Notice>
            ) : null}
            <header class="panel-head">
                <h2>The run, last {span}</h2>
            </header>
            <HistoryCharts key={span} part={null} span={span} />
        </aside>
    );
}
