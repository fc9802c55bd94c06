// The page of `codex-shim web`: the inbox of all live sessions, and the timeline of one session.
//
// Texts of Codex, clients and files are untrusted: each becomes a text node, never markup.

const $ = (id) => document.getElementById(id);

// An element from `tag.class`, attributes (a function is a listener) and children (a string is text).
function el(spec, attributes, ...children) {
	const [tag, ...classes] = spec.split(".");
	const node = document.createElement(tag);
	if (classes.length) node.className = classes.join(" ");
	for (const [name, value] of Object.entries(attributes ?? {})) {
		if (typeof value === "function") node.addEventListener(name, value);
		else if (value || value === 0) node.setAttribute(name, value === true ? "" : value);
	}
	node.append(...children.flat(9).filter((child) => child || child === 0));
	return node;
}

// Lines on a grid of 20 by 20.
const ICONS = {
	command: "M2 3.5h16v13H2ZM5.5 8 8 10l-2.5 2M10.5 12.5h4",
	diff: "M4 2.5h7.5L16 7v10.5H4ZM10 7v4M8 9h4M8 14h4",
	question: "M2.5 10a7.5 7.5 0 0 1 15 0 7.5 7.5 0 0 1-15 0M7.7 7.8a2.4 2.4 0 0 1 4.7.6c0 1.5-2.3 1.9-2.3 3.1M10 14v.1",
	error: "M2.5 10a7.5 7.5 0 0 1 15 0 7.5 7.5 0 0 1-15 0M10 6v5M10 13.8v.1",
	check: "m4 10.5 4 4 8-9", cross: "m5 5 10 10M15 5 5 15", down: "m4.5 7.5 5.5 5.5 5.5-5.5", back: "M12.5 4.5 7 10l5.5 5.5",
	more: "M4.5 10h.1M10 10h.1M15.5 10h.1", send: "M10 16V4M5 9l5-5 5 5", stop: "M6 6h8v8H6Z",
	person: "M7 6.5a3 3 0 1 0 6 0 3 3 0 0 0-6 0M3.5 17a6.5 5.5 0 0 1 13 0",
	bell: "M5 8.5a5 5 0 0 1 10 0c0 4 1.5 5 1.5 5h-13S5 12.5 5 8.5M8.5 16.5a1.6 1.6 0 0 0 3 0",
};

function icon(name) {
	const [svg, path] = ["svg", "path"].map((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
	path.setAttribute("d", ICONS[name]);
	Object.entries({ class: `i i-${name}`, viewBox: "0 0 20 20", "aria-hidden": true }).forEach((pair) => svg.setAttribute(...pair));
	svg.append(path);
	return svg;
}

// The direction of a text follows its language.
const AUTO = { dir: "auto" };
const button = (spec, label, click, more) => el(`button${spec}`, { type: click ? "button" : "submit", click, ...more }, label);

// Texts

// Characters in code that are invisible, reorder others, or look like a space.
const UNSEEN = /(?![ \n\t])[\p{Cc}\p{Cf}\p{Z}\p{Co}\p{Cs}\u115f\u1160\u2800\u3164\uffa0\u{e0100}-\u{e01ef}]/gu;

// The same in sentences, where many scripts and emoji need joiners and marks of direction.
const UNSEEN_IN_PROSE = /(?![\n\t])[\p{Cc}\u202a-\u202e\u2066-\u2069\u{e0000}-\u{e007f}]/gu;

// A code block, whose end may be missing; code; bold text; a heading. Links stay text.
const MARKDOWN = /\n*^```[^\n]*\n([^]*?)\n?(?:^```[^\n]*\n*|$(?!\n))|`([^`\n]+)`|\*\*([^*\n]+)\*\*|^#{1,6} (.*)/gm;

function mixed(text, pattern, make, plain = (part) => part) {
	const out = document.createDocumentFragment();
	let from = 0;
	for (const found of text.matchAll(pattern)) {
		out.append(plain(text.slice(from, found.index)), make(found));
		from = found.index + found[0].length;
	}
	out.append(plain(text.slice(from)));
	return out;
}

// A text in which unseen characters are replaced by their numbers.
const shown = (text, unseen = UNSEEN) => mixed(text ?? "", unseen, ([char]) =>
	el("span.sign", { title: "an invisible character" }, `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`));
const said = (text) => shown(text, UNSEEN_IN_PROSE);
// A text of others inside of a line of ours.
const isolated = (text) => el("bdi", null, shown(text));
const prose = (text) => mixed(text.trim(), MARKDOWN, ([, block, code, bold, head]) => {
	if (block !== undefined) return el("pre", { tabindex: 0 }, shown(block));
	return code ? el("code", null, shown(code)) : el("strong", null, said(bold ?? head));
}, said);

// Terminal output without colours and overwritten lines.
const printed = (text) => text.replace(/\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/g, "")
	.replace(/\r+\n/g, "\n").replace(/[^\n]*\r(?=[^\n])/g, "");

const upper = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const sentence = (text) => upper(text) + (/[.!?]$/.test(text) ? "" : ".");
const clipped = (text, chars) => (text.length > chars ? `${text.slice(0, chars)}…` : text);
const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;
const nameOf = ({ host, folder, name, session_name }) => (host ? `${host}/` : "") + (folder?.split("/").filter(Boolean).pop() ?? name ?? session_name);

function age(ms) {
	const seconds = Math.max(0, ms / 1000);
	const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([size]) => seconds >= size) ?? [1, "s"];
	return `${Math.floor(seconds / size)} ${unit}`;
}

function clock(at) {
	const date = new Date(at);
	const isToday = date.toDateString() === new Date(now()).toDateString();
	const day = isToday ? {} : { month: "short", day: "numeric" };
	return date.toLocaleString([], { ...day, hour: "2-digit", minute: "2-digit" });
}

// State

// Where the cookie of the sign-in applies; useless without the cookie.
let base = null;
let sessions = [];
// The id of the session on the screen, `null` in the inbox; and that of its thread, if it is shown alone.
let [open, openThread] = [null, null];
// Whether threads that no person speaks in are shown, too.
let showsAll = false;
// Cards of pending requests, by `keyOf`.
const cards = new Map();
// The machine's clock minus this device's, in milliseconds.
let clockAhead = 0;
const now = () => Date.now() + clockAhead;
const keyOf = (request) => `${request.session}/${request.request_id}`;

const linkTo = (session, thread) => `#/s/${session}${thread ? `?t=${encodeURIComponent(thread)}` : ""}`;
const sessionOf = (id) => sessions.find((session) => session.id === id);
// A thread with a row of its own, by its id.
const threadOf = (session, id) => sessionOf(session)?.threads.find((thread) => thread.thread_id === id);
const linkOf = ({ session, thread_id: id }) => linkTo(session, threadOf(session, id) && id);
// Who asks: the folder and the client of a thread with a row, else the folder.
const askerOf = (request) => {
	const thread = threadOf(request.session, request.thread_id);
	return thread ? (request.host ? `${request.host}/` : "") + thread.name : nameOf(request);
};
const isHere = (request) => request.session === open && (!openThread || !request.thread_id || request.thread_id === openThread);

function announce(text) {
	$("said").textContent = "";
	// Only a change is read out.
	setTimeout(() => { $("said").textContent = text; }, 50);
}

// Calls

const OFFLINE = "There is no connection, so nothing was sent.";

