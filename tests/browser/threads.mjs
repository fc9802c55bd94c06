// The page on a phone, with the threads of three terminals on one hub.

import assert from "node:assert/strict";
import { PHONE, eventually, launch, outside, profile } from "./stage.mjs";

const TITLE_PROMPT = "User prompt";
const browser = await launch();
const phone = await (await profile(browser, PHONE)).newPage();
await phone.goto(await outside("link"));

const rows = phone.locator(".sessions .thread");
const text = () => phone.locator("#entries").innerText();
const heading = () => phone.locator("#heading").innerText();
const fits = async () => assert(await phone.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "it is too wide");
const shows = (words) => phone.locator("#entries").getByText(words).first().waitFor();

// A row for each terminal.
await eventually("three threads", async () => (await rows.count()) === 3);
const names = (await rows.locator("b").allInnerTexts()).sort();
assert.deepEqual(names, ["alpha", "beta", "gamma"].map((name) => `${name} (codex-tui)`));
await rows.getByText("A talk").first().waitFor();
await fits();

// Opening it shows its timeline alone, and messages go to it.
await rows.getByText("beta (codex-tui)").click();
await shows("hello beta");
assert.equal(await heading(), "beta (codex-tui)");
assert.match(await phone.locator("#under").innerText(), /A talk/);
for (const other of ["hello alpha", "hello gamma", TITLE_PROMPT]) assert(!(await text()).includes(other), other);
await eventually("a title of the tab", async () => (await phone.title()) === "beta (codex-tui) · codex-shim");
await fits();
await phone.getByRole("textbox", { name: "Message to Codex" }).fill("only for beta");
await phone.getByRole("button", { name: "Send" }).click();
assert.equal(await outside("heard", { by: "beta", words: "only for beta" }), 0);
await shows("only for beta");

// What is typed for one thread stays with it.
await phone.getByRole("textbox", { name: "Message to Codex" }).fill("half");
await phone.locator("#back").click();
await rows.getByText("alpha (codex-tui)").click();
await shows("hello alpha");
assert.equal(await phone.locator("#say-text").inputValue(), "");
await phone.locator("#back").click();
await rows.getByText("beta (codex-tui)").click();
await eventually("what was typed", async () => (await phone.locator("#say-text").inputValue()) === "half");
await phone.locator("#back").click();

// The whole session has no words of a thread for a title, unless they are asked for.
await phone.locator(".sessions li:not(.thread) a").first().click();
for (const words of ["hello alpha", "hello beta", "hello gamma"]) await shows(words);
assert(!(await text()).includes(TITLE_PROMPT));
const whose = (words) => phone.locator(".you").filter({ hasText: words }).locator(".whose").innerText();
for (const name of ["alpha", "beta", "gamma"]) assert.equal(await whose(`hello ${name}`), `${name} (codex-tui)`);
// A message for all of them would reach whichever was used last.
await phone.getByRole("textbox", { name: "Message to Codex" }).fill("for whom?");
await phone.getByRole("button", { name: "Send" }).click();
await eventually("a question", async () => (await phone.locator("#say-error").innerText()) === "Choose a thread first.");
await phone.locator("#thread").selectOption({ label: await phone.locator("#thread option").filter({ hasText: "alpha" }).innerText() });
await phone.getByRole("button", { name: "Send" }).click();
assert.equal(await outside("heard", { by: "alpha", words: "for whom?" }), 0);
await shows("for whom?");
await phone.getByRole("button", { name: "Show all threads" }).click();
await shows(TITLE_PROMPT);
assert.equal(await phone.locator(".you").filter({ hasText: TITLE_PROMPT }).count(), 0, "they are not the user's");
await fits();
await phone.getByRole("button", { name: "Show all threads" }).click();
await shows("hello alpha");
await eventually("no words for a title", async () => !(await text()).includes(TITLE_PROMPT));
await phone.locator("#back").click();

// A card says which terminal asks, and leads to its thread.
await outside("asks", { in: "gamma" });
const card = phone.locator(".card");
await card.waitFor();
assert.equal(await card.locator(".from").innerText(), "gamma (codex-tui)");
await fits();
await card.locator(".from a").click();
await shows("hello gamma");
assert.equal(await heading(), "gamma (codex-tui)");
assert.equal(await phone.locator("#here .card").count(), 1);
// Its command does not run yet.
const end = phone.locator("#entries .runs .end").last();
await eventually("that it is not allowed", async () => (await end.innerText()) === "not yet allowed");
await phone.locator("#back").click();
await rows.getByText("alpha (codex-tui)").click();
await shows("hello alpha");
assert.equal(await phone.locator("#here .card").count(), 0, "it is not asked here");

await browser.close();
process.exit(0);
