// The job: how it does, its graph or the list of its nodes, where time goes, and a panel of the chosen node.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { live } from "../../live/live";
import { usePlan } from "../../live/plan";
import { changed, route, type Route } from "../../live/route";
import { useStore } from "../../live/store";
import type { Plan, PlanNode } from "../../api/types";
import { Missing, Notice } from "../../parts/notice";
import { Choice, Section } from "../../parts/section";
import { Graph } from "./graph";
import { Icicle } from "./icicle";
import { NodeList } from "./list";
import { Panel } from "./panel";
import { Summary } from "./summary";
import { Workers } from "./workers";

const narrow = matchMedia("(max-width: 760px)");

function useIsNarrow(): boolean {
    const [isNarrow, set] = useState(narrow.matches);
    useEffect(() => {
        const look = () => set(narrow.matches);
        narrow.addEventListener("change", look);
        return () => narrow.removeEventListener("change", look);
    }, []);
    return isNarrow;
}

/* The graph, or without a plan the list. The same element until something but figures changes: each node follows those by
 * itself, while it is on the screen. */
function useNodes(plan: Plan | null, planned: Map<string, PlanNode>, part: string, at: Route): JSX.Element {
    return useMemo(
        () => (plan === null ? <NodeList planned={planned} chosen={part} /> : <Graph plan={plan} chosen={part} />),
        [plan, planned, part, at],
    );
}

export function Job(): JSX.Element {
    const now = useStore(live, (value) => value);
    const at = useStore(route, (value) => value);
    const { part, span, query } = at;
    const plan = usePlan();
    const isNarrow = useIsNarrow();
    const value = plan.is === "here" ? plan.value : null;
    const planned = useMemo(() => new Map(value?.nodes.map((node) => [node.part, node])), [value]);
    const as = query.get("as") ?? (isNarrow || value === null ? "list" : "graph");
    const nodes = useNodes(as === "graph" ? value : null, planned, part, at);
    const { figures } = now;
    const chosen = now.facts.get(part)?.node.part;
    if (figures === null) return <Notice icon="waiting">The figures of the run are awaited …</Notice>;
    const choice = (
        <Choice
            label="Graph or list"
            chosen={as}
            options={[
                { key: "graph", name: "graph", href: changed({ query: { as: "graph" } }) },
                { key: "list", name: "list", href: changed({ query: { as: "list" } }) },
            ]}
        />
    );
    return (
        <>
            <Summary now={now} figures={figures} />
            {figures.warnings.map((text) => (
                <Notice key={text} tone="warning">
                    <bdi>{text}</bdi>
                </Notice>
            ))}
            <div class={"job" + (part !== "" && part === chosen ? " has-node" : "")}>
                <div class="job-main">
                    {figures.cluster === undefined ? null : <Workers cluster={figures.cluster} />}
                    <Section title="Time of the lanes">
                        <Icicle figures={figures} />
                    </Section>
                    <Section title="Nodes" aside={choice}>
                        {as === "graph" && value === null ? <Missing answer={plan} what="The graph" /> : null}
                        {nodes}
                    </Section>
                </div>
                <Panel part={part} planned={planned.get(part)} span={span} />
            </div>
        </>
    );
}
