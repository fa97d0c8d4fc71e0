/* JSON Schema, read far enough to draw it. Nothing is checked: the workbench and the server check what is sent. */

import { el } from "./dom.js";
import { words } from "./format.js";

const MAX_REFERENCES = 20;
const MAX_DEPTH = 8;

function target(reference, root) {
	if (!reference.startsWith("#")) return undefined;
	if (reference === "#") return root;
	const steps = reference.slice(2).split("/").map((step) => decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~"));
	return steps.reduce((node, step) => (node !== null && typeof node === "object" && Object.hasOwn(node, step) ? node[step] : undefined), root);
}

/** The schema with its `$ref` and `allOf` folded in, or null where that cannot be done here. */
export function resolve(schema, root) {
	for (let n = 0; n < MAX_REFERENCES; n++) {
		if (schema === true || schema === undefined) return {};
		if (schema === null || typeof schema !== "object" || Array.isArray(schema)) return null;
		if (typeof schema.$ref === "string") {
			const { $ref, ...beside } = schema;
			const found = target($ref, root);
			if (found === undefined) return null;
			schema = typeof found === "object" ? { ...found, ...beside } : found;
		} else if (Array.isArray(schema.allOf)) {
			const { allOf, ...merged } = schema;
			for (const part of allOf) {
				const folded = resolve(part, root);
				if (!folded) return null;
				Object.assign(merged, folded, {
					properties: { ...merged.properties, ...folded.properties },
					required: [...(merged.required ?? []), ...(folded.required ?? [])],
				});
			}
			schema = merged;
		} else return schema;
	}
	return null;
}

/** The alternatives of a resolved schema without `null`, and whether `null` is one of them. */
export function alternatives(schema) {
	const listed = schema.anyOf ?? schema.oneOf;
	let options;
	if (Array.isArray(listed)) {
		const { anyOf, oneOf, title, default: unused, ...rest } = schema;
		options = listed.map((option) => (option && typeof option === "object" ? { ...rest, ...option } : option));
	} else if (Array.isArray(schema.type)) options = schema.type.map((type) => ({ ...schema, type }));
	else return { options: [schema], nullable: false };
	const others = options.filter((option) => option?.type !== "null" && option?.const !== null);
	return { options: others, nullable: others.length < options.length };
}

export function typeName(schema, root, depth = 0) {
	const resolved = resolve(schema, root);
	if (!resolved) return "any";
	const { options, nullable } = alternatives(resolved);
	if (nullable || options.length !== 1) {
		if (depth > 2) return "…";
		return [...new Set([...options.map((option) => typeName(option, root, depth + 1)), ...(nullable ? ["null"] : [])])].join(" or ");
	}
	if ("const" in resolved) return JSON.stringify(resolved.const);
	if (resolved.enum) return "choice";
	if (resolved.type === "array" && depth < 3) return resolved.items ? `array of ${typeName(resolved.items, root, depth + 1)}` : "array";
	return resolved.type ?? (resolved.properties ? "object" : "any");
}

/** What a value has to satisfy, in a few words. */
export function constraints(schema) {
	const range = (low, high, what = "") => (low !== undefined && high !== undefined ? `${what}${low} to ${high}` :
		low !== undefined ? `${what}at least ${low}` : high !== undefined && `${what}at most ${high}`);
	const said = (name, what) => name in schema && `${what} ${name === "default" ? JSON.stringify(schema[name]) : schema[name]}`;
	return words(", ",
		range(schema.minimum, schema.maximum), said("exclusiveMinimum", "above"), said("exclusiveMaximum", "below"),
		range(schema.minLength, schema.maxLength, "length "), range(schema.minItems, schema.maxItems, "number of items "),
		schema.format, said("pattern", "matches"), said("default", "default"));
}

/** The members of an object, nested, as a list to read. */
export function schemaTree(schema, root = schema, seen = [], depth = 0) {
	const resolved = resolve(schema, root);
	const shape = resolved && alternatives(resolved).options.map((option) => resolve(option, root)).find((option) => option?.properties || option?.items);
	if (!shape) return null;
	if (shape.type === "array" || (shape.items && !shape.properties)) return schemaTree(shape.items, root, seen, depth + 1);
	if (seen.includes(shape.properties) || depth > MAX_DEPTH) return el("p.soft", "… as above");
	const required = new Set(shape.required);
	return el("ul.schema", Object.entries(shape.properties ?? {}).map(([name, member]) => {
		const inner = resolve(member, root) ?? {};
		const values = inner.enum?.map((value) => JSON.stringify(value)).join(", ");
		return el("li",
			el("code", name), " ", el("span.type", typeName(member, root), values && ` ${values}`),
			required.has(name) && el("span.badge", "required"),
			el("span.soft", " ", constraints(inner)),
			inner.description && el("div.soft", inner.description),
			schemaTree(member, root, [...seen, shape.properties], depth + 1));
	}));
}
