/* Tools: everything that all servers offer, in one table, with its cost in tokens; and a form to call it with. */

import { actions, button, el, options, reconcile, replace, rowItem, rowList, searchField } from "./dom.js";
import { jsonBlock, resultBlock, textBlock } from "./content.js";
import { count, matches, path, plural, seconds, sum } from "./format.js";
import { split } from "./pane.js";
import { schemaTree } from "./schema.js";
import { argumentsForm } from "./schema_form.js";
import { get, itemKey, keyOf, on, placeOf, post, store } from "./store.js";

const MAX_ROWS = 250;
// A tool may run long; the workbench has the deadline that counts.
const CALL_TIMEOUT = 600_000;
// What stands for a secret in what was kept of a call.
const MASK = "***";
const KINDS = [["", "Everything"], ["tool", "Tools"], ["prompt", "Prompts"], ["resource", "Resources"], ["template", "Templates"]];

/** The arguments of a prompt, or the address made of a resource template, as a schema for the same form. */
function schemaOf(item) {
	if (item.kind === "tool") return item.inputSchema ?? {};
	if (item.kind === "template") return { properties: { uri: { type: "string", default: item.uri, description: "Replace what is in braces." } }, required: ["uri"] };
	const names = item.arguments ?? [];
	return {
		properties: Object.fromEntries(names.map(({ name, description }) => [name, { type: "string", description }])),
		required: names.filter(({ required }) => required).map(({ name }) => name),
	};
}

export function toolsView() {
	const search = searchField("Search names and descriptions", "Search tools", () => draw());
	const choice = (label, pairs) => el("select", { label, on: { change: () => draw() } }, options(pairs));
	const kind = choice("Kind", KINDS), toolbox = choice("Toolbox", []);
	const order = choice("Order", [["name", "By name"], ["tokens", "Most tokens first"]]);
	const note = el("p.soft.note", { role: "status" });
	const list = rowList("items-list", "Tools, prompts and resources");
	const more = button("Show all", () => draw(Infinity), { class: "quiet", hidden: true });
	const pane = split([note, list, more]);
	const root = el("section", el("h1", "Tools"), el("div.tools-row", search, kind, toolbox, order), pane.root);
	// What was typed for a tool stays with it while others are looked at.
	const panels = new Map();
	let items = [], problem = "Loading…", loadedFor = "";

	async function load() {
		try {
			items = (await get("api/tools")).items;
			problem = "";
		} catch (error) {
			problem = error.message;
		}
		const chosen = toolbox.value;
		replace(toolbox, options([["", "All toolboxes"], ...[...new Set(items.map((item) => item.toolbox))].sort().map((name) => [name, name])]));
		toolbox.value = chosen;
		if (toolbox.selectedIndex < 0) toolbox.value = "";
		draw();
	}

	function found() {
		const matching = items.filter((item) => (!kind.value || item.kind === kind.value) && (!toolbox.value || item.toolbox === toolbox.value) &&
			matches(search.value, path(item.toolbox, item.server, item.name), item.title, item.description, item.uri));
		const nameOf = (item) => path(item.toolbox, item.server, item.name ?? item.uri);
		const byName = (a, b) => nameOf(a).localeCompare(nameOf(b));
		return matching.sort(order.value === "tokens" ? (a, b) => (b.tokens ?? -1) - (a.tokens ?? -1) || byName(a, b) : byName);
	}

	function draw(limit = MAX_ROWS) {
		const matching = found();
		reconcile(list, matching.slice(0, limit), itemKey, (item) => rowItem(itemKey(item), () => open(item),
			el("span.what", el("span.soft", path(item.toolbox, item.server), "/"), el("b", item.name ?? item.uri),
				item.kind !== "tool" && el("span.badge", item.kind),
				item.annotations?.destructiveHint && el("span.badge.warn", "destructive")),
			el("span.about.soft", item.description ?? item.title ?? ""),
			el("span.figure", count(item.tokens), el("small", " tokens"))));
		more.hidden = matching.length <= limit;
		replace(more, `Show all ${count(matching.length)}`);
		replace(note, problem || (matching.length ? `${plural(matching.length, "item")}, ${plural(sum(matching, "tokens"), "token")} if all were shown to an agent` :
			items.length ? "Nothing matches." : "Nothing is listed yet: servers are listed when they are first started."));
		pane.mark();
	}

	function open(item, earlier) {
		const key = itemKey(item);
		if (!panels.has(key)) panels.set(key, panel(item));
		const { node, again } = panels.get(key);
		if (earlier) again(earlier);
		pane.open(key, item.title || item.name || item.uri, null, node);
	}

	async function shown(wanted) {
		await load();
		if (!wanted) return;
		const item = items.find((each) => each.kind === wanted.kind && keyOf(each) === keyOf(wanted) && (each.name === wanted.name || each.uri === wanted.name));
		if (item) open(item, wanted.kind === "prompt" || wanted.kind === "tool" ? wanted : undefined);
		else replace(note, `${path(wanted.toolbox, wanted.server, wanted.name)} is not offered any more.`);
	}

	// Another state of a server may mean other tools.
	on("state", () => {
		const now = JSON.stringify([store.state.toolboxes, store.state.servers.map((server) => [server.toolbox, server.server, server.state])]);
		if (now !== loadedFor && !root.hidden) load();
		loadedFor = now;
	});
	return { root, shown };
}