// Posts a body, or gets; throws `{message, fields}`.
async function call(path, body, root = base) {
	const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
	const got = await fetch(root + path, { ...(body && post), signal: AbortSignal.timeout(40_000) })
		.catch(() => { throw { message: "The connection broke before there was a reply. Look whether it arrived, then try again." }; });
	if (got.status === 401) signedOut();
	const document = await got.json().catch(() => ({}));
	if (got.ok) return document;
	const { message = `the server answered with status ${got.status}; try again`, fields } = document.detail ?? {};
	throw { message: sentence(message), fields };
}

const pathOf = (session, rest) => `/sessions/${encodeURIComponent(session)}${rest}`;
// The threads that the timeline has, as parameters.
const threadsWanted = () => (openThread ? `&thread=${encodeURIComponent(openThread)}` : "") + (showsAll ? "&all=1" : "");
const ofRequest = ({ session, request_id: id }, rest = "") => pathOf(session, `/requests/${encodeURIComponent(id)}${rest}`);

// The stream of events

const [SILENCE_MS_MAX, RETRY_MS_MAX] = [12_000, 15_000];
const LOST = "Connection lost: what you see may be old.";
const stream = { abort: null, lastId: null, failures: 0, timer: 0, heardAt: 0, isUp: false };

function disconnect() {
	stream.abort?.abort();
	clearTimeout(stream.timer);
	stream.abort = null;
}

// Reads the stream until it breaks. `EventSource` has no backoff, and forgets the last id when closed.
async function connect() {
	disconnect();
	const abort = (stream.abort = new AbortController());
	let watchdog;
	let why = LOST;
	const alive = () => {
		stream.heardAt = Date.now();
		clearTimeout(watchdog);
		watchdog = setTimeout(() => abort.abort(), SILENCE_MS_MAX);
	};
	try {
		alive();
		const headers = stream.lastId ? { "Last-Event-ID": stream.lastId } : {};
		const path = open ? `/stream?session=${encodeURIComponent(open)}${threadsWanted()}` : "/stream";
		const got = await fetch(base + path, { headers, signal: abort.signal, cache: "no-store" });
		if (stream.abort !== abort) return;
		if (got.status === 401) return signedOut();
		if (got.status === 404 && open) return location.replace("#/");
		if (!got.ok) throw why = sentence((await got.json()).detail.message);
		stream.isUp = true;
		showTop();
		const reader = got.body.pipeThrough(new TextDecoderStream()).getReader();
		let text = "";
		for (let part = await reader.read(); !part.done && stream.abort === abort; part = await reader.read()) {
			alive();
			const events = (text + part.value).split("\n\n");
			text = events.pop();
			events.forEach(takeEvent);
		}
	} catch { /* Every end is handled alike. */ }
	clearTimeout(watchdog);
	if (stream.abort === abort) retryLater(why);
}

function retryLater(why) {
	disconnect();
	stream.isUp = false;
	const waitMs = Math.min(RETRY_MS_MAX, 500 * 2 ** stream.failures++) * (0.75 + Math.random() / 2);
	stream.timer = setTimeout(connect, waitMs);
	$("why").textContent = why;
	$("banner").hidden = false;
	showTop();
}

// An event is lines of `name: value`. Only a line feed ends a line: JSON may contain U+2028.
function takeEvent(text) {
	const fields = new Map(text.split("\n").map((line) => line.split(/: ?(.*)/s)));
	if (!fields.has("data")) return;
	const event = JSON.parse(fields.get("data"));
	if (event.now) clockAhead = Date.parse(event.now) - Date.now();
	const isOpen = event.session === open;
	// A request has a title too.
	if (event.title && event.sessions) $("names").textContent = event.title;
	switch (fields.get("event")) {
		case "inbox": takeInbox(event); break;
		case "sessions": showSessions(event.sessions); placeCards(); break;
		case "request": addRequest(event, true); break;
		case "ended": endRequest(keyOf(event), event); break;
		case "timeline": if (isOpen) replaceTimeline(event.entries, event.has_older, event.left_out); break;
		case "entries": if (isOpen) takeEntries(event.entries); break;
		case "problem": if (isOpen) showNone(`The timeline cannot be read: ${event.message}`); break;
	}
	// Only now: an event that failed here comes again.
	if (open) stream.lastId = fields.get("id") ?? stream.lastId;
}

// The inbox

function takeInbox(snapshot) {
	const isFirst = !takeInbox.isDone;
	takeInbox.isDone = true;
	stream.failures = 0;
	if (!$("banner").hidden) announce("Connected again.");
	$("banner").hidden = true;
	document.querySelectorAll("p.error").forEach((node) => node.textContent === OFFLINE && node.replaceChildren());
	$("earlier").textContent = EARLIER;
	// The cards name threads.
	sessions = snapshot.sessions;
	const keys = snapshot.requests.map(keyOf);
	[...cards.keys()].filter((key) => !keys.includes(key)).forEach((key) => endRequest(key, {}));
	snapshot.requests.forEach((request) => addRequest(request, !isFirst));
	showSessions(snapshot.sessions);
	placeCards();
}

function addRequest(request, isNews) {
	const key = keyOf(request);
	const known = cards.get(key);
	const text = JSON.stringify(request);
	if (known?.text === text) return;
	if (known) renew(known, request, text);
	else cards.set(key, Object.assign(makeCard(request), { text }));
	settle();
	placeCards();
	if (isNews && !known) tell(request);
}

// Shows what has become known of a request, such as the files of a change. The focus and what was typed stay.
function renew(card, request, text) {
	card.later = card.isAnswering && request;
	const hasFields = JSON.stringify(card.request.fields) !== JSON.stringify(request.fields);
	if (card.later || (hasFields && card.isTouched)) return;
	const buttons = () => [...card.acts.querySelectorAll("button")];
	const focused = document.activeElement;
	const [hadFocus, at] = [card.node.contains(focused), buttons().indexOf(focused)];
	Object.assign(card, { request, text, since: performance.now() });
	if (hasFields) card.fields = makeFields(request);
	card.node.querySelector(".what").replaceWith(makeWhat(card));
	card.node.classList.toggle("risky", request.is_risky);
	if (/plain|more/.test(card.mode)) showActs(card, card.mode);
	if (hadFocus) (focused.isConnected ? focused : buttons()[at] ?? card.node).focus({ preventScroll: true });
}

// Replaces the card of a request with a note. An empty `ended` means that only the absence of the request is known.
function endRequest(key, ended, isMine = false) {
	const card = cards.get(key);
	if (!card) return;
	// The reply to our own answer says more: whether it won.
	if (card.isAnswering && !isMine) return (card.ended = ended);
	const hadFocus = card.node.contains(document.activeElement);
	const all = visible(".card");
	const next = all[all.indexOf(card.node) + 1] ?? all[all.indexOf(card.node) - 1];
	const note = makeNote(card.request, ended, isMine);
	cards.delete(key);
	settle();
	card.node.replaceWith(note);
	if (chosen === card.node) choose(next, hadFocus);
	if (hadFocus && !next) (open ? $("scroll") : $("waiting")).focus();
	announce(note.textContent);
	placeCards();
}

// Ignores taps for a moment after cards have moved: none shall hit a card that has just come under the finger.
function settle() {
	const set = (isOn) => document.body.classList.toggle("settling", isOn);
	set(true);
	clearTimeout(settle.timer);
	settle.timer = setTimeout(set, LOOK_MS, false);
}

// Oldest first. Cards of one session stay in order of arrival, whatever its clock was set to.
function byArrival(cards) {
	const earliest = Object.create(null);
	const timed = [...cards].reverse().map((card) => {
		const { session, since } = card.request;
		if (!(earliest[session] < since)) earliest[session] = since;
		return { card, at: earliest[session] };
	});
	return timed.reverse().sort((one, other) => (one.at > other.at) - (one.at < other.at)).map(({ card }) => card);
}

