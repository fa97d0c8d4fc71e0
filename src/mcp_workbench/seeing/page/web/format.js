/* How figures are written. What was not measured is a dash, never a zero. */

export const NONE = "–";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const counts = new Intl.NumberFormat("en");
const two = (n) => String(n).padStart(2, "0");

export const count = (value) => (isNumber(value) ? counts.format(Math.round(value)) : NONE);

export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

export function bytes(value) {
	if (!isNumber(value)) return NONE;
	let unit = 0;
	while (value >= 1024 && unit < 4) value /= 1024, unit++;
	return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

/** A duration: 0.8 ms, 12 ms, 3.4 s, 5 min, 2 h 10 min. */
export function seconds(value) {
	if (!isNumber(value)) return NONE;
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

const dayOf = (date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;

/** A wall clock time, with the day unless it is today. */
export function clock(at, withSeconds = false) {
	if (!isNumber(at)) return NONE;
	const date = new Date(at * 1000);
	const time = `${two(date.getHours())}:${two(date.getMinutes())}${withSeconds ? ":" + two(date.getSeconds()) : ""}`;
	return dayOf(date) === dayOf(new Date()) ? time : `${dayOf(date)} ${time}`;
}

export const since = (at) => (isNumber(at) ? `since ${clock(at)}` : "not measured");

/** A cause without the output of a server that may follow it. */
export const firstLine = (text) => (text ?? "").split("\n", 1)[0].slice(0, 500);

/** What there is of them, set apart. */
export const words = (between, ...parts) => parts.filter(Boolean).join(between);

export const path = (...parts) => words("/", ...parts);
