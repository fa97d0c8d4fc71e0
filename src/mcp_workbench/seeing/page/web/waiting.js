/* Waiting for you: what stands still until a person decides. */

import { actions, append, el, reconcile, replace, replaceIfChanged, tile } from "./dom.js";
import { jsonBlock, sentence, sideBySide, textBlock } from "./content.js";
import { clock, count, firstLine, path, plural, seconds, since, sum } from "./format.js";
import { go } from "./router.js";
import { hostList } from "./servers.js";
import { get, itemKey, keyOf, now, on, placeOf, post, store } from "./store.js";

function card(item, kind, title, ...children) {
	const server = path(item.toolbox, item.server), what = item.tool ?? item.item;
	return el(`li.card.${kind}`, el("article", { label: `${title} ${path(server, what)}` },
		el("header", el(`span.badge.${kind}`, title), el("h2", what ? [el("span.soft", server, "/"), what] : server)),
		children));
}

/** The buttons of a decision, for those who may make it. */
const decisions = (...choices) => store.state.you.mayDecide !== false ? actions(...choices) :
	el("p.soft", sentence("To decide, open this page with `mcp-workbench page` where the workbench runs."));

function approval(item) {
	const decide = (decision, done) => async () => {
		await post("api/approve", { id: item.id, decision });
		return done;
	};
	const left = el("span.expires", { "data-expires": item.expires });
	return card(item, "warn", "May it run?",
		el("p", el("strong", item.client || "a client"), " asks", item.principal !== "local" && [" for ", el("strong", item.principal)], ` at ${clock(item.at, true)}`,
			item.rule && [", because of ", el("code", item.rule)], left),
		wholeCall(item),
		decisions(
			{ label: "Allow once", class: "primary", run: decide("once", "Allowed once.") },
			{ label: "Allow for an hour", run: decide("hour", "Allowed for an hour.") },
			{ label: "Deny", class: "danger", run: decide("deny", "Denied.") }));
}

/** All of the arguments, of which the state has only the beginning if they are long. */
function wholeCall(item) {
	const place = el("div");
	const show = (text) => replace(place, jsonBlock(text, "Arguments of the call", true));
	show(item.arguments);
	if (item.rest === "lost") append(place, el("p.bad", "This is only its beginning: the call is too large to be kept, so nobody can see the rest."));
	if (item.rest === "kept") append(place, actions({ label: "Show the whole call", run: async () => {
		show((await get(`api/approval?id=${item.id}`)).arguments);
		place.querySelector("pre").focus();
	} }));
	return place;
}

/** Addresses come from servers: only those a browser may safely follow become links. */
function webLink(address) {
	const url = URL.canParse(address) ? new URL(address) : null;
	if (!url || !/^https?:$/.test(url.protocol)) return el("code", address);
	return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer", class: "button primary" }, `Continue at ${url.host}`);
}

function signIn(item) {
	const place = el("p", item.url && webLink(item.url));
	const start = async () => {
		const { url } = await post("api/sign-in", placeOf(item));
		const link = webLink(url);
		replace(place, link);
		link.focus();
		if (link.href) open(link.href, "_blank", "noopener");
	};
	return card(item, "info", "Sign in", el("p", sentence(item.why)), place,
		!item.url && actions({ label: "Sign in", class: "primary", run: start }));
}

function definition(item) {
	const place = el("div");
	let seen;
	const show = ({ before, after, hash, isKnown = true, warnings = [] }) => (seen = hash, replace(place, warnings.map((warning) => el("p.bad", warning)), sideBySide(before, after, isKnown)));
	const isSame = (each) => keyOf(each) === keyOf(item) && each.item === item.item;
	const look = () => get("api/lock").then(({ changes }) => show(changes.find(isSame) ?? {}), (error) => replace(place, error.message));
	if (item.before || item.after) show(item);
	else look();
	const accept = async () => {
		try {
			await post("api/lock/accept", { ...placeOf(item), item: item.item, seen });
		} catch (error) {
			look();
			throw error;
		}
		return "Accepted.";
	};
	return card(item, "warn", item.what || "Changed definition", place,
		store.state.you.isOwner && decisions({ label: "Accept the change", class: "primary", run: accept }));
}