// Puts each card into the open session or the inbox, oldest first.
function placeCards() {
	const wasAtEnd = line.isFollowing;
	let elsewhere = 0;
	const all = byArrival([...cards.values()]);
	for (const [index, { node, request }] of all.entries()) {
		const parent = $(isHere(request) ? "here" : "cards");
		elsewhere += !isHere(request);
		if (node.parentNode === parent) continue;
		parent.insertBefore(node, all.slice(index + 1).find((other) => other.node.parentNode === parent)?.node ?? null);
	}
	showAwaited();
	if (open && wasAtEnd) toEnd();
	showTitle();
	// Lists 100 a session.
	const sum = cards.size < 100 ? 0 : sessions.reduce((sum, { pending }) => sum + pending, 0);
	$("waiting").textContent = cards.size ? `Waiting for you (${cards.size}${sum > cards.size ? ` of ${sum}` : ""})` : "Waiting for you";
	$("calm").hidden = cards.size > 0;
	$("count").textContent = cards.size || "";
	$("back-count").textContent = elsewhere || "";
	$("back").setAttribute("aria-label", `Back to the inbox${elsewhere ? `, ${elsewhere} waiting` : ""}`);
}

// The title of the tab.
function showTitle() {
	const name = open && sessionOf(open) ? `${$("heading").textContent} · ` : "";
	document.title = `${cards.size ? `(${cards.size}) ` : ""}${name}codex-shim`;
}

function tell(request) {
	const title = `Codex asks in ${askerOf(request)}`;
	const body = clipped(shown(request.title).textContent, 160);
	announce(`${title}: ${body}`);
	if (!document.hidden || permission() !== "granted") return;
	notification(title, { body, tag: keyOf(request) }, () => { window.focus(); location.hash = "#/"; });
}

// Makes a notification, not shown without permission; `false` where only installed pages may, as on Android.
function notification(title, options, click) {
	try {
		new Notification(title, options).onclick = click;
		return true;
	} catch {
		return false;
	}
}

function makeNote(request, { look = "", verdict = "No longer waiting", place = "", won }, isMine) {
	const where = isMine && won ? "by you" : place;
	const late = isMine && !won ? ", before your answer arrived" : "";
	const leave = () => {
		if (note.contains(document.activeElement)) $("waiting").focus();
		note.remove();
	};
	const note = el(`div.note.${look}`, null, icon(look === "good" ? "check" : "cross"),
		el("span", null, el("strong", AUTO, shown(`${verdict} ${where}`.trim()), late), ". ", isolated(clipped(upper(request.title), 120))),
		button(".icon.bare", icon("cross"), leave, { "aria-label": "Dismiss" }));
	setTimeout(leave, late ? 60_000 : 12_000);
	return note;
}

// A card

const makeFields = (request) => request.fields.map((field, index) => makeField(field, `${keyOf(request)}-${index}`));
const makeWhat = (card) => el("div.what", null, whatOf(card));

function makeCard(request) {
	const card = { request, fields: makeFields(request), time: el("time.age"), acts: el("div.acts") };
	const form = el("form", { novalidate: true, submit: (event) => { event.preventDefault(); submit(card); }, input: () => { card.isTouched = true; } },
		makeWhat(card), card.acts);
	const id = `card ${keyOf(request)}`.replaceAll(" ", "-");
	const node = el(request.is_risky ? "article.card.risky" : "article.card", { tabindex: "-1", "aria-labelledby": id, focusin: () => choose(node) },
		el("header", null, icon(ICON_OF[request.subject] ?? "question"),
			el("div", null, el("h2", { id }, request.heading),
				el("p.from", null, el("a", { href: linkOf(request), ...AUTO }, shown(askerOf(request))),
					!threadOf(request.session, request.thread_id) && request.client && [" · ", isolated(request.client)])),
			card.time),
		form);
	node.card = card;
	card.node = node;
	showAge(card);
	showActs(card);
	return card;
}

function showAge({ request, time }) {
	const left = request.until ? ` · ${age(Date.parse(request.until) - now())} left` : "";
	time.textContent = age(now() - Date.parse(request.since)) + left;
}

function whatOf(card) {
	const { request, fields } = card;
	const styled = (...styles) => request.rows.filter(({ style }) => styles.includes(style));
	return [
		styled("command").map(({ text }) => el("pre.command", { "aria-label": "Command" }, shown(text))),
		styled("message").map(({ text }) => el("p.asked", AUTO, said(text))),
		el("dl", null, styled("plain", "prose").map(({ label, text, style }) =>
			[el("dt", AUTO, shown(label)), el("dd", AUTO, style === "prose" ? said(text) : shown(text))])),
		request.warnings.map((text) => el("p.warning", null, icon("error"), el("span", AUTO, shown(sentence(text))))),
		makeFiles(card),
		fields.map((field) => field.node),
		!request.is_for_human && [el("p", null, "Answer it in its client, or in a terminal:"), el("pre.command", null, shown(request.how))],
	];
}

// Answers

// Shows the buttons of a card: `plain`, `more`, for a `reason`, or to `confirm` a choice that needs a second tap.
function showActs(card, mode = "plain", choice = null) {
	const { request, acts } = card;
	const act = (choice, spec) => choice && button(spec, isolated(choice.label), choice.gives === "form" ? null : () => decideOn(card, () => give(card, choice)));
	const back = button("", "Back", () => { showActs(card); acts.querySelector(".main")?.focus(); });
	if (card.mode !== mode) card.since = performance.now();
	card.mode = mode;
	card.error = el("p.error", { role: "alert", ...AUTO });
	if (mode === "confirm") {
		acts.replaceChildren(el("p.danger-text", null, icon("error"), el("span", AUTO, shown(sentence(choice.confirm)))), card.error,
			el("div.row", null, back, button(".danger", isolated(choice.label), () => decideOn(card, () => give(card, choice, true)))));
		acts.querySelector(".danger").focus();
	} else if (mode === "reason") {
		card.reason = el("textarea", { rows: 2, dir: "auto", maxlength: 4000 });
		acts.replaceChildren(el("label", null, "What should Codex do instead?", card.reason), card.error,
			el("div.row", null, back, button(".main", "Decline with this reason")));
		card.reason.focus();
	} else {
		const [yes, no] = ["a", "d"].map((key) => request.choices.find((choice) => choice.key === key));
		const others = request.choices.filter((choice) => choice !== yes && choice !== no && !(card.unseen.size && accepts(choice)));
		const isMore = mode === "more";
		const more = () => { showActs(card, isMore ? "plain" : "more"); acts.querySelector(isMore ? ".icon" : "button").focus(); };
		acts.replaceChildren(el("div.more", null, isMore && others.map((choice) => act(choice, ""))), card.error,
			el("div.row", null, others.length > 0 && button(".icon", icon("more"), more, { "aria-label": "More answers", "aria-expanded": `${isMore}` }),
				act(no, ""), card.unseen.size && yes ? button(".main", "Show the changes", () => showUnseen(card)) : act(yes, ".main")));
		acts.hidden = !acts.querySelector("button");
	}
}

const accepts = ({ word }) => /^(accept|offer)/.test(word);

