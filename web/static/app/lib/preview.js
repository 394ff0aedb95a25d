// @ts-check
// What a list shows of the data of its events: the beginning as text, a match, and fields of JSON.
import { prefix, short } from "./json.js";

/** @typedef {import("./json.js").Node} Node */
/** @typedef {string[]} Path the names that lead to a field */
/** @typedef {{text: string, hit: boolean}[]} Parts a text, and which of its parts were looked for */

export const shown = 120; // characters of a preview
const deepest = 4, most = 60; // levels and number of the fields that a chooser offers
const lead = 30; // characters before a match

/** oneLine is a text without line breaks. JSON gets a blank after each comma and colon, and no others. @param {string} text */
export function oneLine(text) {
	const json = /^\s*[{[]/.test(text);
	return text.replace(/("(?:[^"\\]|\\.)*"?)|\s*([,:])\s*|\s+/g, (all, string, mark) => (!json ? all.replace(/\s+/g, " ") : string ?? (mark ? mark + " " : ""))).trim();
}

/** isBinary tells what is no text: it has many characters that no text has. @param {string} text */
export function isBinary(text) {
	const odd = text.slice(0, 400).match(/[\u0000-\u0008\u000e-\u001f\ufffd]/g);
	return !!odd && odd.length * 10 > Math.min(text.length, 400);
}

/** mark finds a text in another. @param {string} text @param {string} find @returns {Parts} */
export function mark(text, find) {
	const parts = [];
	let at = 0;
	for (let i; find && (i = text.indexOf(find, at)) >= 0; at = i + find.length) {
		if (i > at) parts.push({ text: text.slice(at, i), hit: false });
		parts.push({ text: find, hit: true });
	}
	if (at < text.length) parts.push({ text: text.slice(at), hit: false });
	return parts;
}

/** cut ends a text after so many characters. @param {string} text @param {number} n */
const cut = (text, n) => (text.length > n ? text.slice(0, n).replace(/[\ud800-\udbff]$/, "") + "…" : text);

/** around is the part of a text with a match in it; null when there is none. @param {string} text @param {string} find */
function around(text, find) {
	for (const t of [oneLine(text), text.replace(/\s+/g, " ")]) {
		const i = t.indexOf(find), from = i + find.length <= shown ? 0 : i - lead;
		if (i >= 0) return mark((from > 0 ? "…" : "") + cut(t.slice(Math.max(from, 0)), Math.max(shown, find.length + 2 * lead)), find);
	}
	return null;
}

/**
 * preview is what a row shows of an event: the beginning of its data, or the match, which may be in the metadata. Texts
 * are short pieces at most; bytes is the size of the data, if they were cut.
 * @param {string | undefined} data @param {string | undefined} metadata @param {string} [find] @param {number} [bytes]
 * @returns {{parts: Parts, where: string}} where: "data", "metadata", "further on" for a match after what was sent, "binary" or "none"
 */
export function preview(data = "", metadata = "", find = "", bytes = undefined) {
	if (find) {
		const inData = around(data, find);
		if (inData) return { parts: inData, where: "data" };
		const inMetadata = around(metadata, find);
		if (inMetadata) return { parts: inMetadata, where: "metadata" };
	}
	if (data === "") return { parts: [], where: bytes ? "binary" : "none" };
	if (isBinary(data)) return { parts: [], where: "binary" };
	const text = oneLine(data.slice(0, 8 * shown));
	return { parts: [{ text: cut(text, shown), hit: false }], where: find ? "further on" : "data" };
}

/** fields lists the fields of texts of JSON that hold a single value, those of most texts first. @param {(string | undefined)[]} texts @returns {Path[]} */
export function fields(texts) {
	/** @type {Map<string, {path: Path, times: number}>} */ const seen = new Map();
	for (const text of texts) {
		const root = text ? prefix(text) : null;
		/** @type {{n: any, path: Path}[]} */ const open = root ? [{ n: root, path: [] }] : [];
		for (let it; (it = open.shift()) && seen.size < 500;) {
			if (it.n.kind !== "object") {
				const key = JSON.stringify(it.path), old = seen.get(key);
				if (it.path.length > 0) seen.set(key, { path: it.path, times: (old ? old.times : 0) + 1 });
			} else if (it.path.length < deepest) for (let i = 0; i < Math.min(it.n.items.length, most); i++) open.push({ n: it.n.items[i], path: [...it.path, it.n.keys[i]] });
		}
	}
	return [...seen.values()].sort((a, b) => b.times - a.times).slice(0, most).map((f) => f.path);
}

/** field is the value of a field as text, "" where there is none. @param {Node | null} root @param {Path} path */
export function field(root, path) {
	let n = /** @type {any} */ (root);
	for (const name of path) {
		const i = n && n.kind === "object" ? n.keys.lastIndexOf(name) : -1;
		if (i < 0) return "";
		n = n.items[i];
	}
	return n ? (n.kind === "string" ? cut(n.value, shown) : cut(short(n), shown)) : "";
}

/** pathText writes the way to a node as JavaScript would. @param {(string | number)[]} path */
export const pathText = (path) => path.map((p) => (typeof p === "number" ? `[${p}]` : /^[A-Za-z_$][\w$]*$/.test(p) ? "." + p : `[${JSON.stringify(p)}]`)).join("").replace(/^\./, "") || "$";

/** @typedef {Record<string, Path[]>} Chosen the chosen fields of each stream, the stream chosen for last at the end */

/** choose remembers the fields of a stream: names alone, and of so many streams. @param {Chosen} all @param {string} stream @param {Path[]} paths @returns {Chosen} */
export function choose(all, stream, paths) {
	const others = Object.entries(all).filter(([name]) => name !== stream).slice(-99);
	return Object.fromEntries(paths.length > 0 ? [...others, [stream, paths]] : others);
}

/** readChosen reads what was remembered; what is of no use is left out. @param {string} text @returns {Chosen} */
export function readChosen(text) {
	try {
		const ok = (/** @type {any} */ p) => Array.isArray(p) && p.length > 0 && p.every((x) => typeof x === "string");
		return Object.fromEntries(Object.entries(JSON.parse(text)).filter(([, paths]) => Array.isArray(paths) && paths.every(ok)).map(([name, paths]) => [name, /** @type {any} */ (paths).slice(0, 12)]));
	} catch {
		return {};
	}
}
