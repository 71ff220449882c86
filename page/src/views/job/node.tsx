// A node of the graph: what it is, and how it does now. It is drawn again only while it is on the screen.
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { live, type Facts } from "../../live/live";
import { changed } from "../../live/route";
import { useStore } from "../../live/store";
import type { Box, PlanNode } from "../../api/types";
import { coarse, share, short } from "../../parts/format";
import { Icon } from "../../parts/icon";
import { Value } from "../../parts/value";
import { useVisible } from "../../parts/visible";

const THREE_LINES = 54; // pixels
const ONE_LINE_OF_FIGURES = 340; // pixels: in a narrower node they take the line of the detail, too

interface NodeProps {
    node: PlanNode;
    box: Box;
    isChosen: boolean;
    isStop: boolean; // the tab key comes here
    showsName: boolean;
    onKey: (event: KeyboardEvent) => void;
    onFocus: () => void;
}

/* Rate, share of lane time, queue, lag, watermark behind. */
export function NodeFigures({ node, facts }: { node: PlanNode; facts: Facts }): JSX.Element {
    const at = `figures.nodes[${node.part}]`;
    return (
        <>
            <Value k={`derived.rate[${node.part}]`} v={facts.rate} as={short} unit="/s" what="rows in, a second" />
            <span class="figure">
                <span class="muted">lane </span>
                <Value k={`${at}.lane_share`} v={facts.share} as={share} what="share of the fullest lane's time" />
            </span>
            {facts.node.stage > 0 ? (
                <span class="figure">
                    <span class="muted">queue </span>
                    <Value
                        k={`${at}.queue`}
                        v={facts.node.queue}
                        as={share}
                        what="share of the micro-batches that may wait"
                    />
                </span>
            ) : null}
            {facts.lagRecords !== null || facts.lagSeconds !== null ? (
                <span class="figure">
                    <span class="muted">lag </span>
                    {facts.lagSeconds !== null ? (
                        <Value k={`${at}.report.run.lag_seconds`} v={facts.lagSeconds} as={coarse} />
                    ) : (
                        <Value k={`${at}.report.run.lag_records`} v={facts.lagRecords} as={short} />
                    )}
                </span>
            ) : null}
            <span class={facts.behindMs ? "figure" : "figure muted"}>
                <span class="muted">behind </span>
                <Value
                    k={`${at}.time.behind_ms`}
                    v={facts.behindMs}
                    as={(ms) => coarse(ms / 1000)}
                    what="watermark behind, ms"
                />
            </span>
        </>
    );
}

export function Flags({ facts }: { facts: Facts }): JSX.Element {
    return (
        <>
            {facts.isBottleneck ? (
                <span class="flag slow">
                    <Icon name="slow" />
                    bottleneck
                </span>
            ) : null}
            {facts.node.error !== null ? (
                <span class="flag bad" title={facts.node.error}>
                    <Icon name="warning" />
                    error
                </span>
            ) : null}
            {facts.node.warning !== null ? (
                <span class="flag warning" title={facts.node.warning}>
                    <Icon name="warning" />
                    nearly all dead
                </span>
            ) : null}
            {facts.isHolder ? (
                <span class="flag hold" title="it holds the run's watermark">
                    <Icon name="hold" />
                    holds watermark
                </span>
            ) : null}
            {facts.deadRate !== null && facts.deadRate > 0 ? (
                <span class="flag dead" title="dead and late rows, a second">
                    <Icon name="warning" />
                    <span>
                        <Value k={`derived.bad[${facts.node.part}]`} v={facts.deadRate} as={short} />
                        /s bad
                    </span>
                </span>
            ) : null}
        </>
    );
}

export function GraphNode({ node, box, isChosen, isStop, showsName, onKey, onFocus }: NodeProps): JSX.Element {
    const ref = useRef<HTMLAnchorElement>(null);
    const isVisible = useVisible(ref);
    const facts = useStore(live, (now) => now.facts.get(node.part), isVisible);
    const place = { left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, height: `${box.height}px` };
    const classes = [
        "node",
        isChosen ? "chosen" : "",
        facts?.isBottleneck ? "slow" : "",
        facts?.node.error ? "bad" : "",
    ];
    const hasRoom = box.height >= THREE_LINES;
    const isTight = box.width < ONE_LINE_OF_FIGURES;
    return (
        <a
            ref={ref}
            class={classes.join(" ")}
            style={place}
            href={changed({ part: isChosen ? "" : node.part })}
            data-part={node.part}
            tabIndex={isStop ? 0 : -1}
            aria-current={isChosen ? "true" : undefined}
            onKeyDown={onKey}
            onFocus={onFocus}
            title={`${node.part}: ${node.settings}`}>
            <span class="node-line">
                {showsName ? (
                    <span class="node-name code">
                        <bdi>{node.name}</bdi>
                    </span>
                ) : null}
                <b>{node.kind}</b>
                <span class="code settings">
                    <bdi>{node.settings}</bdi>
                </span>
                {facts ? <Flags facts={facts} /> : null}
            </span>
            {hasRoom && !isTight && node.detail ? (
                <span class="node-line detail code">
                    <bdi>{node.detail}</bdi>
                </span>
            ) : null}
            <span class={"node-line figures" + (hasRoom && isTight ? " two" : "")}>
                {facts ? <NodeFigures node={node} facts={facts} /> : null}
            </span>
            <span class="node-bar" aria-hidden="true">
                <span style={{ transform: `scaleX(${Math.min(facts?.share ?? 0, 1)})` }} />
            </span>
        </a>
    );
}
