// The page of a fleet: the sessions of two hosts, and a request of the second one.

import assert from "node:assert/strict";
import { DESK, asksCommand, launch, outside, profile } from "./stage.mjs";

const browser = await launch();
const page = await (await profile(browser, DESK)).newPage();
const problems = [];
page.on("pageerror", (error) => problems.push(error.stack));

await page.goto((await outside("link")).links[0]);
for (const host of ["build-7/", "build-8/"]) await page.locator(".sessions a", { hasText: host }).waitFor();
assert.equal(await page.locator("#names").textContent(), "Sessions");

await asksCommand(7, "make all");
const card = page.locator(".card", { hasText: "make all" });
await card.waitFor();
assert.match(await card.innerText(), /build-8\//);
await card.getByRole("button", { name: "Approve", exact: true }).click();
assert.deepEqual(JSON.parse(await outside("at_server")), { id: 7, result: { decision: "accept" } });
await page.locator(".note", { hasText: "Approved" }).waitFor();
await page.getByText("Nothing waits for you").waitFor();

assert.deepEqual(problems, []);
await browser.close();
process.exit(0);
