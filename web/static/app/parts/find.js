// @ts-check
// Events by what they say of themselves, out of the index: the query that appends can be bound to.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { command, json } from "../api.js";
import { plural } from "../lib/format.js";
import { parse, print, value } from "../lib/json.js";
import { follow } from "../live.js";
import { patch } from "../router.js";
import { Chips, Copy, Empty, Failure, Field } from "./basics.js";
import { Columns, useColumns } from "./columns.js";
import { enough, Events, fromEntry } from "./events.js";

const page = 50, kept = 500;
const kinds = /** @type {[string, string, string][]} */ ([["types", "Types", "any of them"], ["tags", "Tags", "all of them"], ["categories", "Categories", "of the stream, any of them"], ["streams", "Streams", "any of them"]]);

/** @typedef {{types?: string[], tags?: string[], categories?: string[], streams?: string[], correlation?: string}} Item */

/** itemsOf reads what an address asks for. @param {string} text @returns {Item[]} */
function itemsOf(text) {
	try {
		const { items } = JSON.parse(text);
		return Array.isArray(items) && items.length > 0 ? items : [{}];
	} catch {
		return [{}];
	}
}

/** said leaves out what an item does not say. @param {Item} item @returns {Item} */
const said = (item) => Object.fromEntries(Object.entries(item).filter(([, v]) => v && v.length > 0));

/** rowOf is an event of an answer as a table shows it. @param {any} n */
function rowOf(n) {
	const e = value({ ...n, items: n.items.map((x, i) => (whole.includes(n.keys[i]) ? empty : x)) });
	const text = (name) => (n.keys.includes(name) ? print(n.items[n.keys.indexOf(name)]) : undefined);
	return { number: e.number, stream: e.stream, type: e.eventType, id: e.eventId, time: e.created, at: e.number, from: e.stream, link: false, position: e.position, redacted: e.isRedacted, data: text("data"), metadata: text("metadata"), bytes: e.dataBase64 && Math.floor((e.dataBase64.length * 3) / 4) };
}
const whole = ["data", "metadata"], empty = /** @type {any} */ ({ kind: "literal", raw: "null" });

export function Find({ query }) {
	const [items, set] = useState(() => itemsOf(query.q));
	const change = (i, part) => set(items.map((x, j) => (j === i ? { ...x, ...part } : x)));
	const wanted = items.map(said);
	const submit = (e) => {
		e.preventDefault();
		patch({ q: JSON.stringify({ items: wanted }), run: Number(query.run || 0) + 1 });
	};
	const n = (label, i) => (i === 0 ? label : `${label} ${i + 1}`);
	return html`<form onSubmit=${submit}>${items.map((item, i) => html`<fieldset key=${i} class="box"><legend>${i === 0 ? "Events that match all of this" : "or all of this"}</legend>
			<div class="fields">${kinds.map(([k, label, hint]) => html`<${Chips} key=${k} label=${n(label, i)} of=${item[k] || []} set=${(v) => change(i, { [k]: v })} hint=${hint} />`)}
			<${Field} label=${n("Correlation id", i)} value=${item.correlation || ""} set=${(v) => change(i, { correlation: v })} /></div>
			${items.length > 1 && html`<button type="button" onClick=${() => set(items.filter((_, j) => j !== i))}>${n("Remove", i)}</button>`}</fieldset>`)}
		<div class="bar"><button class="primary" disabled=${wanted.some((w) => Object.keys(w).length === 0)}>Find</button><button type="button" disabled=${items.length >= 32} onClick=${() => set([...items, {}])}>Or</button></div></form>
		${query.run && query.q && html`<${Found} key=${query.q + query.run} text=${query.q} />`}`;
}

/** Found are the events that match, newest first, page by page, and those that come. */
function Found({ text }) {
	const [state, set] = useState(/** @type {any} */ ({ events: [], position: null, next: null, busy: true, error: null })), [live, tail] = useState(false), [broken, broke] = useState(/** @type {any} */ (null));
	const asked = { query: { items: itemsOf(text) }, backward: true, limit: page };
	const load = async (until) => {
		set((s) => ({ ...s, busy: true, error: null }));
		try {
			const root = /** @type {any} */ (parse(await json("POST", "/query", { body: until === null ? asked : { ...asked, until: Number(until) }, node: "self", text: true })));
			const list = root.keys.indexOf("events"), d = value({ ...root, items: root.items.map((n, i) => (i === list ? empty : n)) });
			set((s) => ({ ...s, events: [...s.events, ...root.items[list].items.map(rowOf)], position: s.position ?? d.position, next: d.next, busy: false }));
		} catch (error) {
			set((s) => ({ ...s, busy: false, error }));
		}
	};
	useEffect(() => void load(null), []);
	const [fields, setFields] = useColumns("search");
	const only = asked.query.items.length === 1 ? asked.query.items[0] : null;
	const tailed = only && kinds.every(([k]) => (only[k] || []).every((name) => !name.includes(",")));
	useEffect(() => {
		if (!live) return;
		broke(null);
		const request = { correlation: only.correlation, after: state.position === null ? undefined : String(state.position), embed: "body", maxData: enough };
		for (const [k] of kinds) request[k] = only[k] && only[k].join(",");
		return follow("/query", request, {
			event: (e, id) => set((s) => {
				const all = [{ ...fromEntry(e), at: e.eventNumber, from: e.streamId, link: false, position: id }, ...s.events], events = all.slice(0, kept);
				return { ...s, position: id, events, next: all.length > kept ? BigInt(events[kept - 1].position) - 1n : s.next };
			}),
			problem: (error) => (tail(false), broke(error)),
		}, { rests: true });
	}, [live]);
	const condition = () => `{"failIfEventsMatch":${JSON.stringify(asked.query)}${state.position === null ? "" : `,"after":${state.position}`}}`;
	return html`<div class="bar"><span role="status">${state.busy ? "Looking…" : `${plural(state.events.length, "event")}${state.next === null ? "" : " and more"}, up to position ${state.position === null ? "0 of an empty log" : state.position}.`}</span> <span class="row-acts push">${tailed && html`<button aria-pressed=${String(live)} disabled=${state.busy} onClick=${() => tail(!live)}>Live</button>`}
		<${Columns} of=${state.events} value=${fields} set=${setFields} /><${Copy} label="Copy as condition" text=${condition} /><${Copy} label="Copy as curl" data-key="curl" text=${() => command("POST", "/query", { body: asked })} /></span></div>
		${state.error && html`<${Failure} error=${state.error} again=${() => load(state.next)} />`}${broken && html`<${Failure} error=${broken} again=${() => tail(true)} />`}
		${!state.busy && !state.error && state.events.length === 0 ? html`<${Empty} text="No event matches." />` : html`<${Events} of=${state.events} all=${true} name="Matches" fields=${fields} />`}
		${state.next !== null && html`<div class="bar"><button disabled=${state.busy} onClick=${() => load(state.next)}>Older</button></div>`}`;
}
