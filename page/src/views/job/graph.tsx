// The job as leat lays it out: boxes of stages and arrows between them, and in the boxes the nodes. Arrow keys go along
// the edges: down to what reads this node, up to what it reads, left and right to its neighbours.
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { changed, go } from "../../live/route";
import type { Plan } from "../../api/types";
import { cut } from "../../parts/format";
import { endOf, geometryOf, type Geometry } from "./geometry";
import { GraphNode } from "./node";

const SCALE_MIN = 0.8;
const SCROLLBAR = 14; // pixels

function Arrow({ arrow, geometry }: { arrow: Plan["arrows"][number]; geometry: Geometry }): JSX.Element {
    const path = geometry.path(arrow.path);
    const [x, y] = endOf(path);
    const label = geometry.box(arrow.label);
    const middle = { x: label.x + label.width / 2, y: label.y + label.height / 2 + 4 };
    return (
        <g>
            <path class="wire" d={path} />
            <path class="tip" d={`M${x} ${y + 6}l-4.5 -8h9z`} />
            <rect class="label" x={label.x} y={label.y} width={label.width} height={label.height} rx={11} />
            <text x={middle.x} y={middle.y} text-anchor="middle">
                <tspan class="more">{arrow.stream}</tspan>
                <tspan class="more strong" dx={6}>
                    {arrow.mode}
                </tspan>
            </text>
        </g>
    );
}

function Stage({ stage, index, geometry }: { stage: Plan["stages"][number]; index: number; geometry: Geometry }) {
    const box = geometry.box(stage);
    const room = Math.max(8, Math.floor((box.width - 110 - stage.instances.length * 6.7) / 7.6));
    return (
        <g class={stage.sort}>
            <rect class="box" x={box.x} y={box.y} width={box.width} height={box.height} rx={7} />
            <path class="bar" d={`M${box.x + 7} ${box.y}a7 7 0 0 0 -7 7v${box.height - 14}a7 7 0 0 0 7 7z`} />
            <text x={box.x + 18} y={box.y + 21}>
                <tspan class="name">stage {index}</tspan>
                <tspan class="bold" dx={9}>
                    {cut(stage.title, room)}
                </tspan>
            </text>
            <text x={box.x + box.width - 14} y={box.y + 21} class="more" text-anchor="end">
                {stage.instances}
            </text>
            <path class="rule" d={`M${box.x + 8} ${box.y + 30.5}H${box.x + box.width - 1}`} />
        </g>
    );
}

/* Boxes and arrows never change while the plan is the same. */
function usePicture(plan: Plan, geometry: Geometry): JSX.Element {
    return useMemo(
        () => (
            <svg class="picture" width={geometry.width} height={geometry.height} aria-hidden="true">
                {plan.arrows.map((arrow, i) => (
                    <Arrow key={i} arrow={arrow} geometry={geometry} />
                ))}
                {plan.stages.map((stage, i) => (
                    <Stage key={i} stage={stage} index={i} geometry={geometry} />
                ))}
            </svg>
        ),
        [plan, geometry],
    );
}

/* The node to which an arrow key leads; -1: none. */
export function neighbour(plan: Plan, from: number, key: string): number {
    const node = plan.nodes[from];
    if (node === undefined) return -1;
    if (key === "ArrowUp") return node.inputs[0] ?? -1;
    if (key === "ArrowDown") return plan.nodes.findIndex((other) => other.inputs.includes(from));
    if (key === "Home") return 0;
    if (key === "End") return plan.nodes.length - 1;
    const step = key === "ArrowRight" ? 1 : key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return -1;
    const input = node.inputs[0];
    const family = plan.nodes
        .map((other, index) => ({ other, index }))
        .filter(({ other }) => (input === undefined ? other.inputs.length === 0 : other.inputs.includes(input)));
    const own = family.findIndex(({ index }) => index === from);
    return family[own + step]?.index ?? from + step;
}

/* A picture that is a little too wide is drawn smaller; one that is much too wide is scrolled. */
function useScale(width: number) {
    const frame = useRef<HTMLDivElement>(null);
    const [scale, setScale] = useState(1);
    useEffect(() => {
        const fit = (room: number) => setScale(Math.max(SCALE_MIN, Math.min(1, room / width)));
        const observer = new ResizeObserver((entries) => fit((entries[0]?.contentRect.width ?? width) - 4));
        if (frame.current !== null) observer.observe(frame.current);
        return () => observer.disconnect();
    }, [width]);
    return [frame, scale] as const;
}

export function Graph({ plan, chosen }: { plan: Plan; chosen: string }): JSX.Element {
    const geometry = useMemo(() => geometryOf(plan), [plan]);
    const picture = usePicture(plan, geometry);
    const area = useRef<HTMLDivElement>(null);
    const [stop, setStop] = useState(0);
    const chosenIndex = plan.nodes.findIndex((node) => node.part === chosen);
    useEffect(() => {
        const node = area.current?.querySelectorAll<HTMLElement>(".node")[chosenIndex];
        node?.scrollIntoView({ block: "nearest", inline: "nearest" });
    }, [chosenIndex, plan]);
    const onKey = (event: KeyboardEvent, index: number) => {
        if (event.key === "Escape") go(changed({ part: "" }));
        const next = neighbour(plan, index, event.key);
        if (next < 0 || next >= plan.nodes.length) return;
        event.preventDefault();
        setStop(next);
        area.current?.querySelectorAll<HTMLElement>(".node")[next]?.focus();
    };
    const [frame, scale] = useScale(geometry.width);
    const size = {
        width: `${geometry.width}px`,
        height: `${geometry.height}px`,
        transform: scale < 1 ? `scale(${scale})` : "none",
    };
    return (
        <div class="graph" tabIndex={-1} ref={frame} style={{ height: `${geometry.height * scale + SCROLLBAR}px` }}>
            <div
                class="graph-area"
                ref={area}
                role="group"
                aria-label="The nodes of the job; arrow keys go along the edges"
                style={size}>
                {picture}
                {plan.nodes.map((node, index) => (
                    <GraphNode
                        key={node.part}
                        node={node}
                        box={geometry.box(node)}
                        isChosen={index === chosenIndex}
                        isStop={index === (chosenIndex >= 0 ? chosenIndex : stop)}
                        showsName={
                            plan.nodes[index - 1]?.name !== node.name || plan.nodes[index - 1]?.stage !== node.stage
                        }
                        onKey={(event) => onKey(event, index)}
                        onFocus={() => setStop(index)}
                    />
                ))}
            </div>
        </div>
    );
}
