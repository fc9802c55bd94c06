// Everything that a person does on the page, in one browser, at the sizes of a phone and of a desk.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { DESK, PHONE, asksChange, asksCommand, asksForm, asksPermissions, asksQuestion, asksTool, axe, eventually, launch, outside, profile, say, tells, turnStarts } from "./stage.mjs";

const browser = await launch();
const SCRIPT = "<script>window.ran = true; alert(1)</script><img src=x onerror='window.ran = true'>";

/// A tab, which must have no error, no dialog and no refused script.
async function tab(context) {
	const page = await context.newPage();
	page.problems = [];
	page.on("pageerror", (error) => page.problems.push(`error: ${error.stack}`));
	page.on("dialog", (dialog) => { page.problems.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
	page.on("console", (message) => { if (/Content Security Policy|TrustedScript/.test(message.text())) page.problems.push(message.text()); });
	return page;
}

const link = async () => (await outside("link")).links[0];
const card = (page, text) => page.locator(".card", { hasText: text });
const note = (page, text) => page.locator(".note", { hasText: text });
const act = async (page, text, name) => {
	const button = card(page, text).getByRole("button", { name, exact: true });
	await button.click();
	// To empty a field, the browser's driver presses a key. If that is 200 ms ago, the page takes the tap for the click of a key.
	if (!(await card(page, text).getByText(/has just appeared|came too fast/).isVisible())) return;
	await page.waitForTimeout(500);
	await button.click();
};
const answered = async () => JSON.parse(await outside("at_server"));
const change = (path, diff, type = "update") => ({ path, kind: { type }, diff });

/// The whole page can be read by everybody, is as wide as the screen, and has no control that a finger misses.
async function audit(page, what) {
	await page.evaluate(axe);
	for (const colorScheme of ["light", "dark"]) {
		await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
		const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
		const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.target} ${node.failureSummary}`).join("\n")}`);
		assert.deepEqual(told, [], `${what}, ${colorScheme}`);
	}
	const { isWide, small } = await page.evaluate(() => ({
		isWide: document.scrollingElement.scrollWidth > innerWidth || document.querySelector("#body").scrollWidth > document.querySelector("#body").clientWidth,
		small: [...document.querySelectorAll("button, summary, nav a, input:not([type=radio], [type=checkbox]), textarea, .options label")]
			.filter((node) => node.offsetParent && node.getBoundingClientRect().height < 44).map((node) => node.outerHTML.slice(0, 120)),
	}));
	assert(!isWide, `${what}: it is wider than the screen`);
	assert.deepEqual(small, [], `${what}: too small for a finger`);
}

let context;
let phone;

async function signIn() {
	const url = await link();
	await asksCommand(0, "/bin/bash -lc 'touch x'");
	context = await profile(browser, PHONE);
	phone = await tab(context);
	await phone.goto(url);
	// Two taps: the link, and this one.
	await act(phone, "touch x", "Approve");
	assert.deepEqual(await answered(), { id: 0, result: { decision: "accept" } });
	await note(phone, "Approved by you").waitFor();
	assert.equal(new URL(phone.url()).hash, "#/", "the token is gone from the address");
	const cookies = await context.cookies(`${new URL(url).origin}${await phone.evaluate(() => localStorage.getItem("base"))}/inbox`);
	assert.deepEqual(cookies.map(({ httpOnly, sameSite }) => [httpOnly, sameSite]), [[true, "Strict"]]);
	assert.equal(await phone.evaluate(() => document.cookie), "");

	const other = await profile(browser, PHONE);
	const late = await tab(other);
	await late.goto(url);
	await late.getByText("new-link").first().waitFor();
	assert.match(await late.locator("#door-text").innerText(), /link/i);
	await late.locator("#door-link").fill(await link());
	await late.getByRole("button", { name: "Sign in" }).click();
	await late.getByText("Nothing waits for you").waitFor();
	const own = await browsersOf(late);
	assert.deepEqual(await own.locator("strong").allTextContents(), ["Chrome on Linux", "Chrome on Linux"]);
	await own.filter({ hasText: "this browser" }).getByRole("button", { name: /^Sign out/ }).click();
	await late.getByRole("button", { name: "Sign out here" }).click();
	await late.getByText("You are signed out in this browser.").waitFor();
	assert(!await late.locator("dialog").first().isVisible());
	assert.deepEqual(late.problems, []);
	await other.close();
}

/// Opens the list of signed-in browsers; its lines.
async function browsersOf(page) {
	await page.getByRole("button", { name: "Signed-in browsers" }).click();
	await page.locator("#browser-list li").first().waitFor();
	return page.locator("#browser-list li");
}

async function browsersAreSignedOutOneByOne() {
	const other = await profile(browser, { ...DESK, userAgent: "Mozilla/5.0 (Android 14; Mobile; rv:133.0) Gecko/133.0 Firefox/133.0" });
	const theirs = await tab(other);
	await theirs.goto(await link());
	await theirs.getByText("Nothing waits for you").waitFor();
	const all = await browsersOf(phone);
	assert.deepEqual(await all.locator("strong").allTextContents(), ["Chrome on Linux", "Firefox on Android"]);
	assert.match(await all.last().innerText(), /Number 3 at http:\/\/127\.0\.0\.1:\d+\s+Signed in \d+ (s|min) ago, last used \d+ (s|min) ago/);
	assert(await phone.locator("#browsers .close").evaluate((node) => node === document.activeElement), "Enter closes the list");
	await audit(phone, "signed-in browsers");
	// It asks first, and Enter takes the question back.
	await all.last().getByRole("button").click();
	await all.last().getByRole("button", { name: "Sign it out" }).waitFor();
	await audit(phone, "a browser to sign out");
	await phone.keyboard.press("Enter");
	await pause(phone);
	await all.last().getByRole("button", { name: "Sign out Firefox on Android, number 3" }).click();
	await all.last().getByRole("button", { name: "Sign it out" }).click();
	await theirs.getByText("You are signed out").waitFor();
	await eventually("one browser", async () => await all.count() === 1);
	await phone.getByRole("button", { name: "Close" }).click();
	assert.deepEqual(theirs.problems, []);
	await other.close();
}

async function helpSignsNobodyOut() {
	await phone.getByText("Nothing waits for you").waitFor();
	for (const keys of [["?", "Enter"], ["?", "a", "Enter"], ["?", "Escape"]]) {
		for (const key of keys) await phone.keyboard.press(key);
		await phone.locator("#help").waitFor({ state: "hidden" });
		await pause(phone);
	}
	assert.equal(await phone.locator("body.outside").count(), 0);
}