function give(card, choice, isConfirmed = false) {
	if (card.unseen.size && accepts(choice)) return showUnseen(card);
	if (choice.gives === "reason") return showActs(card, "reason");
	if (choice.confirm && !isConfirmed) return showActs(card, "confirm", choice);
	if (choice.gives !== "form") return respond(card, { body: choice.body });
	card.fields.forEach((field) => field.fail(""));
	const answers = Object.fromEntries(card.fields.map((field) => [field.name, field.read()]));
	// An empty list would be valid for the server.
	const lacking = card.fields.filter(({ name, isRequired }) => isRequired && !answers[name].length);
	if (!lacking.length) return respond(card, { answers });
	showError(card, { fields: Object.fromEntries(lacking.map(({ name }) => [name, "an answer is required"])) });
}

const submit = (card) => decideOn(card, () => complete(card));

function complete(card) {
	const form = card.request.choices.find(({ gives }) => gives === "form");
	if (card.mode === "reason") {
		const reason = card.reason.value.trim();
		if (reason) respond(card, { reason });
		else showError(card, { message: "Write the reason, or go back." });
	} else if (form && card.mode !== "confirm") {
		give(card, form);
	}
}

async function respond(card, body) {
	if (card.isAnswering) return;
	if (!stream.isUp) return showError(card, { message: OFFLINE });
	const setBusy = (isBusy) => {
		card.isAnswering = isBusy;
		card.acts.querySelectorAll("button").forEach((other) => { other.disabled = isBusy; });
	};
	setBusy(true);
	try {
		endRequest(keyOf(card.request), await call(ofRequest(card.request, "/respond"), body), true);
	} catch (error) {
		setBusy(false);
		if (card.ended) return endRequest(keyOf(card.request), card.ended);
		if (card.later) addRequest(card.later);
		showError(card, error);
	}
}

function showError(card, { message, fields = {} }) {
	const wrong = card.fields.filter(({ name }) => Object.hasOwn(fields, name));
	if (wrong.length) showActs(card);
	wrong.forEach((field) => field.fail(fields[field.name]));
	wrong[0]?.focus();
	card.error.replaceChildren(shown(wrong.length ? `Look at ${count(wrong.length, "answer")} above.` : message));
}

function makeField({ name, options, takes_many: isMany, is_secret: isSecret, is_required: isRequired, ...spec }, id) {
	const error = el("p.error", { id: `error-${id}`, ...AUTO });
	const hint = el("p.hint", { id: `hint-${id}`, ...AUTO }, shown(spec.hint));
	const label = [said(spec.label), isRequired && el("span.must", null, " required")];
	const about = { "aria-describedby": `hint-${id} error-${id}` };
	const typed = (more) => el(spec.is_long && !options.length ? "textarea" : "input",
		{ dir: "auto", rows: 2, autocomplete: "off", type: isSecret && "password", inputmode: spec.is_number && "decimal", ...more });
	let [inputs, read, node] = [];
	if (!options.length) {
		const input = typed({ id, required: isRequired, ...about });
		input.value = spec.starts[0] ?? "";
		// A control changes line breaks.
		const start = input.value;
		inputs = [input];
		read = () => (input.value === start ? spec.starts : [input.value]);
		node = el("div.field", null, el("label", { for: id, dir: "auto" }, label), input, hint, error);
	} else {
		const box = (value, more) => {
			const input = el("input", { type: isMany ? "checkbox" : "radio", name: id, ...more });
			input.value = value;
			return input;
		};
		inputs = options.map((option) => box(option.label, { checked: spec.starts.includes(option.label) }));
		const lines = options.map((option, index) => [inputs[index],
			el("span", AUTO, said(option.label), option.description && el("small", AUTO, said(option.description)))]);
		if (spec.takes_text) {
			const named = { "aria-label": "Your own answer" };
			const own = box("", named);
			const text = typed({ ...named, placeholder: "Something else", input: () => { own.checked = true; own.value = text.value; } });
			inputs.push(own);
			lines.push([own, text]);
		}
		read = () => inputs.filter((input) => input.checked).map((input) => input.value);
		node = el("fieldset.field", about, el("legend", AUTO, label), el("div.options", null, lines.map((line) => el("label", null, line))), hint, error);
	}
	const fail = (message) => {
		error.replaceChildren(shown(message && sentence(message)));
		inputs.forEach((input) => input.setAttribute("aria-invalid", String(Boolean(message))));
	};
	return { name, isRequired, node, fail, read: () => read().filter((text) => text.trim()), focus: () => inputs[0].focus() };
}

// Diffs

const [FILES_AT_ONCE, LINES_AT_ONCE, OPEN_LINES_MAX] = [60, 400, 160];

// Appends some of all elements, and a button for more of them. The server has `cut` further ones, which `load` adds to `all`.
function appendSome(parent, all, atOnce, one, make, { cut = 0, load } = {}, from = 0) {
	const some = all.slice(from, from + atOnce);
	const [to, left] = [from + some.length, all.length + cut - from - some.length];
	parent.append(...some.map(make));
	if (!left) return;
	const more = button(".bare", `Show ${count(left, `more ${one}`)}`, async () => {
		more.disabled = true;
		try {
			const rest = to === all.length ? await load() : { cut, load };
			more.remove();
			appendSome(parent, all, 2 * atOnce, one, make, rest, to);
		} catch (error) {
			more.disabled = false;
			more.textContent = error.message;
		}
	});
	parent.append(more);
}

// The lines of a diff in the timeline; `marks` has a letter for each.
function linesOf({ body, marks }) {
	const [texts, types] = [body.split("\n"), { "+": "added", "-": "removed", "@": "header", " ": "context" }];
	return [...marks].map((mark, index) => ({ type: types[mark], text: texts[index] }));
}

const counts = ({ added, removed }) => [
	added > 0 && el("span.plus", null, `+${added}`, el("span.unseen", null, " added")),
	removed > 0 && el("span.minus", null, `−${removed}`, el("span.unseen", null, " removed")),
];

// Most changed lines that are on the screen together with the buttons, as a rule.
const LINES_IN_VIEW = 24;

// The ends of long changes. A request is accepted only once all of them have been on the screen.
const ends = new IntersectionObserver((all) => all.filter(({ isIntersecting }) => isIntersecting).forEach(({ target }) => target.onSeen()), { rootMargin: "0px 0px -72px" });

function makeEnd(card, index) {
	const end = el("i.seen", { "aria-hidden": "true" });
	end.onSeen = () => {
		ends.unobserve(end);
		if (!card.unseen.delete(index) || card.unseen.size) return;
		// A tap that was meant for the button before shall not approve.
		settle();
		card.since = performance.now();
		if (/plain|more/.test(card.mode)) showActs(card, card.mode);
	};
	ends.observe(end);
	return end;
}

// Opens the next change that has not been on the screen, or goes on in it.
function showUnseen(card) {
	const files = card.node.querySelector(".files");
	const index = Math.min(...card.unseen);
	while (files.lastChild.matches("button") && !files.querySelectorAll("details")[index]) files.lastChild.click();
	const fold = files.querySelectorAll("details")[index];
	const { top } = fold.getBoundingClientRect();
	const isHere = fold.open && top < innerHeight / 2;
	fold.open = true;
	if (isHere) fold.closest("#body, #scroll").scrollBy(0, innerHeight / 2);
	else fold.scrollIntoView({ block: "start" });
}

