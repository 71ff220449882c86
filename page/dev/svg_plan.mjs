// The answer of /api/v1/plan, read out of the picture of `leat explain --svg`, for a leat that has no such route yet.

const unescape = (text) =>
    text.replace(
        /&(lt|gt|amp|quot|#39|apos);/g,
        (_, name) => ({ lt: "<", gt: ">", amp: "&", quot: '"' })[name] ?? "'",
    );

const number = (text, name) => Number(text.match(new RegExp(` ${name}="(-?[\\d.]+)"`))?.[1] ?? 0);
const spans = (text) =>
    [...text.matchAll(/<tspan class="([^"]*)"[^>]*>([^<]*)<\/tspan>/g)].map(([, sort, t]) => [sort, unescape(t)]);

function boxOf(rect) {
    return {
        x: number(rect, "x"),
        y: number(rect, "y"),
        width: number(rect, "width"),
        height: number(rect, "height"),
    };
}

/* The lines of a stage's box: name, kind, settings, detail, and where they are. */
function linesOf(group, stage) {
    const found = [];
    let name = "";
    for (const [, y, more, inside] of group.matchAll(
        /<text x="[\d.]+" y="([\d.]+)"( class="more")?(?: text-anchor="end")?>(.*?)<\/text>/g,
    )) {
        const parts = spans(inside);
        if (more && found.length > 0) {
            const last = found.at(-1);
            if (inside !== stage.instances) {
                last.detail = unescape(inside);
                last.height += 16;
            }
        } else if (parts[0]?.[0] === "code name") name = parts[0][1];
        else if (parts[0]?.[0] === "bold")
            found.push({
                name,
                kind: parts[0][1],
                settings: parts[1]?.[1] ?? "",
                detail: "",
                x: stage.x + 12,
                y: Number(y) + 5 - 19,
                width: stage.width - 20,
                height: 19,
            });
    }
    return found;
}

function stageOf(group, sort) {
    const head = spans(group.match(/<text [^>]*>.*?<\/text>/)?.[0] ?? "");
    const instances = unescape(group.match(/text-anchor="end">([^<]*)</)?.[1] ?? "");
    return {
        title: head.find(([s]) => s === "bold")?.[1] ?? "",
        instances,
        sort,
        ...boxOf(group.match(/<rect class="box"[^>]*>/)[0]),
    };
}

/* svg: the picture; figures: those of the run, for parts and order. */
export function planOf(svg, figures) {
    const stages = [];
    const drawn = [];
    for (const [, sort, group] of svg.matchAll(/<g class="(sources|keyed|single)">([\s\S]*?)<\/g>/g)) {
        const stage = stageOf(group, sort);
        linesOf(group, stage).forEach((line) => drawn.push({ ...line, stage: stages.length }));
        stages.push(stage);
    }
    const left = [...drawn];
    const nodes = figures.nodes.map((node) => {
        const at = left.findIndex(
            (line) => line.kind.split(" ").includes(node.kind) && (line.name === node.name || line.name === ""),
        );
        const line =
            at >= 0 ? left.splice(at, 1)[0] : { x: 0, y: 0, width: 0, height: 0, stage: 0, settings: "", detail: "" };
        return {
            ...line,
            part: node.part,
            name: node.name,
            tag: node.tag,
            kind: node.kind,
            label: node.part,
            inputs: [],
            has_state: "state_entries" in node.report.run,
        };
    });
    const arrows = arrowsOf(svg, stages);
    link(nodes, arrows);
    return {
        job: figures.job,
        fingerprint: figures.fingerprint,
        lanes: figures.lanes,
        width: number(svg, "width"),
        height: number(svg, "height"),
        stages,
        nodes,
        arrows,
    };
}

function arrowsOf(svg, stages) {
    const labels = [...svg.matchAll(/<rect class="label"[^>]*>\n<text [^>]*>(.*?)<\/text>/g)];
    return [...svg.matchAll(/<path class="wire" d="([^"]*)"/g)].map(([, path], i) => {
        const points = path.match(/-?[\d.]+/g).map(Number);
        const under = (x, y) =>
            stages.findIndex((s) => x >= s.x && x <= s.x + s.width && y >= s.y - 8 && y <= s.y + s.height + 8);
        const [stream, mode] = spans(labels[i][1]).map(([, text]) => text);
        return {
            from: under(points[0], points[1]),
            to: under(points.at(-2), points.at(-1)),
            stream,
            mode,
            path,
            label: boxOf(labels[i][0]),
        };
    });
}

/* Good enough for trying out: a node reads the one before it in its stage, the first one the last of the stage before. */
function link(nodes, arrows) {
    nodes.forEach((node, i) => {
        if (node.tag === "source") return;
        const before = nodes.findLastIndex(
            (other, j) => j < i && other.stage === node.stage && other.tag !== "sink" && other.tag !== "learner",
        );
        const arrow = arrows.find((one) => one.to === node.stage);
        const far = nodes.findLastIndex(
            (other) => arrow !== undefined && other.stage === arrow.from && other.tag !== "sink",
        );
        if (before >= 0 || far >= 0) node.inputs = [before >= 0 ? before : far];
    });
}
