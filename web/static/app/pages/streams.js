// @ts-check
import { html, useEffect, useState } from "../../vendor/preact.js";
import { atomJSON, get, root, useAnswer } from "../api.js";
import { to } from "../lib/address.js";
import { count } from "../lib/format.js";
import { Age, Answer, Empty, Failure, Field, Link, Page, StreamLink, Table, Tabs, Time } from "../parts/basics.js";
import { Icon, icons } from "../parts/icons.js";
import { fromEntry } from "../parts/events.js";
import { go, patch } from "../router.js";
import { has, visited } from "../store.js";

const tabs = ["Recently changed", "Recently created", "All streams", "Categories", "Types"];
const keys = ["changed", "created", "all", "categories", "types"];

export default function Streams({ query }) {
	const tab = Math.max(0, keys.indexOf(query.tab));
	const actions = html`<${Link} to=${["streams", "$all"]}>Everything ($all)<//><${Link} to=${["append"]} class="primary"><${Icon} of=${icons.Plus} />Append event<//>`;
	return html`<${Page} title="Streams" what="All streams of this database: their events, newest first." actions=${actions}><${Tabs} label="Which streams" of=${tabs} value=${tabs[tab]} set=${(t) => go(to(["streams"], { tab: keys[tabs.indexOf(t)] }))} />
		${tab === 0 ? html`<${Changed} />` : tab > 2 ? html`<${Indexed} key=${tab} kind=${keys[tab]} query=${query} />` : html`<${Names} key=${tab} order=${tab === 1 ? "created" : "name"} query=${query} />`}<//>`;
}

/** isSystem reports whether a stream is one of the system. @param {string} name */
const isSystem = (name) => name.startsWith("$");

/** ownFirst puts streams of the system behind the others. @template T @param {T[]} list @param {(t: T) => string} name */
const ownFirst = (list, name) => [...list.filter((t) => !isSystem(name(t))), ...list.filter((t) => isSystem(name(t)))];

/** Changed are the streams of the newest events; without a right to these, what this tab looked at. */
function Changed() {
	const q = useAnswer(async (signal) => {
		const feed = await get("/streams/$all/head/backward/200?embed=rich", { accept: atomJSON, signal });
		const seen = new Map();
		for (const e of feed.entries.map(fromEntry)) if (!seen.has(e.from)) seen.set(e.from, e);
		// Those of the system change most and are looked for least.
		return ownFirst([...seen.values()], (e) => e.from);
	}, [], { every: 5000 });
	if (q.error && q.error.status === 401 && q.data === undefined) return html`<${Visited} />`;
	return html`<div class="bar"><${Age} of=${q} /></div><${Answer} of=${q}>${(list) => list.length === 0
		? html`<${Empty} text="There are no streams yet. An append makes one:" command=${`curl -i -d '{"total":12}' -H 'Content-Type: application/json' -H 'ES-EventType: OrderPlaced' ${new URL("streams/orders-1", root)}`} />`
		: html`<${Table} name="Streams" heads=${["Stream", "#Newest event", "Type", "Time"]}>${list.map((e) => html`<tr key=${e.from}><td class="name"><${StreamLink} name=${e.from} /></td><td class="num">${String(e.at)}</td><td class="name">${e.type}</td><td><${Time} at=${e.time} /></td></tr>`)}<//>`}<//>`;
}

function Visited() {
	const list = visited();
	return html`<p class="muted">You may not read $all, which holds all streams. These are the streams that this tab looked at.</p>
		${list.length === 0 ? html`<${Empty} text="None yet. Type the name of a stream into the box on top." />` : html`<${Table} name="Streams" heads=${["Stream"]}>${list.map((s) => html`<tr><td class="name"><${StreamLink} name=${s} /></td></tr>`)}<//>`}`;
}

const lastOfSystem = "$\u{10FFFF}"; // No name that begins with $ comes behind it.

/**
 * readNames reads a page of the names of streams. The node orders them by their bytes, so those of the system stand before
 * nearly all others: they are left out until all others were shown.
 */
