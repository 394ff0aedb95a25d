// @ts-check
// Where events stand in a picture of their times: a lane for each stream, and arrows from causes to effects.

/** @typedef {{key: string, at: number, lane: string, label: string, cause?: string}} Mark at in milliseconds */
/** @typedef {Mark & {x: number, y: number, text: string}} Placed */

export const row = 26, lane = 10, top = 34; // pixels: a row of marks, the room between lanes, the axis
const letter = 6.8, longest = 30; // width of a character, and so many of them at most

/** instant is a time in milliseconds, with the fractions that a Date leaves out. @param {string} t RFC 3339 */
export function instant(t) {
	const whole = Date.parse(t), m = /\.([0-9]+)/.exec(t);
	return m ? Math.floor(whole / 1000) * 1000 + Number("0." + m[1]) * 1000 : whole;
}

const steps = [0.001, 0.01, 0.1, 1, 10, 100, 1000, 10e3].flatMap((s) => [s, 2 * s, 5 * s]).slice(0, -1).concat([30e3, 60e3, 120e3, 300e3, 600e3, 1800e3, 3600e3, 7200e3, 21600e3, 43200e3, 86400e3, 7 * 86400e3, 30 * 86400e3, 365 * 86400e3]);

/** ticks are the marks of an axis that is so long and has room for so many. @param {number} length milliseconds @param {number} most @returns {number[]} */
export function ticks(length, most) {
	if (!(length > 0)) return [0];
	const step = steps.find((s) => length / s <= most) || Math.ceil(length / most);
	return Array.from({ length: Math.floor(length / step + 1e-9) + 1 }, (_, i) => i * step);
}

/** clip shortens a label. @param {string} s @param {number} n */
export const clip = (s, n) => (s.length > n ? s.slice(0, n - 1) + "…" : s);

/**
 * layout places marks between left and width, which is the right end. Marks of a lane whose labels would meet stand below each other. With even each
 * is as far from the next one, whatever the time between them.
 * @param {Mark[]} marks in any order @param {number} left @param {number} width @param {boolean} [even]
 */
export function layout(marks, left, width, even = false) {
	const sorted = [...marks].sort((a, b) => a.at - b.at), first = sorted.length > 0 ? sorted[0].at : 0, length = sorted.length > 0 ? sorted[sorted.length - 1].at - first : 0;
	const end = Math.max(width - 16, left + 80), room = Math.max(80, Math.min(140, (width - left) / 4));
	const scale = even ? (end - room - left) / Math.max(1, sorted.length - 1) : length > 0 ? (end - room - left) / length : 0;
	/** @type {Map<string, {name: string, y: number, height: number, ends: number[], marks: Placed[]}>} */ const lanes = new Map();
	sorted.forEach((m, i) => {
		let l = lanes.get(m.lane);
		if (!l) lanes.set(m.lane, (l = { name: m.lane, y: 0, height: 0, ends: [], marks: [] }));
		const x = left + scale * (even ? i : m.at - first), text = clip(m.label, longest);
		let at = l.ends.findIndex((e) => e <= x - 8);
		if (at < 0) at = l.ends.length;
		l.ends[at] = x + 12 + text.length * letter + 8;
		l.marks.push({ ...m, x, y: at * row, text });
	});
	let y = top;
	/** @type {Map<string, Placed>} */ const placed = new Map();
	for (const l of lanes.values()) {
		l.y = y;
		l.height = l.ends.length * row + lane;
		for (const m of l.marks) placed.set(m.key, Object.assign(m, { y: y + m.y + (row + lane) / 2 }));
		y += l.height;
	}
	const arrows = [...placed.values()].filter((m) => m.cause !== undefined && placed.has(m.cause)).map((m) => arrow(/** @type {Placed} */ (placed.get(/** @type {string} */ (m.cause))), m));
	const axis = even ? [] : ticks(length, Math.max(1, Math.floor((end - room - left) / 90))).map((at) => ({ at, x: left + scale * at }));
	return { height: y + 8, width: Math.max(width, ...[...lanes.values()].flatMap((l) => l.ends)), lanes: [...lanes.values()], marks: [...placed.values()], arrows, axis, length };
}

/**
 * arrow is the path from one mark to another. It leaves a mark up or down, so that it does not cross the label, and comes in
 * from the left, or straight down when hardly any time passes.
 * @param {Placed} a @param {Placed} b
 */
function arrow(a, b) {
	const far = b.x - a.x > 24, down = b.y > a.y ? 1 : -1;
	if (a.y === b.y) return `M${a.x} ${a.y - 6} C${a.x + 8} ${a.y - 16} ${b.x - 8} ${b.y - 16} ${b.x - 1} ${b.y - 9}`;
	if (far) return `M${a.x} ${a.y + 6 * down} C${a.x} ${b.y} ${a.x + 8} ${b.y} ${b.x - 9} ${b.y}`;
	const half = (a.y + b.y) / 2;
	return `M${a.x} ${a.y + 6 * down} C${a.x} ${half} ${b.x} ${half} ${b.x} ${b.y - 9 * down}`;
}
