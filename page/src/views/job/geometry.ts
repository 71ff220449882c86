// From the server's layout to the page: the same picture, with more room in the boxes. What lies between the upper and
// lower edge of any stage is stretched, so that each node has room for a line of live figures; all else keeps its height.
import type { Box, Plan } from "../../api/types";

const STRETCH = 1.8;
const HEAD = 34; // of a stage, unstretched: its title

export interface Geometry {
    width: number;
    height: number;
    y: (y: number) => number;
    box: (box: Box) => Box;
    path: (path: string) => string;
}

/* The heights that some stage covers, as [from, to), joined and rising. */
function bandsOf(plan: Plan): [number, number][] {
    const bands: [number, number][] = [];
    const all = plan.stages.map((s): [number, number] => [s.y + HEAD, s.y + s.height]).sort((a, b) => a[0] - b[0]);
    for (const [from, to] of all) {
        const last = bands[bands.length - 1];
        if (last !== undefined && from <= last[1]) last[1] = Math.max(last[1], to);
        else bands.push([from, to]);
    }
    return bands;
}

/* M, V and C with absolute numbers, as the server draws arrows; anything else is left as it is. */
function stretchPath(path: string, stretch: (y: number) => number): string {
    return path.replace(/([MCV])([^A-Za-z]*)/g, (_, letter: string, rest: string) => {
        const numbers = rest.match(/-?\d+(?:\.\d+)?/g)?.map(Number) ?? [];
        const out = numbers.map((n, i) => (letter === "V" || i % 2 === 1 ? stretch(n) : n));
        return letter + out.map((n) => n.toFixed(1)).join(" ");
    });
}

export function geometryOf(plan: Plan): Geometry {
    const bands = bandsOf(plan);
    const y = (from: number): number => {
        let more = 0;
        for (const [begin, end] of bands) more += Math.max(0, Math.min(from, end) - begin) * (STRETCH - 1);
        return from + more;
    };
    const box = (b: Box): Box => ({ x: b.x, y: y(b.y), width: b.width, height: y(b.y + b.height) - y(b.y) });
    const right = Math.max(
        0,
        ...plan.stages.map((s) => s.x + s.width),
        ...plan.arrows.map((a) => a.label.x + a.label.width),
    );
    const bottom = Math.max(0, ...plan.stages.map((s) => s.y + s.height));
    return { width: right + 2, height: y(bottom) + 2, y, box, path: (path) => stretchPath(path, y) };
}

/* Where an arrow ends: the last two numbers of its path. */
export function endOf(path: string): [number, number] {
    const numbers = path.match(/-?\d+(?:\.\d+)?/g)?.map(Number) ?? [];
    return [numbers.at(-2) ?? 0, numbers.at(-1) ?? 0];
}
