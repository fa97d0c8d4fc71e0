/* Servers: the state of each and why, what it was asked, how long that took, what it wrote. */

import { actions, el, factList, reconcile, replace, replaceIfChanged, rowItem, rowList } from "./dom.js";
import { pretty, sentence, textBlock } from "./content.js";
import { bytes, clock, count, firstLine, NONE, path, plural, seconds, since, sum, words } from "./format.js";
import { split } from "./pane.js";
import { bars, course, histogram } from "./plots.js";
import { get, keyOf, now, on, placeOf, post, store } from "./store.js";

const MAX_LOG_LINES = 400;
const MAX_LINE = 2000;
const REFRESH_INTERVAL = 10_000;
const KINDS = { ready: "ok", "needs sign-in": "warn", starting: "info", stopping: "info", backoff: "bad", failed: "bad" };

const stateBadge = (server) => el("span", { class: `state ${KINDS[server.state] ?? ""}` }, server.state || NONE);

function fillRow(row, server) {
	const figure = (value, name, kind = "") => el("span", { class: `figure ${kind}` }, value, el("small", ` ${name}`));
	replace(row, stateBadge(server),
		el("span.what", el("span.soft", server.toolbox, "/"), el("b", server.server), server.why && el("span.why", sentence(firstLine(server.why)))),
		server.calls !== null && [figure(count(server.calls), server.calls === 1 ? "call" : "calls"), figure(count(server.errors), server.errors === 1 ? "error" : "errors", server.errors ? "bad" : ""),
		figure(seconds(server.p50), "p50"), figure(seconds(server.p95), "p95"), figure(bytes(server.memory), "memory")]);
}

const cut = (line) => (line.length > MAX_LINE ? `${line.slice(0, MAX_LINE)}… (${count(line.length)} characters)` : line);

const SAID = { allow: "Allowed until the workbench ends.", refuse: "It stays refused." };

/** Hosts that the sandbox of a server refused: allowed one by one until the workbench ends, or for good by its settings. */
export function hostList({ toolbox, server, refused }) {
	const ask = (host, decision, label) => ({ label, "aria-label": `${label}: ${host}`, run: async () => (await post("api/host", { toolbox, server, host, decision }), SAID[decision]) });
	const row = ({ host, count, decision }) => el("li", el("p", el("b", host), el("span.soft", `, ${plural(count, "time")}. ${SAID[decision] ?? ""}`)),
		decision !== null && store.state.you.mayDecide !== false && actions(decision !== "allow" && ask(host, "allow", "Allow this host"), decision !== "refuse" && ask(host, "refuse", "Keep refusing")));
	return [el("ul.hosts", refused.hosts.map(row)),
		refused.setting && [el("p.soft", "To allow them for good, write into its ", el("code", "sandbox"), ":"), textBlock(refused.setting, "Setting")]];
}

