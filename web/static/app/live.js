// @ts-check
// Live tails and scans: text/event-stream by fetch, which can send credentials.
import { Problem, send } from "./api.js";
import { read } from "./lib/json.js";

/**
 * @typedef {{event: (e: any, id: string) => void, progress?: (p: any) => void, state?: (s: string) => void,
 *   end?: (why: string, data: any) => void, problem?: (p: any) => void}} Listener
 */

/**
 * follow reads a live tail until it is stopped or ends by itself. After a break it goes
 * on behind the last event that it was given. With rests it holds no connection while the
 * tab is hidden, and goes on in the same way when it is shown again. With after it begins behind the event of that id.
 * @param {string} path @param {Record<string, any>} query @param {Listener} l @param {{node?: string, once?: boolean, rests?: boolean, after?: string}} [o] @returns {() => void} stops it
 */
export function follow(path, query, l, o = {}) {
	let control = new AbortController(), over = false, last = o.after || "", retry = 2000;
	/** @type {(() => void) | null} */ let wake = null;
	const turn = () => (document.hidden ? control.abort() : wake && wake());
	const stop = () => {
		over = true;
		control.abort();
		if (wake) wake();
		document.removeEventListener("visibilitychange", turn);
	};
	if (o.rests) document.addEventListener("visibilitychange", turn);
	const q = new URLSearchParams();
	for (const [k, v] of Object.entries(query)) if (v !== undefined && v !== "" && v !== null) q.set(k, String(v));

	/** @param {{event: string, data: string, id: string}} m */
	const take = (m) => {
		const data = m.data === "" ? null : read(m.data);
		if (m.id) last = m.id;
		else if (m.event === "live" && last === "") q.set("from", "start"); // There is nothing yet: all that comes is behind it.
		switch (m.event) {
			case "": return l.event(data, m.id);
			case "progress": return l.progress && l.progress(data);
			case "gone": case "denied": case "end": {
				const why = m.event === "end" && data ? data.reason : m.event;
				if (why === "shutdown" && !o.once) return l.state && l.state(why); // The node may come back.
				stop();
				return l.end && l.end(why, data || {});
			}
			default: return l.state && l.state(m.event);
		}
	};
	(async () => {
		while (!over) {
			if (o.rests && document.hidden) {
				if (l.state) l.state("paused");
				await new Promise((resolve) => (wake = () => resolve(undefined)));
				wake = null;
				continue;
			}
			control = new AbortController();
			try {
				/** @type {Record<string, string>} */ const headers = last ? { "Last-Event-ID": last } : {};
				const r = await send("GET", path + "?" + q, { accept: "text/event-stream", headers, signal: control.signal, node: o.node });
				if (r.status === 204) return stop(), l.end && l.end("to", {}); // Nothing is left.
				if (l.state) l.state("connected");
				await messages(/** @type {ReadableStream} */ (r.body), take, (ms) => (retry = ms));
			} catch (e) {
				if (over) return;
				const p = e instanceof Problem ? e : null;
				if (!control.signal.aborted && (o.once || !p || (p.status !== 0 && p.status !== 503))) {
					stop();
					return l.problem && l.problem(e);
				}
			}
			if (over) return;
			if (control.signal.aborted) continue;
			if (l.state) l.state("broken");
			await new Promise((resolve) => setTimeout(resolve, retry));
		}
	})();
	return stop;
}

/**
 * newest reads the newest events of a stream that need not exist, newest first, of those that the query asks for;
 * from its start on with from, to and no backward.
 * @param {string} path @param {number} limit @param {{node?: string, query?: Record<string, any>, signal?: AbortSignal}} [o] @returns {Promise<any[]>}
 */
export function newest(path, limit, o = {}) {
	return new Promise((resolve, reject) => {
		/** @type {any[]} */ const events = [];
		const stop = follow(path, { from: "end", backward: true, limit, resolve: true, ...o.query }, { event: (e) => events.push(e), end: () => resolve(events), problem: reject }, { node: o.node, once: true });
		if (o.signal) o.signal.addEventListener("abort", stop);
	});
}

/** messages reads a body as the HTML standard describes event streams. @param {ReadableStream} body @param {(m: any) => void} take @param {(ms: number) => void} retry */
export async function messages(body, take, retry) {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "", m = { event: "", data: "", id: "" }, some = false;
	for (;;) {
		const { done, value } = await reader.read().catch(() => {
			throw new Problem(0, "The connection broke.", "", "", "");
		});
		if (done) return;
		const lines = (rest + value).split("\n");
		rest = /** @type {string} */ (lines.pop());
		for (const line of lines) {
			if (line === "") {
				if (some) take(m);
				m = { event: "", data: "", id: "" };
				some = false;
				continue;
			}
			const colon = line.indexOf(":");
			if (colon === 0) continue;
			const name = colon < 0 ? line : line.slice(0, colon), v = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
			if (name === "data") m.data += (m.data ? "\n" : "") + v;
			else if (name === "event") m.event = v;
			else if (name === "id") m.id = v;
			else if (name === "retry") {
				retry(Number(v));
				continue;
			} else continue;
			some = true;
		}
	}
}