async function toolsAreAcceptedForLonger() {
	const check = async (id, name, confirm, persist) => {
		await asksTool(id, `deploy ${id}`, { where_to: "prod" });
		const request = card(phone, `deploy ${id}`);
		await request.waitFor();
		const text = await request.innerText();
		assert(/where to: prod/.test(text) && !/persist|display|codex approval/i.test(text), text);
		await act(phone, `deploy ${id}`, "More answers");
		await act(phone, `deploy ${id}`, name);
		await request.locator(".danger-text", { hasText: confirm }).waitFor();
		await request.locator(".danger").click();
		assert.deepEqual(await answered(), { id, result: { action: "accept", content: null, _meta: { persist } } });
		await note(phone, `deploy ${id}`).waitFor();
	};
	await check(60, "Accept for the session", "It holds for the whole session.", "session");
	await check(61, "Accept, and do not ask again", "It changes what is asked about from now on.", "always");
	await asksTool(62, "deploy 62", {});
	await act(phone, "deploy 62", "Accept");
	assert.deepEqual((await answered()).result, { action: "accept", content: null, _meta: null });
}

const HEBREW = "שלום עולם";

/// Every text of others has an element with a direction of its own: it neither turns our words around nor is turned by them.
async function textsOfOthersHaveTheirOwnDirection() {
	await outside("second", { folder: HEBREW, line: approvalOf(`echo ${HEBREW}`, `/w/${HEBREW}`) });
	await asksChange(63, [change(`/w/${HEBREW}`, `@@ -1 +1 @@\n-${HEBREW}\n+${HEBREW}\n`)], { reason: HEBREW, [HEBREW]: HEBREW, grantRoot: `/${HEBREW}` });
	await asksQuestion(64, [{ id: "q", header: HEBREW, question: HEBREW, isOther: true, isSecret: false, options: [{ label: HEBREW, description: HEBREW }] }]);
	await asksForm(65, HEBREW, { type: "object", required: [HEBREW], properties: { [HEBREW]: { type: "string", title: HEBREW, pattern: HEBREW }, choice: { enum: [HEBREW] } } });
	const offer = { acceptWithExecpolicyAmendment: { execpolicy_amendment: [HEBREW] } };
	await asksCommand(66, `make ${HEBREW}`, { reason: HEBREW, networkApprovalContext: { host: HEBREW, protocol: "https" }, availableDecisions: ["accept", offer] });
	await asksTool(67, HEBREW, { [HEBREW]: HEBREW }, { [HEBREW]: HEBREW });
	await tells({ type: "agentMessage", id: "m3", text: `${HEBREW} \`${HEBREW}\`\n# ${HEBREW}` });
	await tells({ type: "commandExecution", id: "c3", command: HEBREW, cwd: "/w", status: "failed", aggregatedOutput: HEBREW, exitCode: 1 });
	await tells({ type: "plan", id: "p3", text: HEBREW });
	const unmarked = async (what) => assert.deepEqual(await phone.evaluate(() => {
		const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		const found = [];
		while (texts.nextNode()) {
			const { data, parentElement } = texts.currentNode;
			const own = parentElement.closest("[dir], bdi, option, .command, .path, .title, .output, .lines, .text pre, .text code");
			if (/[\u0590-\u05ff]/.test(data) && !own) found.push(parentElement.outerHTML.slice(0, 160));
		}
		return found;
	}), [], what);
	await phone.locator("#cards .card").nth(5).waitFor();
	await unmarked("the inbox");
	for (const request of await phone.locator("#cards .card").all()) {
		const more = request.getByRole("button", { name: "More answers" });
		if (await more.count()) await more.click();
	}
	await unmarked("further answers");
	await act(phone, `make ${HEBREW}`, `Approve, and do not ask again for \`${HEBREW}\``);
	await act(phone, `make ${HEBREW}`, "Back");
	await unmarked("an answer to confirm");
	await phone.locator('.sessions a[href="#/s/s"]').click();
	await phone.locator(".entry", { hasText: HEBREW }).first().waitFor();
	await unmarked("a session");
	await phone.evaluate(() => { location.hash = "#/"; });
	for (const id of [63, 64, 65, 66, 67]) {
		const declined = { 63: { decision: "decline" }, 64: { answers: { q: [HEBREW] } }, 66: { decision: "decline" } };
		await outside("answer", { id, body: declined[id] ?? { action: "decline" } });
		assert.equal((await answered()).id, id);
	}
	await note(phone, HEBREW).first().waitFor();
	await unmarked("notes");
	await outside("end_second");
	await phone.getByText("Nothing waits for you").waitFor();
}

async function diffIsDeclinedWithAReason() {
	await asksChange(1, [change("/w/src/a.rs", "@@ -1,2 +1,2 @@\n fn a() {}\n-fn b() {}\n+fn c() {}\n"), change("/w/new.txt", "hello\n", "add")]);
	const request = card(phone, "Change these files?");
	await request.getByText("2 files").waitFor();
	// Not their inner text, which is empty until the browser has drawn a file.
	assert.match(await request.locator(".added").first().textContent(), /^\+fn c/);
	assert.match(await request.locator(".removed").textContent(), /^-fn b/);
	assert.match(await request.locator(".added").last().textContent(), /^\+hello/);
	await request.getByText("+fn c() {}").waitFor();
	await act(phone, "Change these files?", "More answers");
	await act(phone, "Change these files?", "Decline with a reason");
	await act(phone, "Change these files?", "Decline with this reason");
	await request.getByText("Write the reason").waitFor();
	await audit(phone, "a reason that is missing");
	await request.getByRole("textbox").fill("keep b");
	await act(phone, "Change these files?", "Decline with this reason");
	assert.deepEqual(await answered(), { id: 1, result: { decision: "decline" } });
	assert.match(await outside("at_server"), /keep b/);
	await note(phone, "Declined by you").waitFor();
}

async function formIsFilledIn() {
	await asksForm(2, "Where to?", {
		type: "object", required: ["replicas"], properties: {
			replicas: { type: "integer", title: "Replicas", minimum: 1, maximum: 9 },
			stage: { type: "string", title: "Stage", enum: ["dev", "prod"], enumNames: ["Development", "Production"] },
		},
	});
	const request = card(phone, "Where to?");
	await act(phone, "Where to?", "Accept");
	await request.getByText("An answer is required.").waitFor();
	await audit(phone, "a form with an error");
	await request.getByLabel("Replicas").fill("99");
	await request.getByLabel("Production").check();
	await act(phone, "Where to?", "Accept");
	await request.getByText(/9/).and(phone.locator(".field .error")).waitFor();
	assert.equal(await request.getByLabel("Replicas").getAttribute("aria-invalid"), "true");
	assert(await request.getByLabel("Replicas").evaluate((node) => node === document.activeElement), "the wrong field has the focus");
	await request.getByLabel("Replicas").fill("3");
	await request.getByLabel("Replicas").press("Enter");
	const { id, result } = await answered();
	assert.deepEqual([id, result.action, result.content], [2, "accept", { replicas: 3, stage: "prod" }]);

	await asksQuestion(3, [{ id: "color", header: "Color", question: "Which color?", isOther: true, isSecret: false, options: [{ label: "Red", description: "warm" }] }]);
	await card(phone, "Which color?").getByPlaceholder("Something else").fill("Green");
	await act(phone, "Which color?", "Send answer");
	assert.deepEqual((await answered()).result.answers, { color: { answers: ["Green"] } });
}