function makeFiles(card) {
	const { request: { files } } = card;
	const sum = (of) => files.reduce((sum, file) => sum + of(file), 0);
	const lines = sum((file) => file.lines.length + file.cut_lines);
	const isSmall = lines <= OPEN_LINES_MAX;
	card.unseen = new Set(isSmall && lines + files.length <= LINES_IN_VIEW ? [] : files.keys());
	if (!files.length) return null;
	const openAll = () => {
		while (box.lastChild.matches("button")) box.lastChild.click();
		box.querySelectorAll("details").forEach((details) => { details.open = true; });
	};
	const box = el("div.files", null, el("p.size", null, el("span", null, count(files.length, "file")),
		counts({ added: sum((file) => file.added), removed: sum((file) => file.removed) }), !isSmall && button(".bare", "Open all", openAll)));
	appendSome(box, files, FILES_AT_ONCE, "file", (file) => makeFile(card, file, files.indexOf(file), isSmall));
	return box;
}

function makeFile(card, file, index, isOpen) {
	const heading = [icon("down"), el("span.path", null, shown(file.name)), el("span.hint", null, file.note, counts(file))];
	const load = async () => {
		const part = await call(ofRequest(card.request, `/diff?file=${index}&from=${file.lines.length}`));
		part.lines.forEach((line) => file.lines.push(line));
		return { cut: part.cut_lines, load };
	};
	return makeFold(".file", heading, isOpen, () => [makeLines(file.lines, { cut: file.cut_lines, load }), card.unseen.has(index) && makeEnd(card, index)]);
}

function makeLines(lines, rest) {
	const box = el("div.lines", { tabindex: 0, role: "group", "aria-label": "Changed lines" });
	appendSome(box, lines, LINES_AT_ONCE, "line", ({ type, text }) => el(`span.${type}`, null, shown(text)), rest);
	return box;
}

function makeFold(spec, heading, isOpen, inside, remember) {
	const details = el(`details.fold${spec}`, { open: isOpen }, el("summary", null, heading));
	const fill = () => { if (details.open && details.children.length < 2) details.append(...[inside()].flat().filter(Boolean)); };
	details.addEventListener("toggle", () => { fill(); remember?.(details.open); });
	fill();
	return details;
}

// Sessions

const stateOf = ({ look, words }) => el("span", { class: `state ${look}` }, shown(words));

const clientOf = ({ client, clients }) => (clients.length > 1 ? count(clients.length, "client") : client);

function showSessions(all = sessions) {
	sessions = all;
	const focused = document.activeElement.closest(".sessions a")?.hash;
	const row = (spec, session, thread, name, of, under, about) => {
		const href = linkTo(session.id, thread);
		const isOpen = session.id === open && (thread ?? null) === openThread;
		const link = el("a", { href, "aria-current": isOpen && "page" },
			el("span.name", null, el("b", AUTO, shown(name)), about && el("span", AUTO, shown(clipped(about, 80))), el("span", null, stateOf(of), under && [" · ", under])),
			of.pending > 0 && el("span.badge", null, of.pending, el("span.unseen", null, " waiting")), icon("down"));
		if (href === focused) setTimeout(() => link.focus({ preventScroll: true }));
		return el(`li${spec}`, null, link);
	};
	const ago = ({ since }) => el("time", { "data-since": since }, age(now() - Date.parse(since)));
	const rows = (session) => {
		const client = clientOf(session) ?? session.name;
		return [row("", session, null, nameOf(session), session, isolated(client)), session.threads.map((thread) =>
			row(".thread", session, thread.thread_id, thread.name, thread, ago(thread), thread.about))].flat();
	};
	for (const [id, isLive] of [["live", true], ["ended", false]]) {
		const some = sessions.filter((session) => session.is_live === isLive);
		$(id).querySelector("ul").replaceChildren(...some.flatMap(rows));
		$(id).hidden = !some.length;
	}
	$("no-sessions").hidden = !$("live").hidden;
	showTop();
}

function showTop() {
	const session = sessionOf(open);
	const thread = session?.threads.find(({ thread_id: id }) => id === openThread);
	// One that no person speaks in.
	const other = session?.others.find(({ thread_id: id }) => id === openThread);
	const name = thread && (session.host ? `${session.host}/` : "") + thread.name;
	const live = sessions.filter((session) => session.is_live).length;
	const under = thread ? thread.about : other ? other.words : session && clientOf(session);
	$("heading").replaceChildren(session ? shown(name ?? nameOf(session)) : "codex-shim");
	$("under").replaceChildren(...(session ? [stateOf(thread ?? session), under ? " · " : "", isolated(under)]
		: [el("span", { class: `state ${stream.isUp ? "good" : "bad"}` }, stream.isUp ? `Connected · ${count(live, "session")}` : "Not connected")]));
	$("interrupt").hidden = !session?.is_live || /idle|stopped|unknown/.test((thread ?? session).state);
	// Nobody speaks in such a thread.
	$("say").hidden = !session?.is_live || Boolean(other);
	showThreads(openThread ? [] : session?.threads ?? []);
	showSwitch();
	showTitle();
	line.folds.forEach(showFold);
}

// The search

// `number` is that of the last call, so that an older reply is dropped.
const finding = { number: 0, offers: 0, timer: 0 };

function closeFound() {
	finding.number++;
	$("found").hidden = true;
	$("find-error").textContent = "";
}

// Most characters of a line before its first match, and of the whole line.
const [BEFORE_MAX, LINE_MAX] = [100, 600];

// A line with its matched parts, in order, from a little before the first one on.
function markedLine({ line: text, matched }) {
	const out = [];
	const first = matched.length ? text.indexOf(matched[0]) : 0;
	const from = first > BEFORE_MAX ? first - BEFORE_MAX : 0;
	const line = (from ? "…" : "") + clipped(text.slice(from), LINE_MAX);
	let done = 0;
	for (const part of matched) {
		const at = line.indexOf(part, done);
		if (at < 0) break;
		out.push(shown(line.slice(done, at)), el("mark", null, shown(part)));
		done = at + part.length;
	}
	return [...out, shown(line.slice(done))];
}

function matchLine(match) {
	const { session_id: session, thread_id: thread, kind, name, at, of } = match;
	return el("li", null, el("a", { href: linkTo(session, thread) },
		el("span.name", null, el("b", AUTO, shown(name)), el("span", null, `${kind} · `, el("time", { datetime: at }, clock(at)), of && [" · ", isolated(clipped(of, 80))]),
			el("code.match", AUTO, markedLine(match))), icon("down")));
}

async function find() {
	const query = $("find-text").value.trim();
	if (!query) return closeFound();
	const number = ++finding.number;
	try {
		const { matches, has_more: hasMore, errors } = await call("/search", { query });
		if (number !== finding.number) return;
		$("find-error").replaceChildren(shown(errors.map(sentence).join(" ")));
		$("matches").replaceChildren(...matches.map(matchLine));
		$("found-head").textContent = matches.length ? `${count(matches.length, "match", "matches")}${hasMore ? ", and older ones" : ""}` : "No matches";
		$("found").hidden = false;
		$("found-head").focus();
	} catch (error) {
		if (number !== finding.number) return;
		$("found").hidden = true;
		$("find-error").replaceChildren(shown(error.message));
	}
}

// Offers the texts that go on with what was typed.
async function offer() {
	const number = ++finding.offers;
	const got = await call("/search/complete", { query: $("find-text").value }).catch(() => ({ completions: [] }));
	if (number === finding.offers) $("find-offers").replaceChildren(...got.completions.map((text) => el("option", { value: text })));
}

// The timeline of one session

// Most entries on the screen; older ones come on the way up.
const KEPT_MAX = 1500;

// `nodes` and `news` go by the key of an entry; `isFollowing` keeps the newest in view; after `isBehind` the newest are missing.
const line = { nodes: new Map(), news: new Map(), folds: new Map(), unfolded: new Set(), leftOut: 0, hasOlder: false, isLoading: false, isFollowing: true, isBehind: false };

