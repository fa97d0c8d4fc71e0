/* What the page knows, and the one connection it comes through: `/api/state`, then the stream `/api/events`.
	 `status` is connecting, live, lost, or expired; the last two are tried again: a sign-in in another tab is enough. */

// The server sends a comment every 15 s.
const SILENCE_LIMIT = 38_000;
const REQUEST_TIMEOUT = 20_000;
export const MAX_CALLS = 500;
// Calls may come by the thousand.
const DRAW_INTERVAL = 120;

export const store = { state: null, calls: new Map(), status: "connecting", why: "", lost: 0, clockOffset: 0 };

// Given once, after signing in, and kept for this origin: the cookie goes to every port of this host.
const KEY = "page-key";
const given = document.querySelector(`meta[name=${KEY}]`)?.content;
if (given) localStorage.setItem(KEY, given);
const proof = () => ({ "x-csrf": localStorage.getItem(KEY) ?? "" });

const listeners = { state: [], calls: [], status: [], log: [] };
const due = new Set();

/** Be told of `topic` (state, calls, status); of `log` at once with each line. */
export const on = (topic, listener) => listeners[topic].push(listener);

function changed(topic) {
	if (!due.size) setTimeout(flush, DRAW_INTERVAL);
	due.add(topic);
}

function flush() {
	const topics = [...due];
	due.clear();
	for (const topic of topics) for (const listener of listeners[topic]) listener();
}

/** The time of the machine that the workbench runs on, which all times on the page are. */
export const now = () => Date.now() / 1000 + store.clockOffset;

export class Refused extends Error {
	constructor(status, body) {
		super(body.error?.message ?? body.error ?? `The workbench answered ${status}.`);
		this.body = body;
	}
}

async function request(address, options) {
	let response;
	try {
		response = await fetch(address, { signal: AbortSignal.timeout(REQUEST_TIMEOUT), cache: "no-store", headers: proof(), ...options });
	} catch (error) {
		throw new Error("The workbench did not answer.", { cause: error });
	}
	if (response.status === 401) {
		setStatus("expired");
		// The stream may still be open; without it, the page finds out when the session is good again.
		streaming?.abort();
	}
	const body = await response.json().catch(() => ({}));
	if (!response.ok) throw new Refused(response.status, body);
	return body;
}

export const get = (address) => request(address);

/** Send a decision. `body` is an object, or JSON text that must arrive as it was typed. */
export function post(address, body, options = {}) {
	return request(address, {
		method: "POST",
		headers: { "content-type": "application/json", ...proof() },
		body: typeof body === "string" ? body : JSON.stringify(body),
		...options,
	});
}

function setStatus(status, why = "") {
	if (store.status === status && store.why === why) return;
	Object.assign(store, { status, why });
	changed("status");
}

let streaming = null;

export const placeOf = ({ toolbox, server }) => ({ toolbox, server });

export const keyOf = (server) => JSON.stringify([server.toolbox, server.server]);

/** Of what waits, and of what a server offers. */
export const itemKey = (item) => JSON.stringify([item.kind, item.id, item.toolbox, item.server, item.item ?? item.name ?? item.uri]);

function takeState(update) {
	if (update.workbench) {
		// A workbench that was started anew counts calls from one again.
		const was = store.state?.workbench;
		if (was && (was.pid !== update.workbench.pid || store.state.since !== update.since)) store.calls.clear();
		store.state = update;
		store.clockOffset = update.now - Date.now() / 1000;
		store.startedAt = update.now - update.workbench.uptimeSeconds;
		changed("calls");
	} else if (store.state) {
		const { servers, ...rest } = update;
		Object.assign(store.state, rest);
		if (servers) {
			const merged = new Map([...store.state.servers, ...servers].map((server) => [keyOf(server), server]));
			store.state.servers = [...merged.values()];
		}
	}
	changed("state");
}

function takeCall(call) {
	const known = store.calls.get(call.id);
	if (known?.state === "ended" && call.state !== "ended") return;
	store.calls.set(call.id, { ...known, ...call });
	while (store.calls.size > MAX_CALLS) store.calls.delete(store.calls.keys().next().value);
	changed("calls");
}

const handlers = {
	state: takeState,
	calls: (calls) => calls.forEach(takeCall),
	log: (line) => listeners.log.forEach((listener) => listener(line)),
	gap({ lost }) {
		store.lost += lost ?? 0;
		changed("calls");
	},
};

/** Read the stream until it ends. Each event is a name and a value in one line of JSON; comments are neither. */
async function readEvents(body, heard) {
	let rest = "";
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	for (;;) {
		const { value, done } = await reader.read();
		if (done) return;
		heard();
		const blocks = (rest + value).split("\n\n");
		rest = blocks.pop();
		for (const block of blocks) {
			const [, event, data] = /^event: (.*)\ndata: (.*)/m.exec(block) ?? [];
			handlers[event]?.(JSON.parse(data));
		}
	}
}

async function stream() {
	const stop = (streaming = new AbortController());
	let watchdog;
	const heard = () => {
		clearTimeout(watchdog);
		watchdog = setTimeout(() => stop.abort(), SILENCE_LIMIT);
	};
	heard();
	try {
		const response = await fetch("api/events", { signal: stop.signal, cache: "no-store", headers: proof() });
		if (response.status === 401) return setStatus("expired");
		if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
		setStatus("live");
		await readEvents(response.body, heard);
	} finally {
		clearTimeout(watchdog);
		stop.abort();
	}
}

/** Stay connected for as long as the page is open. */
export async function connect() {
	for (let failures = 0; ; failures++) {
		let why = "";
		try {
			takeState(await get("api/state"));
			failures = 0;
			await stream();
		} catch (error) {
			if (error instanceof Refused) why = error.message;
		}
		if (store.status !== "expired") setStatus("lost", why);
		await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** Math.min(failures, 3)));
	}
}
