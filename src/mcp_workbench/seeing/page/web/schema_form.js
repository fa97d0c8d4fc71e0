/* A form made from a JSON Schema. Each part is a field with `node`, `read()` (a value, or OMIT) and `write(value)` (could
	 it show that value?). What a form cannot show is a JSON editor: one member, or all of it. */

import { button, el, options, replace } from "./dom.js";
import { parsed, quietly } from "./content.js";
import { words } from "./format.js";
import { alternatives, constraints, resolve, typeName } from "./schema.js";

const OMIT = Symbol("left empty");
// A schema may require itself: deeper than this it is typed as JSON.
const MAX_DEPTH = 6;
const CONTROLS = "input, textarea, select, button";
const NUMBER = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;
let ids = 0;

/** JSON with members in order, to compare two values. */
const canonical = (value) =>
	JSON.stringify(value, (_, part) =>
		part && typeof part === "object" && !Array.isArray(part) && !JSON.isRawJSON?.(part)
			? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1))) : part);

const heading = (place, schema) => [place.name, el("span.type", typeName(schema, place.root)), place.isRequired && el("span.badge", "required")];

/** A label, an input and what is said about it. */
function labelled(place, input, schema, check, write) {
	const id = `field-${++ids}`;
	const wrong = el("p.wrong", { id: `${id}-wrong` });
	const hint = el("p.soft", { id: `${id}-hint` }, words(" · ", schema.description, constraints(schema)));
	input.id = id;
	input.setAttribute("aria-describedby", `${id}-hint ${id}-wrong`);
	if (place.isRequired) input.ariaRequired = true;
	const node = el("div.field", el("label", { for: id }, heading(place, schema)), input, hint, wrong);
	const read = () => {
		replace(wrong);
		input.ariaInvalid = null;
		try {
			return check();
		} catch (error) {
			replace(wrong, error.message);
			input.ariaInvalid = true;
			input.focus();
			throw new Error(`${place.name}: ${error.message}`);
		}
	};
	return { node, read, write };
}

const missing = (place) => {
	if (place.isRequired) throw new Error("needs a value");
	return OMIT;
};

function textField(schema, place) {
	const input = el("textarea", { rows: 1, spellcheck: "false", value: schema.default ?? "" });
	// An empty text is a value where one is required and nothing where it is not.
	return labelled(place, input, schema, () => (input.value === "" && !place.isRequired ? OMIT : input.value),
		(value) => typeof value === "string" && ((input.value = value), true));
}

function numberField(schema, place) {
	const input = el("input", { type: "text", inputmode: "decimal", value: schema.default ?? "" });
	return labelled(place, input, schema, () => {
		const text = input.value.trim();
		if (!text) return missing(place);
		if (!NUMBER.test(text)) throw new Error("is not a number");
		if (schema.type === "integer" && !Number.isInteger(Number(text))) throw new Error("is not a whole number");
		return String(Number(text)) === text || !JSON.rawJSON ? Number(text) : JSON.rawJSON(text);
	}, (value) => typeof value === "number" && ((input.value = String(value)), true));
}

function choiceField(schema, place, values) {
	const none = place.isRequired && "default" in schema ? [] : [["", place.isRequired ? "choose…" : "not set"]];
	const input = el("select", options([...none, ...values.map((value, i) => [i, typeof value === "string" ? value : JSON.stringify(value)])]));
	const write = (value) => {
		const i = values.findIndex((each) => canonical(each) === canonical(value));
		if (i >= 0) input.value = String(i);
		return i >= 0;
	};
	input.value = "";
	if ("default" in schema) write(schema.default);
	return labelled(place, input, schema, () => (input.value === "" ? missing(place) : values[Number(input.value)]), write);
}

export function jsonField(schema, place) {
	const start = "default" in schema ? JSON.stringify(schema.default, null, 2) : "";
	const input = el("textarea.json", { rows: 4, spellcheck: "false", value: start, placeholder: "JSON" });
	const field = labelled(place, input, schema, () => {
		if (!input.value.trim()) return missing(place);
		try {
			return JSON.parse(input.value);
		} catch (error) {
			throw new Error(`is not JSON: ${error.message}`);
		}
	}, (value) => ((input.value = JSON.stringify(value, null, 2)), true));
	return { ...field, input };
}

/** A group that has a legend; an optional one is there only once it is added, unless `isOpen`. */
function group(schema, place, make, isOpen = place.isRequired) {
	const body = el("div");
	let inner = null;
	const add = button(`Add ${place.name}`, () => (set(true), body.querySelector(CONTROLS)?.focus()), { class: "quiet" });
	const remove = button("Remove", () => (set(false), add.focus()), { class: "quiet", label: `Remove ${place.name}` });
	function set(isThere) {
		inner = isThere ? make(body) : null;
		if (!isThere) replace(body);
		add.hidden = isThere;
		remove.hidden = !isThere || isOpen;
	}
	const node = el("fieldset", el("legend", heading(place, schema)),
		schema.description && el("p.soft", schema.description), body, add, remove);
	set(isOpen);
	const write = (value) => {
		set(true);
		return inner.write(value);
	};
	if (schema.default !== undefined && schema.default !== null) write(schema.default);
	return { node, read: () => (inner ? inner.read() : OMIT), write };
}