const EARLIER = $("earlier").textContent;
const showNone = (text) => { $("none").textContent = text; };
const fromEnd = () => $("scroll").scrollHeight - $("scroll").scrollTop - $("scroll").clientHeight;
const toEnd = () => { $("scroll").scrollTop = $("scroll").scrollHeight; };

function replaceTimeline(entries, hasOlder, leftOut = 0, none = "Nothing has happened here yet.") {
	$("entries").replaceChildren();
	line.nodes.clear();
	line.news.clear();
	line.folds.clear();
	Object.assign(line, { hasOlder, leftOut, isFollowing: true, isBehind: false });
	showSwitch();
	takeEntries(entries);
	showNone(entries.length ? "" : none);
}

function takeEntries(entries) {
	entries.forEach((entry) => line.news.set(entry.key, entry));
	if (entries.length) showNone("");
	if (line.isDue) return;
	line.isDue = true;
	// A hidden tab has no frames.
	(document.hidden ? setTimeout : requestAnimationFrame)(() => { line.isDue = false; draw(); });
}

// Makes elements of the news, and keeps the end in view if it was.
function draw() {
	const news = [...line.news.values()];
	const isKnown = ({ key }) => line.nodes.has(key);
	line.news.clear();
	news.filter(isKnown).forEach(redraw);
	// If thousands come at once, only the last of them stay.
	const fresh = news.filter((entry) => !isKnown(entry));
	const room = line.isFollowing ? KEPT_MAX : Math.max(0, KEPT_MAX - line.nodes.size);
	line.isBehind ||= !line.isFollowing && fresh.length > room;
	if (!line.isBehind) $("entries").append(...nodesOf(fresh.slice(-room)).filter((node) => !node.isConnected));
	showAwaited();
	if (line.isFollowing) {
		line.hasOlder ||= fresh.length > room || line.nodes.size > KEPT_MAX;
		trim("firstChild");
		toEnd();
	}
	showEnds();
}

// What waits for an answer does not run yet.
function showAwaited() {
	const awaited = new Set([...cards.values()].map(({ request }) => request.session === open && request.handle));
	document.querySelectorAll("#entries .open").forEach((node) => {
		const end = node.querySelector(".end");
		if (end && node.handle) end.textContent = awaited.has(node.handle) ? "not yet allowed" : node.end;
	});
}

function trim(end) {
	for (let left = line.nodes.size - KEPT_MAX; left > 0; left -= 1) {
		const node = $("entries")[end];
		if (!node) return;
		(node.keys ?? [node.key]).forEach((key) => line.nodes.delete(key));
		line.folds.delete(node.thread);
		left -= (node.keys?.size ?? 1) - 1;
		node.remove();
	}
}

function showEnds() {
	$("earlier").hidden = !line.hasOlder;
	$("newest").hidden = line.isFollowing;
}

function redraw(entry) {
	const node = line.nodes.get(entry.key);
	if (node.keys) return;
	const fresh = makeEntry(entry);
	const [before, after] = [node, fresh].map((other) => other.querySelector(".output"));
	const hadFocus = node.contains(document.activeElement);
	const top = before?.scrollTop;
	const wasAtEnd = before && before.scrollHeight - top - before.clientHeight < 8;
	node.replaceWith(fresh);
	if (before && after) after.scrollTop = wasAtEnd ? after.scrollHeight : top;
	if (hadFocus) fresh.querySelector("summary")?.focus({ preventScroll: true });
}

function onScroll() {
	line.isFollowing = fromEnd() < 60 && !line.isBehind;
	showEnds();
	if ($("scroll").scrollTop < 800 && line.hasOlder && !line.isLoading) loadOlder();
}

async function loadOlder() {
	const list = $("entries");
	const key = list.firstChild?.key;
	if (!key) return;
	line.isLoading = true;
	$("earlier").textContent = EARLIER;
	try {
		const page = await call(pathOf(open, `/timeline?before=${encodeURIComponent(key)}&limit=100${threadsWanted()}`));
		if (list.firstChild?.key !== key) return;
		const below = $("scroll").scrollHeight - $("scroll").scrollTop;
		// A fold begins with its first entry.
		list.prepend(...nodesOf(page.entries));
		line.hasOlder = page.has_older;
		showEnds();
		$("scroll").scrollTop = $("scroll").scrollHeight - below;
		line.isBehind ||= line.nodes.size > KEPT_MAX;
		trim("lastChild");
	} catch (error) {
		$("earlier").textContent = error.message;
	} finally {
		line.isLoading = false;
	}
}

function goToNewest() {
	if (line.isBehind) {
		// Without the last id, the stream begins with the newest entries.
		stream.lastId = null;
		connect();
	}
	line.isFollowing = true;
	draw();
	$("scroll").focus({ preventScroll: true });
}

// Entries

// By the kind of an entry, or the subject of a request.
const ICON_OF = { runs: "command", command: "command", edits: "diff", diff: "diff", tool: "command", plan: "check", asks: "question", error: "error", permissions: "error" };

// A thread that no person speaks in is one line, unless all threads are shown or it is shown alone.
const isFolded = ({ of, thread_id: id }) => of && !showsAll && id !== openThread;
const nodesOf = (entries) => [...new Set(entries.map((entry) => (isFolded(entry) ? foldOf(entry) : makeEntry(entry))))];

// The line of the thread of an entry.
function foldOf({ key, thread_id: thread, of }) {
	const node = line.folds.get(thread) ?? Object.assign(el("li.entry.folded", null, el("a", { href: linkTo(open, thread) })), { thread, words: of.words, keys: new Set(), key });
	node.keys.add(key);
	if (key < node.key) node.key = key;
	line.folds.set(thread, node);
	line.nodes.set(key, node);
	showFold(node);
	return node;
}

// Beside a thread that is shown alone, only those that it has started have a line.
function showFold(node) {
	const parent = sessionOf(open)?.others.find(({ thread_id: id }) => id === node.thread)?.parent;
	node.hidden = Boolean(openThread) && parent !== openThread;
	node.firstChild.textContent = `${count(node.keys.size, "entry", "entries")} of ${node.words}`;
}

function makeEntry(entry) {
	// Only a person is on the right.
	const spec = entry.of && entry.kind === "you" ? "codex" : entry.kind;
	const node = el(`li.entry.${spec}.${entry.stage}`, null, /plan|asks|error/.test(entry.kind) && icon(ICON_OF[entry.kind]),
		contentOf(entry), el("time", { datetime: entry.at, title: new Date(entry.at).toLocaleString() }, clock(entry.at)));
	Object.assign(node, { key: entry.key, handle: entry.handle, end: entry.end });
	line.nodes.set(entry.key, node);
	return node;
}

// Whose words they are, if entries of several threads are shown.
const whose = ({ thread_id: id }) => sessionOf(open)?.threads.length > 1 && threadOf(open, id) && el("small.whose", null, shown(threadOf(open, id).name));

