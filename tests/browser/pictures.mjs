// The pictures of the page in the README and in docs/web.md: the inbox on a phone, and a timeline at a desk.

import { DESK, PHONE, asksChange, asksCommand, launch, outside, picture, profile, say, tells, turnStarts } from "./stage.mjs";

const FIXED = "@@ -10,5 +10,5 @@ export function total(cart)\n export function total(cart) {\n   return cart.items\n-    .map((item) => item.price)\n+    .map((item) => item.price * item.count)\n     .reduce((sum, price) => sum + price, 0);\n";

const browser = await launch();
const link = async () => (await outside("link")).links[0];
const command = (id, line, output, exitCode = 0, durationMs = 800) => tells({ type: "commandExecution", id, command: line, cwd: "/w", status: exitCode ? "failed" : "completed", aggregatedOutput: output, exitCode, durationMs });

const desk = await (await profile(browser, { ...DESK, colorScheme: "light", reducedMotion: "reduce" })).newPage();
await desk.goto(await link());
await turnStarts();
await desk.locator(".sessions a").waitFor();
// The test runs in a folder with a name of no meaning, and as a client of its own.
const { folder } = await desk.evaluate(async () => (await (await fetch(`${localStorage.getItem("base")}/inbox`)).json()).sessions[0]);
const names = [[folder, "/home/ann/shop"], [folder.split("/").pop(), "shop"], ["tester", "codex-tui"]];
await tells({ type: "userMessage", id: "m1", content: [{ type: "text", text: "The total ignores how many of each item are in the cart. Please fix it, and add a test." }] });
await say("turn/plan/updated", { threadId: "t", turnId: "u", explanation: null, plan: [{ step: "Find where the total is added up", status: "completed" }, { step: "Multiply by the count", status: "inProgress" }, { step: "Add a test", status: "pending" }] });
await command("c1", "rg -n 'total\\(' src", "src/cart.ts:10:export function total(cart) {\n");
await tells({ type: "agentMessage", id: "m2", text: "`total` in `src/cart.ts` adds up prices and never looks at `count`. I will **multiply** first, and then add a test." });
await tells({ type: "fileChange", id: "f1", changes: [{ path: `${folder}/src/cart.ts`, kind: { type: "update" }, diff: FIXED }], status: "completed" });
await command("c2", "npm test -- cart", "FAIL src/cart.test.ts\n  expected 30, got 10\n", 1, 3200);

await asksCommand(0, "npm test -- cart --coverage", { cwd: folder, reason: "The first run used an old build." });
await desk.locator(".card").waitFor();
await desk.locator(".sessions a").first().click();
await desk.locator(".edits summary").click();
await desk.locator(".edits .added").first().waitFor();
await desk.locator("#here .card").waitFor();
await desk.locator("#scroll").evaluate((node) => { node.scrollTop = node.scrollHeight; });
await picture(desk, "web-timeline", names);

await asksChange(1, [{ path: `${folder}/src/cart.test.ts`, kind: { type: "add" }, diff: "test(\"counts each item\", () => {\n  expect(total(cart)).toBe(30);\n});\n" }], { reason: "The fix needs a test." });
const phone = await (await profile(browser, { ...PHONE, deviceScaleFactor: 2, colorScheme: "light", reducedMotion: "reduce" })).newPage();
await phone.goto(await link());
await phone.locator(".card").nth(1).waitFor();
await picture(phone, "web-inbox", names);

await browser.close();
process.exit(0);
