/* Elements made from data. Text of others becomes text nodes, never markup; characters that reorder or hide text are
	 spelt out, so that nobody approves what they cannot see. */

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "selected", "readOnly"]);
// Controls other than tab and newline, zero-width and bidirectional characters, and the tags block of Unicode.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

export function visible(text) {
	return String(text).replace(UNSEEN, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
}

function fill(node, attributes, children) {
	for (const [name, value] of Object.entries(attributes ?? {})) {
		if (value == null || value === false) continue;
		if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
		else if (PROPERTIES.has(name)) node[name] = value;
		else if (/^(on|style)/i.test(name)) throw new Error(`attribute ${name} is not allowed`);
		else node.setAttribute(name === "label" ? "aria-label" : name, value === true ? "" : typeof value === "string" ? visible(value) : value);
	}
	append(node, ...children);
	return node;
}

/** `el("p.soft", {title}, "text", child, …)`, or without attributes; null and false children are left out. `label` is for
	 screen readers. */
export function el(selector, attributes, ...children) {
	const [name, ...classes] = selector.split(".");
	const node = document.createElement(name);
	if (classes.length) node.className = classes.join(" ");
	return attributes?.constructor === Object ? fill(node, attributes, children) : fill(node, {}, [attributes, ...children]);
}

export const byId = (id) => document.getElementById(id);

export function svg(name, attributes, ...children) {
	return fill(document.createElementNS(SVG, name), attributes, children);
}

export function append(node, ...children) {
	for (const child of children.flat(Infinity)) {
		if (child == null || child === false) continue;
		node.append(child instanceof Node ? child : document.createTextNode(visible(child)));
	}
}

export function replace(node, ...children) {
	node.replaceChildren();
	append(node, ...children);
	return node;
}

/** Like `replace`, but leaves the node alone, with its focus and selection, if the data is what it was made from. */
export function replaceIfChanged(node, data, ...make) {
	const now = JSON.stringify(data);
	if (made.get(node) === now) return;
	made.set(node, now);
	replace(node, ...make.map((each) => each()));
}
const made = new WeakMap();

export function button(label, click, attributes = {}) {
	return el("button", { type: "button", ...attributes, on: { click } }, label);
}

/** Buttons of one decision: none can be pressed while one is carried out; a refusal is shown beside them. */
export function actions(...choices) {
	const said = el("p.said", { role: "alert" });
	const buttons = choices.filter(Boolean).map(({ label, run, ...attributes }) =>
		button(label, async () => {
			replace(said);
			// Not `disabled`: that would take the focus away from whoever pressed it by keyboard.
			if (row.ariaBusy) return;
			row.ariaBusy = true;
			try {
				const answer = await run();
				if (answer) replace(said, answer);
			} catch (error) {
				replace(said, error.message);
			} finally {
				row.ariaBusy = null;
			}
		}, attributes));
	const row = el("div.actions", buttons, said);
	return row;
}

/** Children of `parent` for `items`, made once for each key and kept, with their focus, while their data is the same. */
export function reconcile(parent, items, keyOf, make) {
	const before = kept.get(parent) ?? new Map();
	const after = new Map();
	for (const item of items) {
		const key = keyOf(item), data = JSON.stringify(item), old = before.get(key);
		after.set(key, old?.data === data ? old : { data, node: make(item, old?.node) });
	}
	kept.set(parent, after);
	for (const [key, { node }] of before) if (after.get(key)?.node !== node) node.remove();
	let place = parent.firstChild;
	for (const { node } of after.values()) {
		if (node === place) place = place.nextSibling;
		else parent.insertBefore(node, place);
	}
}
const kept = new WeakMap();

/** A list of buttons, one for each row; the arrow keys move between them. */
export function rowList(kind, label) {
	return el(`ul.rows.${kind}`, {
		label,
		on: {
			keydown(event) {
				const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
				const item = event.target.closest("li");
				if (!step || event.target !== item?.firstElementChild) return;
				event.preventDefault();
				(step > 0 ? item.nextElementSibling : item.previousElementSibling)?.firstElementChild.focus();
			},
		},
	});
}

/** A row of such a list; `key` is what its pane knows it by. */
export const rowItem = (key, open, ...children) => el("li", button(children, open, { "data-key": key }));

/** Names and values of one thing. */
export function factList(facts) {
	return el("dl.facts", facts.filter(Boolean).map(([name, value]) => el("div", el("dt", name), el("dd", value))));
}

export function tile(figure, name, note, kind = "", view = null) {
	return el(view ? "a" : "div", { class: `tile ${kind}`, href: view && `#${view}` }, el("b", figure), el("span", name), el("small", note));
}

export const searchField = (placeholder, label, input) => el("input", { type: "search", placeholder, label, on: { input } });

/** The options of a `select`, each a value and its name. */
export const options = (pairs) => pairs.map(([value, name]) => el("option", { value }, name));

let clearing = 0;

/** Say something to screen readers that is seen on the page anyway. */
export function announce(text) {
	const region = byId("announcement");
	replace(region, text);
	clearTimeout(clearing);
	clearing = setTimeout(() => replace(region), 5000);
}
