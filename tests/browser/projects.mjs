// The inbox on a phone while three projects ask: a picture for the documentation, on a screen as high as its content.

import assert from "node:assert/strict";
import { PHONE, eventually, launch, outside, picture, profile } from "./stage.mjs";

const browser = await launch();
const phone = await (await profile(browser, { ...PHONE, viewport: { width: 390, height: 1500 }, deviceScaleFactor: 1.2, colorScheme: "light", reducedMotion: "reduce" })).newPage();
const { link, root } = await outside("link");
await phone.goto(link);
const cards = phone.locator(".card");
const rows = phone.locator(".sessions .thread");
await eventually("three requests and three threads", async () => (await cards.count()) === 3 && (await rows.count()) === 3);

// Each says who asks, and what its thread is about; the dangerous one alone is marked.
const who = ["api", "shop", "notes"].map((name) => `${name} (codex-tui)`);
assert.deepEqual(await cards.locator(".from").allInnerTexts(), who);
assert.deepEqual(await phone.locator(".card.risky .from").allInnerTexts(), [who[1]]);
for (const title of ["Fix the health check", "Set up a new machine", "Write the release notes"]) await rows.getByText(title).waitFor();
for (const line of await rows.locator(".name > *").all()) {
	assert(await line.evaluate(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth), `${await line.innerText()} is cut off`);
}
assert(await phone.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "it is too wide");

const end = await rows.last().boundingBox();
await phone.setViewportSize({ width: 390, height: Math.ceil(end.y + end.height) + 24 });
await picture(phone, "web-projects", [[`${root}/codex-home`, "/home/ann/.codex"], [root, "/home/ann"], ["codex-home", ".codex"]]);

await browser.close();
process.exit(0);
