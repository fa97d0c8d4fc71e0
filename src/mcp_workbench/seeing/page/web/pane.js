/* A list with a pane beside it, or in its place in a narrow window. Escape closes it and returns the focus. */

import { button, el, replace } from "./dom.js";

export function split(list) {
	const content = el("div.pane-content");
	const heading = el("h2", { tabindex: "-1" });
	const pane = el("section.pane", { hidden: true },
		el("div.pane-head", heading, button("Close", () => close(), { class: "quiet" })), content);
	const root = el("div.split", { on: { keydown: (event) => event.key === "Escape" && !pane.hidden && (event.stopPropagation(), close()) } },
		el("div.list", list), pane);
	let opener = null, whenClosed = null, shownKey = null;

	function close() {
		if (pane.hidden) return;
		pane.hidden = true;
		root.classList.remove("open");
		shownKey = null;
		mark();
		whenClosed?.();
		if (opener?.isConnected) opener.focus();
	}

	/** Mark the row that is shown, after each drawing of the rows. */
	function mark() {
		for (const row of root.querySelectorAll(".rows > li > button")) row.ariaCurrent = row.dataset.key === shownKey ? "true" : null;
	}

	function open(key, title, closed, ...children) {
		const isNew = shownKey !== key;
		[shownKey, whenClosed] = [key, closed];
		replace(heading, title);
		replace(content, ...children);
		pane.ariaLabel = title;
		if (pane.hidden) opener = document.activeElement;
		pane.hidden = false;
		root.classList.add("open");
		mark();
		if (isNew) {
			pane.scrollTop = 0;
			heading.focus({ preventScroll: innerWidth >= 1000 });
		}
	}

	return { root, open, close, mark, content, shown: () => shownKey };
}
