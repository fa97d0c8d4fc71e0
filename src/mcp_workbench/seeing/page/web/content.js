/* Text of others, shown whole but never longer than a browser can bear: arguments, results, logs, definitions. */

import { button, el, replace } from "./dom.js";
import { count } from "./format.js";

const MAX_SHOWN = 20_000;
const MAX_DIFF_LINES = 600;
const IMAGES = /^image\/(png|jpeg|gif|webp)$/;

/** What it returns; undefined if it throws. */
export function quietly(read) {
	try {
		return read();
	} catch {
		return undefined;
	}
}

export const parsed = (text) => quietly(() => JSON.parse(text));

/** JSON indented; whatever is not JSON, or would not survive being parsed, as it came. */
export function pretty(value) {
	if (typeof value !== "string") return JSON.stringify(value, null, 2) ?? "";
	const data = parsed(value);
	if (data === undefined || data === null || typeof data !== "object") return value;
	// Numbers beyond double precision and repeated members would be shown as something that was not sent.
	const compact = (text) => text.replace(/"(?:[^"\\]|\\.)*"|\s+/g, (part) => (part[0] === '"' ? JSON.stringify(JSON.parse(part)) : ""));
	return compact(value) === JSON.stringify(data) ? JSON.stringify(data, null, 2) : value;
}

/** A block of text. A long one is cut, says so, and can be shown whole; `whole` never cuts. */
export function textBlock(text, label, whole = false) {
	text ??= "";
	const block = el("pre", { tabindex: "0", role: "group", label });
	if (whole || text.length <= MAX_SHOWN) return replace(block, text);
	const more = button(`Show all ${count(text.length)} characters`, () => replace(block, text), { class: "quiet" });
	return replace(block, text.slice(0, MAX_SHOWN) + "…", el("br"), more);
}

/** A sentence of ours, in which `backticks` mark what can be typed. Messages begin with a small letter. */
export const sentence = (text) => (text ?? "").replace(/^\w/, (first) => first.toUpperCase()).split("`").map((part, i) => (i % 2 ? el("code", part) : part));

export const jsonBlock = (value, ...shown) => textBlock(pretty(value), ...shown);

export function copyButton(text, what) {
	return button("Copy", async (event) => {
		const pressed = event.currentTarget;
		const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
		replace(pressed, done ? "Copied" : "Cannot copy here");
	}, { class: "quiet", label: `Copy ${what}` });
}

/** What a server answered: text as text, pictures as pictures, the rest as JSON. */
export function resultBlock(result) {
	const data = typeof result === "string" ? parsed(result) : result;
	const parts = data?.content ?? data?.contents ?? data?.messages?.map((message) => message.content);
	if (!Array.isArray(parts)) return jsonBlock(result, "Result");
	const shown = parts.map((part) => {
		if (typeof part?.text === "string") return jsonBlock(part.text, "Text of the result");
		if (part?.type === "image" && IMAGES.test(part.mimeType)) {
			return el("img.result", { alt: "Picture of the result", src: `data:${part.mimeType};base64,${part.data}` });
		}
		return jsonBlock(part, "Part of the result");
	});
	return el(data.isError ? "div.result.bad" : "div.result",
		data.isError && el("p.badge.bad", "the tool reports an error"),
		shown.length ? shown : el("p.soft", "An empty result."),
		data.structuredContent !== undefined && [el("h4", "Structured"), jsonBlock(data.structuredContent, "Structured result")]);
}

/** Which lines of two texts differ, as two lists of [line, differs]. */
export function lineDiff(before, after) {
	const a = before.split("\n"), b = after.split("\n");
	if (a.length > MAX_DIFF_LINES || b.length > MAX_DIFF_LINES) return [a, b].map((lines) => lines.map((line) => [line, false]));
	const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
	for (let i = a.length - 1; i >= 0; i--) {
		for (let j = b.length - 1; j >= 0; j--) {
			common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
		}
	}
	const left = [], right = [];
	let i = 0, j = 0;
	while (i < a.length || j < b.length) {
		if (i < a.length && j < b.length && a[i] === b[j]) left.push([a[i++], false]), right.push([b[j++], false]);
		else if (j >= b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1])) left.push([a[i++], true]);
		else right.push([b[j++], true]);
	}
	return [left, right];
}

export function sideBySide(before, after, isKnown) {
	const texts = [isKnown ? before : after, after].map((side) => pretty(side ?? ""));
	const [left, right] = lineDiff(...texts);
	const lines = (rows, mark) => rows.map(([line, differs]) => (differs ? el(mark, {}, line + "\n") : line + "\n"));
	const column = (title, rows, mark, problem) => el("div", el("h4", title),
		problem || (rows.length === 1 && !rows[0][0]) ? el("p.soft", problem || "nothing") :
			el("pre", { tabindex: "0", role: "group", label: title }, lines(rows, mark)));
	return el("div.side-by-side", column("Accepted before", left, "del", !isKnown && "Only its hash is known."), column("Offered now", right, "ins"));
}
