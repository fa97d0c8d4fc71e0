/* Tokens: what the definitions of tools would cost an agent, and what the face shows instead. */

import { el, replace, tile } from "./dom.js";
import { sentence } from "./content.js";
import { count, plural, since } from "./format.js";
import { bars, inlineBar } from "./plots.js";
import { get, now, on } from "./store.js";

export function tokensView() {
	const body = el("div");
	const root = el("section", el("h1", "Tokens"), body);
	let loadedFor = 0;

	async function load() {
		try {
			replace(body, draw(await get("api/tokens")));
		} catch (error) {
			replace(body, el("p.bad", error.message));
		}
	}

	on("state", () => {
		if (root.hidden || Date.now() - loadedFor < 15_000) return;
		loadedFor = Date.now();
		load();
	});
	return { root, shown: load };
}

function draw({ face, full, shown, perToolbox = [], over = [], unlisted, since: from }) {
	const most = Math.max(1, ...perToolbox.flatMap((each) => [each.full, each.shown]));
	return [
		el("div.glance",
			tile(count(full), "tokens in all definitions of tools", "a flat list would put them into every conversation"),
			tile(count(shown), "tokens at the start", `of every conversation: tools and instructions${face ? `, in the face ${face}` : ""}`),
			tile(count(full != null && shown != null ? Math.max(full - shown, 0) : null), "tokens saved", "at the start of each conversation", "ok")),
		over.length > 0 && bars("Saved over the day", over, { from: over[0].at, to: now(), series: ["saved"], written: ([n]) => plural(n, "token"), describe: since(over[0].at) }),
		el("h2", "Toolboxes"),
		perToolbox.length === 0 && el("p.soft", "No toolbox is listed yet."),
		el("ul.toolboxes", [...perToolbox].sort((a, b) => (b.full ?? 0) - (a.full ?? 0)).map((each) => el("li",
			el("b", each.name),
			el("div", bar(each.full, most, "held", "as a flat list"), each.shown != null && bar(each.shown, most, "bar", "opened"),
				each.saved != null && el("small", `${plural(each.saved, "token")} saved ${since(from)}`))))),
		el("p.soft", unlisted > 0 && `Not counted: ${plural(unlisted, "server")} not listed yet. `, sentence("A token is counted as four bytes of what an agent reads, here, in Tools and by `mcp-workbench list --tokens`.")),
	];
}

const bar = (value, most, kind, what) => el("div.token-bar", inlineBar([{ share: value ?? 0, kind }], most), el("span.figure", count(value), el("small", ` ${what}`)));