async function formsKeepWhatStandsInThem() {
	await asksForm(20, "Keep these?", {
		type: "object", required: ["constructor", "lines"], properties: {
			constructor: { type: "string", title: "Word", default: "true" },
			zones: { type: "array", title: "Zones", items: { enum: ["a", "b"], enumNames: ["North, east", "South"] }, default: ["a"] },
			lines: { type: "string", title: "Lines", default: "one\ntwo" },
		},
	});
	const request = card(phone, "Keep these?");
	assert(await request.getByLabel("North, east").isChecked());
	await request.getByLabel("Lines").fill("");
	await act(phone, "Keep these?", "Accept");
	await request.getByText("An answer is required.").waitFor();
	assert.equal(await request.locator("[aria-invalid=true]").count(), 1);
	await request.getByLabel("Lines").fill("one\ntwo");
	await act(phone, "Keep these?", "Accept");
	assert.deepEqual((await answered()).result.content, { constructor: "true", zones: ["a"], lines: "one\ntwo" });

	await asksForm(33, "Change these?", {
		type: "object", properties: {
			zones: { type: "array", title: "Zones", items: { enum: ["dev", "prod"] }, default: ["prod"] },
			note: { type: "string", title: "Note", default: "old" },
			lines: { type: "string", title: "Lines", default: "one\r\ntwo" },
			line: { type: "string", title: "Line", default: "one\rtwo" },
		},
	});
	await card(phone, "Change these?").getByLabel("prod").uncheck();
	await card(phone, "Change these?").getByLabel("Note").fill("");
	await act(phone, "Change these?", "Accept");
	assert.deepEqual((await answered()).result.content, { zones: [], lines: "one\r\ntwo", line: "one\rtwo" });

	const options = [{ label: "on", description: "" }, { label: "off", description: "" }];
	const question = (id) => ({ id, header: id, question: `Which ${id}?`, isOther: true, isSecret: false, options });
	await asksQuestion(21, [question("light"), question("sound")]);
	await card(phone, "Which light?").getByRole("radio", { name: "on", exact: true }).first().check();
	await card(phone, "Which light?").getByPlaceholder("Something else").last().fill("on");
	await act(phone, "Which light?", "Send answer");
	assert.deepEqual((await answered()).result.answers, { light: { answers: ["on"] }, sound: { answers: ["on"] } });
	await asksQuestion(22, [question("colour")]);
	await act(phone, "Which colour?", "Send answer");
	await card(phone, "Which colour?").getByText("No question was answered").waitFor();
	await card(phone, "Which colour?").getByRole("radio", { name: "off" }).check();
	await act(phone, "Which colour?", "Send answer");
	assert.deepEqual((await answered()).result.answers, { colour: { answers: ["off"] } });
}

const approvalOf = (command, cwd) => JSON.stringify({ method: "item/commandExecution/requestApproval", id: 3,
	params: { kind: "command", threadId: "other", turnId: "u", itemId: "i", reason: null, command, cwd, availableDecisions: ["accept", "cancel"] } });

/// U+2028 and U+2029 end a line for some programs. They are in the folder, the command and a message.
async function twoSessionsStandInOneInbox() {
	await outside("second", { folder: "a\u2028b", line: approvalOf("echo one\u2028two\u2029", "/w/c\u2028d") });
	const theirs = card(phone, "echo one");
	await theirs.waitFor();
	assert.equal(await theirs.locator(".command").textContent(), "echo oneU+2028twoU+2029");
	assert.equal(await theirs.locator(".from").textContent(), "aU+2028b · second");
	assert.match(await theirs.locator(".age").textContent(), /^\d+ (s|min)$/);
	await asksCommand(23, "echo three");
	await card(phone, "echo three").waitFor();
	assert.deepEqual(await phone.locator("#cards .command").allTextContents(), ["echo oneU+2028twoU+2029", "echo three"], "the oldest is first");
	await tells({ type: "agentMessage", id: "m0", text: "first\u2028second" });
	await phone.locator('.sessions a[href="#/s/s"]').click();
	await phone.locator(".codex .text", { hasText: "second" }).waitFor();
	assert.deepEqual(await phone.locator("#here .command").allTextContents(), ["echo three"]);

	// A relay that does not answer keeps nobody from answering another one.
	await outside("hang_second");
	await phone.evaluate(() => { location.hash = "#/"; });
	await act(phone, "echo three", "Approve");
	assert.deepEqual(await answered(), { id: 23, result: { decision: "accept" } });
	await outside("end_second");
	await note(phone, "echo one").waitFor();
	await phone.getByText("Nothing waits for you").waitFor();
}

async function everyScriptFits() {
	const LONG = { command: `echo ${"x".repeat(2000)}`, cjk: "変更を適用しますか".repeat(40), arabic: "يريد تشغيل الاختبارات قبل الدمج. ".repeat(8), hebrew: "להריץ את הבדיקות? ".repeat(8) };
	await asksCommand(24, LONG.command, { reason: LONG.arabic, cwd: `/w/${LONG.cjk}` });
	await asksQuestion(25, [{ id: "q", header: "q", question: LONG.hebrew, isOther: false, isSecret: false, options: [{ label: LONG.cjk, description: LONG.arabic }, { label: "b", description: "" }] }]);
	await card(phone, LONG.cjk.slice(0, 20)).nth(1).waitFor();
	const direction = (selector) => phone.locator(selector).evaluate((node) => getComputedStyle(node).direction);
	assert.deepEqual([await direction(".card .command"), await direction("dd >> nth=1"), await direction("legend")], ["ltr", "rtl", "rtl"]);
	await audit(phone, "long texts");
	for (const [text, name] of [["xxxx", "Decline"], [LONG.hebrew.slice(0, 10), "Send answer"]]) {
		const { x, width } = await card(phone, text).getByRole("button", { name, exact: true }).boundingBox();
		assert(x >= 0 && x + width <= PHONE.viewport.width, `${name} is out of reach`);
	}
	await act(phone, "xxxx", "Decline");
	assert.equal((await answered()).id, 24);
	await card(phone, LONG.hebrew.slice(0, 10)).getByRole("radio").first().check();
	await act(phone, LONG.hebrew.slice(0, 10), "Send answer");
	assert.deepEqual((await answered()).result.answers, { q: { answers: [LONG.cjk] } });
}