/** What is wrong, and what to do. */
const trouble = ({ why, next, lines = [] }, label) => [el("p", el("strong", sentence(firstLine(why)))), next && el("p", sentence(next)),
	lines.length > 0 && textBlock(lines.join("\n"), label)];

function crashed(item) {
	const start = async () => (await post("api/server", { ...placeOf(item), do: "start" }), "Asked to start.");
	return card(item, "bad", "Not running", trouble(item, "What it wrote last"),
		store.state.you.isOwner && actions({ label: "Start again", class: "primary", run: start },
			{ label: "Show the server", run: async () => go("servers", item) }));
}

const hosts = (item) => card(item, "warn", "Refused hosts", el("p", "Its sandbox does not let it reach:"), hostList({ ...item, refused: item }));

const notice = (item) => card(item, "warn", item.what, trouble(item, "What is wrong"));

const MAKE = { approval, sign_in: signIn, notice, definition, crashed, hosts };
const ORDER = Object.keys(MAKE);

export function waitingView() {
	const list = el("ul.cards", { label: "Waiting for you" });
	const empty = el("div.empty", { hidden: true }, el("p", el("strong", "Nothing is waiting for you.")),
		el("p.soft", "Approvals, sign-ins, changed definitions and crashed servers appear here as they come."));
	const glance = el("section.glance", { label: "At a glance" });
	const heading = el("h1", { tabindex: "-1" }, "Waiting for you");
	const root = el("section", heading, empty, list, glance);

	function draw() {
		if (!store.state) return;
		const { waiting, servers, toolboxes } = store.state;
		const items = waiting.filter((item) => MAKE[item.kind]).sort((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind) || (a.at ?? 0) - (b.at ?? 0));
		const hadFocus = list.contains(document.activeElement);
		reconcile(list, items, itemKey, (item) => MAKE[item.kind](item));
		// What was decided disappears: whoever works by keyboard goes on with the next one.
		if (hadFocus && !list.contains(document.activeElement)) (list.querySelector("button, a") ?? heading).focus();
		list.hidden = !items.length;
		empty.hidden = items.length > 0;
		replaceIfChanged(glance, [servers, toolboxes, store.state.since], () => tiles(servers, toolboxes));
		countDown();
	}

	function countDown() {
		for (const left of list.querySelectorAll("[data-expires]")) {
			const rest = Number(left.dataset.expires) - now();
			const text = Number.isFinite(rest) ? (rest > 0 ? `, ends in ${seconds(Math.ceil(rest))}` : ", has ended") : "";
			if (left.textContent !== text) left.textContent = text;
		}
	}

	on("state", draw);
	setInterval(countDown, 1000);
	draw();
	return { root, shown: draw };
}

function tiles(servers, toolboxes) {
	const ready = servers.filter((server) => server.state === "ready").length;
	const failed = servers.filter((server) => ["failed", "backoff"].includes(server.state)).length;
	const errors = sum(servers, "errors"), tools = sum(toolboxes, "tools"), unlisted = sum(toolboxes, "unlisted");
	// Of all users, and so not for everybody.
	const counted = store.state.you.isOwner ? since(store.state.since) : "not shown to you";
	return [
		tile(`${ready} of ${servers.length}`, "servers running", failed ? `${failed} failed` : "none failed", failed ? "bad" : "", "servers"),
		tile(count(sum(servers, "calls")), "calls", counted, "", "live"),
		tile(count(errors), "errors", counted, errors ? "bad" : "", "live"),
		tile(count(tools), "tools", tools === null ? "none listed yet" : unlisted ? `${plural(unlisted, "server")} not listed yet` : `in ${plural(toolboxes.length, "toolbox", "toolboxes")}`, "", "tools"),
	];
}
