// @ts-check
// The lines in which two texts differ.

/**
 * lines returns what is the same (" "), gone ("-") and new ("+"), after Myers, "An O(ND)
 * difference algorithm", 1986. Texts that differ in more than a thousand lines come as two blocks.
 * @param {string} before @param {string} after @returns {{sign: string, text: string}[]}
 */
export function lines(before, after) {
	const a = before === "" ? [] : before.split("\n"), b = after === "" ? [] : after.split("\n");
	let head = 0, tail = 0;
	while (head < a.length && head < b.length && a[head] === b[head]) head++;
	while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
	const x = a.slice(head, a.length - tail), y = b.slice(head, b.length - tail);
	const same = (/** @type {string} */ text) => ({ sign: " ", text });
	return [...a.slice(0, head).map(same), ...middle(x, y), ...a.slice(a.length - tail).map(same)];
}

/** @param {string[]} a @param {string[]} b */
function middle(a, b) {
	const most = Math.min(a.length + b.length, 1000);
	/** @type {Map<number, number>[]} */ const trace = [];
	let v = new Map([[1, 0]]);
	for (let d = 0; d <= most; d++) {
		trace.push(new Map(v));
		for (let k = -d; k <= d; k += 2) {
			let x = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1)) ? v.get(k + 1) ?? 0 : (v.get(k - 1) ?? 0) + 1;
			while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
			v.set(k, x);
			if (x >= a.length && x - k >= b.length) return back(a, b, trace);
		}
	}
	return [...a.map((text) => ({ sign: "-", text })), ...b.map((text) => ({ sign: "+", text }))];
}

/** @param {string[]} a @param {string[]} b @param {Map<number, number>[]} trace */
function back(a, b, trace) {
	const out = [];
	let x = a.length, y = b.length;
	for (let d = trace.length - 1; d >= 0; d--) {
		const v = trace[d], k = x - y;
		const from = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1)) ? k + 1 : k - 1;
		const px = d === 0 ? 0 : v.get(from) ?? 0, py = px - from;
		while (x > px && y > Math.max(py, 0) && x > 0 && y > 0 && a[x - 1] === b[y - 1]) {
			out.push({ sign: " ", text: a[--x] });
			y--;
		}
		if (d === 0) break;
		if (x === px) out.push({ sign: "+", text: b[--y] });
		else out.push({ sign: "-", text: a[--x] });
	}
	return out.reverse();
}
