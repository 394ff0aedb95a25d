// @ts-check
// JSON as it was written: no number loses a digit, no member its place, and depth
// costs no stack.

/**
 * @typedef {{kind: "object", keys: string[], items: Node[]} | {kind: "array", items: Node[]} |
 *   {kind: "string", value: string} | {kind: "number" | "literal", raw: string}} Node
 */

const number = /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const text = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const literal = /true|false|null/y;
const space = /[ \t\r\n]*/y;

/** What is wrong with a text, and at which of its characters. */
export class JSONError extends Error {
	/** @param {string} what @param {number} at */
	constructor(what, at) {
		super(what);
		this.at = at;
		/** @type {any[]} */ this.open = []; // what had begun there and not ended, the outermost first
	}
}

/** parse reads a text into nodes. @param {string} s @returns {Node} */
export function parse(s) {
	let at = 0;
	const token = (/** @type {RegExp} */ re) => {
		re.lastIndex = at;
		const m = re.exec(s);
		if (m) at = re.lastIndex;
		return m && m[0];
	};
	/** @type {any[]} */ const open = [];
	const fail = (/** @type {string} */ what) => {
		throw Object.assign(new JSONError(at >= s.length ? "The text ends too early." : what, at), { open });
	};
	const string = () => {
		// A long text in one expression may be too much for the engine: such a one is read by hand.
		const end = closing(s, at);
		if (end - at > 1 << 16) {
			const raw = s.slice(at, end);
			at = end;
			return JSON.parse(raw);
		}
		const t = token(text);
		if (t === null) fail("A string in double quotes was expected here.");
		return JSON.parse(/** @type {string} */ (t));
	};
	/** @type {any} */ let done = null;
	const member = () => {
		token(space);
		if (s[at] !== '"') fail("A name in double quotes was expected here.");
		open[open.length - 1].keys.push(string());
		token(space);
		if (s[at] !== ":") fail("A colon was expected here.");
		at++;
	};
	for (;;) {
		token(space);
		const c = s[at];
		if (c === "{" || c === "[") {
			const close = c === "{" ? "}" : "]";
			/** @type {any} */ const n = c === "{" ? { kind: "object", keys: [], items: [] } : { kind: "array", items: [] };
			at++;
			token(space);
			if (s[at] !== close) {
				open.push(n);
				if (c === "{") member();
				continue;
			}
			at++;
			done = n;
		} else if (c === '"') {
			done = { kind: "string", value: string() };
		} else {
			let raw = token(number);
			if (raw !== null) done = { kind: "number", raw };
			else if ((raw = token(literal)) !== null) done = { kind: "literal", raw };
			else fail("A value was expected here.");
		}
		for (;;) {
			const parent = open[open.length - 1];
			token(space);
			if (!parent) {
				if (at < s.length) fail("The text should end here.");
				return done;
			}
			parent.items.push(done);
			if (s[at] === ",") {
				at++;
				if (parent.kind === "object") member();
				break;
			}
			if (s[at] !== (parent.kind === "object" ? "}" : "]")) fail("A comma or the end was expected here.");
			at++;
			done = open.pop();
		}
	}
}

/** prefix reads a text that may be cut as far as it goes, without a value that may go on; null: there is nothing. @param {string} s @returns {Node | null} */
export function prefix(s) {
	try {
		return parse(s);
	} catch (e) {
		if (!(e instanceof JSONError) || e.open.length === 0) return null;
		const last = e.open[e.open.length - 1].items;
		if (e.at >= s.length && last.length > 0 && last[last.length - 1].kind === "number") last.pop();
		for (let i = e.open.length - 1; i > 0; i--) e.open[i - 1].items.push(e.open[i]);
		for (const n of e.open) if (n.keys) n.keys.length = Math.min(n.keys.length, n.items.length);
		return e.open[0];
	}
}

/** closing finds the end of the string that begins at a place. @param {string} s @param {number} at */
function closing(s, at) {
	for (let i = at + 1; ; i++) {
		i = s.indexOf('"', i);
		if (i < 0) return s.length;
		let slashes = 0;
		while (s[i - 1 - slashes] === "\\") slashes++;
		if (slashes % 2 === 0) return i + 1;
	}
}

/** read is JSON.parse, but integers that a number cannot hold become BigInt. @param {string} s @returns {any} */
export function read(s) {
	if (!/[0-9]{16}/.test(s)) return JSON.parse(s);
	return value(parse(s));
}

/** value turns a node into what JavaScript works with. @param {Node} n @returns {any} */
export function value(n) {
	switch (n.kind) {
		case "object": {
			/** @type {Record<string, any>} */ const o = {};
			n.keys.forEach((k, i) => Object.defineProperty(o, k, { value: value(n.items[i]), enumerable: true, configurable: true, writable: true }));
			return o;
		}
		case "array": return n.items.map(value);
		case "string": return n.value;
		case "number": return /^-?[0-9]{16,}$/.test(n.raw) ? BigInt(n.raw) : Number(n.raw);
	}
	return JSON.parse(n.raw);
}

/** short is a value in one line, for a folded branch. @param {Node} n */
export function short(n) {
	switch (n.kind) {
		case "object": return n.items.length === 0 ? "{}" : `{ ${n.keys.slice(0, 4).join(", ").slice(0, 60)}${n.keys.length > 4 ? ", …" : ""} }`;
		case "array": return n.items.length === 0 ? "[]" : `[ ${n.items.length} ]`;
		case "string": return JSON.stringify(n.value);
	}
	return n.raw;
}

/** print writes nodes with two blanks a level. @param {Node} root */
export function print(root) {
	/** @type {string[]} */ const out = [];
	/** @type {{node: any, at: number}[]} */ const open = [];
	const begin = (/** @type {any} */ n) => {
		if ((n.kind === "object" || n.kind === "array") && n.items.length > 0) {
			out.push(n.kind === "object" ? "{" : "[");
			open.push({ node: n, at: 0 });
		} else out.push(short(n));
	};
	begin(root);
	while (open.length > 0) {
		const top = open[open.length - 1], depth = Math.min(open.length, 200);
		if (top.at === top.node.items.length) {
			open.pop();
			out.push("\n" + "  ".repeat(depth - 1) + (top.node.kind === "object" ? "}" : "]"));
			continue;
		}
		out.push((top.at > 0 ? ",\n" : "\n") + "  ".repeat(depth));
		if (top.node.kind === "object") out.push(JSON.stringify(top.node.keys[top.at]) + ": ");
		begin(top.node.items[top.at++]);
	}
	return out.join("");
}

/** pretty formats a text that may be JSON; what is none stays as it is. @param {string} s */
export function pretty(s) {
	try {
		return print(parse(s));
	} catch {
		return s;
	}
}

/** check says what is wrong with a text, with line and column; "" when nothing is. @param {string} s */
export function check(s) {
	try {
		parse(s);
		return "";
	} catch (e) {
		if (!(e instanceof JSONError)) throw e;
		const before = s.slice(0, e.at).split("\n");
		return `Line ${before.length}, column ${before[before.length - 1].length + 1}: ${e.message}`;
	}
}
