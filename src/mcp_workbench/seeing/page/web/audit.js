/* Audit: the lines on disk, newest first, and whether their chain holds. */

import { button, el, reconcile, replace, rowItem, rowList, searchField } from "./dom.js";
import { jsonBlock, sentence } from "./content.js";
import { clock, NONE, path, seconds, words } from "./format.js";
import { split } from "./pane.js";
import { get } from "./store.js";

const PAGE = 100;
const TYPING_PAUSE = 250;

export function auditView() {
	let typing = 0, latest = 0, lines = [], seen = "";
	const search = searchField("Filter by person, tool, decision or kind", "Filter audit lines", () => (clearTimeout(typing), (typing = setTimeout(() => load(), TYPING_PAUSE))));
	const chain = el("p.note", { role: "status" });
	const list = rowList("audit", "Audit lines");
	const more = button("Older lines", () => load(seen), { class: "quiet", hidden: true });
	const pane = split([chain, list, more]);
	const root = el("section", el("h1", "Audit"), el("div.tools-row", search, button("Refresh", () => load())), pane.root);

	/** The latest lines, or those before what was seen. */
	async function load(from = "") {
		const turn = ++latest;
		const query = new URLSearchParams({ q: search.value, limit: PAGE, from });
		let page;
		try {
			page = await get(`api/audit?${query}`);
		} catch (error) {
			return replace(chain, error.message);
		}
		if (turn !== latest) return;
		lines = [...(from ? lines : []), ...page.lines.reverse()];
		seen = page.from;
		reconcile(list, lines, (line) => line.number, row);
		pane.mark();
		more.hidden = !page.more;
		if (from) return;
		const word = { true: ["ok", "Chain verified"], false: ["bad", "Chain broken"] }[page.verified] ?? ["", "Chain not verified"];
		replace(chain, el("span", { class: `state ${word[0]}` }, word[1]), page.why && [". ", sentence(page.why)],
			!lines.length && (search.value ? ". No line matches." : ". No lines yet."));
	}

	function row(line) {
		const what = line.item || line.method || words(" ", line.kind, line.event);
		const isBad = line.decision === "denied" || ["error", "refused", "tool_error", "failed"].includes(line.outcome);
		const key = String(line.number);
		return rowItem(key, () => pane.open(key, `Line ${key}`, null, jsonBlock({ ...line, number: undefined }, "Audit line")),
			el("span.time", clock(Date.parse(line.time) / 1000, true)),
			el("span.what", el("span.soft", path(line.toolbox, line.server), line.server && what && "/"), el("b", what || line.unreadable)),
			el("span.who.soft", words(" · ", line.principal, line.client) || line.reason || NONE),
			el("span.kind", line.kind),
			el(isBad ? "span.end.bad" : "span.end", words(", ", line.decision !== "passed" && line.decision, line.outcome) || NONE),
			el("span.figure", seconds(typeof line.ms === "number" ? line.ms / 1000 : null)));
	}

	return { root, shown: () => load() };
}
