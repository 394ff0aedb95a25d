// @ts-check
// The last hour of a figure, small enough to stand beside its number.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { get, useAnswer } from "../api.js";
import { join, last, peak, trace } from "../lib/series.js";
import { use, zone } from "../store.js";

const height = 48, hour = 360, least = 12; // Steps: a node that has just started has less than an hour.

/** useHour is the last hour of a node: asked for whole once, and then what came since. who is the node that the name means now. @param {string} node @param {boolean} off @param {string} [who] */
export function useHour(node, off, who = node) {
	const kept = useRef(/** @type {any} */ (null));
	useEffect(() => void (kept.current = null), [node, who]);
	return useAnswer(async (signal) => {
		const known = kept.current, more = known && join(known, await get("/stats/history?minutes=2", { signal, node }), hour);
		return (kept.current = more || (await get("/stats/history?minutes=60", { signal, node })));
	}, [node, off, who], { every: 10000, off });
}

/**
 * Tile is a number with its unit and its last hour. Under the pointer it tells the figure of a moment.
 * @param {{label: string, values?: (number | null)[], of?: any, format: (n: any) => string, unit?: string, top?: number, note?: string}} p
 */
export function Tile({ label, values = [], of, format, unit = "", top, note }) {
	const [at, point] = useState(-1), utc = use(zone) === "UTC";
	const now = last(values), most = top || peak(values) * 1.15 || 1, path = trace(values, height, most), size = Math.max(least, values.length);
	const split = (n) => /^(.*?)(?: ([A-Za-z%]+))?$/.exec(format(n)) || ["", "", ""];
	const [, number, own] = now === undefined ? ["", "–", ""] : split(now), shift = size - values.length;
	const move = (e) => {
		const box = e.currentTarget.getBoundingClientRect();
		point(Math.round(((e.clientX - box.left) / box.width) * (size - 1)) - shift);
	};
	const moment = () => {
		const d = new Date(Date.parse(of.from) + at * of.step * 1000);
		return utc ? d.toISOString().slice(11, 19) : d.toTimeString().slice(0, 8);
	};
	const shown = at >= 0 && at < values.length;
	return html`<div class="tile"><span class="label">${label}</span><b>${number}${now !== undefined && (own || unit) && html`<span>${own || unit}</span>`}</b>
		<span class="range small muted">${shown ? html`<span>${typeof values[at] === "number" ? `${format(values[at])}${unit && ` ${unit}`}` : "nothing"}</span><span>${moment()}</span>` : html`<span>${note || (now === undefined ? "nothing yet" : `peak ${format(peak(values))}${unit && ` ${unit}`}`)}</span>`}</span>
		<svg class="spark" role="img" aria-label=${`${label}, last hour`} viewBox=${`${-shift} 0 ${size - 1} ${height}`} preserveAspectRatio="none" onPointerMove=${move} onPointerLeave=${() => point(-1)}><path class="area" d=${path.area} /><path class="trace" d=${path.line} />${shown && html`<path class="at" d=${`M${at} 0V${height}`} />`}</svg></div>`;
}