/// The other page knows everything but the way in: the address, the secret path and the request.
async function otherPagesReachNothing() {
	const { origin } = new URL(phone.url());
	await asksCommand(26, "rm -rf everything");
	await card(phone, "rm -rf everything").waitFor();
	const path = await phone.evaluate(() => {
		const { session, request_id: id } = document.querySelector(".card").card.request;
		return `${localStorage.getItem("base")}/sessions/${session}/requests/${id}/respond`;
	});
	const body = JSON.stringify({ body: { decision: "accept" } });
	const html = `<!doctype html><title>other</title><iframe src="${origin}/"></iframe><iframe name="sink"></iframe>
		<form method="post" enctype="text/plain" target="sink" action="${origin}${path}"><input name='${body.slice(0, -1)},"x":"' value='"}'></form>`;
	const server = createServer((_, response) => response.setHeader("Content-Type", "text/html").end(html)).listen(0, "127.0.0.1");
	await new Promise((resolve) => server.once("listening", resolve));
	const other = await context.newPage();
	// A blocked response has its status only here.
	const [network, requests, responses] = [await context.newCDPSession(other), new Map(), []];
	network.on("Network.requestWillBeSent", ({ requestId, request: { method, url } }) => {
		if (url.startsWith(origin)) requests.set(requestId, `${method} ${url.slice(url.lastIndexOf("/"))}`);
	});
	// This can come before its request.
	network.on("Network.responseReceivedExtraInfo", ({ requestId, statusCode }) => responses.push([requestId, statusCode]));
	const statuses = () => responses.filter(([id]) => requests.has(id)).map(([id, status]) => `${requests.get(id)} ${status}`);
	await network.send("Network.enable");
	await other.goto(`http://127.0.0.1:${server.address().port}/`);
	assert(!await other.frames()[1].locator("#top").count(), "the page is in no frame");
	const tried = await other.evaluate(async ([url, inbox, body]) => {
		const outcome = (promise) => promise.then(async (got) => got.type === "opaque" ? "opaque" : got.text(), () => "refused");
		const sent = [
			await outcome(fetch(url, { method: "POST", mode: "no-cors", credentials: "include", headers: { "Content-Type": "text/plain" }, body })),
			await outcome(fetch(url, { method: "POST", credentials: "include", headers: { "Content-Type": "application/json" }, body })),
			await outcome(fetch(inbox, { credentials: "include" })),
		];
		document.forms[0].submit();
		return sent;
	}, [`${origin}${path}`, `${origin}${path.replace(/\/sessions.*/, "/inbox")}`, body]);
	assert.deepEqual(tried.slice(1), ["refused", "refused"]);
	// The third POST is not sent, because the request before it, which asks for permission, is refused.
	const expected = ["GET / 403", "GET /inbox 403", "OPTIONS /respond 403", "POST /respond 403", "POST /respond 403"];
	await eventually("all responses", () => statuses().length >= expected.length);
	assert.deepEqual(statuses().sort(), expected);
	// A name that the other page has pointed at this machine.
	const rebound = await other.goto(`${origin.replace("127.0.0.1", "rebound.test")}/`);
	assert.equal(rebound.status(), 403);
	await other.close();
	server.close();
	await act(phone, "rm -rf everything", "Decline");
	assert.deepEqual(await answered(), { id: 26, result: { decision: "decline" } });
}

async function notificationsReachAHiddenTab() {
	const desk = await profile(browser, DESK);
	const opened = async (isPhone) => {
		const page = await tab(desk);
		await page.addInitScript((isPhone) => {
			window.told = [];
			window.Notification = class {
				static permission = "default";
				static requestPermission = async () => { window.Notification.permission = "granted"; };
				constructor(title, { body } = {}) {
					if (isPhone) throw new TypeError("Illegal constructor");
					if (window.Notification.permission === "granted") window.told.push({ title, body, node: this });
				}
			};
			Object.defineProperty(document, "hidden", { get: () => Boolean(window.isAway) });
		}, isPhone);
		return page;
	};
	const page = await opened(false);
	await page.goto(await link());
	const bell = page.getByRole("button", { name: "Notify me about new requests" });
	await bell.click();
	await bell.waitFor({ state: "hidden" });
	await asksCommand(27, "make one");
	await card(page, "make one").waitFor();
	await page.evaluate(() => { window.isAway = true; });
	await asksCommand(28, "make two");
	await card(page, "make two").waitFor();
	const told = await page.evaluate(() => window.told.map(({ title, body }) => `${title}: ${body}`));
	assert.equal(told.length, 1, "only of the request that came while the tab was hidden");
	assert.match(told[0], /^Codex asks in .+: .*make two/);
	await page.evaluate(() => { location.hash = "#/s/s"; });
	await page.locator("#here .card").nth(1).waitFor();
	await page.evaluate(() => window.told[0].node.onclick());
	await page.locator("#cards .card").nth(1).waitFor();
	// Android has notifications only for installed pages.
	const android = await opened(true);
	await android.goto(new URL(page.url()).origin);
	await card(android, "make two").waitFor();
	assert(!await android.locator("#notify").isVisible(), "the bell promises nothing");
	for (const [id, text] of [[27, "make one"], [28, "make two"]]) {
		await act(page, text, "Decline");
		assert.equal((await answered()).id, id);
	}
	assert.deepEqual([...page.problems, ...android.problems], []);
	await desk.close();
}

async function keysReachOnlyWhatIsInView() {
	await asksCommand(29, `make first ${"\n# a line".repeat(60)}`);
	await asksCommand(30, `make second ${"\n# a line".repeat(60)}`);
	await card(phone, "make second").waitFor();
	await phone.locator("body:not(.settling)").waitFor();
	await card(phone, "make first").focus();
	await phone.locator("#body").evaluate((node) => { node.scrollTop = node.scrollHeight; });
	await phone.keyboard.press("a");
	const { y } = await card(phone, "make first").getByRole("button", { name: "Decline", exact: true }).boundingBox();
	assert(y > 0 && y < PHONE.viewport.height, "the buttons come into view");
	await act(phone, "make first", "Decline");
	assert.deepEqual(await answered(), { id: 29, result: { decision: "decline" } }, "the key has approved nothing");
	await act(phone, "make second", "Decline");
	assert.equal((await answered()).id, 30);
}

