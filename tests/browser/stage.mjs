// What the scripts in this folder share: the browser, calls to the test that started the script, and messages of codex.
//
// The test plays the client and the server of a relay. A script asks it with a line of JSON on stdout, and reads the result as
// a line of JSON from stdin.

import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.MODULES}/`);
const { chromium } = require("playwright-core");
export const axe = require("axe-core").source;

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/// Asks the test for something outside of the page.
export async function outside(does, more = {}) {
	process.stdout.write(`${JSON.stringify({ does, ...more })}\n`);
	return JSON.parse((await lines.next()).value);
}

/// The server sends a message, and the client has received it.
export const say = (method, params, id) => outside("say", { line: JSON.stringify({ method, ...(id !== undefined && { id }), params }) });

const place = { threadId: "t", turnId: "u" };

export const turnStarts = () => say("turn/started", { threadId: "t", turn: { id: "u", status: "inProgress" } });

export const turnEnds = () => say("turn/completed", { threadId: "t", turn: { id: "u", status: "completed" } });

export const asksCommand = (id, command, more = {}) => say("item/commandExecution/requestApproval",
	{ kind: "command", ...place, itemId: `i${id}`, reason: null, command, cwd: "/w", availableDecisions: ["accept", "cancel"], ...more }, id);

/// A change of files, with its item before it.
export async function asksChange(id, changes, more = {}) {
	await say("item/started", { ...place, item: { type: "fileChange", id: `f${id}`, changes, status: "inProgress" } });
	return say("item/fileChange/requestApproval", { ...place, itemId: `f${id}`, reason: null, grantRoot: null, ...more }, id);
}

export const asksQuestion = (id, questions) => say("item/tool/requestUserInput",
	{ ...place, itemId: `q${id}`, questions, isBlocking: true, autoResolutionMs: null }, id);

export const asksForm = (id, message, requestedSchema) => say("mcpServer/elicitation/request",
	{ ...place, serverName: "deploy", mode: "form", message, requestedSchema }, id);

/// The approval of a tool's call, as codex 0.171 sends it.
export const asksTool = (id, title, params, more = {}) => say("mcpServer/elicitation/request", {
	...place, serverName: "lab", mode: "form", message: `Allow the lab MCP server to run tool "${title}"?`, requestedSchema: { type: "object", properties: {} },
	_meta: { codex_approval_kind: "mcp_tool_call", persist: ["session", "always"], tool_name: title, tool_title: title, tool_params: params,
		tool_params_display: Object.entries(params).map(([name, value]) => ({ name, value, display_name: name })), ...more } }, id);

export const asksPermissions = (id, permissions) => say("item/permissions/requestApproval",
	{ ...place, itemId: `p${id}`, cwd: "/w", reason: "The tests need it.", permissions }, id);

export const tells = (item) => say("item/completed", { ...place, item });

const ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
	"--disable-background-networking", "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP rebound.test 127.0.0.1"];

/// Limit on each wait, as in the tests in Rust. It is not a performance figure: a busy machine is slow.
const WAIT_MS_MAX = 180_000;

export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM, args: ARGUMENTS, timeout: WAIT_MS_MAX });

/// A new profile of a browser.
export async function profile(browser, options) {
	const context = await browser.newContext(options);
	context.setDefaultTimeout(WAIT_MS_MAX);
	return context;
}

export const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };
export const DESK = { viewport: { width: 1280, height: 800 } };

const PICTURE_BYTES_MAX = 150_000;

/// A picture of the page for the documentation, which has other names for some things of the test.
export async function picture(page, name, names) {
	await page.evaluate((names) => {
		const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		for (let text = texts.nextNode(); text; text = texts.nextNode()) names.forEach((pair) => { text.data = text.data.replaceAll(...pair); });
	}, names);
	const path = `${process.env.MODULES}/${name}.png`;
	await page.screenshot({ path });
	assert(statSync(path).size < PICTURE_BYTES_MAX, `${name} is too large`);
}

/// Waits for a condition, which no single element shows.
export async function eventually(what, condition) {
	const end = Date.now() + WAIT_MS_MAX;
	while (Date.now() < end) {
		const found = await condition();
		if (found) return found;
		await new Promise((resolve) => setTimeout(resolve, 50));
	}
	throw new Error(`${what}: it did not come`);
}
