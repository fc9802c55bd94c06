// The search of the page, at the sizes of a phone and of a desk: matches, completion, errors, and texts that look like markup.

import assert from "node:assert/strict";
import { axe, launch, outside, profile, tells, turnStarts } from "./stage.mjs";

const browser = await launch();
const SCRIPT = "<script>window.ran = true</script><img src=x onerror='window.ran = true'>";

await turnStarts();
await tells({ type: "commandExecution", id: "c1", command: `echo ${SCRIPT} needle`, cwd: "/w", status: "failed", exitCode: 1, aggregatedOutput: "no\n" });
await tells({ type: "agentMessage", id: "m1", text: `${"a-long-path/".repeat(90)} has the needle` });

for (const [width, height, isMobile] of [[380, 780, true], [1200, 800, false]]) {
	const context = await profile(browser, { viewport: { width, height }, isMobile, hasTouch: isMobile });
	const page = await context.newPage();
	const problems = [];
	page.on("pageerror", (error) => problems.push(error.stack));
	page.on("console", (message) => { if (/Content Security Policy|TrustedScript/.test(message.text())) problems.push(message.text()); });
	await page.goto((await outside("link")).links[0]);
	const field = page.getByRole("combobox", { name: "Search all sessions" });
	await field.fill("status:f");
	// The field has offered all keys before.
	await page.locator("#find-offers option[value='status:failed']:only-child").waitFor({ state: "attached" });
	await field.fill("needle");
	await field.press("Enter");
	const matches = page.locator("#matches li");
	await matches.first().waitFor();
	assert.equal(await matches.count(), 2);
	assert.equal(await page.locator("#found-head").textContent(), "2 matches");
	assert.deepEqual(await page.locator("mark").allTextContents(), ["needle", "needle"]);
	assert(await matches.getByText(SCRIPT, { exact: false }).isVisible());
	assert.equal(await page.evaluate(() => window.ran), undefined);
	const isWide = await page.evaluate(() => document.scrollingElement.scrollWidth > innerWidth || document.querySelector("#body").scrollWidth > document.querySelector("#body").clientWidth);
	assert(!isWide, `${width}: it is wider than the screen`);
	const small = await page.evaluate(() => [...document.querySelectorAll("#find input, #find button, #found a, #found button")].filter((node) => node.getBoundingClientRect().height < 44).map((node) => node.outerHTML));
	assert.deepEqual(small, []);
	await page.evaluate(axe);
	const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
	assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.failureSummary).join("\n")}`), [], `${width}`);
	if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/search-${width}.png` });
	await field.fill("kind:needle");
	await page.getByRole("button", { name: "Search", exact: true }).click();
	await page.getByText("there is no such kind; kinds are message").waitFor();
	assert(!(await page.locator("#found").isVisible()));
	if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/search-error-${width}.png` });
	await field.fill("status:failed");
	await field.press("Enter");
	await matches.first().waitFor();
	assert.equal(await matches.count(), 1);
	await matches.locator("a").click();
	await page.locator("#entries").getByText("needle").first().waitFor();
	assert.deepEqual(problems, []);
	await context.close();
}
await browser.close();
process.exit(0);
