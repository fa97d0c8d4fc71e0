/* Live: calls as they happen, newest first; what was sent and answered on click. */

import { actions, el, factList, options, reconcile, replace, replaceIfChanged, rowItem, rowList, searchField } from "./dom.js";
import { jsonBlock, resultBlock } from "./content.js";
import { bytes, clock, count, matches, NONE, path, seconds, words } from "./format.js";
import { split } from "./pane.js";
import { inlineBar } from "./plots.js";
import { go } from "./router.js";
import { get, MAX_CALLS, now, on, placeOf, store } from "./store.js";

const MAX_ROWS = 200;
// Bars are logarithmic, from a millisecond to a minute.
const SHORTEST = 0.001;
const DECADES = Math.log10(60 / SHORTEST);
const REPEATABLE = { "tools/call": "tool", "prompts/get": "prompt", "resources/read": "resource" };
const ENDS = { tool_error: "tool error", needs_approval: "needs approval", timeout: "timed out" };

const isBad = (call) => ["tool_error", "error", "refused", "timeout"].includes(call.end);
const lasted = (call) => call.seconds ?? (call.state === "ended" ? null : Math.max(now() - call.at, 0));
const share = (duration) => Math.min(Math.max(Math.log10(Math.max(duration, SHORTEST) / SHORTEST) / DECADES, 0.02), 1);

function outcome(call) {
	if (call.state !== "ended") return call.state === "sent" ? "running" : call.state;
	return ENDS[call.end] ?? (call.end || NONE);
}

function durationBar(call) {
	const whole = lasted(call);
	if (whole === null) return inlineBar([]);
	const until = Math.min(call.sentAfter ?? (call.state === "sent" || call.state === "ended" ? 0 : whole), whole);
	const all = share(whole), held = whole ? all * (until / whole) : 0;
	return inlineBar([{ share: held, kind: "held" }, { share: all - held, kind: isBad(call) ? "bar bad" : call.state === "ended" ? "bar" : "bar running" }]);
}

function fillRow(row, call) {
	const kind = isBad(call) ? "bad" : call.state === "held" ? "warn" : call.state === "ended" ? "" : "info";
	replace(row,
		el("span.time", clock(call.at, true)),
		el("span.what", el("span.soft", path(call.toolbox, call.server), "/"), el("b", call.item || call.method)),
		el("span.who.soft", call.client || NONE, call.principal && ` · ${call.principal}`),
		el("span.bar-cell", durationBar(call), el("span.figure", seconds(lasted(call)))),
		el("span", { class: `end ${kind}` }, outcome(call)));
	return row;
}

export function liveView() {
	const filter = searchField("Filter by tool, client or person", "Filter calls", draw);
	const which = el("select", { label: "Which calls", on: { change: draw } }, options([["", "All calls"], ["open", "Running and held"], ["bad", "Errors"]]));
	const pause = el("input", { type: "checkbox", on: { change: draw } });
	const note = el("p.soft.note", { role: "status" });
	const list = rowList("calls", "Calls, newest first");
	const pane = split([list, note]);
	const root = el("section", el("h1", "Live"),
		el("div.tools-row", filter, which, el("label.check", pause, "Pause")), pane.root);
	let drawn = [], openCall = null, fetched = "";

	function isWanted(call) {
		if (which.value === "bad" && !isBad(call)) return false;
		if (which.value === "open" && call.state === "ended") return false;
		return matches(filter.value, path(call.toolbox, call.server, call.item), call.method, call.client, call.principal, outcome(call));
	}

	function draw() {
		if (root.hidden || !store.state) return;
		if (!pause.checked) drawn = [...store.calls.values()].sort((a, b) => b.at - a.at || b.id - a.id);
		const found = drawn.filter(isWanted);
		reconcile(list, found.slice(0, MAX_ROWS), (call) => call.id, (call, old) => {
			const item = old ?? rowItem(call.id, () => open(call.id));
			fillRow(item.firstElementChild, call);
			return item;
		});
		pane.mark();
		const parts = [found.length > MAX_ROWS ? `The latest ${MAX_ROWS} of ${count(found.length)} calls` : found.length ? "" : drawn.length ? "No call matches" : "No calls yet. They appear here as they happen",
			store.lost > 0 && `${count(store.lost)} were too many to show`,
			drawn.length > 0 && `Bars are logarithmic, up to a minute; the light part waited before it was sent. Shown are the latest ${MAX_CALLS} calls since a page was opened`];
		replaceIfChanged(note, parts, () => words(". ", ...parts) + ".");
		if (openCall !== null && !pause.checked) refresh();
	}

	function open(id) {
		openCall = id;
		fetched = "";
		refresh();
	}

	/** Show a call in the pane; its arguments and result are fetched when it begins and again when it ends. */
	async function refresh() {
		const call = store.calls.get(openCall);
		if (!call) return;
		const version = `${call.id} ${call.state} ${call.end}`;
		if (version === fetched) return;
		fetched = version;
		let details = {}, problem = call.state === "ended" ? "" : "The result is shown when it has ended.";
		try {
			details = await get(`api/calls/${call.id}`);
		} catch (error) {
			problem = error.message;
		}
		if (version !== fetched || openCall !== call.id) return;
		showCall({ ...call, ...details }, problem);
	}

	function showCall(call, problem) {
		const kind = REPEATABLE[call.method];
		const facts = [
			["When", clock(call.at, true)], ["Client", call.client || NONE], ["Who", call.principal || NONE], ["Method", call.method],
			["State", el(isBad(call) ? "span.bad" : "span", outcome(call))], ["Took", seconds(call.seconds)],
			["Sent after", seconds(call.sentAfter)], ["Sizes", `${bytes(call.bytesIn)} in, ${bytes(call.bytesOut)} out`],
			call.rule && ["Rule", call.rule], call.errorCode && ["Error code", call.errorCode], ["Call id", call.id],
		];
		pane.open(String(call.id), path(call.toolbox, call.server, call.item || call.method), () => (openCall = null),
			factList(facts),
			problem && el("p.soft", problem),
			call.arguments != null && [el("h3", "Arguments"), jsonBlock(call.arguments, "Arguments")],
			call.result != null && [el("h3", "Result"), resultBlock(call.result)],
			kind && actions({ label: "Try again…", run: async () => go("tools", { kind, ...placeOf(call), name: call.item, text: call.arguments, kept: call.kept }) }));
	}

	on("calls", draw);
	// Calls that are running get longer.
	setInterval(() => {
		if (root.hidden || pause.checked || store.status !== "live") return;
		for (const item of list.children) {
			const call = store.calls.get(Number(item.firstElementChild.dataset.key));
			if (call && call.state !== "ended") fillRow(item.firstElementChild, call);
		}
	}, 1000);
	return { root, shown: draw };
}
