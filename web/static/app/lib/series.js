// @ts-check
// Figures over time, as /stats/history tells them: at one distance, null where nothing is known.

/** @typedef {{step: number, from: string, series: Record<string, (number | null)[]>}} History */

/**
 * join adds what was asked for later to what is known, of which the oldest goes. It is null when
 * there is a gap between the two.
 * @param {History} known @param {History} more @param {number} most @returns {History | null}
 */
export function join(known, more, most) {
	const names = Object.keys(more.series), at = Math.round((Date.parse(more.from) - Date.parse(known.from)) / 1000 / more.step);
	if (known.step !== more.step || at < 0 || names.some((n) => !known.series[n] || known.series[n].length < at)) return null;
	const drop = Math.max(0, at + Math.max(0, ...names.map((n) => more.series[n].length)) - most);
	const from = new Date(Date.parse(known.from) + drop * 1000 * more.step).toISOString();
	return { step: more.step, from, series: Object.fromEntries(names.map((n) => [n, [...known.series[n].slice(0, at), ...more.series[n]].slice(drop)])) };
}

/** last is the newest figure that is known. @param {(number | null)[]} [values] @returns {number | undefined} */
export function last(values = []) {
	for (let i = values.length - 1; i >= 0; i--) if (typeof values[i] === "number") return /** @type {number} */ (values[i]);
	return undefined;
}

/** peak is the largest figure that is known. @param {(number | null)[]} [values] */
export const peak = (values = []) => values.reduce((/** @type {number} */ most, v) => Math.max(most, v ?? 0), 0);

/**
 * trace is the way of an SVG path through the figures, within a height, and that of the area below.
 * A figure that stands alone is a short line.
 * @param {(number | null)[]} values @param {number} height @param {number} top the figure at the upper edge
 */
export function trace(values, height, top) {
	const y = (/** @type {number} */ v) => (height - (Math.min(v, top) / (top || 1)) * height).toFixed(1);
	let line = "", area = "", begun = -1;
	values.forEach((v, i) => {
		if (typeof v !== "number") return;
		if (begun < 0) [begun, line, area] = [i, line + `M${i} ${y(v)}`, area + `M${i} ${height}V${y(v)}`];
		const next = typeof values[i + 1] === "number";
		if (begun < i) [line, area] = [line + `L${i} ${y(v)}`, area + `L${i} ${y(v)}`];
		else if (!next) [line, area] = [line + "h.6", area + "h.6"];
		if (!next) [begun, area] = [-1, area + `V${height}Z`];
	});
	return { line, area };
}

/**
 * scale is where the lines of a chart stand: at every step from 0 to the top, which is not below the largest figure.
 * @param {number} most @param {boolean} binary steps are powers of two, as sizes have them
 */
export function scale(most, binary) {
	const third = most / 3 || 1 / 3, power = 10 ** Math.floor(Math.log10(third));
	const step = binary ? 2 ** Math.max(0, Math.ceil(Math.log2(third))) : power * /** @type {number} */ ([1, 2, 2.5, 5, 10].find((m) => m * power >= third * 0.9999));
	return { step, top: Math.max(1, Math.ceil(most / step - 1e-9)) * step };
}

/** beats are the moments, in seconds, that the axis of a time names: round ones, so many at most. @param {number} from @param {number} to @param {number} most */
export function beats(from, to, most) {
	const step = [5, 10, 30, 60, 120, 300, 600, 900, 1800].find((s) => (to - from) / s <= most) || 3600;
	const first = Math.ceil(from / step) * step;
	return Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, i) => first + i * step);
}
