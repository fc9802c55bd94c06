// Where a browser puts the letters of pictures: for each text its own number of letters, and the edges of each letter in the picture's
// units, left to right. A browser leaves out blanks that it collapses.

import { launch, outside, profile } from "./stage.mjs";

const browser = await launch();
const page = await (await profile(browser, { viewport: { width: 1100, height: 700 } })).newPage();

for (const path of await outside("pictures")) {
	await page.goto(`file://${path}`);
	const texts = await page.evaluate(() => {
		const text = (node) => Array.from({ length: node.getNumberOfChars() }, (_, at) => at);
		// Of letters with one width, every one has a cell of its own; of others, only a whole text has its cells.
		const probe = document.documentElement.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "text"));
		const width = (letters) => { probe.textContent = letters; return probe.getComputedTextLength(); };
		const isMonospaced = Math.abs(width("iiii") - width("MMMM")) < 0.01;
		probe.remove();
		return [...document.querySelectorAll("text")].map((node) => ({
			text: node.textContent,
			row: node.getStartPositionOfChar(0).y,
			isMonospaced,
			edges: text(node).map((at) => [node.getStartPositionOfChar(at).x, node.getEndPositionOfChar(at).x]),
		}));
	});
	await page.screenshot({ path: `${process.env.MODULES}/${path.split("/").pop()}.png` });
	await outside("placed", { path, texts });
}

await browser.close();
process.exit(0);
