// @ts-check
// Which page an address is of. Pages are loaded when they are first opened.
import { official, parse, to } from "./lib/address.js";
import { Store } from "./store.js";

/** @typedef {{parts: string[], query: Record<string, string>}} Address */

/** Each form of address: literal parts, and names in braces. @type {[string, () => Promise<any>][]} */
const table = [
	["", () => import("./pages/overview.js")],
	["streams", () => import("./pages/streams.js")],
	["streams/{stream}", () => import("./pages/stream.js")],
	["streams/{stream}/append", () => import("./pages/append.js")],
	["streams/{stream}/metadata", () => import("./pages/limits.js")],
	["streams/{stream}/{number}", () => import("./pages/event.js")],
	["append", () => import("./pages/append.js")],
	["correlation/{id}", () => import("./pages/correlation.js")],
	["search", () => import("./pages/search.js")],
	["subscriptions", () => import("./pages/subscriptions.js")],
	["subscriptions/new", () => import("./pages/group_edit.js")],
	["subscriptions/{stream}/{group}", () => import("./pages/group.js")],
	["subscriptions/{stream}/{group}/edit", () => import("./pages/group_edit.js")],
	["subscriptions/{stream}/{group}/parked", () => import("./pages/parked.js")],
	["projections", () => import("./pages/projections.js")],
	["projections/new", () => import("./pages/projection_edit.js")],
	["projections/{name}", () => import("./pages/projection.js")],
	["projections/{name}/edit", () => import("./pages/projection_edit.js")],
	["query", () => import("./pages/query.js")],
	["cluster", () => import("./pages/cluster.js")],
	["stats", () => import("./pages/statistics.js")],
	["options", () => import("./pages/options.js")],
	["scavenge", () => import("./pages/scavenge.js")],
	["scavenge/{id}", () => import("./pages/scavenge.js")],
	["backup", () => import("./pages/backup.js")],
	["activity", () => import("./pages/activity.js")],
	["users", () => import("./pages/users.js")],
	["users/new", () => import("./pages/user.js")],
	["users/{login}", () => import("./pages/user.js")],
	["account", () => import("./pages/account.js")],
	["signin", () => import("./pages/signin.js")],
];

let shown = location.hash; // The hash of address.
export const address = new Store(parse(shown));

/** show makes a hash the address. @param {string} hash */
function show(hash) {
	shown = hash;
	address.set(parse(hash));
}

addEventListener("hashchange", () => {
	const other = official(parse(location.hash).parts);
	if (other) return go(other, true);
	show(location.hash);
});

/** start looks at the first address. */
export function start() {
	const other = official(address.value.parts);
	if (other) go(other, true);
}

/** go leads to a hash. @param {string} hash @param {boolean} [replace] */
export function go(hash, replace) {
	if (replace) {
		history.replaceState(null, "", hash);
		show(hash);
	} else location.hash = hash;
}

/**
 * patch changes the query of the address, and leaves no step for Back with replace. On the way to another page, of which the
 * browser has yet to tell, it does nothing: the page that asks is the one that is left.
 * @param {Record<string, any>} query @param {boolean} [replace]
 */
export function patch(query, replace) {
	const a = parse(location.hash), b = address.value;
	if (location.hash !== shown && to(a.parts, { tab: a.query.tab }) !== to(b.parts, { tab: b.query.tab })) return;
	const hash = to(a.parts, { ...a.query, ...query });
	if (hash !== location.hash) go(hash, replace);
}

/** unmoved returns what tells whether the address is the one of now: an answer that comes later leads nowhere. */
export function unmoved() {
	const hash = location.hash;
	return () => location.hash === hash;
}

/** find returns the page of an address with the values of its names, or null. @param {string[]} parts */
export function find(parts) {
	for (const [form, load] of table) {
		const names = form === "" ? [] : form.split("/");
		if (names.length !== parts.length) continue;
		/** @type {Record<string, string>} */ const args = {};
		if (names.every((n, i) => (n[0] === "{" ? parts[i] !== "" && ((args[n.slice(1, -1)] = parts[i]), true) : n === parts[i]))) return { form, load, args };
	}
	return null;
}
