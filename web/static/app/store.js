// @ts-check
// What several parts of the page share.
import { useEffect, useState } from "../vendor/preact.js";

/** @template T */
export class Store {
	/** @param {T} value */
	constructor(value) {
		this.value = value;
		/** @type {Set<(v: T) => void>} */ this.watchers = new Set();
	}
	/** @param {T} value */
	set(value) {
		if (value === this.value) return;
		this.value = value;
		for (const w of [...this.watchers]) w(value);
	}
}

/** use draws again when the store changes. @template T @param {Store<T>} store @returns {T} */
export function use(store) {
	const [, draw] = useState(0);
	useEffect(() => {
		const w = () => draw((n) => n + 1);
		store.watchers.add(w);
		w();
		return () => void store.watchers.delete(w);
	}, [store]);
	return store.value;
}

/** remembered is a store that localStorage keeps; without that it lasts as long as the page. @param {string} key @param {string} initial */
export function remembered(key, initial) {
	let value = initial;
	try {
		value = localStorage.getItem(key) || initial;
	} catch { /* Storage may be forbidden. */ }
	const s = new Store(value);
	s.watchers.add((v) => {
		try {
			localStorage.setItem(key, v);
		} catch { /* As above. */ }
	});
	return s;
}

/** isSystem reports whether a stream or a type is one of the system. @param {string} name */
export const isSystem = (name) => name.startsWith("$");

/** zone is local or UTC, theme system, light or dark, rows 28 or 36 pixels high. */
export const zone = remembered("annals.zone", "Local");
export const theme = remembered("annals.theme", "System");
export const rows = remembered("annals.rows", "Dense");
/** system says whether lists show streams and events of the system. */
export const system = remembered("annals.system", "Hide");

/** info is what /info says: null before the first answer. */
export const info = new Store(/** @type {any} */ (null));
/** view is what /gossip says. */
export const view = new Store(/** @type {any} */ (null));
/** trouble is why the node cannot be asked, "" when it can. */
export const trouble = new Store("");

/** has reports whether the node has a feature. @param {string} name */
export function has(name) {
	return !info.value || info.value.features[name] !== false;
}

const recent = "annals.visited";

/** visited are the streams that this tab looked at, the last one first. @returns {string[]} */
export function visited() {
	try {
		return JSON.parse(sessionStorage.getItem(recent) || "[]");
	} catch {
		return [];
	}
}

/** visit remembers a stream. @param {string} name */
export function visit(name) {
	try {
		sessionStorage.setItem(recent, JSON.stringify([name, ...visited().filter((s) => s !== name)].slice(0, 50)));
	} catch { /* Then it is not remembered. */ }
}
