// Where the lanes' time goes: all lanes, what they do, and of what they process the nodes. Widths are shares of time.
// A node's share is that of its fullest lane, so the nodes may sum to more than the lanes process: then they are drawn
// narrower, and their figures stay.
import type { JSX } from "preact";
import { changed } from "../../live/route";
import type { Figures } from "../../api/types";
import { share, words } from "../../parts/format";
import { Value } from "../../parts/value";

interface Piece {
    key: string;
    name: string;
    share: number;
    width: number; // of the whole
    sort: string;
    href?: string;
}

const SORTS: Record<string, string> = { decode: "decode", process: "process", wait_for_records: "wait" };

function doings(figures: Figures): Piece[] {
    const sum = Object.values(figures.lane_time).reduce((all, value) => all + value, 0);
    return Object.entries(figures.lane_time).map(([name, value]) => ({
        key: `figures.lane_time.${name}`,
        name: words(name),
        share: value,
        width: value / Math.max(sum, 1), // clocks are read one after the other: a sum may be a little more than all time
        sort: SORTS[name] ?? "blocked",
    }));
}

function nodesOf(figures: Figures, room: number): Piece[] {
    const nodes = figures.nodes.filter((node) => node.lane_share > 0.0005);
    const sum = nodes.reduce((all, node) => all + node.lane_share, 0);
    const scale = sum > room && sum > 0 ? room / sum : 1;
    return nodes.map((node) => ({
        key: `figures.nodes[${node.part}].lane_share`,
        name: node.part,
        share: node.lane_share,
        width: node.lane_share * scale,
        sort: node.tag,
        href: changed({ part: node.part }),
    }));
}

function Bar({ piece }: { piece: Piece }): JSX.Element {
    const text = (
        <>
            <bdi class="piece-name">{piece.name}</bdi>{" "}
            <Value k={piece.key} v={piece.share} as={share} what={piece.name} />
        </>
    );
    const style = { width: `${piece.width * 100}%` };
    const thin = piece.width < 0.002 ? " none" : piece.width < 0.06 ? " thin" : "";
    const classes = `piece ${piece.sort}${thin}`;
    if (piece.href === undefined)
        return (
            <span class={classes} style={style} title={`${piece.name} ${share(piece.share)}`}>
                {text}
            </span>
        );
    return (
        <a class={classes} style={style} href={piece.href} title={`${piece.name} ${share(piece.share)}`}>
            {text}
        </a>
    );
}

export function Icicle({ figures }: { figures: Figures }): JSX.Element {
    const lanes = doings(figures);
    const at = lanes.findIndex((piece) => piece.sort === "process");
    const before = lanes.slice(0, Math.max(at, 0)).reduce((sum, piece) => sum + piece.width, 0);
    const nodes = nodesOf(figures, lanes[at]?.width ?? 0);
    const one = figures.lanes === 1 ? "lane" : "lanes";
    return (
        <div class="icicle">
            <div class="icicle-row">
                <span class="piece all">
                    {figures.lanes} {one}, the last seconds
                </span>
            </div>
            <div class="icicle-row">
                {lanes.map((piece) => (
                    <Bar key={piece.key} piece={piece} />
                ))}
            </div>
            <div class="icicle-row">
                <span class="piece gap" style={{ width: `${before * 100}%` }} aria-hidden="true" />
                {nodes.map((piece) => (
                    <Bar key={piece.key} piece={piece} />
                ))}
            </div>
        </div>
    );
}
