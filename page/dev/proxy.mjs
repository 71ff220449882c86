// A development proxy: serves the bundle with the Content-Security-Policy that leat sends, forwards /api to a running leat,
// and makes up answers for routes that this leat does not have (made.mjs). No dependency.
//
//     node dev/proxy.mjs [--leat http://127.0.0.1:8081] [--port 8090] [--svg FILE] [--bare] [--restart-every SECONDS]
//
// --svg: what `leat explain --svg` printed of the job, from which the plan is read. --bare: nothing is made up.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import * as made from "./made.mjs";
import { planOf } from "./svg_plan.mjs";

const { values: given } = parseArgs({
    options: {
        leat: { type: "string", default: "http://127.0.0.1:8081" },
        port: { type: "string", default: "8090" },
        svg: { type: "string" },
        bare: { type: "boolean", default: false },
        trouble: { type: "boolean", default: false },
    },
});
const BUNDLE = join(dirname(dirname(fileURLToPath(import.meta.url))), "bundle");
const FILES = {
    "/": ["index.html", "text/html; charset=utf-8"],
    "/app.js": ["app.js", "text/javascript"],
    "/app.css": ["app.css", "text/css"],
};
const POLICY =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

let figures = null;
let life = "";

/* With --trouble a node is made the bottleneck, so that the page can be seen with one. */
function troubled(answer) {
    if (!given.trouble) return answer;
    const node = answer.nodes[Math.min(3, answer.nodes.length - 1)];
    node.lane_share = 0.91;
    node.error = null;
    answer.lane_time = { ...answer.lane_time, process: 0.62, wait_for_records: 0.02, behind_nodes: 0.3 };
    answer.bottleneck = `\`${node.part}\` takes 91 % of lane 2; 43 % of its look-ups read the disk`;
    answer.watermark = { ...answer.watermark, behind_ms: 192_345.25, partition: "orders-3" };
    answer.nodes[0].report.run = { ...answer.nodes[0].report.run, lag_records: 1_203_220, lag_seconds: 201.5 };
    answer.nodes.forEach((one, i) => (one.time.behind_ms = one.time.behind_ms === null ? null : 192_345.25 + i * 10));
    return answer;
}

async function lookAtFigures() {
    const answer = await fetch(given.leat + "/api/v1/figures");
    if (answer.status !== 200) throw new Error(await answer.text());
    const next = troubled(await answer.json());
    if (figures === null || next.seconds < figures.seconds) life = String(Date.now());
    figures = { ...next, now: Date.now() };
    if (!given.bare && figures.serves.length === 0) figures.serves = made.serves();
    return figures;
}

function send(response, status, type, body) {
    response.writeHead(status, {
        "content-type": type,
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "content-security-policy": POLICY,
    });
    response.end(body);
}

const sendJson = (response, value) => send(response, 200, "application/json", JSON.stringify(value));

async function stream(request, response) {
    await lookAtFigures();
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    const say = (event, data) => response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
    const hello = life;
    say("hello", { job: figures.job, fingerprint: figures.fingerprint, life, now: Date.now() });
    say("figures", figures);
    const timer = setInterval(async () => {
        try {
            const next = await lookAtFigures();
            if (life !== hello) throw new Error("another process");
            say("figures", next);
        } catch {
            clearInterval(timer);
            response.destroy();
        }
    }, 1000);
    request.on("close", () => clearInterval(timer));
}

async function plan(response) {
    if (given.svg === undefined) return send(response, 404, "text/plain", "there are /healthz, /readyz\n");
    return sendJson(response, planOf(await readFile(given.svg, "utf8"), figures ?? (await lookAtFigures())));
}

/* What leat itself answers; null: it has no such route. */
async function forwarded(request, url) {
    const control = new AbortController();
    request.on("close", () => control.abort());
    const authorization = request.headers.authorization;
    const headers = authorization === undefined ? {} : { authorization };
    const answer = await fetch(given.leat + url.pathname + url.search, { headers, signal: control.signal });
    if (answer.headers.get("content-type") === "text/event-stream") return { stream: answer.body };
    const body = await answer.text();
    if (answer.status === 404 && body.includes("/healthz")) return null;
    return { status: answer.status, type: answer.headers.get("content-type") ?? "text/plain", body };
}

async function makeUp(request, response, url) {
    const [, , , route, ...rest] = url.pathname.split("/").map(decodeURIComponent);
    const parts = (figures ?? (await lookAtFigures())).nodes.map((node) => node.part);
    if (route === "events") return stream(request, response);
    if (route === "plan") return plan(response);
    if (route === "state") return sendJson(response, made.state(rest.join("/"), url.searchParams.getAll("key")));
    if (route === "model")
        return sendJson(
            response,
            made.model(rest.join("/"), url.searchParams.get("field"), url.searchParams.get("value")),
        );
    const all = {
        checkpoints: made.checkpoints,
        "dead-letters": () => made.deadLetters(parts),
        log: made.log,
        columns: () => made.columns(parts),
    };
    if (all[route] !== undefined) return sendJson(response, all[route]());
    return send(response, 404, "text/plain", "there are /healthz, /readyz\n");
}

async function serve(request, response) {
    const url = new URL(request.url, "http://localhost");
    const file = FILES[url.pathname];
    if (file !== undefined) return send(response, 200, file[1], await readFile(join(BUNDLE, file[0])));
    if (url.pathname === "/api/v1/figures" && given.trouble) return sendJson(response, await lookAtFigures());
    const answer = await forwarded(request, url);
    if (answer?.stream !== undefined) {
        response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
        for await (const piece of answer.stream) response.write(piece);
        return response.end();
    }
    if (answer !== null) return send(response, answer.status, answer.type, answer.body);
    if (given.bare) return send(response, 404, "text/plain", "there are /healthz, /readyz\n");
    return makeUp(request, response, url);
}

createServer((request, response) => {
    serve(request, response).catch((error) => {
        if (!response.headersSent)
            send(response, 502, "text/plain", `leat at ${given.leat} is not reached: ${error.message}\n`);
        else response.destroy();
    });
}).listen(Number(given.port), "127.0.0.1", () => console.log(`http://127.0.0.1:${given.port}/ shows ${given.leat}`));