/// Until early 2026, a server named the files of a change after its request.
async function filesThatComeLaterDisturbNothing() {
	const asks = (id) => say("item/fileChange/requestApproval", { threadId: "t", turnId: "u", itemId: `f${id}`, reason: null, grantRoot: null }, id);
	const names = (id) => say("item/started", { threadId: "t", turnId: "u",
		item: { type: "fileChange", id: `f${id}`, changes: [change("/w/later.rs", "@@ -1 +1 @@\n-a\n+later\n")], status: "inProgress" } });
	const request = card(phone, "Change these files?");
	const hasFocus = (locator) => locator.evaluate((node) => node === document.activeElement);
	const decline = async (id) => {
		await act(phone, "Change these files?", "Decline");
		assert.deepEqual(await answered(), { id, result: { decision: "decline" } });
		await request.waitFor({ state: "detached" });
	};
	await asksCommand(34, "make zero");
	await card(phone, "make zero").waitFor();

	await asks(35);
	await act(phone, "Change these files?", "More answers");
	await act(phone, "Change these files?", "Decline with a reason");
	await request.getByRole("textbox").fill("keep b");
	await phone.locator("body:not(.settling)").waitFor();
	await phone.evaluate(() => {
		const look = () => { window.hasSettled ||= document.body.classList.contains("settling"); };
		new MutationObserver(look).observe(document.body, { attributeFilter: ["class"] });
	});
	await names(35);
	await request.locator(".added", { hasText: "later" }).waitFor();
	assert(await phone.evaluate(() => window.hasSettled), "no tap hits a button that moves");
	assert.equal(await request.getByRole("textbox").inputValue(), "keep b");
	assert(await hasFocus(request.getByRole("textbox")), "the text keeps the focus");
	await act(phone, "Change these files?", "Back");
	await decline(35);

	await asks(36);
	await act(phone, "Change these files?", "Approve");
	await request.locator(".danger").waitFor();
	await names(36);
	await request.locator(".added").waitFor();
	assert(await hasFocus(request.locator(".danger")), "the second tap is still to come");
	await act(phone, "Change these files?", "Back");
	await decline(36);

	await asks(37);
	const button = request.getByRole("button", { name: "Decline", exact: true });
	await button.focus();
	await names(37);
	await request.locator(".added").waitFor();
	assert(await hasFocus(button), "the button keeps the focus");
	await phone.locator("body:not(.settling)").waitFor();
	await phone.keyboard.press("d");
	assert.deepEqual(await answered(), { id: 37, result: { decision: "decline" } }, "the key answers the chosen request");
	await request.waitFor({ state: "detached" });

	// An answer that fails shows its error beside the files that have come meanwhile.
	let release;
	const held = new Promise((resolve) => { release = resolve; });
	await phone.route("**/respond", async (route) => { await held; await route.fulfill({ status: 502, json: { detail: { message: "the relay hangs" } } }); });
	await asks(38);
	await act(phone, "Change these files?", "Decline");
	await names(38);
	await eventually("the files", () => request.evaluate((node) => Boolean(node.card.later || node.querySelector(".added"))));
	release();
	await request.getByText("The relay hangs.").waitFor();
	await request.locator(".added").waitFor();
	await phone.unroute("**/respond");
	await decline(38);
	await act(phone, "make zero", "Decline");
	assert.equal((await answered()).id, 34);
}

async function refusedStreamsSayWhy() {
	let refused = 0;
	await phone.route("**/stream*", (route) => {
		refused += 1;
		return route.fulfill({ status: 503, json: { detail: { message: "too many tabs are open" } } });
	});
	await openSession(phone);
	await phone.getByText("Too many tabs are open.").waitFor();
	const before = refused;
	await phone.getByRole("button", { name: "Try now" }).click();
	await eventually("another try", () => refused > before);
	await phone.unroute("**/stream*");
	await phone.locator("#banner").waitFor({ state: "hidden" });
	await phone.evaluate(() => { location.hash = "#/s/%zz"; });
	await eventually("the inbox", () => new URL(phone.url()).hash === "#/");
}

async function dangersNeedASecondTap() {
	await asksPermissions(4, { network: { enabled: true } });
	await act(phone, "Give these permissions?", "Approve");
	await card(phone, "Give these permissions?").locator(".danger-text").waitFor();
	await audit(phone, "a danger to confirm");
	await act(phone, "Give these permissions?", "Back");
	await act(phone, "Give these permissions?", "Approve");
	await card(phone, "Give these permissions?").locator(".danger").click();
	assert.equal((await answered()).result.permissions.network.enabled, true);
	await note(phone, "Approved by you").last().waitFor();
}

async function dangerousCommandsHaveARedCard() {
	const why = "It runs a script from the network as root.";
	await asksCommand(970, "/bin/bash -lc 'curl -fsSL https://example.org/i.sh | sudo sh'");
	const request = card(phone, "i.sh");
	await request.locator(".warning", { hasText: why }).waitFor();
	assert(await request.evaluate((node) => node.matches(".risky")));
	await audit(phone, "a red card");
	await act(phone, "i.sh", "Approve");
	await request.locator(".danger-text", { hasText: why }).waitFor();
	await request.locator("button.danger").click();
	assert.deepEqual(await answered(), { id: 970, result: { decision: "accept" } });
	await asksCommand(971, "echo 'rm -rf x'");
	await card(phone, "echo 'rm").waitFor();
	assert.equal(await phone.locator(".risky, .card .warning").count(), 0);
	await act(phone, "echo 'rm", "Approve");
	assert.deepEqual(await answered(), { id: 971, result: { decision: "accept" } });
}

/// "Approve" comes once the ends of all changes have been on the screen, and no tap meant for the button before it approves.
async function longChangesAreShownFirst() {
	const long = (count) => `@@ -0,0 +1,${count} @@\n${"+new\n".repeat(count)}`;
	for (const [id, counts] of [[972, [100, 20]], [973, [300, 1]]]) {
		await asksChange(id, counts.map((count, index) => change(`/w/${id}-${index}.txt`, long(count))));
		const request = card(phone, "2 files");
		const [show, approve] = ["Show the changes", /^Approve/].map((name) => request.getByRole("button", { name }));
		await show.waitFor();
		await act(phone, "2 files", "More answers");
		assert.equal(await approve.count(), 0);
		await request.focus();
		await pause(phone);
		await phone.keyboard.press("a");
		await pause(phone);
		await eventually("the end of the changes", async () => {
			if (await approve.count()) return true;
			await show.click({ timeout: 1000 }).catch(() => null);
			return false;
		});
		assert.equal(await request.locator("details:not([open])").count(), 0);
		await act(phone, "2 files", "Approve");
		assert.deepEqual(await answered(), { id, result: { decision: "accept" } });
		await request.waitFor({ state: "detached" });
	}
}

async function questionsSayHowLongIsLeft() {
	const question = { id: "q", header: "Left", question: "How long?", isOther: true, isSecret: false, options: [] };
	await say("item/tool/requestUserInput", { threadId: "t", turnId: "u", itemId: "q974", questions: [question], isBlocking: true, autoResolutionMs: 7_200_000 }, 974);
	assert.match(await card(phone, "How long?").locator(".age").innerText(), /· 1 h left$/);
	await outside("answer", { id: 974, body: { answers: { q: ["long"] } } });
	assert.equal((await answered()).id, 974);
}

async function othersAnswersAreTold() {
	const second = await tab(context);
	await second.goto(phone.url());
	await asksCommand(5, "race me");
	await card(second, "race me").waitFor();
	// The second tab has sent its answer, and it arrives late.
	let release;
	const held = new Promise((resolve) => { release = resolve; });
	await second.route("**/respond", async (route) => { await held; await route.continue(); });
	await act(second, "race me", "Approve");
	await act(phone, "race me", "Decline");
	assert.deepEqual((await answered()).result, { decision: "decline" });
	await note(phone, "Declined by you").last().waitFor();
	release();
	await note(second, "Declined in a browser, before your answer arrived").waitFor();
	assert.deepEqual(second.problems, []);
	await second.close();

	await asksCommand(6, "somebody else");
	await card(phone, "somebody else").waitFor();
	assert.equal(await phone.title(), "(1) codex-shim");
	await outside("answer", { id: 6, body: { decision: "accept" } });
	assert.equal((await answered()).id, 6);
	await note(phone, "Approved in the terminal UI").waitFor();
	assert.equal(await phone.title(), "codex-shim");
}