function panel(item) {
	const schema = schemaOf(item);
	const form = item.kind === "resource" ? null : argumentsForm(schema);
	const answer = el("div.answer", { role: "status" });
	const said = el("p.warn", { role: "status" });
	let isMasked = false;

	/** Fill the form with the arguments of an earlier call, as far as they were kept. */
	function again({ text, kept }) {
		isMasked = kept === "masked";
		const isKept = isMasked || kept === "whole";
		form.fill((isKept && text) || "{}");
		replace(said, isMasked ? `Each ${MASK} stands for something that was hidden when the call was recorded: replace it before you call.` :
			!isKept && (kept === "cut" ? "The arguments were too long to be kept whole: fill them in again." : "The arguments were not kept: fill them in again."));
	}

	async function call(confirmed) {
		let text;
		try {
			text = form ? form.text() : "{}";
			if (isMasked && text.includes(MASK)) throw new Error(`Replace each ${MASK} first: it is not what was sent.`);
		} catch (error) {
			return error.message;
		}
		const isTemplate = item.kind === "template";
		const target = { kind: isTemplate ? "resource" : item.kind, ...placeOf(item), name: item.name, uri: isTemplate ? JSON.parse(text).uri : item.uri, confirmed };
		const given = isTemplate ? "{}" : text;
		replace(answer, el("p.soft", "Running…"));
		try {
			// The arguments go as they were typed: numbers may be larger than this language has.
			const reply = await post("api/call", `${JSON.stringify(target).slice(0, -1)},"arguments":${given}}`, { signal: AbortSignal.timeout(CALL_TIMEOUT) });
			replace(answer, el("h3", reply.error ? "Error" : "Result", el("span.soft", ` after ${seconds(reply.seconds)}`)),
				reply.error ? textBlock(typeof reply.error === "string" ? reply.error : JSON.stringify(reply.error, null, 2), "Error") : resultBlock(reply.result));
		} catch (error) {
			if (error.body?.confirm) return askFirst(error.message);
			replace(answer, el("p.bad", error.message));
		}
		node.lastElementChild.scrollIntoView({ block: "nearest" });
		return "";
	}

	function askFirst(question) {
		const ask = actions(
			{ label: "Call it", class: "danger", run: () => call(true) },
			{ label: "Do not", run: async () => replace(answer) && "" });
		replace(answer, el("p.warn", question), ask);
		ask.querySelector("button").focus();
		return "";
	}

	const verb = { tool: "Call the tool", prompt: "Get the prompt" }[item.kind] ?? "Read the resource";
	const node = el("div",
		el("p.soft", path(item.toolbox, item.server, item.name), item.uri && ` · ${item.uri}`),
		el("p.badges", el("span.badge", `${count(item.tokens)} tokens`),
			Object.entries(item.annotations ?? {}).filter(([, value]) => value === true).map(([name]) => el(name === "destructiveHint" ? "span.badge.warn" : "span.badge", name.replace("Hint", "")))),
		item.description && el("p.description", item.description),
		item.kind === "tool" && el("details", el("summary", "Schema"), schemaTree(schema), jsonBlock(schema, "Schema as JSON")),
		said, form?.node, actions({ label: verb, class: "primary", run: () => call(false) }), answer);
	return { node, again };
}
