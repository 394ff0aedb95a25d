// @ts-check
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { root } from "../api.js";
import { path, to } from "../lib/address.js";
import { plural, span, time } from "../lib/format.js";
import { clip, instant, layout, top } from "../lib/timeline.js";
import { follow } from "../live.js";
import { Check, Empty, EventLink, Failure, Page } from "../parts/basics.js";
import { fromEntry } from "../parts/events.js";
import { ids } from "./event.js";
import { go } from "../router.js";
import { use, zone } from "../store.js";

const step = 500;

export default function Correlation({ id, query }) {
	const [found, set] = useState(/** @type {any} */ ({ events: [], over: false, more: false, error: null, last: "" })), [round, more] = useState(0);
	useEffect(() => follow(`/streams/${path("$idx-co-" + id)}`, { from: "start", to: "end", limit: step, embed: "body" }, {
		event: (e, last) => set((s) => ({ ...s, events: [...s.events, fromEntry(e)], last })),
		end: (why) => set((s) => ({ ...s, over: true, more: why === "limit" })),
		problem: (error) => set((s) => ({ ...s, error, over: true })),
	}, { once: true, after: found.last }), [id, round]);
	const forest = build(found.events);
	return html`<${Page} title="Correlation" what="What belongs together: events with this correlation id, each below its cause." lead=${html`<span class="mono small">${id}</span>`}>
		<p role="status">${plural(found.events.length, "event")}${found.over ? "" : ", still looking"}.
		${found.over && found.more && html` <button onClick=${() => (set({ ...found, over: false }), more(round + 1))}>Look further</button>`}</p>
		${found.error && html`<${Failure} error=${found.error} />`}
		${found.over && found.events.length === 0 && !found.error ? html`<${Empty} text="No event has this correlation id in its metadata, as $correlationId. One that has it:" command=${`curl -i -H 'Content-Type: application/vnd.eventstore.events+json' -d '[{"eventId":"'$(uuidgen)'","eventType":"OrderPlaced","data":{},"metadata":{"$correlationId":"c-1"}}]' ${new URL("streams/orders-1", root)}`} />` : found.events.length > 0 && html`<${Timeline} rows=${forest} here=${query.event} /><h2>Events</h2><${Outline} rows=${forest} here=${query.event} />`}<//>`;
}

/** build orders events as a forest: each below what caused it, with the time that passed between. */
export function build(events) {
	const byId = new Map(events.map((e) => [e.id, { e, below: /** @type {any[]} */ ([]), depth: 0, after: 0 }]));
	const roots = [];
	for (const n of byId.values()) {
		const cause = byId.get(ids(n.e.metadata || "").causation);
		if (cause && cause !== n) {
			n.after = new Date(n.e.time).getTime() - new Date(cause.e.time).getTime();
			cause.below.push(n);
		} else roots.push(n);
	}
	const rows = [], seen = new Set();
	const visit = (start) => {
		const stack = [start];
		while (stack.length > 0) {
			const n = stack.pop();
			if (seen.has(n)) continue; // Causes that go in a circle.
			seen.add(n);
			rows.push(n);
			for (const below of [...n.below].reverse()) if (!seen.has(below)) stack.push(Object.assign(below, { depth: n.depth + 1, up: n }));
		}
	};
	roots.forEach(visit);
	for (const n of byId.values()) if (!seen.has(n)) visit(n);
	return rows;
}

const drawn = 200;

