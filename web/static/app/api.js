// @ts-check
// Requests to the node.
import { useCallback, useEffect, useRef, useState } from "../vendor/preact.js";
import { ask, basic, user } from "./auth.js";
import { curl } from "./lib/curl.js";
import { read } from "./lib/json.js";
import { has, trouble } from "./store.js";

/** root is where the interface of the node begins: above /ui/ and /web/, below any prefix of a proxy. */
export const root = new URL("..", location.href.split("#")[0]);

/** Problem is an answer that is none, with the text of the server. */
export class Problem extends Error {
	/** @param {number} status @param {string} text @param {string} method @param {string} url @param {string} command */
	constructor(status, text, method, url, command) {
		super(text || (status ? `HTTP status ${status}` : "The node cannot be reached."));
		this.status = status;
		this.said = text;
		this.method = method;
		this.url = url;
		this.command = command;
	}
}

/**
 * @typedef {{body?: any, type?: string, accept?: string, headers?: Record<string, string>, node?: string,
 *   signal?: AbortSignal, text?: boolean, allow?: number[], silent?: boolean}} Options
 */

export const atomJSON = "application/vnd.eventstore.atom+json";
export const eventsJSON = "application/vnd.eventstore.events+json";

/** prepare makes what fetch and curl need. @param {string} method @param {string} path @param {Options} o */
function prepare(method, path, o) {
	const url = new URL(path.replace(/^\//, ""), root);
	/** @type {Record<string, string>} */
	const headers = { Accept: o.accept || "application/json", ...o.headers };
	const node = o.node || (method === "GET" ? "" : "leader");
	if (node && node !== "self" && has("nodeRelay")) headers["Annals-Node"] = node;
	let body = o.body;
	if (body !== undefined) {
		headers["Content-Type"] = o.type || "application/json";
		if (typeof body !== "string") body = JSON.stringify(body);
	}
	return { url, headers, body };
}

/** command is a request as a line of curl. @param {string} method @param {string} path @param {Options} [o] */
export function command(method, path, o = {}) {
	const { url, headers, body } = prepare(method, path, o);
	return curl(method, url.href, headers, body, user.value ? user.value.login : "");
}

/**
 * send makes a request and returns the answer as it is. Credentials that are no longer
 * right are asked for, and the request is made again.
 * @param {string} method @param {string} path @param {Options} [o] @returns {Promise<Response>}
 */
export async function send(method, path, o = {}) {
	for (;;) {
		const { url, headers, body } = prepare(method, path, o);
		const with_ = user.value;
		if (with_) headers.Authorization = with_.basic;
		let r;
		try {
			r = await fetch(url, { method, headers, body, cache: "no-store", credentials: "omit", redirect: "follow", signal: o.signal });
		} catch (e) {
			if (o.signal && o.signal.aborted) throw e;
			if (!o.silent) trouble.set("This node cannot be reached.");
			throw new Problem(0, "", method, url.href, command(method, path, o));
		}
		if (trouble.value) trouble.set("");
		if (r.ok || (o.allow && o.allow.includes(r.status))) return r;
		if (r.status === 401 && with_ && !o.silent && !(await known(with_.basic))) {
			if (await ask()) continue;
		}
		throw new Problem(r.status, await sentence(r), method, url.href, command(method, path, o));
	}
}

/** sentence is the text of a refusal. @param {Response} r */
async function sentence(r) {
	const text = (await r.text()).trim();
	if (/json/.test(r.headers.get("Content-Type") || "")) {
		try {
			const d = JSON.parse(text);
			return d.reason || d.error || d.message || (text === "{}" ? r.statusText : text);
		} catch { /* As it is. */ }
	}
	return text.startsWith("<") ? r.statusText : text.slice(0, 2000);
}

/** known reports whether credentials are still right. @param {string} authorization */
async function known(authorization) {
	try {
		const r = await fetch(new URL("admin/login", root), { headers: { Authorization: authorization, Accept: "application/json" }, cache: "no-store", credentials: "omit" });
		return r.status !== 401;
	} catch {
		return true;
	}
}

/** signIn checks credentials and returns whose they are, or null. @param {string} login @param {string} password */
export async function signIn(login, password) {
	const authorization = basic(login, password);
	const r = await fetch(new URL("admin/login", root), { headers: { Authorization: authorization, Accept: "application/json" }, cache: "no-store", credentials: "omit" });
	if (r.status === 401) return null;
	if (!r.ok) throw new Problem(r.status, await sentence(r), "GET", r.url, "");
	const d = await r.json();
	return { login, basic: authorization, groups: (d.data && d.data.groups) || [] };
}

/** json makes a request and reads its answer; nothing is null. @param {string} method @param {string} path @param {Options} [o] @returns {Promise<any>} */
export async function json(method, path, o = {}) {
	const r = await send(method, path, o);
	const text = await r.text();
	if (text === "") return null;
	return o.text || !/json/.test(r.headers.get("Content-Type") || "") ? text : read(text);
}

/** get reads a document. @param {string} path @param {Options} [o] */
export const get = (path, o) => json("GET", path, o);

/** fromLeader reads what the leader alone knows. @param {string} path @param {Options} [o] */
export const fromLeader = (path, o = {}) => json("GET", path, { node: "leader", ...o });

/**
 * @typedef {{data: any, error: any, loading: boolean, at: number, again: () => void}} Question
 */

/**
 * useAnswer asks when dependencies change and, with every, that often while the page is
 * seen. An answer to an older question is dropped; what is there stays until the next.
 * @param {(signal: AbortSignal) => Promise<any>} question @param {any[]} deps @param {{every?: number, off?: boolean}} [o] @returns {Question}
 */
export function useAnswer(question, deps, o = {}) {
	const [state, set] = useState({ data: undefined, error: null, loading: !o.off, at: 0, key: "" });
	const ask = useRef(question), turn = useRef(0), under = useRef(/** @type {AbortController | null} */ (null));
	ask.current = question;
	const again = useCallback(async () => {
		if (under.current) under.current.abort();
		const mine = ++turn.current, control = new AbortController();
		under.current = control;
		set((s) => ({ ...s, loading: true }));
		try {
			const data = await ask.current(control.signal);
			if (mine === turn.current) set((s) => ({ ...s, data, error: null, loading: false, at: Date.now() }));
		} catch (error) {
			if (mine === turn.current && !control.signal.aborted) set((s) => ({ ...s, error, loading: false }));
		}
	}, []);
	useEffect(() => {
		set((s) => ({ ...s, data: undefined, error: null }));
		if (o.off) return;
		again();
		if (!o.every) return () => under.current?.abort();
		const timer = setInterval(() => document.hidden || again(), o.every);
		const shown = () => document.hidden || again();
		document.addEventListener("visibilitychange", shown);
		return () => {
			clearInterval(timer);
			document.removeEventListener("visibilitychange", shown);
			turn.current++;
			under.current?.abort();
		};
	}, [...deps, o.off]);
	return { ...state, again };
}