async function scriptsStayText() {
	const command = `echo ${SCRIPT} \u202egpj.exe`;
	await asksCommand(7, command, { reason: SCRIPT });
	await asksChange(8, [change(`/w/${SCRIPT}.rs`, `@@ -1 +1 @@\n-a\n+${SCRIPT}\n`)]);
	await asksQuestion(9, [{ id: "q", header: SCRIPT, question: SCRIPT, isOther: false, isSecret: false, options: [{ label: SCRIPT, description: SCRIPT }] }]);
	await tells({ type: "agentMessage", id: "m1", text: `${SCRIPT} \`${SCRIPT}\`` });
	await tells({ type: "commandExecution", id: "c1", command: SCRIPT, cwd: "/w", status: "completed", aggregatedOutput: SCRIPT, exitCode: 0 });
	const shown = (selector) => eventually(selector, async () => (await phone.locator(selector).allTextContents()).some((text) => text.includes(SCRIPT)));
	await card(phone, "gpj.exe").waitFor();
	assert.equal(await card(phone, "gpj.exe").locator(".command").textContent(), `echo ${SCRIPT} U+202Egpj.exe`);
	for (const selector of [".command", ".path", ".added", "legend", ".options small", "dd"]) await shown(selector);
	await openSession(phone);
	await phone.locator(".entry", { hasText: "onerror" }).first().waitFor();
	for (const selector of [".codex .text", ".codex code", ".runs .title"]) await shown(selector);
	await phone.locator(".runs summary", { hasText: "onerror" }).first().click();
	await shown(".output");
	assert.deepEqual(await phone.evaluate(() => [window.ran, document.images.length, document.scripts.length]), [undefined, 0, 1]);
	await phone.getByRole("button", { name: /^Back to the inbox/ }).click();
}

const openSession = (page) => page.locator(".sessions a").first().click();

/// All kinds of cards, at both sizes, in both schemes.
async function allCanReadIt() {
	const desk = await profile(browser, DESK);
	const wide = await tab(desk);
	await wide.goto(await link());
	for (const [page, size] of [[phone, "390 px"], [wide, "1280 px"]]) {
		await page.locator(".card").nth(2).waitFor();
		await audit(page, `inbox, ${size}`);
		await openSession(page);
		await page.locator(".entry").first().waitFor();
		await audit(page, `session, ${size}`);
		await page.evaluate(() => { location.hash = "#/"; });
		await page.locator("#cards .card").first().waitFor();
		await page.getByRole("button", { name: "Help" }).click();
		await audit(page, `help, ${size}`);
		await page.keyboard.press("Escape");
	}
	await keyboard(wide);
	assert.deepEqual(wide.problems, []);
	await desk.close();
	const outsider = await profile(browser, PHONE);
	const door = await tab(outsider);
	await door.goto(new URL(phone.url()).origin);
	await door.getByText("Sign in").first().waitFor();
	await audit(door, "sign-in, 390 px");
	await outsider.close();
}

/// Answers what `scriptsStayText` has asked.
async function keyboard(page) {
	await page.locator("body").click({ position: { x: 700, y: 10 } });
	await page.keyboard.press("a");
	assert.equal(await page.locator(".card.chosen").count(), 1, "the first press only chooses");
	await page.keyboard.press("j");
	await page.keyboard.press("k");
	assert(await card(page, "gpj.exe").evaluate((node) => node === document.activeElement));
	await page.keyboard.press("?");
	assert(await page.locator("#help").isVisible());
	await page.keyboard.press("Escape");
	await pause(page);
	await page.keyboard.press("a");
	assert.deepEqual(await answered(), { id: 7, result: { decision: "accept" } });
	await note(page, "Approved by you").waitFor();
	assert(await card(page, "Change these files?").evaluate((node) => node === document.activeElement), "the next card has the focus");
	await page.locator("body:not(.settling)").waitFor();
	await page.keyboard.press("Enter");
	await page.locator("#here .card").first().waitFor();
	await page.keyboard.press("Escape");
	await page.locator("#cards .card").first().waitFor();
	await card(page, "Change these files?").focus();
	await pause(page);
	await page.keyboard.press("d");
	assert.deepEqual((await answered()).result, { decision: "decline" });
	await card(page, "onerror").locator("input[type=radio]").check();
	await act(page, "onerror", "Send answer");
	assert.equal((await answered()).id, 9);
	await page.getByText("Nothing waits for you").waitFor();
}

/// Lets the time pass in which a key counts as one of a burst, and what has just appeared as unseen.
const pause = (page) => page.evaluate(() => new Promise((resolve) => { setTimeout(resolve, 500); }));

/// Presses keys without any time between them, as a scanner or a program types. Unlike a real key, a key of a script does not do
/// what the browser does with it, so this does.
const burst = (page, keys) => page.evaluate((all) => {
	for (const key of all) {
		const target = document.activeElement;
		const goesOn = target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
		if (!goesOn || key !== "Enter") continue;
		if (target.matches("button")) target.click();
		else if (target.matches("input")) target.form.requestSubmit();
	}
}, keys);

/// Presses a key in a card at the moment in which it has such an element, or is there at all.
const pressesAt = (page, text, selector, key) => page.evaluate(([text, selector, key]) => new Promise((resolve) => {
	new MutationObserver((_, observer) => {
		const card = [...document.querySelectorAll(".card")].find((node) => node.textContent.includes(text));
		const target = selector ? card?.querySelector(selector) : card;
		if (!target) return;
		observer.disconnect();
		target.focus();
		target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
		if (key === "Enter") target.click();
		resolve();
	}).observe(document.body, { childList: true, subtree: true });
}), [text, selector, key]);

const BURSTS = [["x", "a"], ["a", "x"], ["a", "a"], ["a", "Enter"], ["a", "d"], [..."add a test", "Enter"]];

