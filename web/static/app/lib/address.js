// @ts-check
// Addresses behind the #: each part percent-encoded once, state in the query.

/** parse takes a hash apart. @param {string} hash @returns {{parts: string[], query: Record<string, string>}} */
export function parse(hash) {
	const s = hash.replace(/^#/, "");
	const q = s.indexOf("?");
	const path = q < 0 ? s : s.slice(0, q);
	const parts = path.split("/").slice(1).map(decode);
	while (parts.length > 0 && parts[parts.length - 1] === "") parts.pop();
	return { parts, query: Object.fromEntries(new URLSearchParams(q < 0 ? "" : s.slice(q + 1))) };
}

/** @param {string} s */
function decode(s) {
	try {
		return decodeURIComponent(s);
	} catch {
		return s;
	}
}

/** to makes a hash. @param {(string | number | bigint)[]} parts @param {Record<string, any>} [query] */
export function to(parts, query) {
	const q = new URLSearchParams();
	for (const [k, v] of Object.entries(query || {})) if (v !== undefined && v !== null && v !== "" && v !== false) q.set(k, String(v));
	const tail = q.toString();
	return "#/" + parts.map((p) => encodeURIComponent(String(p))).join("/") + (tail ? "?" + tail : "");
}

/** path encodes the parts of a path of the interface of the node. @param {(string | number | bigint)[]} parts */
export function path(...parts) {
	return parts.map((p) => encodeURIComponent(String(p)).replaceAll("%24", "$")).join("/");
}

/**
 * official turns an address of the official interface into ours; null when it is none.
 * @param {string[]} parts @returns {string | null}
 */
export function official(parts) {
	const [a, b, c, d] = parts;
	switch (a) {
		case "dashboard": return to([]);
		case "clusterstatus": return to(["cluster"]);
		case "admin": return to(["scavenge"]);
	}
	if (a !== "streams" || parts.length < 3) return null;
	if (c === "addEvent") return to([a, b, "append"]);
	if (c === "acl") return to([a, b, "metadata"]);
	if (parts.length === 5 && (d === "backward" || d === "forward")) return to([a, b], { from: c === "head" ? "" : c, size: parts[4] });
	if (parts.length === 4 && /^[0-9]+$/.test(d)) return to([a, b], { from: c === "head" ? "" : c, size: d });
	return null;
}

/** eventName takes "n@stream" apart; null when it is none. @param {string} s */
export function eventName(s) {
	const m = /^([0-9]+)@(.+)$/s.exec(s.trim());
	return m ? { number: m[1], stream: m[2] } : null;
}
