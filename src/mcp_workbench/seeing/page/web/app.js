/* The frame around the views: navigation, what is said about the connection, keys. */

import { announce, byId, el, replace, svg } from "./dom.js";
import { seconds } from "./format.js";
import { register, show } from "./router.js";
import { connect, now, on, store } from "./store.js";
import { auditView } from "./audit.js";
import { connectView } from "./connect.js";
import { liveView } from "./live.js";
import { serversView } from "./servers.js";
import { tokensView } from "./tokens.js";
import { toolsView } from "./tools.js";
import { waitingView } from "./waiting.js";

// The icons are paths in a box of 24 by 24.
const VIEWS = [
	["waiting", "Waiting", waitingView, "M4 13h4l2 3h4l2-3h4M6 5h12l2 8v6H4v-6z"],
	["live", "Live", liveView, "M3 12h4l3-7 4 14 3-7h4"],
	["tools", "Tools", toolsView, "M14 6a4 4 0 0 1 5-1l-3 3 1 2 2 1 3-3a4 4 0 0 1-6 5L9 20l-4-1-1-4 8-6a4 4 0 0 1 2-3z"],
	["servers", "Servers", serversView, "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01"],
	["tokens", "Tokens", tokensView, "M4 20V10M10 20V4M16 20v-7M21 20H3"],
	["audit", "Audit", auditView, "M12 3l8 3v6c0 5-4 8-8 9-4-1-8-4-8-9V6zM9 12l2 2 4-4"],
	["connect", "Connect", connectView, "M9 7V3M15 7V3M7 7h10v4a5 5 0 0 1-10 0zM12 16v5"],
];

const links = new Map();

function buildNavigation() {
	for (const [id, title, build, path] of VIEWS) {
		register(id, build);
		const badge = el("span.count", { hidden: true });
		const link = el("a", { href: `#${id}` },
			svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", class: "icon" }, svg("path", { d: path })), el("span", title), badge);
		links.set(id, { link, badge });
		byId("views").append(el("li", link));
	}
}

function showCurrent() {
	const id = links.has(location.hash.slice(1)) ? location.hash.slice(1) : "waiting";
	for (const [each, { link }] of links) link.ariaCurrent = each === id ? "page" : null;
	if (show(id)) scrollTo(0, 0);
}

let announced = 0;

function drawFrame() {
	const { workbench, waiting, you } = store.state;
	const { badge } = links.get("waiting");
	badge.hidden = !waiting.length;
	replace(badge, waiting.length);
	document.title = waiting.length ? `(${waiting.length}) MCP Workbench` : "MCP Workbench";
	if (waiting.length > announced) announce(`${waiting.length} waiting for you`);
	announced = waiting.length;
	replace(byId("about"),
		el("p", `${workbench.version} · up ${seconds(now() - store.startedAt)}`),
		el("p", { title: workbench.config }, workbench.config?.replace(/^.*(?=\/[^/]+\/[^/]+$)/, "…")),
		workbench.address && el("p", workbench.address),
		!you.isOwner && el("p", "as ", [you.principal, ...(store.state.groups ?? [])].join(", ")));
}

function drawStatus() {
	document.documentElement.dataset.status = store.status;
	const region = byId("connection");
	if (store.status === "lost") {
		replace(region, el("p", el("strong", "Connection lost. "), store.why ||
			["What you see is as it was; the page tries again by itself. If that lasts, run ", el("code", "mcp-workbench page"), "."]));
	} else if (store.status === "expired") {
		replace(region, el("p", el("strong", "Your session has ended. "), "Run ", el("code", "mcp-workbench page"), " or ",
			el("a", { href: "./", target: "_blank", rel: "noopener" }, "sign in in another tab"), "; this page then goes on, with what you typed."));
	} else replace(region);
}

document.querySelector(".skip").addEventListener("click", (event) => {
	event.preventDefault();
	byId("content").focus();
});

addEventListener("hashchange", showCurrent);
addEventListener("keydown", (event) => {
	const isTyping = event.target.closest("input, textarea, select");
	if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
		const search = document.querySelector("main > :not([hidden]) input[type=search]");
		if (search) event.preventDefault(), search.focus();
	}
});

buildNavigation();
on("state", drawFrame);
on("status", drawStatus);
showCurrent();
drawStatus();
connect();
