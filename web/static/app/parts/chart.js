// @ts-check
// A chart of figures over time, with a legend that tells those under the pointer, else the newest ones. All charts of a page
// show the same moment.
import { html, useMemo } from "../../vendor/preact.js";
import { bytes } from "../lib/format.js";
import { beats, last, peak, scale, trace } from "../lib/series.js";
import { Store, use, zone } from "../store.js";
import { useWidth } from "./basics.js";

const tall = 118, left = 72, right = 12, above = 8, below = 24;

/** moment is the number of the sample under the pointer, -1 where it is elsewhere. */
const moment = new Store(-1);

/** Chart draws series over time. @param {{name: string, times: number[], series: {label: string, values: (number | null)[], colour: string}[], format: (n: any) => string}} p */
export function Chart({ name, times, series, format }) {
	const [box, width] = useWidth(), at = use(moment), utc = use(zone) === "UTC";
	const drawn = useMemo(() => {
		const { top, step } = scale(Math.max(...series.map((s) => peak(s.values))), format === bytes);
		return { top, lines: Array.from({ length: Math.round(top / step) + 1 }, (_, i) => i * step), paths: series.map((s) => trace(s.values, tall, top)) };
	}, [times]);
	const room = Math.max(0, width - left - right), n = Math.max(1, times.length - 1), from = times[0] || 0, to = times[times.length - 1] || 0;
	const x = (/** @type {number} */ i) => left + (i / n) * room, y = (/** @type {number} */ v) => above + tall - (v / drawn.top) * tall;
	const clock = (/** @type {number} */ s, /** @type {number} */ digits) => {
		const d = new Date(s * 1000);
		return (utc ? d.toISOString().slice(11, 19) : d.toTimeString().slice(0, 8)).slice(0, digits);
	};
	const move = (e) => {
		const i = Math.round(((e.clientX - e.currentTarget.getBoundingClientRect().left - left) / room) * n);
		moment.set(i >= 0 && i < times.length ? i : -1);
	};
	const told = (/** @type {(number | null)[]} */ values) => {
		const v = at < 0 ? last(values) : values[at];
		return typeof v === "number" ? format(v) : "–";
	};
	return html`<div class="chart"><div class="legend"><strong>${name}</strong>${times[at] && html`<span class="muted small">${clock(times[at], 8)}</span>`}<span class="keys">${series.map((s) => html`<span key=${s.label} class="key small"><svg width="10" height="10" aria-hidden="true"><rect class=${s.colour} width="10" height="10" rx="3" /></svg><span class="muted">${s.label}</span> <b>${told(s.values)}</b></span>`)}</span></div>
		<div ref=${box}>${width > 0 && html`<svg role="img" aria-label=${name} width=${width} height=${above + tall + below} onPointerMove=${move} onPointerLeave=${() => moment.set(-1)}>
			${drawn.lines.map((v) => html`<path class="grid" d=${`M${left} ${y(v)}H${width - right}`} /><text class="soft" text-anchor="end" x=${left - 8} y=${y(v) + 4}>${format(v)}</text>`)}
			${beats(from, to, room / 90).map((s) => html`<text class="soft" text-anchor="middle" x=${x(((s - from) / (to - from || 1)) * n)} y=${above + tall + 18}>${clock(s, to - from > 600 ? 5 : 8)}</text>`)}
			<svg x=${left} y=${above} width=${room} height=${tall} viewBox=${`0 0 ${n} ${tall}`} preserveAspectRatio="none">${drawn.paths.map((p, i) => html`${i === 0 && html`<path class="area" d=${p.area} />`}<path class=${"trace " + series[i].colour} d=${p.line} />`)}</svg>
			${times[at] && html`<path class="at" d=${`M${x(at)} ${above}v${tall}`} />${series.map((s) => typeof s.values[at] === "number" && html`<circle class=${s.colour} cx=${x(at)} cy=${y(Number(s.values[at]))} r="3.5" />`)}`}</svg>`}</div></div>`;
}