export function serversView() {
	const note = el("p.soft.note");
	const list = rowList("servers", "Servers");
	const pane = split([note, list]);
	const root = el("section", el("h1", "Servers"), pane.root);
	const parts = { head: el("div"), figures: el("div.figures"), hosts: el("div"), copies: el("div"), log: el("pre.log", { tabindex: "0", role: "log", label: "Log" }) };
	const control = el("div");
	let openKey = null, refreshing = 0;

	const find = (key) => store.state?.servers.find((server) => keyOf(server) === key);

	function draw() {
		if (!store.state) return;
		const { servers } = store.state;
		const states = Object.entries(Object.groupBy(servers, (server) => server.state)).map(([state, each]) => `${each.length} ${state}`);
		replaceIfChanged(note, [states, store.state.since], () => `${plural(servers.length, "server")}: ${states.join(", ") || "none configured"}.${store.state.you.isOwner ? ` Figures ${since(store.state.since)}.` : ""}`);
		reconcile(list, servers, keyOf, (server, old) => {
			const item = old ?? rowItem(keyOf(server), () => open(keyOf(server)));
			fillRow(item.firstElementChild, server);
			return item;
		});
		pane.mark();
		drawHead();
	}

	function drawHead() {
		const server = find(openKey);
		if (!server) return;
		const facts = [["State", stateBadge(server)], ["Running since", clock(server.since)], ["Starts", count(server.starts)],
			...(server.calls === null ? [] : [["Calls", count(server.calls)], ["Errors", server.denied ? `${count(server.errors)}, ${count(server.denied)} of them refused` : count(server.errors)], ["Running now", count(server.running)], ["p50", seconds(server.p50)], ["p95", seconds(server.p95)], ["Memory", bytes(server.memory)]]),
			server.profile && ["Sandbox", pretty(server.profile)]];
		replaceIfChanged(parts.head, server, () => [
			server.why && el(KINDS[server.state] === "bad" ? "p.bad" : "p", sentence(firstLine(server.why))),
			server.why?.includes("\n") && textBlock(server.why, "Why"),
			server.next && el("p", sentence(server.next)),
			factList(facts),
			el("p.soft", server.calls === null ? "Figures are of all users, and not shown to you." : `Counted ${since(store.state.since)}.`)]);
		replaceIfChanged(parts.hosts, server.refused, () => server.refused && [el("h3", "Hosts that its sandbox refused"), hostList(server)]);
		replaceIfChanged(parts.copies, server.copies, () => (server.copies ?? []).length > 0 && [el("h3", "Who shares it"),
			el("ul.copies", server.copies.map((copy) => el("li", stateBadge(copy), ` ${words(" · ", copy.client, copy.user) || NONE}`,
				el("span.soft", copy.pid && ` process ${copy.pid}`, copy.folder && ` in ${copy.folder}`))))]);
	}

	function addLines(lines) {
		const atEnd = parts.log.scrollHeight - parts.log.scrollTop - parts.log.clientHeight < 40;
		for (const line of lines) parts.log.append(el("div", cut(typeof line === "string" ? line : line.line ?? JSON.stringify(line))));
		while (parts.log.childElementCount > MAX_LOG_LINES) parts.log.firstChild.remove();
		if (atEnd) parts.log.scrollTop = parts.log.scrollHeight;
	}

	async function drawFigures(withLog) {
		const key = openKey, server = find(key);
		if (!server) return;
		let details;
		try {
			details = await get(`api/server?${new URLSearchParams(placeOf(server))}`);
		} catch (error) {
			if (withLog) replace(parts.figures, el("p.soft", error.message));
			return;
		}
		if (key !== openKey) return;
		const day = details.day;
		if (!day) return;
		const range = { from: Math.min(day[0]?.at ?? now(), now() - 600), to: now() };
		const { p50, p95 } = details.dayTimes;
		// Memory is looked at more rarely than calls.
		const measured = day.find((each) => each.memory != null)?.at;
		replaceIfChanged(parts.figures, [details.histogram, day], () => [
			histogram(`Latency, ${clock(store.state.since)} to ${clock(range.to, true)}`, details.histogram),
			bars("Calls over the day", day, { ...range, series: ["calls", "errors"], written: ([n, bad]) => (bad ? `${plural(n, "call")}, ${plural(bad, "error")}` : plural(n, "call")),
				describe: `${plural(sum(day, "calls") ?? 0, "call")}, ${plural(sum(day, "errors") ?? 0, "error")}, p50 ${seconds(p50)}, p95 ${seconds(p95)} ${since(day[0]?.at)}` }),
			course("Memory over the day", day, { ...range, member: "memory", written: bytes, describe: `${since(measured)}, while this page is open or metrics are read` }),
		]);
		if (withLog) {
			replace(parts.log);
			addLines(details.log ?? []);
			if (!parts.log.childElementCount) replace(parts.log, el("div.soft", "It has written nothing."));
		}
	}

	function open(key) {
		const server = find(key);
		if (!server) return;
		openKey = key;
		replace(parts.figures);
		replace(parts.log);
		const ask = (what, done) => ({ label: what[0].toUpperCase() + what.slice(1), run: async () => (await post("api/server", { ...placeOf(server), do: what }), done) });
		replace(control, store.state.you.isOwner && actions(ask("start", "Asked to start."), ask("restart", "Asked to restart."), ask("stop", "Asked to stop.")));
		pane.open(key, path(server.toolbox, server.server), () => {
			openKey = null;
			clearInterval(refreshing);
		}, parts.head, control, parts.hosts, parts.figures, parts.copies, store.state.you.isOwner && [el("h3", "Log"), parts.log]);
		drawHead();
		drawFigures(true);
		clearInterval(refreshing);
		refreshing = setInterval(() => store.status === "live" && !root.hidden && drawFigures(false), REFRESH_INTERVAL);
	}

	on("state", draw);
	on("log", (entry) => {
		if (keyOf(entry) !== openKey) return;
		if (parts.log.firstElementChild?.className === "soft") replace(parts.log);
		addLines([entry.line]);
	});
	draw();
	return { root, shown: (wanted) => wanted && open(keyOf(wanted)) };
}