function members(schema, place, body) {
	const required = new Set(schema.required);
	const fields = new Map(Object.entries(schema.properties).map(([name, member]) =>
		[name, field(member, { ...place, name, isRequired: required.has(name), depth: place.depth + 1 })]));
	replace(body, [...fields.values()].map(({ node }) => node));
	return {
		read() {
			const value = {};
			for (const [name, { read }] of fields) {
				const part = read();
				// Not an assignment: a member may be called `__proto__`.
				if (part !== OMIT) Object.defineProperty(value, name, { value: part, enumerable: true, writable: true, configurable: true });
			}
			return value;
		},
		write: (value) => value !== null && typeof value === "object" && !Array.isArray(value) &&
			Object.entries(value).map(([name, part]) => fields.get(name)?.write(part) ?? false).every(Boolean),
	};
}

function items(schema, place, body) {
	let rows = [];
	const list = el("ol.items");
	function add() {
		const row = field(schema.items ?? {}, { ...place, name: `${place.name} ${rows.length + 1}`, isRequired: true, depth: place.depth + 1 });
		const item = el("li", row.node, button("Remove", () => {
			rows = rows.filter((each) => each !== row);
			item.remove();
			more.focus();
		}, { class: "quiet", label: `Remove an item of ${place.name}` }));
		rows.push(row);
		list.append(item);
		return row;
	}
	const more = button("Add item", () => add().node.querySelector(CONTROLS)?.focus(), { class: "quiet", label: `Add an item to ${place.name}` });
	replace(body, list, more);
	for (let n = schema.minItems ?? 0; n > 0 && n <= 10; n--) add();
	return {
		read: () => (rows.length || place.isRequired ? rows.map(({ read }) => read()) : OMIT),
		write(value) {
			if (!Array.isArray(value)) return false;
			rows = [];
			list.replaceChildren();
			return value.map((part) => add().write(part)).every(Boolean);
		},
	};
}

function field(schema, place) {
	const resolved = resolve(schema, place.root);
	if (!resolved || place.depth > MAX_DEPTH) return jsonField({}, place);
	const { options: [first, ...others], nullable } = alternatives(resolved);
	if (nullable || others.length) {
		if (!first || others.length) return jsonField(resolved, place);
		// Left empty, it is null where something has to be sent.
		const { description, default: start } = resolved;
		const inner = field({ description, ...first, ...(start != null && { default: start }) }, { ...place, isRequired: false });
		const read = () => {
			const value = inner.read();
			return value === OMIT && place.isRequired ? null : value;
		};
		return { ...inner, read, write: (value) => value === null || inner.write(value) };
	}
	const one = { ...resolve(first, place.root) };
	if ("const" in one) return choiceField({ ...one, ...(place.isRequired && { default: one.const }) }, place, [one.const]);
	if (Array.isArray(one.enum)) return choiceField(one, place, one.enum);
	if (one.type === "string") return textField(one, place);
	if (one.type === "number" || one.type === "integer") return numberField(one, place);
	if (one.type === "boolean") return choiceField(one, place, [true, false]);
	if (one.type === "array" && !one.prefixItems) return group(one, place, (body) => items(one, place, body), true);
	if (one.properties && (one.type === "object" || !one.type)) return group(one, place, (body) => members(one, place, body));
	return jsonField(one, place);
}

/** A form for the arguments of a tool, with a JSON editor beside it. `text()` is what is to be sent. */
export function argumentsForm(schema) {
	const resolved = resolve(schema ?? {}, schema);
	const hasMembers = Object.keys(resolved?.properties ?? {}).length > 0;
	const canShow = Boolean(resolved) && !resolved.anyOf && !resolved.oneOf && (hasMembers || !resolved.additionalProperties);
	const body = el("div");
	const editor = jsonField({}, { name: "Arguments as JSON", isRequired: true, root: {}, depth: 0 });
	const note = el("p.soft", { role: "status" });
	let inner = canShow ? members({ properties: {}, ...resolved }, { root: schema ?? {}, depth: 0 }, body) : null;
	let isText = !canShow;

	const choose = (asText) => {
		isText = asText;
		body.hidden = asText;
		editor.node.hidden = !asText;
		formTab.ariaPressed = !asText;
		textTab.ariaPressed = asText;
	};
	const fill = (value) => {
		inner = members({ properties: {}, ...resolved }, { root: schema ?? {}, depth: 0 }, body);
		return inner.write(value) && canonical(inner.read()) === canonical(value);
	};
	const formTab = button("Form", () => {
		const value = quietly(() => editor.read());
		if (value !== undefined && fill(value)) replace(note), choose(false);
		else replace(note, "The form cannot show these arguments; they stay as JSON.");
	});
	const textTab = button("JSON", () => {
		if (isText) return;
		const value = quietly(() => inner.read());
		if (value !== undefined) editor.input.value = JSON.stringify(value, null, 2);
		else if (!editor.input.value) editor.input.value = "{}";
		choose(true);
	});
	if (!canShow) editor.input.value = "{}";
	choose(isText);
	if (canShow && !hasMembers) replace(body, el("p.soft", "It takes no arguments."));

	return {
		node: el("div",
			el("div.segments", { role: "group", label: "How to give the arguments", hidden: !canShow }, formTab, textTab), note, body, editor.node),
		/** The arguments as JSON text; throws, with the focus on what is wrong. */
		text: () => (isText ? (editor.read(), editor.input.value) : JSON.stringify(inner.read())),
		/** Show arguments that were used before: in the form if it can show all of them, else as they were. */
		fill(text) {
			const value = parsed(text);
			if (canShow && value !== undefined && fill(value)) return choose(false);
			editor.input.value = text;
			choose(true);
		},
	};
}
