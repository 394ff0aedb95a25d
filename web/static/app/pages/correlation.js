// @ts-check
import { html, useEffect, useState } from "../../vendor/preact.js";
import { root } from "../api.js";
import { path } from "../lib/address.js";
import { plural, span, time } from "../lib/format.js";
import { follow } from "../live.js";
import { Empty, EventLink, Failure, Page } from "../parts/basics.js";
import { fromEntry } from "../parts/events.js";
import { ids } from "./event.js";
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
		${found.over && found.events.length === 0 && !found.error ? html`<${Empty} text="No event has this correlation id in its metadata, as $correlationId. One that has it:" command=${`curl -i -H 'Content-Type: application/vnd.eventstore.events+json' -d '[{"eventId":"'$(uuidgen)'","eventType":"OrderPlaced","data":{},"metadata":{"$correlationId":"c-1"}}]' ${new URL("streams/orders-1", root)}`} />` : found.events.length > 0 && html`<${Graph} rows=${forest} here=${query.event} /><h2>Events</h2><${Outline} rows=${forest} here=${query.event} />`}<//>`;
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

const height = 36, indent = 28;

/** Graph draws the forest. */
function Graph({ rows, here }) {
	const shown = rows.slice(0, 200), index = new Map(shown.map((n, i) => [n, i]));
	const width = 480 + indent * Math.max(...shown.map((n) => Math.min(n.depth, 30)));
	const x = (n) => 12 + indent * Math.min(n.depth, 30), y = (n) => 18 + height * index.get(n);
	return html`<div class="graph" tabindex="0" role="group" aria-label="Graph, may be scrolled"><svg role="img" aria-label="Correlation graph" width=${width} height=${height * shown.length} viewBox=${`0 0 ${width} ${height * shown.length}`}>
		${shown.map((n) => n.up && index.has(n.up) && html`<path class="line" d=${`M${x(n.up)} ${y(n.up) + 6} V${y(n)} H${x(n) - 6}`} />`)}
		${shown.map((n) => html`<g><circle class=${"node" + (`${n.e.number}@${n.e.stream}` === here ? " here" : "")} cx=${x(n)} cy=${y(n)} r="6" /><text x=${x(n) + 12} y=${y(n) + 4}>${clip(n.e.type, 40)} <tspan class="soft">${n.after ? `+${span(n.after)}` : ""}</tspan></text></g>`)}</svg></div>
		${rows.length > shown.length && html`<p class="muted small">The graph shows the first ${shown.length}.</p>`}`;
}

const clip = (s, n) => (s.length > n ? s.slice(0, n) + "…" : s);

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
