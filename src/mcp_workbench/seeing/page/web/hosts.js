/* Hosts that the sandbox of a server refused: allowed one by one until the workbench ends, or for good by its settings. */

import { actions, el } from "./dom.js";
import { textBlock } from "./content.js";
import { plural } from "./format.js";
import { post, store } from "./store.js";

const SAID = { allow: "Allowed until the workbench ends.", refuse: "It stays refused." };

export function hostList({ toolbox, server, refused }) {
	const ask = (host, decision, label) => ({ label, "aria-label": `${label}: ${host}`, run: async () => (await post("api/host", { toolbox, server, host, decision }), SAID[decision]) });
	const row = ({ host, count, decision }) => el("li", el("p", el("b", host), el("span.soft", `, ${plural(count, "time")}. ${SAID[decision] ?? ""}`)),
		decision !== null && store.state.you.mayDecide !== false && actions(decision !== "allow" && ask(host, "allow", "Allow this host"), decision !== "refuse" && ask(host, "refuse", "Keep refusing")));
	return [el("ul.hosts", refused.hosts.map(row)),
		refused.setting && [el("p.soft", "To allow them for good, write into its ", el("code", "sandbox"), ":"), textBlock(refused.setting, { label: "Setting" })]];
}
