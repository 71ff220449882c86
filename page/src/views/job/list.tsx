// The nodes as a table: for narrow screens, for long jobs, and for those who read rather than look.
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { live } from "../../live/live";
import { changed } from "../../live/route";
import { useStore } from "../../live/store";
import type { FiguresNode, PlanNode } from "../../api/types";
import { useVisible } from "../../parts/visible";
import { Flags, NodeFigures } from "./node";

function Row({ node, planned, isChosen }: { node: FiguresNode; planned: PlanNode; isChosen: boolean }): JSX.Element {
    const ref = useRef<HTMLAnchorElement>(null);
    const isVisible = useVisible(ref);
    const facts = useStore(live, (now) => now.facts.get(node.part), isVisible);
    return (
        <li>
            <a
                ref={ref}
                class={"row" + (isChosen ? " chosen" : "") + (facts?.isBottleneck ? " slow" : "")}
                data-part={node.part}
                href={changed({ part: isChosen ? "" : node.part })}
                aria-current={isChosen ? "true" : undefined}>
                <span class="row-head">
                    <span class="code">
                        <bdi>{node.part}</bdi>
                    </span>
                    <span class="muted">{node.kind}</span>
                    {facts ? <Flags facts={facts} /> : null}
                </span>
                <span class="figures">{facts ? <NodeFigures node={planned} facts={facts} /> : null}</span>
                <span class="node-bar" aria-hidden="true">
                    <span style={{ transform: `scaleX(${Math.min(facts?.share ?? 0, 1)})` }} />
                </span>
            </a>
        </li>
    );
}

/* planned: by part; a leat that has no plan gives none. */
export function NodeList({ planned, chosen }: { planned: Map<string, PlanNode>; chosen: string }): JSX.Element {
    const parts = useStore(live, (now) => now.figures?.nodes.map((node) => node.part).join("\n") ?? "");
    const nodes = live.value.figures?.nodes ?? [];
    return (
        <ul class="node-list" key={parts}>
            {nodes.map((node) => (
                <Row
                    key={node.part}
                    node={node}
                    planned={planned.get(node.part) ?? bare(node)}
                    isChosen={node.part === chosen}
                />
            ))}
        </ul>
    );
}

function bare(node: FiguresNode): PlanNode {
    const { part, name, tag, kind } = node;
    return {
        part,
        name,
        tag,
        kind,
        label: part,
        settings: "",
        detail: "",
        stage: -1,
        inputs: [],
        has_state: false,
        x: 0,
        y: 0,
        width: 0,
        height: 0,
    };
}
