/* How figures are written. What was not measured is a dash, never a zero. */

export const NONE = "–";

const counts = new Intl.NumberFormat("en");

export const count = (value) => (Number.isFinite(value) ? counts.format(Math.round(value)) : NONE);

export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

export function bytes(value) {
	if (!Number.isFinite(value)) return NONE;
	let unit = 0;
	while (value >= 1024 && unit < 4) value /= 1024, unit++;
	return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

/** A duration: 0.8 ms, 12 ms, 3.4 s, 5 min, 2 h 10 min. */
export function seconds(value) {
	if (!Number.isFinite(value)) return NONE;
	if (value && value < 5e-5) return "< 0.1 ms";
	if (value < 0.01) return `${+(value * 1000).toFixed(1)} ms`;
	if (value < 1) return `${Math.round(value * 1000)} ms`;
	if (value < 10) return `${+value.toFixed(1)} s`;
	if (value < 120) return `${Math.round(value)} s`;
	const minutes = Math.floor(value / 60);
	if (minutes < 120) return `${minutes} min`;
	const hours = Math.floor(minutes / 60);
	return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

// Swedish dates and times are those of ISO 8601.
const dayOf = (date) => date.toLocaleDateString("sv");

/** A wall clock time, with the day unless it is today. */
export function clock(at, withSeconds = false) {
	if (!Number.isFinite(at)) return NONE;
	const date = new Date(at * 1000);
	const time = date.toLocaleTimeString("sv").slice(0, withSeconds ? 8 : 5);
	return dayOf(date) === dayOf(new Date()) ? time : `${dayOf(date)} ${time}`;
}

export const since = (at) => (Number.isFinite(at) ? `since ${clock(at)}` : "not measured");

/** A cause without the output of a server that may follow it. */
export const firstLine = (text) => (text ?? "").split("\n", 1)[0].slice(0, 500);

/** The sum of what was measured; null if nothing was. */
export const sum = (list, member) =>
	list.reduce((total, each) => (typeof each[member] === "number" ? (total ?? 0) + each[member] : total), null);

/** What there is of them, set apart. */
export const words = (between, ...parts) => parts.filter(Boolean).join(between);

/** Whether each of the typed words is in one of the texts. */
export function matches(typed, ...texts) {
	const all = texts.join(" ").toLowerCase();
	return typed.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

export const path = (...parts) => words("/", ...parts);