function contentOf(entry) {
	const { kind, title, body, end, look } = entry;
	const whole = entry.cut_bytes > 0 && button(".bare", "Show all of it", () => loadWhole(entry.key));
	const text = (...children) => el("div.text", AUTO, children);
	const unfold = (heading, inside) => makeFold("", [heading, icon("down")], line.unfolded.has(entry.key),
		() => el("div.inside", null, inside(), whole), (isOpen) => line.unfolded[isOpen ? "add" : "delete"](entry.key));
	const action = (has, none, inside) => unfold(
		[icon(ICON_OF[kind]), el("code.title", null, shown(title)), el(`span.end.${look}`, null, end)], () => (has ? inside() : el("p.hint", null, none)));
	switch (kind) {
		case "you": return text(!openThread && whose(entry), entry.of ? el("strong", null, entry.of.speaker, ": ") : el("span.unseen", null, "You: "), said([title, body].filter(Boolean).join("\n")), whole);
		case "codex": return text(el("span.unseen", null, "Codex: "), prose(body), whole);
		case "thinks": return unfold(title, () => text(prose(body)));
		case "plan": return el("div", null, title && text(said(title)), entry.steps ? el("ul.steps", null, entry.steps.map(
			(step) => el(`li.${step.state}`, AUTO, { done: "✓ ", now: "● ", later: "○ " }[step.state], said(step.text)))) : text(prose(body)));
		case "runs":
		case "tool": return action(body, "No output.", () => el("pre.output", { tabindex: 0, "aria-label": "Output" }, shown(printed(body))));
		case "edits":
		case "diff": return action(body, "The change is not on record.", () => makeLines(linesOf(entry)));
		case "asks": return el("div.text", null, "Asked ", isolated(title), " — ", el(`strong.${look}`, AUTO, shown(end)));
		case "turn":
		case "server": return el("span", AUTO, shown(title));
		default: return text(said([title, body].filter(Boolean).join("\n")), whole);
	}
}

async function loadWhole(key) {
	try {
		takeEntries([{ ...(await call(pathOf(open, `/entry?key=${encodeURIComponent(key)}`))), key }]);
	} catch (error) {
		announce(error.message);
	}
}

// Messages to Codex

// By the place that they are for.
const drafts = new Map();
const placeNow = () => open && linkTo(open, openThread);

function grow(box = $("say-text")) {
	box.style.height = "auto";
	box.style.height = `${box.scrollHeight + 2}px`;
}

function setDraft(text) {
	$("say-text").value = text;
	grow();
}

// Several threads of a session can be chosen from; without a choice the relay takes the last one, and in a hub nobody knows which that is.
function showThreads(threads) {
	const text = JSON.stringify([threads, isHub()]);
	$("to").hidden = threads.length < 2;
	if (text === showThreads.text) return;
	showThreads.text = text;
	const before = $("thread").value;
	const option = ({ thread_id: id, name, words, about, last_action: last }) =>
		new Option([name === id ? `…${id.slice(-8)}` : `\u2068${shown(name).textContent}\u2069`, words, (about ?? last) && `\u2068${shown(clipped(about ?? last, 40)).textContent}\u2069`].filter(Boolean).join(" · "), id);
	$("thread").replaceChildren(new Option(isHub() ? "Choose a thread" : "Last used thread", ""), ...threads.map(option));
	$("thread").value = threads.some(({ thread_id: id }) => id === before) ? before : "";
}

const isHub = () => Boolean(sessionOf(open)?.hub);

const thread = () => {
	const id = openThread ?? $("thread").value;
	if (!id && isHub() && !$("to").hidden) {
		$("thread").focus();
		throw new Error("Choose a thread first.");
	}
	return id ? { thread_id: id } : {};
};

// The switch between the threads of persons and all.
function showSwitch() {
	const session = sessionOf(open);
	const seen = [...line.nodes.values()].some(({ keys }) => keys);
	$("all-threads").hidden = openThread || !(showsAll || seen || line.leftOut || session?.others.length);
	$("all-threads").setAttribute("aria-pressed", String(showsAll));
}

function switchThreads() {
	showsAll = !showsAll;
	stream.lastId = null;
	replaceTimeline([], false, 0, "Loading…");
	connect();
}

async function attempt(control, does) {
	const [session, place] = [open, placeNow()];
	const fail = (message) => { if (place === placeNow()) $("say-error").textContent = message; };
	fail(stream.isUp ? "" : OFFLINE);
	if (!stream.isUp || control.disabled) return;
	control.disabled = true;
	await does(session).catch((error) => fail(error.message));
	control.disabled = false;
}

const notSaid = (message) => { $("say-error").textContent = message; };

const say = () => attempt($("send"), async (session) => {
	const text = $("say-text").value;
	if (!text.trim()) return;
	const place = placeNow();
	await call(pathOf(session, "/input"), { text, ...thread() });
	drafts.delete(place);
	if (place !== placeNow()) return;
	setDraft("");
	goToNewest();
	$("say-text").focus();
});

// Places

function route() {
	if (/^#[0-9a-f]{32}$/.test(location.hash)) {
		const token = location.hash.slice(1);
		history.replaceState(null, "", "#/");
		return signIn(token);
	}
	if (!base) return signedOut("");
	if (open) drafts.set(placeNow(), $("say-text").value);
	const before = open;
	// The name of a session is a plain one, so it needs no decoding.
	const [, session = null, thread = null] = /^#\/s\/([^?]+)(?:\?t=(.+))?$/.exec(location.hash) ?? [];
	[open, openThread] = [session, thread && decodeURIComponent(thread)];
	if (open !== before) showsAll = false;
	$("here").replaceChildren();
	line.unfolded.clear();
	stream.lastId = null;
	document.body.classList.toggle("in-session", Boolean(open));
	$("to-inbox").setAttribute("aria-current", open ? "false" : "page");
	$("say-error").textContent = "";
	$("thread").value = "";
	setDraft(drafts.get(placeNow()) ?? "");
	replaceTimeline([], false, 0, "Loading…");
	showSessions();
	placeCards();
	connect();
	$("heading").focus({ preventScroll: true });
}

// Sign-in

async function signIn(token) {
	try {
		base = (await call("/api/sign-in", { token }, "")).base;
		localStorage.setItem("base", base);
		takeInbox.isDone = false;
	} catch (error) {
		// A used link does not matter in a browser that is signed in.
		if (!base) return signedOut(error.message);
	}
	enter();
}

function enter() {
	document.body.className = "";
	route();
}

function signedOut(message = "You are signed out, or the sign-in has expired.") {
	base = null;
	localStorage.removeItem("base");
	disconnect();
	stream.isUp = false;
	cards.forEach((card) => card.node.remove());
	cards.clear();
	placeCards();
	document.body.className = "outside";
	document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
	$("door-text").textContent = message;
	$("door-title").focus();
}

async function showBrowsers() {
	$("browser-list").replaceChildren();
	showDialog("browsers");
	await listBrowsers();
}

const browsersFailed = (message) => { $("browsers-error").textContent = message; };

async function listBrowsers() {
	browsersFailed("");
	try {
		const { browsers, own } = await call("/browsers");
		$("browser-list").replaceChildren(...browsers.map((browser) => browserLine(browser, browser.number === own)));
	} catch (error) {
		browsersFailed(error.message);
	}
}

// A browser, with a button that asks before it signs that browser out.
function browserLine({ number, device, address, signed_in_at: since, last_used_at: used }, isOwn) {
	const ago = (at) => `${age(now() - Date.parse(at))} ago`;
	const acts = el("div.row");
	const name = `${device}, number ${number}`;
	let askedAt;
	const leave = async () => {
		try {
			await call(`/browsers/${number}/sign-out`, {});
			if (isOwn) signedOut("You are signed out in this browser.");
			else await listBrowsers();
		} catch (error) {
			browsersFailed(error.message);
		}
		$("browsers").querySelector(".close").focus();
	};
	const plain = () => acts.replaceChildren(button("", "Sign out", ask, { "aria-label": `Sign out ${name}` }));
	const ask = () => {
		askedAt = performance.now();
		acts.replaceChildren(button("", "Back", () => { plain(); acts.firstChild.focus(); }),
			button(".danger", isOwn ? "Sign out here" : "Sign it out", () => decide(browsersFailed, leave, askedAt)));
		acts.firstChild.focus();
	};
	plain();
	return el("li", null, el("p", null, el("strong", null, shown(device)), isOwn && " · this browser",
		el("small", null, `Number ${number} at ${address}`), el("small", null, `Signed in ${ago(since)}, last used ${ago(used)}`)), acts);
}