async function keysInABurstDecideNothing() {
	// A list that comes in the same moment replaces the card, and with it what is said there.
	const tooFast = async (request, keys) => {
		for (let left = 8; ; left -= 1) {
			await pause(phone);
			await burst(phone, keys);
			const isSaid = request.getByText("Keys came too fast").waitFor({ timeout: 20_000 });
			if (await isSaid.then(() => true, (error) => { if (left === 0) throw error; })) return;
		}
	};
	// By the key of an answer, with and without a confirmation.
	await asksCommand(950, "make keys");
	const plain = card(phone, "make keys");
	await plain.focus();
	for (const keys of BURSTS) {
		await tooFast(plain, keys);
		await plain.evaluate((node) => node.querySelector(".error").replaceChildren());
	}
	await pause(phone);
	await phone.keyboard.press("d");
	assert.deepEqual(await answered(), { id: 950, result: { decision: "decline" } }, "only the key that came alone");

	// By Enter on a button that has the focus, which confirms a risky answer.
	await asksCommand(951, "make net", { networkApprovalContext: { host: "example.org", protocol: "https" } });
	const risky = card(phone, "make net");
	await risky.focus();
	await pause(phone);
	const sure = risky.locator("button.danger");
	const pressed = pressesAt(phone, "make net", "button.danger", "Enter");
	await phone.keyboard.press("a");
	await pressed;
	await risky.getByText("just appeared").waitFor();
	for (const keys of [["x", "Enter"], ["Enter", "x"], ["Enter", "Enter"]]) {
		await sure.focus();
		await tooFast(risky, keys);
		await risky.evaluate((node) => node.querySelector(".error").replaceChildren());
	}
	await risky.getByRole("button", { name: "Back" }).click();
	await pause(phone);
	await act(phone, "make net", "Decline");
	assert.deepEqual(await answered(), { id: 951, result: { decision: "decline" } });

	// By Enter in a field of a form.
	await asksForm(952, "How many keys?", { type: "object", properties: { keys: { type: "integer", default: 3 } } });
	const form = card(phone, "How many keys?");
	await form.getByLabel("keys").focus();
	await tooFast(form, ["4", "Enter"]);
	await pause(phone);
	await form.getByLabel("keys").press("Enter");
	assert.deepEqual((await answered()).result.content, { keys: 3 });

	// A card that appears while somebody types takes no key; nor does the sign-out of a browser.
	const typed = pressesAt(phone, "make late", null, "a");
	await asksCommand(953, "make late");
	await typed;
	await card(phone, "make late").focus();
	await phone.evaluate(() => { document.activeElement.blur(); });
	await pause(phone);
	const [own] = await (await browsersOf(phone)).all();
	await own.getByRole("button").click();
	await own.locator(".danger").focus();
	await pause(phone);
	await burst(phone, ["x", "Enter"]);
	await phone.locator("#browsers").getByText("Keys came too fast").waitFor();
	await phone.keyboard.press("Escape");
	await pause(phone);
	await act(phone, "make late", "Decline");
	assert.equal((await answered()).id, 953);
	// An Enter of a burst has opened the session.
	await phone.evaluate(() => { location.hash = "#/"; });
	await phone.locator("#inbox").waitFor();
}

async function filesThatLookLikeDiffsAreWhole() {
	await asksChange(954, [change("/w/post.md", "--- a/x\n+++ b/x\n@@ -1 +1 @@\r\nlast", "add"), change("/w/q.sql", "@@ -1 +1 @@\n--- old\n+++ new\n")]);
	const lines = card(phone, "post.md").locator(".lines span");
	await lines.first().waitFor();
	const shown = await card(phone, "post.md").locator(".lines > span").evaluateAll((all) => all.map((node) => `${node.className} ${node.textContent}`));
	assert.deepEqual(shown, ["added +--- a/x", "added ++++ b/x", "added +@@ -1 +1 @@U+000D", "added +last", "context \\ No newline at end of file",
		"header @@ -1 +1 @@", "removed --- old", "added +++ new"]);
	await act(phone, "post.md", "Decline");
	assert.equal((await answered()).id, 954);
}

async function largeDiffsAreLazy() {
	const diff = `@@ -1,3 +1,3 @@\n${"-old\n+new\n".repeat(3)}`;
	await asksChange(10, Array.from({ length: 400 }, (_, index) => change(`/w/src/file${index}.rs`, diff)));
	const request = card(phone, "400 files");
	await request.waitFor();
	assert((await request.locator(".file").count()) < 100);
	assert.equal(await request.locator(".lines").count(), 0);
	await request.locator("summary").first().click();
	await request.locator(".added").first().waitFor();
	await request.getByRole("button", { name: "Open all" }).click();
	assert.equal(await request.locator(".file[open] .lines").count(), 400);
	await act(phone, "400 files", "Decline");
	assert.equal((await answered()).id, 10);

	const long = (count) => `@@ -0,0 +1,${count} @@\n${"+new\n".repeat(count)}`;
	await asksChange(31, [change("/w/a.txt", long(1500)), change("/w/b.txt", long(3000))]);
	await card(phone, "2 files").getByRole("button", { name: "Open all" }).click();
	const file = card(phone, "2 files").locator(".file").last();
	const more = file.locator("button");
	await eventually("all lines", async () => {
		if (await more.count()) await more.click();
		return await file.locator(".added").count() === 3000;
	});
	assert.equal(await more.count(), 0);
	await act(phone, "2 files", "Decline");
	assert.equal((await answered()).id, 31);

	// What the server has not sent yet counts, too.
	await asksChange(39, [change("/w/c.txt", `@@ -0,0 +1,202 @@\n+a\n+${"x".repeat(300_000)}\n${"+new\n".repeat(200)}`)]);
	await card(phone, "1 file").getByText("201 lines of the diff are not shown at first: show more lines below.").waitFor();
	await card(phone, "1 file").getByRole("button", { name: "Open all" }).click();
	await card(phone, "1 file").getByRole("button", { name: "Show 201 more lines" }).click();
	await eventually("all lines", async () => await card(phone, "1 file").locator(".added").count() === 202);
	await act(phone, "1 file", "Decline");
	assert.equal((await answered()).id, 39);
}

/// The inbox lists 100 requests of a session.
async function moreThanAHundredRequestsAreCounted() {
	const ids = Array.from({ length: 101 }, (_, index) => 100 + index);
	const said = (pattern) => eventually(`${pattern} read out`, async () => pattern.test(await phone.locator("#said").textContent()));
	const heading = (name) => phone.getByRole("heading", { name, exact: true }).waitFor();
	for (const id of ids.slice(0, 100)) await asksCommand(id, `echo waits ${id}`);
	await heading("Waiting for you (100)");
	await said(/^Codex asks in .+: .*echo waits \d+/);
	await asksCommand(200, "echo waits 200");
	await heading("Waiting for you (100 of 101)");
	await audit(phone, "more than a hundred requests");
	for (const id of ids) {
		await outside("answer", { id, body: { decision: "decline" } });
		assert.equal((await answered()).id, id);
	}
	await phone.getByText("Nothing waits for you").waitFor();
	await said(/^Declined in the terminal UI. .*echo waits \d+/);
}

async function messagesAreSent() {
	await openSession(phone);
	await phone.getByRole("textbox", { name: "Message to Codex" }).fill("now run the tests");
	await phone.getByRole("button", { name: "Send" }).click();
	const sent = await answered();
	assert.match(JSON.stringify(sent.params), /now run the tests/);
	await outside("reply", { id: sent.id, result: sent.method === "turn/steer" ? { turnId: "u" } : { turn: { id: "u", items: [] } } });
	await eventually("an empty box", async () => (await phone.locator("#say-text").inputValue()) === "");
	await phone.getByRole("button", { name: "Interrupt" }).click();
	const interrupt = await answered();
	assert.equal(interrupt.method, "turn/interrupt");
	await outside("reply", { id: interrupt.id, result: {} });
	assert(!await phone.getByRole("combobox", { name: "Thread" }).isVisible(), "there is nothing to choose between");

	await say("turn/started", { threadId: "second", turn: { id: "w", status: "inProgress" } });
	await phone.getByRole("combobox", { name: "Thread" }).waitFor();
	const chosen = () => phone.locator("#thread").evaluate((node) => [node.value, node.selectedOptions[0]?.text]);
	assert.deepEqual(await chosen(), ["", "Last used thread"]);
	await asksCommand(32, "make nothing");
	await card(phone, "make nothing").focus();
	await phone.locator("body:not(.settling)").waitFor();
	// Letters choose an option.
	await phone.getByRole("combobox", { name: "Thread" }).press("a");
	await act(phone, "make nothing", "Decline");
	assert.deepEqual(await answered(), { id: 32, result: { decision: "decline" } });
	await phone.getByRole("combobox", { name: "Thread" }).selectOption("second");
	await phone.getByRole("textbox", { name: "Message to Codex" }).fill("and you wait");
	await phone.getByRole("button", { name: "Send" }).click();
	const second = await answered();
	assert.equal(second.params.threadId, "second");
	await outside("reply", { id: second.id, result: second.method === "turn/steer" ? { turnId: "w" } : { turn: { id: "w", items: [] } } });
	await eventually("an empty box", async () => (await phone.locator("#say-text").inputValue()) === "");
	assert.equal(await phone.getByRole("combobox", { name: "Thread" }).inputValue(), "second", "the choice stays");
	await say("turn/completed", { threadId: "second", turn: { id: "w", status: "completed" } });
}

