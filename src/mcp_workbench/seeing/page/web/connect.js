/* Connect: what to run, or to paste where, so that a client uses this workbench. */

import { el, replace, searchField } from "./dom.js";
import { copyButton, textBlock } from "./content.js";
import { matches } from "./format.js";
import { get } from "./store.js";

export function connectView() {
	const body = el("div");
	const search = searchField("Filter by client", "Filter clients", draw);
	const root = el("section", el("h1", "Connect"),
		el("p.soft", "Each client needs one entry. A command writes it for you; otherwise paste it into the file that is named."),
		el("div.tools-row", search), body);
	const where = ({ how, path }) => (how === "command" ? "Run this" : how === "http" ? "This endpoint. The header has your key or token, if it wants one." :
		path ? ["Into ", el("code", path)] : "Into its configuration");

	function draw() {
		for (const card of body.querySelectorAll("article")) card.hidden = !matches(search.value, card.ariaLabel);
	}

	async function load() {
		try {
			const clients = await get("api/connect");
			replace(body, clients[0]?.how === "http" && clients.length > 1 && el("p.soft", "All but the first start a workbench of their own, with the same configuration."), clients.map((client) => el("article.card", { label: client.title },
				el("header", el("h2", client.title), copyButton(client.text, `the ${client.how === "command" ? "command" : "entry"} for ${client.title}`)),
				el("p.soft.path", where(client)),
				textBlock(client.text, `Configuration for ${client.title}`))));
			draw();
		} catch (error) {
			replace(body, el("p.bad", error.message));
		}
	}

	return { root, shown: load };
}