/** Timeline draws the events at their times, those of a stream in one lane, with arrows from causes to effects. */
function Timeline({ rows, here }) {
	const box = useRef(/** @type {any} */ (null)), [width, measure] = useState(960), [even, space] = useState(false), utc = use(zone) === "UTC";
	useEffect(() => {
		const look = new ResizeObserver(() => box.current && measure(Math.max(560, box.current.clientWidth)));
		look.observe(box.current);
		return () => look.disconnect();
	}, []);
	const shown = rows.slice(0, drawn), left = 32 + 8 * Math.min(24, Math.max(...shown.map((n) => n.e.stream.length)));
	const p = layout(shown.map((n) => ({ key: n.e.id, at: instant(n.e.time), lane: n.e.stream, label: n.e.type, cause: n.up && n.up.e.id })), left, width, even), of = new Map(shown.map((n) => [n.e.id, n.e]));
	const open = (e) => go(to(["streams", e.stream, e.number]));
	return html`<div class="bar"><span class="muted">In ${plural(p.lanes.length, "stream")}, ${span(p.length)} from the first to the last.</span><span class="row-acts push"><${Check} label="Even steps" value=${even} set=${space} /></span></div>
		<div class="graph timeline" ref=${box} tabindex="0" role="group" aria-label="Graph, may be scrolled"><svg role="img" aria-label="Correlation graph" width=${p.width} height=${p.height} viewBox=${`0 0 ${p.width} ${p.height}`}>
		<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path class="tip" d="M0 0 L8 4 L0 8 z" /></marker></defs>
		${p.lanes.map((l, i) => html`<g key=${l.name}><rect class=${i % 2 ? "lane odd" : "lane"} x="0" y=${l.y} width=${p.width} height=${l.height} /><text class="mono soft" x="12" y=${l.y + 22}><title>${l.name}</title>${clip(l.name, 24)}</text></g>`)}
		${p.axis.map((t) => html`<g key=${t.at}><path class="tick" d=${`M${t.x} ${top - 6} V${p.height - 8}`} /><text class="soft" x=${t.x} y="18" text-anchor=${t.at === 0 ? "start" : "middle"}>${t.at === 0 ? time(shown.length ? p.marks.reduce((a, m) => Math.min(a, m.at), Infinity) : 0, utc).slice(11, 23) : `+${span(t.at)}`}</text></g>`)}
		${p.arrows.map((d) => html`<path class="arrow" d=${d} marker-end="url(#head)" />`)}
		${p.marks.map((m) => {
			const e = of.get(m.key), name = `${e.number}@${e.stream}`;
			return html`<g key=${m.key} class="mark" onClick=${() => open(e)}><title>${`${e.type}, ${name}, ${time(e.time, utc)}`}</title><circle class=${"node" + (name === here ? " here" : "")} cx=${m.x} cy=${m.y} r="6" /><text x=${m.x + 12} y=${m.y + 4} class=${name === here ? "chosen" : ""}>${m.text}</text></g>`;
		})}</svg></div>
		${rows.length > shown.length && html`<p class="muted small">The graph shows the first ${shown.length}.</p>`}`;
}

/** Outline is the same as a tree of text. */
function Outline({ rows, here }) {
	const utc = use(zone) === "UTC", [at, set] = useState(0);
	const keys = (e) => {
		const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[e.key];
		if (e.key === "Enter") return e.currentTarget.querySelector('[tabindex="0"] a').click();
		if (next === undefined || !rows[next]) return;
		e.preventDefault();
		set(next);
		e.currentTarget.children[next].focus();
	};
	return html`<div role="tree" aria-label="Events" class="tree" onKeyDown=${keys}>${rows.map((n, i) => html`<div role="treeitem" key=${n.e.id} aria-level=${n.depth + 1} aria-selected=${String(i === at)} tabindex=${i === at ? 0 : -1} onFocus=${() => set(i)} style=${{ paddingLeft: 8 + Math.min(n.depth, 30) * 20 + "px" }}>
		<strong>${n.e.type}</strong> <${EventLink} stream=${n.e.stream} number=${n.e.number} tabindex="-1" aria-current=${`${n.e.number}@${n.e.stream}` === here ? "true" : undefined} /> <span class="muted small">${time(n.e.time, utc)}${n.after ? `, ${span(n.after)} after its cause` : ""}</span></div>`)}</div>`;
}
