// How long the page takes to appear, and a line of the server to be on the screen. `make bench` starts this script.

import { PHONE, asksCommand, launch, outside, profile, tells, turnStarts } from "./stage.mjs";

const [PAGES, LINES] = process.env.QUICK ? [5, 15] : [15, 60];

const browser = await launch();
const link = async () => (await outside("link")).links[0];

/// The time from the navigation to the first paint with content.
const firstPaint = (page) => page.evaluate(() => new Promise((resolve) => {
	const take = (list) => list.getEntriesByName("first-contentful-paint").forEach(({ startTime }) => resolve(startTime));
	new PerformanceObserver(take).observe({ type: "paint", buffered: true });
}));

/// The time at which a text is on the screen, in milliseconds since 1970.
const painted = (page, selector, text) => page.evaluate(([selector, text]) => new Promise((resolve) => {
	const afterPaint = () => {
		const { port1, port2 } = new MessageChannel();
		port1.onmessage = () => resolve(performance.timeOrigin + performance.now());
		// A message that is sent in a frame arrives after its paint.
		requestAnimationFrame(() => port2.postMessage(null));
	};
	const look = () => {
		if (![...document.querySelectorAll(selector)].some((node) => node.textContent === text)) return false;
		observer.disconnect();
		afterPaint();
		return true;
	};
	const observer = new MutationObserver(look);
	observer.observe(document.body, { childList: true, subtree: true, characterData: true });
}), [selector, text]);

async function measure(name, page, selector, textOf, say) {
	const ms = [];
	for (let number = 0; number < LINES; number += 1) {
		const seen = painted(page, selector, textOf(number));
		const said = await say(number);
		ms.push(await seen - said);
		// So that the lines do not keep step with anything that looks at intervals.
		await new Promise((resolve) => setTimeout(resolve, 20 + Math.random() * 200));
	}
	await outside("times", { name, ms });
}

const paints = [];
for (let number = 0; number < PAGES; number += 1) {
	const context = await profile(browser, PHONE);
	const page = await context.newPage();
	await page.goto(await link());
	paints.push(await firstPaint(page));
	await context.close();
}
await outside("times", { name: "first paint of a new browser", ms: paints });

const page = await (await profile(browser, PHONE)).newPage();
await page.goto(await link());
await page.locator(".sessions a").first().click();
await turnStarts();
await tells({ type: "agentMessage", id: "m", text: "ready" });
await page.getByText("ready").waitFor();
await measure("a line of the server to its entry on the screen", page, ".runs .title", (number) => `echo ${number}`,
	(number) => tells({ type: "commandExecution", id: `c${number}`, command: `echo ${number}`, cwd: "/w", status: "completed", aggregatedOutput: "", exitCode: 0 }));
await page.evaluate(() => { location.hash = "#/"; });
await page.getByText("Nothing waits for you").waitFor();
await measure("a line of the server to its request on the screen", page, ".card .command", (number) => `touch ${number}`,
	(number) => asksCommand(100 + number, `touch ${number}`));
await browser.close();
process.exit(0);
