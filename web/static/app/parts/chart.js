// @ts-check
// A chart of the last hour, with a legend that tells the figures under the pointer, else the newest ones. All charts of a
// page show the same moment. uPlot is loaded when the first is drawn.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { bytes } from "../lib/format.js";
import { last } from "../lib/series.js";
import { theme, use, zone } from "../store.js";

const height = 150;
/** binary are the distances of the lines of a scale of bytes. */
const binary = Array.from({ length: 50 }, (_, i) => 2 ** i);
let style = false;

/** Chart draws series over time. @param {{name: string, times: number[], series: {label: string, values: (number | null)[], colour: string}[], format: (n: any) => string}} p */
export function Chart({ name, times, series, format }) {
	const box = useRef(/** @type {any} */ (null)), plot = useRef(/** @type {any} */ (null)), now = useRef(/** @type {any} */ ([]));
	const [at, point] = useState(/** @type {number | null} */ (null)), ends = useRef([0, 1]);
	const t = use(theme), utc = use(zone) === "UTC";
	/** @param {number} s @param {boolean} [whole] */
	const clock = (s, whole) => {
		const d = new Date(s * 1000);
		return (utc ? d.toISOString().slice(11, 19) : d.toTimeString().slice(0, 8)).replace(!whole && ends.current[1] - ends.current[0] > 900 ? /:..$/ : "", "");
	};
	ends.current = times.length > 1 ? [times[0], times[times.length - 1]] : [Date.now() / 1000 - 3600, Date.now() / 1000];
	now.current = [times, ...series.map((s) => s.values)];
	useEffect(() => {
		let live = true;
		if (!style) {
			style = true;
			const link = document.createElement("link");
			link.rel = "stylesheet";
			link.href = new URL("../../vendor/chart.css", import.meta.url).href;
			document.head.append(link);
		}
		import("../../vendor/chart.js").then(({ uPlot }) => {
			if (!live || !box.current) return;
			const css = getComputedStyle(document.documentElement), colour = (/** @type {string} */ v) => css.getPropertyValue(v).trim();
			const font = "12px " + css.getPropertyValue("--face"), grid = { stroke: colour("--line"), width: 1 };
			plot.current = new uPlot({
				width: box.current.clientWidth || 380, height, padding: [8, 30, 0, 0], legend: { show: false }, cursor: { drag: { x: false, y: false }, y: false, sync: { key: "hour" }, points: { size: 6 } },
				hooks: { setCursor: [(/** @type {any} */ u) => point(u.cursor.left >= 0 ? u.cursor.idx : null)] },
				axes: [{ stroke: colour("--muted"), font, grid: { show: false }, ticks: { show: false }, size: 24, space: 80, values: (/** @type {any} */ _, /** @type {number[]} */ v) => v.map((s) => clock(s)) }, { stroke: colour("--muted"), font, grid, ticks: { show: false }, size: 64, gap: 8, space: 30, ...(format === bytes ? { incrs: binary } : {}), values: (/** @type {any} */ _, /** @type {number[]} */ v) => v.map(format) }],
				scales: { x: { range: () => [ends.current[0], ends.current[1]] }, y: { range: (/** @type {any} */ _, /** @type {number} */ lo, /** @type {number} */ hi) => [Math.min(0, lo || 0), hi > 0 ? hi * 1.1 : 1] } },
				series: [{}, ...series.map((s, i) => ({ stroke: colour(s.colour), fill: i === 0 ? colour(s.colour + "-soft") : undefined, width: 1.5, points: { show: (/** @type {any} */ u, /** @type {number} */ k) => u.data[k].filter((/** @type {any} */ v) => typeof v === "number").length === 1 } }))],
			}, now.current, box.current);
		});
		const place = box.current, fit = new ResizeObserver(() => plot.current && plot.current.setSize({ width: place.clientWidth, height }));
		fit.observe(place);
		return () => {
			live = false;
			fit.disconnect();
			if (plot.current) plot.current.destroy();
			plot.current = null;
		};
	}, [t, utc]);
	useEffect(() => {
		if (plot.current) plot.current.setData(now.current);
	}, [times]);
	const told = (/** @type {(number | null)[]} */ values) => {
		const v = at === null ? last(values) : values[at];
		return typeof v === "number" ? format(v) : "–";
	};
	return html`<div class="chart"><div class="legend"><strong>${name}</strong>${at !== null && times[at] && html`<span class="muted small">${clock(times[at], true)}</span>`}<span class="keys">${series.map((s) => html`<span key=${s.label} class="key small"><svg width="10" height="10" aria-hidden="true"><rect width="10" height="10" rx="3" fill=${`var(${s.colour})`} /></svg><span class="muted">${s.label}</span> <b>${told(s.values)}</b></span>`)}</span></div><div role="img" aria-label=${name} ref=${box}></div></div>`;
}