async function readNames(order, prefix, after, signal) {
	const read = (prefix, after) => get(`/streams/$all/names?count=100&order=${order}&prefix=${encodeURIComponent(prefix)}&after=${encodeURIComponent(after)}`, { signal });
	if (prefix !== "") return read(prefix, after);
	if (order === "created") {
		const d = await read("", after);
		return { ...d, streams: ownFirst(d.streams, (s) => s.name) };
	}
	if (isSystem(after.replace(/^~~/, ""))) return read("$", after); // A name that is not UTF-8 comes as ~~ and its escaped form.
	let d = await read("", after);
	const first = d.streams.findIndex((s) => isSystem(s.name));
	if (first >= 0) {
		const rest = await read("", lastOfSystem);
		d = { ...rest, streams: [...d.streams.slice(0, first), ...rest.streams] };
	}
	if (d.next) return d;
	const system = await read("$", "");
	return { ...system, streams: [...d.streams, ...system.streams] };
}

/** Names are streams out of the index of names. */
function Names({ order, query }) {
	if (!has("streamNames")) return html`<p class="box">This node does not offer a list of the names of all streams.</p><${Visited} />`;
	return html`<${Pages} query=${query} read=${(prefix, after, signal) => readNames(order, prefix, after, signal)}>${(d) => d.streams.length === 0 ? html`<${Empty} text="No stream has a name that begins so." />`
		: html`<${Table} name="Streams" heads=${["Stream", "#Last event", "Deleted"]}>${d.streams.map((s) => html`<tr key=${s.name}><td class="name"><${StreamLink} name=${s.name} /></td><td class="num">${String(s.lastEventNumber)}</td><td>${s.deleted}</td></tr>`)}<//>`}<//>`;
}

/** Indexed are the categories or the types of events, with how many events each has. @param {{kind: string, query: any}} p */
function Indexed({ kind, query }) {
	const heads = kind === "types" ? ["Type", "#Events"] : ["Category", "#Events"], index = kind === "types" ? "$idx-et-" : "$idx-ce-";
	return html`<${Pages} query=${query} read=${(prefix, after, signal) => get(`/index/${kind}?count=100&prefix=${encodeURIComponent(prefix)}&after=${encodeURIComponent(after)}`, { signal })}>${(d) => d.names.length === 0 ? (d.next ? html`<p>None here: go on with Next.</p>` : html`<${Empty} text="No name begins so." />`)
		: html`<${Table} name=${heads[0] === "Type" ? "Types" : "Categories"} heads=${heads}>${d.names.map((n) => html`<tr key=${n.name}><td class="name"><${Link} to=${["streams", index + n.name]} class="mono">${n.name}<//></td><td class="num">${count(n.events)}</td></tr>`)}<//>`}<//>`;
}

/** Pages are names that begin with what was typed, page by page. */
function Pages({ query, read, children }) {
	const [prefix, setPrefix] = useState(query.prefix || "");
	useEffect(() => {
		const timer = setTimeout(() => patch({ prefix, after: prefix === (query.prefix || "") ? query.after : "" }, true), 200);
		return () => clearTimeout(timer);
	}, [prefix]);
	const q = useAnswer((signal) => read(query.prefix || "", query.after || "", signal), [query.prefix, query.after]);
	useEffect(() => {
		if (!q.error || q.error.status !== 503) return; // The names are being collected.
		const timer = setTimeout(q.again, 1000);
		return () => clearTimeout(timer);
	}, [q.error]);
	return html`<${Field} label="Prefix" value=${prefix} set=${setPrefix} /><${Answer} of=${q}>${(d) => html`${q.error && html`<${Failure} error=${q.error} />`}${children(d)}
		<div class="bar"><button disabled=${!query.after} onClick=${() => patch({ after: "" })}>First</button><button disabled=${!d.next} onClick=${() => patch({ after: d.next })}>Next</button></div>`}<//>`;
}
