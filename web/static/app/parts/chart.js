// @ts-check
// A chart of the last hour. uPlot is loaded when the first is drawn.
import { html, useEffect, useRef } from "../../vendor/preact.js";
import { theme, use, zone } from "../store.js";

let style = false;

/** Chart draws series over time. @param {{name: string, times: number[], series: {label: string, values: (number | null)[], colour: string}[], format: (n: any) => string}} p */
export function Chart({ name, times, series, format }) {
	const box = useRef(/** @type {any} */ (null)), plot = useRef(/** @type {any} */ (null));
	const ends = useRef([0, 1]);
	const t = use(theme), utc = use(zone) === "UTC";
	/** @param {number} s */
	const clock = (s) => {
		const d = new Date(s * 1000);
		return (utc ? d.toISOString().slice(11, 19) : d.toTimeString().slice(0, 8)).replace(ends.current[1] - ends.current[0] > 900 ? /:..$/ : "", "");
	};
	ends.current = times.length > 1 ? [times[0], times[times.length - 1]] : [Date.now() / 1000 - 3600, Date.now() / 1000];
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
			const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
			plot.current = new uPlot({
				width: box.current.clientWidth || 380, height: 160, padding: [8, 28, 0, 0], legend: { show: series.length > 1 }, cursor: { drag: { x: false, y: false } },
				axes: [{ ...axis, size: 30, space: 70, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map(clock) }, { ...axis, size: 72, values: (/** @type {any} */ _, /** @type {number[]} */ v) => v.map(format) }], scales: { x: { range: () => [ends.current[0], ends.current[1]] }, y: { range: (/** @type {any} */ _, /** @type {number} */ lo, /** @type {number} */ hi) => [Math.min(0, lo || 0), hi > 0 ? hi * 1.1 : 1] } },
				series: [{}, ...series.map((s) => ({ label: s.label, stroke: colour(s.colour), width: 1.5, points: { show: (/** @type {any} */ u, /** @type {number} */ i) => u.data[i].filter((/** @type {any} */ v) => typeof v === "number").length === 1 }, value: (/** @type {any} */ _, /** @type {any} */ v) => (v === null || v === undefined ? "–" : format(v)) }))],
			}, [times, ...series.map((s) => s.values)], box.current);
		});
		const fit = () => plot.current && box.current && plot.current.setSize({ width: box.current.clientWidth, height: 160 });
		addEventListener("resize", fit);
		return () => {
			live = false;
			removeEventListener("resize", fit);
			if (plot.current) plot.current.destroy();
			plot.current = null;
		};
	}, [t, utc]);
	useEffect(() => {
		if (plot.current) plot.current.setData([times, ...series.map((s) => s.values)]);
	}, [times]);
	const last = series[0] && [...series[0].values].reverse().find((v) => v !== null && v !== undefined);
	return html`<div class="chart" role="img" aria-label=${name}><div><strong>${name}</strong> <span class="muted">${last === undefined ? "nothing yet" : format(last)}</span></div><div ref=${box}></div></div>`;
}