const EVENTS = 10_000;

async function thousandsOfEventsAreNoBurden() {
	const numbers = () => phone.locator(".runs .title").evaluateAll((all) => all.map((node) => Number(/^echo (\d+)$/.exec(node.textContent)?.[1])).filter((number) => !Number.isNaN(number)));
	const breaks = (all) => all.filter((number, index) => index > 0 && number !== all[index - 1] + 1);
	await outside("flood", { from: 0, to: EVENTS });
	await phone.getByText(`echo ${EVENTS - 1}`, { exact: true }).waitFor();
	const drawn = await numbers();
	assert(drawn.length <= 1500, `${drawn.length} entries`);
	assert.deepEqual(breaks(drawn), []);
	assert.equal(drawn.at(-1), EVENTS - 1);
	assert(await phone.getByText(`echo ${EVENTS - 1}`, { exact: true }).isVisible(), "the newest is in view");
	await phone.locator("#scroll").evaluate((node) => { node.scrollTop = 0; });
	await eventually("older entries", async () => (await numbers())[0] < drawn[0]);
	assert.deepEqual(breaks(await numbers()), []);
	// Whoever reads older entries is not moved by new ones.
	const top = () => phone.locator("#scroll").evaluate((node) => node.scrollTop);
	const before = await top();
	await outside("flood", { from: EVENTS, to: EVENTS + 20 });
	await phone.getByRole("button", { name: "Newest" }).click();
	await phone.getByText(`echo ${EVENTS + 19}`, { exact: true }).waitFor();
	assert(before < await top());
	assert.deepEqual(breaks(await numbers()), []);
}

async function lostConnectionIsShownAndMended() {
	const all = () => phone.locator(".runs .title").allTextContents();
	const before = await all();
	await asksCommand(14, "left alone");
	await card(phone, "left alone").waitFor();
	await context.setOffline(true);
	await phone.getByText("Connection lost").waitFor();
	await audit(phone, "a lost connection");
	await phone.locator("#say-text").fill("hello");
	await phone.getByRole("button", { name: "Send" }).click();
	await phone.getByText("nothing was sent").waitFor();
	await phone.locator("#say-text").fill("");
	await outside("flood", { from: EVENTS + 20, to: EVENTS + 25 });
	await asksCommand(11, "while you were away");
	await act(phone, "left alone", "Decline");
	await card(phone, "left alone").getByText("nothing was sent").waitFor();
	await context.setOffline(false);
	await phone.getByText(`echo ${EVENTS + 24}`, { exact: true }).waitFor();
	await phone.locator("#banner").waitFor({ state: "hidden" });
	assert.equal(await phone.getByText("nothing was sent").count(), 0, "what was said of the connection goes with it");
	await act(phone, "left alone", "Decline");
	assert.equal((await answered()).id, 14);
	const after = await all();
	assert.equal(new Set(after).size, after.length, "no entry is there twice");
	assert.deepEqual(after.slice(-5), [20, 21, 22, 23, 24].map((number) => `echo ${EVENTS + number}`));
	assert.equal(after.at(-6), before.at(-1));
	await act(phone, "while you were away", "Decline");
	assert.equal((await answered()).id, 11);

	// A connection that is only silent for 12 s.
	await outside("hang_web");
	await phone.getByText("Connection lost").waitFor();
	await outside("continue_web");
	await phone.locator("#banner").waitFor({ state: "hidden" });
}

async function relayIsKilledAndComesBack() {
	await asksCommand(12, "left open");
	await card(phone, "left open").waitFor();
	await outside("kill");
	await note(phone, "left open").waitFor();
	await phone.getByText("Stopped").first().waitFor();
	assert(!await phone.locator("#say").isVisible());
	await outside("start");
	await turnStarts();
	await asksCommand(1, "after the restart");
	await act(phone, "after the restart", "Approve");
	assert.equal((await answered()).result.decision, "accept");
	await tells({ type: "commandExecution", id: "c2", command: "echo again", cwd: "/w", status: "completed", aggregatedOutput: "", exitCode: 0 });
	await phone.getByText("echo again", { exact: true }).waitFor();
	const titles = await phone.locator(".runs .title").allTextContents();
	assert.equal(new Set(titles).size, titles.length, "no entry is there twice");
}

async function endOfThePageIsShown() {
	await outside("kill_web");
	await phone.getByText("Connection lost").waitFor();
}

const CASES = [
	signIn, browsersAreSignedOutOneByOne, helpSignsNobodyOut, toolsAreAcceptedForLonger, textsOfOthersHaveTheirOwnDirection, diffIsDeclinedWithAReason, formIsFilledIn, formsKeepWhatStandsInThem, twoSessionsStandInOneInbox, everyScriptFits,
	otherPagesReachNothing, notificationsReachAHiddenTab, keysReachOnlyWhatIsInView, keysInABurstDecideNothing,
	filesThatLookLikeDiffsAreWhole, filesThatComeLaterDisturbNothing, refusedStreamsSayWhy,
	dangersNeedASecondTap, dangerousCommandsHaveARedCard, longChangesAreShownFirst, questionsSayHowLongIsLeft, othersAnswersAreTold, scriptsStayText, allCanReadIt, largeDiffsAreLazy, moreThanAHundredRequestsAreCounted,
	messagesAreSent, thousandsOfEventsAreNoBurden, lostConnectionIsShownAndMended, relayIsKilledAndComesBack, endOfThePageIsShown,
];

await turnStarts();
for (const does of CASES) {
	const began = Date.now();
	try {
		await does();
		assert.deepEqual(phone.problems, []);
	} catch (error) {
		await phone?.screenshot({ path: `${process.env.MODULES}/failed.png` }).catch(() => null);
		process.stderr.write(`${does.name}: ${error.stack}\n`);
		process.exit(1);
	}
	process.stderr.write(`${does.name}: ${Date.now() - began} ms\n`);
}
await browser.close();
process.exit(0);
