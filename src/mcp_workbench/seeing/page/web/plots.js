/* Plots as SVG, drawn at the width they have, so that their text keeps its size. Each says in words what it shows. */

import { el, replace, svg } from "./dom.js";
import { clock, count, seconds } from "./format.js";

const GAP = 2;

/** A figure that is drawn again whenever its width changes. */
function figure(title, height, describe, draw) {
	const picture = svg("svg", { role: "img", label: `${title}. ${describe}`, height, width: "100%" });
	const observer = new ResizeObserver(([entry]) => {
		const width = Math.floor(entry.contentRect.width);
		if (width > 0) replace(picture, draw(width, height));
	});
	observer.observe(picture);
	return el("figure", caption(title, describe), picture);
}

const caption = (title, note) => el("figcaption", title, el("span.soft", note));

const rect = (x, y, width, height, kind, title) =>
	svg("rect", { x, y, width: Math.max(width, 0), height: Math.max(height, 0), class: kind, rx: 1.5 }, title && svg("title", {}, title));

const label = (x, y, text, anchor = "start") => svg("text", { x, y, "text-anchor": anchor }, text);

const line = (x1, y1, x2, y2) => svg("line", { x1, y1, x2, y2, class: "axis" });

function roundUp(most) {
	const power = 10 ** Math.floor(Math.log10(Math.max(most, 1)));
	return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= most);
}

/** A latency histogram: `counts[i]` calls took at most `bounds[i]` seconds, those beyond the last bound come last. */
export function histogram(title, { bounds, counts }) {
	const total = counts.reduce((sum, n) => sum + n, 0);
	const used = counts.map((n, i) => (n ? i : -1)).filter((i) => i >= 0);
	if (!total) return el("figure", caption(title, "no calls yet"));
	const first = Math.max(used[0] - 1, 0), last = Math.min(used.at(-1) + 1, counts.length - 1);
	const shown = counts.slice(first, last + 1);
	const name = (i) => (i < bounds.length ? `≤ ${seconds(bounds[i])}` : `> ${seconds(bounds.at(-1))}`);
	const top = Math.max(...shown);
	const busiest = first + shown.indexOf(top);
	return figure(title, 128, `${count(total)} calls, most often ${name(busiest)}`, (width, height) => {
		const each = width / shown.length, base = height - 18;
		return [line(0, base + 0.5, width, base + 0.5), shown.map((n, i) => {
			const tall = n ? Math.max((n / top) * (base - 16), 2) : 0;
			const middle = (i + 0.5) * each, wide = Math.min(each - GAP, 56);
			return [
				rect(middle - wide / 2, base - tall, wide, tall, "bar", `${name(first + i)}: ${count(n)}`),
				n > 0 && each > 30 && label(middle, base - tall - 4, count(n), "middle"),
				(each > 52 || i % Math.ceil(52 / each) === 0) && label(middle, height - 4, name(first + i).replace("≤ ", ""), "middle"),
			];
		})];
	});
}

/** Sum what was counted in short intervals into as many columns as there is room for. */
function columns(points, from, to, many, combine) {
	const sums = new Array(many).fill(null);
	for (const point of points) {
		const i = Math.min(Math.floor(((point.at - from) / (to - from)) * many), many - 1);
		if (i >= 0) sums[i] = combine(sums[i], point);
	}
	return sums;
}

function hours(from, to, width, height) {
	const step = [300, 900, 3600, 10800, 21600].find((s) => ((to - from) / s) * 56 < width) ?? 43200;
	const ticks = [];
	const midnight = new Date(from * 1000).setHours(0, 0, 0, 0) / 1000;
	for (let at = midnight + Math.ceil((from - midnight) / step) * step; at < to; at += step) {
		const x = ((at - from) / (to - from)) * width;
		if (x > 20 && x < width - 20) ticks.push(line(x, height - 18, x, height - 14), label(x, height - 3, clock(at).slice(-5), "middle"));
	}
	return ticks;
}

/** A figure over time; `draw(columns, base, width)` gets what `combine` made of the points, and how many columns there are. */
function overTime(title, points, { from, to, describe, none, height, least, combine }, draw) {
	if (!points.length || !(to > from)) return el("figure", caption(title, none));
	const step = Math.min(...points.slice(1).map((point, i) => point.at - points[i].at), to - from) || 1;
	return figure(title, height, describe, (width) => {
		const many = Math.max(Math.min(Math.floor(width / least), Math.ceil((to - from) / step)), 1), base = height - 18;
		return [line(0, base + 0.5, width, base + 0.5), hours(from, to, width, height), draw(columns(points, from, to, many, combine), base, width)];
	});
}

/** Bars over time. `series` names the members of a point that are drawn over each other; `written` turns sums into words. */
export function bars(title, points, { series, written, ...options }) {
	const combine = (sum, point) => series.map((name, i) => (sum?.[i] ?? 0) + (point[name] ?? 0));
	return overTime(title, points, { ...options, combine, none: "nothing yet", height: 112, least: 7 }, (sums, base, width) => {
		const top = roundUp(Math.max(1, ...sums.map((sum) => sum?.[0] ?? 0)));
		const each = width / sums.length, tall = (n) => Math.max((n * (base - 14)) / top, 2);
		return [line(0, 14.5, width, 14.5), label(0, 10, written([top])), sums.map((sum, i) => sum?.map((n, s) =>
			n > 0 && rect(i * each, base - tall(n), each - GAP, tall(n), s ? "bar bad" : "bar", written(sum))))];
	});
}

/** One measured value over time; where it was not measured, the line has a gap. */
export function course(title, points, { member, written, ...options }) {
	const measured = points.filter((point) => typeof point[member] === "number");
	const combine = (most, point) => Math.max(most ?? 0, point[member]);
	return overTime(title, measured, { ...options, combine, none: "not measured", height: 92, least: 5 }, (values, base, width) => {
		const top = Math.max(...values, 1);
		const path = values.map((value, i) => {
			if (value === null) return "";
			const x = ((i + 0.5) * width) / values.length, y = base - (value / top) * (base - 14);
			return (values[i - 1] ?? null) === null ? `M${x - 1} ${y}H${x + 1}` : `L${x} ${y}`;
		});
		return [label(0, 10, written(top)), svg("path", { d: path.join(""), class: "course" })];
	});
}

/** A bar beside a figure: parts of `most`, each {share, kind}. */
export function inlineBar(parts, most = 1) {
	let x = 0;
	return svg("svg", { class: "inline-bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
		parts.map(({ share, kind }) => {
			const width = share > 0 ? Math.max((100 * share) / most, 1) : 0;
			const part = svg("rect", { x, y: 0, width, height: 8, class: kind });
			x += width;
			return part;
		}));
}
