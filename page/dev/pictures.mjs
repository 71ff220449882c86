// Takes the pictures of the README: each view, light, as wide as the README's grid needs. docs/page_pictures.py calls it.
//
//     node dev/pictures.mjs URL FOLDER
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [, , base, folder] = process.argv;
const BYTES_MAX = 120 * 1024;
const VIEWS = {
    job: "#/job",
    learning: "#/learning?x=events",
    data: "#/data",
    state: "#/state?of=features%2Ffeature&key=10196&learner=model&field=item&value=10196",
    checkpoints: "#/checkpoints",
    serving: "#/serving",
    log: "#/log",
};
const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium-headless-shell",
    args: ["--no-sandbox"],
});
const context = await browser.newContext({ colorScheme: "light", viewport: { width: 1200, height: 700 } });
const page = await context.newPage();
for (const [name, hash] of Object.entries(VIEWS)) {
    const path = join(folder, `page-${name}.png`);
    await page.setViewportSize({ width: 1200, height: name === "job" ? 900 : 700 });
    await page.goto(base + hash);
    await page.waitForTimeout(4000);
    await page.screenshot({ path });
    const { size } = await stat(path);
    if (size > BYTES_MAX) throw new Error(`${path} has ${size} bytes, of ${BYTES_MAX}`);
    console.log(path, size);
}
await browser.close();