// Keys that decide

// A key decides if no other comes so many milliseconds before and after it, as in the terminal UI: not one of a text that a scanner
// or a program types. What it decides on must have been there for a moment.
const [ALONE_MS, BURST_MS, LOOK_MS] = [50, 200, 400];
const TOO_FAST = "Keys came too fast: nothing was done. Press the key again, alone.";
// `at` is when a key was pressed, `handledAt` when a busy page came to it.
const keys = { at: -BURST_MS, burstAt: -BURST_MS, handledAt: -BURST_MS, held: null };

// Decides at once by a tap, and by a key once no other has followed. `since` is when that appeared on which it decides.
function decide(fail, does, since = -LOOK_MS) {
	if (performance.now() - keys.handledAt >= BURST_MS) return does();
	if (keys.held || keys.at - keys.burstAt < BURST_MS) return fail(TOO_FAST);
	if (keys.at - since < LOOK_MS) return fail("This has just appeared: read it, then press the key again.");
	const act = () => { keys.held = null; does(); };
	keys.held = { fail, act, timer: setTimeout(act, ALONE_MS) };
}

const decideOn = (card, does) => decide((message) => showError(card, { message }), does, card.since);

// The click of a button comes when the space bar goes up.
document.addEventListener("keyup", () => { keys.handledAt = performance.now(); }, true);

document.addEventListener("keydown", ({ key, repeat, timeStamp }) => {
	keys.handledAt = performance.now();
	if (repeat || /^(Shift|Control|Alt|Meta|AltGraph)$/.test(key)) return;
	const isAlone = timeStamp - keys.at >= ALONE_MS;
	if (!isAlone) keys.burstAt = timeStamp;
	keys.at = timeStamp;
	const { held } = keys;
	if (!held) return;
	clearTimeout(held.timer);
	keys.held = null;
	if (isAlone) held.act();
	else held.fail(TOO_FAST);
}, true);

// Keyboard

// The card that `a` and `d` answer.
let chosen = null;

function choose(node, isFocused) {
	chosen?.classList.remove("chosen");
	chosen = node;
	node?.classList.add("chosen");
	if (!isFocused) return;
	node?.focus({ preventScroll: true });
	node?.scrollIntoView({ block: "nearest" });
}

const visible = (selector) => [...document.querySelectorAll(selector)].filter((node) => node.offsetParent);

function move(step) {
	const all = visible(".card, .sessions a");
	const at = all.indexOf(document.activeElement.closest(".card, .sessions a") ?? chosen);
	const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + step))];
	if (next?.card) choose(next, true);
	else next?.focus();
}

function press(key) {
	// The first press only chooses, so that nothing is answered unseen.
	if (!chosen?.offsetParent) return move(0);
	const { card } = chosen;
	// A key answers only if a tap would: while the buttons are in view.
	const { left, top, width, height } = card.acts.getBoundingClientRect();
	const isInView = card.acts.contains(document.elementFromPoint(left + width / 2, top + height / 2));
	if (!isInView) return card.acts.scrollIntoView({ block: "nearest" });
	const choice = card.request.choices.find((other) => other.key === key);
	if (choice?.gives === "form") card.fields[0].focus();
	else if (choice) decideOn(card, () => give(card, choice));
}

function escape() {
	const card = chosen?.card;
	if (card && card.mode !== "plain") {
		showActs(card);
		chosen.focus();
	} else if (document.activeElement.matches("input, textarea")) {
		document.activeElement.blur();
	} else if (open) {
		location.hash = "#/";
	}
}

// The focus goes to "Close", so a key that follows changes nothing.
const showDialog = (id) => $(id).showModal();

document.addEventListener("keydown", (event) => {
	const { key, target } = event;
	const isTyping = target.matches("input, textarea, select");
	if (event.altKey || event.isComposing || event.repeat || document.querySelector("dialog[open]") || !base) return;
	if (key === "Enter" && target === chosen?.card.reason && (event.ctrlKey || event.metaKey)) return submit(chosen.card);
	if (event.ctrlKey || event.metaKey) return;
	if (key === "Escape") return escape();
	if (key === "Enter" && target.card) location.hash = linkOf(target.card.request);
	const does = { j: () => move(1), k: () => move(-1), a: () => press("a"), d: () => press("d"), "?": () => showDialog("help") }[key];
	if (!does || isTyping) return;
	event.preventDefault();
	does();
});

// Start

const on = (id, type, does) => $(id).addEventListener(type, does);
on("back", "click", () => { location.hash = "#/"; });
on("find", "submit", (event) => { event.preventDefault(); find(); });
on("find-text", "input", () => { clearTimeout(finding.timer); finding.timer = setTimeout(offer, 150); });
on("find-text", "focus", offer);
on("found-close", "click", () => { closeFound(); $("find-text").value = ""; $("find-text").focus(); });
on("help-open", "click", () => showDialog("help"));
on("browsers-open", "click", showBrowsers);
document.querySelectorAll("dialog .close").forEach((node) => node.addEventListener("click", () => node.closest("dialog").close()));
on("banner-retry", "click", connect);
on("newest", "click", goToNewest);
on("all-threads", "click", switchThreads);
on("scroll", "scroll", onScroll);
on("interrupt", "click", () => decide(notSaid, () => attempt($("interrupt"), async (session) => call(pathOf(session, "/interrupt"), thread()))));
on("say-text", "input", () => grow());
on("say", "submit", (event) => { event.preventDefault(); decide(notSaid, say); });
on("say-text", "keydown", (event) => {
	// On a phone Enter begins a new line.
	if (event.key !== "Enter" || event.shiftKey || event.isComposing || matchMedia("(hover: none)").matches) return;
	event.preventDefault();
	// Lines that come in a burst are lines of one message.
	decide((message) => { notSaid(message); $("say-text").setRangeText("\n", $("say-text").selectionStart, $("say-text").selectionEnd, "end"); grow(); }, say);
});
on("door-form", "submit", (event) => {
	event.preventDefault();
	const token = /([0-9a-f]{32})\s*$/i.exec($("door-link").value)?.[1];
	if (token) signIn(token.toLowerCase());
	else $("door-text").textContent = "That is not a link of codex-shim. It ends with # and 32 letters and digits.";
});

const permission = () => window.Notification?.permission;
const showNotify = () => { $("notify").hidden = permission() !== "default" || !notification(""); };
showNotify();
on("notify", "click", () => Notification.requestPermission().then(showNotify));

// A device that slept runs no timers.
const connectIfDown = () => { if (base && (!stream.isUp || Date.now() - stream.heardAt > SILENCE_MS_MAX)) connect(); };
document.addEventListener("visibilitychange", () => document.hidden || connectIfDown());
addEventListener("online", connectIfDown);
addEventListener("offline", () => stream.abort?.abort());
addEventListener("hashchange", route);
setInterval(() => {
	cards.forEach(showAge);
	document.querySelectorAll("[data-since]").forEach((node) => { node.textContent = age(now() - Date.parse(node.dataset.since)); });
}, 1000);
document.querySelectorAll("[data-icon]").forEach((node) => node.prepend(icon(node.dataset.icon)));

base = localStorage.getItem("base");
if (base) enter();
else route();
