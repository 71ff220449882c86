// A headless Chromium that does what lines of JSON on stdin say, and answers each with a line: {"value"} or {"error"}.
// browser.py has the calls. Tabs of one `of` share a browser context: storage, locks, connections.
//
//     node driver.mjs FOLDER_WITH_NODE_MODULES CHROMIUM
import { createRequire } from "node:module";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

const [, , modules, executablePath] = process.argv;
const require = createRequire(join(resolve(modules), "package.json"));
const { chromium } = require("playwright-core");
const axe = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage", "--js-flags=--expose-gc"] });
const tabs = new Map();

// In a page that is listened to: keeps the newest answer of each route, the newest figures of the stream, and of the history
// of each node and span (`1h kept/dedup`) the newest two rows, for comparing what is shown with what it was told.
function listen() {
    const plain = window.fetch;
    window.answers = { figures: [], histories: {} };
    function keep(route, query, value) {
        window.answers[route] = value;
        if (route !== "history") return;
        const name = `${query.get("span")} ${query.get("node") ?? ""}`;
        const before = query.has("from") ? window.answers.histories[name] : undefined; // without: all of it, read again
        const values = value.values.map((row, f) => [...(before?.values[f] ?? []), ...row].slice(-2));
        window.answers.histories[name] = { figures: value.figures, values };
    }
    async function follow(stream) {
        let text = "";
        for (const reader = stream.pipeThrough(new TextDecoderStream()).getReader(); ; ) {
            const { done, value } = await reader.read();
            if (done) return;
            const events = (text + value).split("\n\n");
            text = events.pop();
            for (const event of events.filter((one) => one.includes("event: figures")))
                window.answers.figures.push(JSON.parse(event.match(/^data: (.*)$/m)[1]));
            window.answers.figures = window.answers.figures.slice(-3);
        }
    }
    window.fetch = async (...words) => {
        const answer = await plain(...words);
        const url = new URL(answer.url);
        const route = decodeURIComponent(url.pathname).replace("/api/v1/", "");
        if (route === "events") follow(answer.clone().body).catch(() => {});
        else if (answer.status === 200) // kept before the page has it: what the page shows is never newer than what is kept
            await answer.clone().json().then((value) => keep(route, url.searchParams, value), () => {});
        return answer;
    };
}

// Every request and every complaint of a tab, from its first page on.
async function open({ tab, of, width = 1440, height = 900, scheme = "light", motion = "no-preference", listens = false }) {
    const context =
        tabs.get(of)?.context ??
        (await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: motion }));
    const page = await context.newPage();
    const seen = { context, page, requests: [], errors: [] };
    if (listens) await page.addInitScript(listen);
    page.on("request", (request) => seen.requests.push(request.url()));
    page.on("pageerror", (error) => seen.errors.push(error.message));
    page.on("console", (message) => {
        if (message.type() === "error") seen.errors.push(message.text());
    });
    tabs.set(tab, seen);
}

// [data-key, data-value, text without its unit] of all that is shown; isSeen: without nodes that are off the screen, which
// stand still.
const shown = ({ tab, isSeen = false }) =>
    tabs.get(tab).page.evaluate((isSeen) => {
        const found = [];
        for (const one of document.querySelectorAll("[data-key]")) {
            const box = one.closest("[data-part]")?.getBoundingClientRect();
            const graph = one.closest(".graph")?.getBoundingClientRect();
            const [left, right] = [Math.max(0, graph?.left ?? 0), Math.min(innerWidth, graph?.right ?? innerWidth)];
            if (isSeen && box && (box.bottom < 0 || box.top > innerHeight || box.right < left || box.left > right)) continue;
            const texts = [...one.childNodes].filter((part) => !part.classList?.contains("unit")).map((part) => part.textContent);
            found.push([one.dataset.key, one.dataset.value, texts.join("").slice(0, 200)]);
        }
        return found;
    }, isSeen);

async function audit({ tab }) {
    const { page } = tabs.get(tab);
    await page.evaluate(`if (!window.axe) (() => { const module = undefined; ${axe} })()`);
    const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    return result.violations
        .filter((one) => ["serious", "critical"].includes(one.impact))
        .map((one) => `${one.id}: ${one.nodes.length}, ${one.nodes[0].html.slice(0, 200)}`);
}

// Of a tab, by the browser's own protocol: its session stays, because the counts begin with it.
async function metric(tab, name) {
    const seen = tabs.get(tab);
    if (seen.session === undefined) {
        seen.session = await seen.context.newCDPSession(seen.page);
        await seen.session.send("Performance.enable");
    }
    const { metrics } = await seen.session.send("Performance.getMetrics");
    return metrics.find((one) => one.name === name).value;
}

// Seconds that the main thread had tasks, and the clock's.
const busy = async ({ tab }) => ({ busy: await metric(tab, "TaskDuration"), at: await metric(tab, "Timestamp") });

// Bytes of live objects.
async function heap({ tab }) {
    await metric(tab, "JSHeapUsedSize");
    await tabs.get(tab).session.send("HeapProfiler.collectGarbage");
    return metric(tab, "JSHeapUsedSize");
}

const calls = {
    open,
    shown,
    audit,
    busy,
    heap,
    goto: ({ tab, url }) => tabs.get(tab).page.goto(url, { waitUntil: "commit" }).then(() => null),
    reload: ({ tab }) => tabs.get(tab).page.reload({ waitUntil: "commit" }).then(() => null),
    content: ({ tab, html }) => tabs.get(tab).page.setContent(html),
    evaluate: ({ tab, js }) => tabs.get(tab).page.evaluate(js),
    apply: ({ tab, js, to }) => tabs.get(tab).page.evaluate(`(${js})(${JSON.stringify(to)})`),
    click: ({ tab, selector }) => tabs.get(tab).page.click(selector, { timeout: 5000 }),
    fill: ({ tab, selector, text }) => tabs.get(tab).page.fill(selector, text, { timeout: 5000 }),
    wheel: ({ tab, by }) => tabs.get(tab).page.mouse.wheel(0, by),
    press: ({ tab, key }) => tabs.get(tab).page.keyboard.press(key),
    text: ({ tab, selector }) => tabs.get(tab).page.innerText(selector, { timeout: 5000 }),
    size: ({ tab, width, height }) => tabs.get(tab).page.setViewportSize({ width, height }),
    shot: ({ tab, path, whole = false }) => tabs.get(tab).page.screenshot({ path, fullPage: whole }).then(() => null),
    answers: ({ tab }) => tabs.get(tab).page.evaluate("window.answers"),
    seen: ({ tab }) => ({ requests: tabs.get(tab).requests, errors: tabs.get(tab).errors }),
    close: async ({ tab }) => {
        const { context, page } = tabs.get(tab);
        await page.close();
        tabs.delete(tab);
        if (context.pages().length === 0) await context.close();
    },
};

for await (const line of createInterface({ input: process.stdin })) {
    const { call, ...of } = JSON.parse(line);
    let answer;
    try {
        answer = { value: (await calls[call](of)) ?? null };
    } catch (error) {
        answer = { error: String(error?.message ?? error).slice(0, 2000) };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
}
await browser.close();
