/* Connect: what to run, or to paste where, so that a client uses this workbench. */

import { el, replace } from "./dom.js";
import { copyButton, textBlock } from "./content.js";
import { get } from "./store.js";

export function connectView() {
	const body = el("div");
	const root = el("section", {}, el("h1", {}, "Connect"),
		el("p", { class: "soft" }, "Each client needs one entry. A command writes it for you; otherwise paste it into the file that is named."), body);

	async function load() {
		try {
			const clients = await get("api/connect");
			replace(body, clients.map((client) => el("article", { class: "card", "aria-label": client.title },
				el("header", {}, el("h2", {}, client.title), copyButton(client.text, `the ${client.how === "file" ? "entry" : "command"} for ${client.title}`)),
				el("p", { class: "soft path" }, client.how === "file" ? (client.path ? ["Into ", el("code", {}, client.path)] : "Into its configuration") : "Run this"),
				textBlock(client.text, { label: `Configuration for ${client.title}` }))));
		} catch (error) {
			replace(body, el("p", { class: "bad" }, error.message));
		}
	}

	return { root, shown: load };
}
