// Takes a picture of each view, light and dark, narrow and wide, and says what axe finds there.
//
//     node dev/shots.mjs URL FOLDER [VIEW...]
import { createRequire } from "node:module";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [, , base = "http://127.0.0.1:8090/", folder = "shots", ...only] = process.argv;
const figures = await (await fetch(base + "api/v1/figures")).json();
const chosen = process.env.NODE ?? figures.nodes[Math.min(3, figures.nodes.length - 1)].part;
const node = encodeURIComponent(chosen);
const learner = encodeURIComponent(figures.nodes.find((one) => one.tag === "learner")?.part ?? "");
const VIEWS = {
    job: "#/job",
    node: `#/job/${node}`,
    list: "#/job?as=list",
    learning: "#/learning",
    events: "#/learning?x=events",
    data: "#/data",
    state: `#/state?of=${node}&key=42,none`,
    model: `#/state?learner=${learner}&field=a&value=7`,
    checkpoints: "#/checkpoints",
    serving: "#/serving",
    log: "#/log",
};
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium-headless-shell",
    args: ["--no-sandbox"],
});
await mkdir(folder, { recursive: true });
let found = 0;
for (const colorScheme of ["light", "dark"])
    for (const width of [360, 1440]) {
        const context = await browser.newContext({ colorScheme, viewport: { width, height: 1600 } });
        const page = await context.newPage();
        const say = (text) => console.log(`${colorScheme} ${width}: ${text}`);
        page.on("pageerror", (error) => say(`error: ${error.message}`) ?? found++);
        page.on(
            "console",
            (message) =>
                message.type() === "error" && !message.text().includes("404") && (say(message.text()), found++),
        );
        for (const [name, hash] of Object.entries(VIEWS)) {
            if (only.length > 0 && !only.includes(name)) continue;
            await page.goto(base + hash);
            await page.waitForSelector("main :first-child");
            await page.waitForTimeout(1800);
            await page.screenshot({ path: join(folder, `${name}-${colorScheme}-${width}.png`), fullPage: true });
            const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
            if (over > 0) (say(`${name} is ${over} pixels too wide`), found++);
            await page.evaluate(
                axe.includes("module.exports") ? `(() => { const module = undefined; ${axe} })()` : axe,
            );
            const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
            for (const one of result.violations.filter((v) => ["serious", "critical"].includes(v.impact))) {
                found++;
                say(
                    `${name}: ${one.id}: ${one.nodes.length} of ${one.nodes[0].html.slice(0, 160)} ${one.nodes[0].failureSummary.split("\n")[1] ?? ""}`,
                );
            }
        }
        await context.close();
    }
await browser.close();
console.log(`${found} findings`);
process.exit(found > 0 ? 1 : 0);
