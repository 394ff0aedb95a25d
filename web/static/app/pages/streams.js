// @ts-check
import { html, useEffect, useState } from "../../vendor/preact.js";
import { get, root, useAnswer } from "../api.js";
import { to } from "../lib/address.js";
import { count } from "../lib/format.js";
import { Age, Answer, Empty, Failure, Field, Link, Page, State, StreamLink, Table, Tabs } from "../parts/basics.js";
import { SystemChoice } from "../parts/columns.js";
import { fromEntry, ownStreams, Shown, useFeed } from "../parts/events.js";
import { When } from "../parts/when.js";
import { Icon, icons } from "../parts/icons.js";
import { go, patch } from "../router.js";
import { has, isSystem, system, use, visited } from "../store.js";

const tabs = ["Recently changed", "Recently created", "All streams", "Categories", "Types"];
const keys = ["changed", "created", "all", "categories", "types"];

export default function Streams({ query }) {
	const tab = Math.max(0, keys.indexOf(query.tab));
	const actions = html`<${Link} to=${["streams", "$all"]}>Everything ($all)<//><${Link} to=${["append"]} class="primary"><${Icon} of=${icons.Plus} />Append event<//>`;
	return html`<${Page} title="Streams" what="All streams of this database: their events, newest first." actions=${actions}><${Tabs} label="Which streams" of=${tabs} value=${tabs[tab]} set=${(t) => go(to(["streams"], { tab: keys[tabs.indexOf(t)] }))} />
		${tab === 0 ? html`<${Changed} />` : tab > 2 ? html`<${Indexed} key=${tab} kind=${keys[tab]} query=${query} />` : html`<${Names} key=${tab} order=${tab === 1 ? "created" : "name"} query=${query} />`}<//>`;
}

/** ownFirst puts streams of the system behind the others. @template T @param {T[]} list @param {(t: T) => string} name */
const ownFirst = (list, name) => [...list.filter((t) => !isSystem(name(t))), ...list.filter((t) => isSystem(name(t)))];

/** Changed are the streams of the newest events; without a right to these, what this tab looked at. */
function Changed() {
	const hides = use(system) === "Hide", ask = useFeed(`/streams/$all${hides ? "/filtered" : ""}/head/backward/200?embed=tryharder&maxData=300${hides ? ownStreams : ""}`, {});
	const q = useAnswer(async (signal) => {
		const feed = await ask(signal), seen = new Map();
		for (const e of feed.entries.map(fromEntry)) if (!seen.has(e.from)) seen.set(e.from, e);
		// Those of the system change most and are looked for least.
		return { list: ownFirst([...seen.values()], (e) => e.from), hidden: feed.looked - feed.entries.length, isAll: !hides || !feed.links.some((l) => l.relation === "next") };
	}, [hides], { every: 5000 });
	if (q.error && q.error.status === 401 && q.data === undefined) return html`<${Visited} />`;
	return html`<div class="bar"><${SystemChoice} label="System streams" noun="event of the system" many="events of the system" hidden=${q.data && q.data.hidden} /><${Age} of=${q} /></div><${Answer} of=${q}>${({ list, isAll }) => list.length === 0
		? !isAll ? html`<${Empty} text="The newest events are all of the system. The other tabs list the streams themselves." />` : html`<${Empty} text="There are no streams yet. An append makes one:" command=${`curl -i -d '{"total":12}' -H 'Content-Type: application/json' -H 'ES-EventType: OrderPlaced' ${new URL("streams/orders-1", root)}`} />`
		: html`<${Table} name="Streams" cls="events" heads=${["Stream", "#Newest event", "Type", "Time", "Data"]}>${list.map((e) => html`<tr key=${e.from}><td class="name"><${StreamLink} name=${e.from} title=${e.from} /></td><td class="num">${String(e.at)}</td><td class="name" title=${e.type}>${e.type}</td><td><${When} at=${e.time} /></td><${Shown} e=${e} /></tr>`)}<//>`}<//>`;
}

function Visited() {
	const list = visited();
	return html`<p class="muted">You may not read $all, which holds all streams. These are the streams that this tab looked at.</p>
		${list.length === 0 ? html`<${Empty} text="None yet. Type the name of a stream into the box on top." />` : html`<${Table} name="Streams" heads=${["Stream"]}>${list.map((s) => html`<tr><td class="name"><${StreamLink} name=${s} /></td></tr>`)}<//>`}`;
}

const lastOfSystem = "$\u{10FFFF}"; // No name that begins with $ comes behind it.

/**
 * readNames reads a page of the names of streams. The node orders them by their bytes, so those of the system stand before
 * nearly all others: they are left out until all others were shown, and altogether where they are hidden.
 * @returns {Promise<{streams: any[], next: any, hidden?: number, more?: boolean}>}
 */
async function readNames(order, prefix, after, hides, signal) {
	const read = (prefix, after, count = 100) => get(`/streams/$all/names?count=${count}&order=${order}&prefix=${encodeURIComponent(prefix)}&after=${encodeURIComponent(after)}`, { signal });
	if (prefix !== "") return read(prefix, after);
	if (order === "created") {
		let d = await read("", after), hidden = 0;
		if (!hides) return { ...d, streams: ownFirst(d.streams, (s) => s.name) };
		const streams = [];
		for (let pages = 1; ; pages++) {
			const own = d.streams.filter((s) => !isSystem(s.name));
			hidden += d.streams.length - own.length;
			streams.push(...own);
			if (streams.length >= 20 || !d.next || pages === 5) return { streams, next: d.next, hidden };
			d = await read("", d.next);
		}
	}
	if (isSystem(after.replace(/^~~/, ""))) return read("$", after); // A name that is not UTF-8 comes as ~~ and its escaped form.
	let d = await read("", after);
	const first = d.streams.findIndex((s) => isSystem(s.name));
	if (first >= 0) {
		const rest = await read("", lastOfSystem);
		d = { ...rest, streams: [...d.streams.slice(0, first), ...rest.streams] };
	}
	if (hides) {
		const system = await read("$", "", 1000);
		return { ...d, hidden: system.streams.length, more: !!system.next };
	}
	if (d.next) return d;
	const system = await read("$", "");
	return { ...system, streams: [...d.streams, ...system.streams] };
}

/** Names are streams out of the index of names. */
function Names({ order, query }) {
	if (!has("streamNames")) return html`<p class="box">This node does not offer a list of the names of all streams.</p><${Visited} />`;
	const hides = use(system) === "Hide";
	return html`<${Pages} query=${query} hides=${hides} noun="stream" read=${(prefix, after, signal) => readNames(order, prefix, after, hides, signal)}>${(d) => d.streams.length === 0 ? html`<${Empty} text="No stream has a name that begins so." />`
		: html`<${Table} name="Streams" heads=${["Stream", "#Last event", "Deleted"]}>${d.streams.map((s) => html`<tr key=${s.name}><td class="name"><${StreamLink} name=${s.name} /></td><td class="num">${String(s.lastEventNumber)}</td><td>${s.deleted === "hard" ? html`<${State} kind="bad">for ever<//>` : s.deleted && html`<${State} kind="warn">until it is written again<//>`}</td></tr>`)}<//>`}<//>`;
}

/** Indexed are the categories or the types of events, with how many events each has. @param {{kind: string, query: any}} p */
function Indexed({ kind, query }) {
	const heads = kind === "types" ? ["Type", "#Events"] : ["Category", "#Events"], index = kind === "types" ? "$idx-et-" : "$idx-ce-";
	const hides = use(system) === "Hide";
	const read = async (prefix, after, signal) => {
		const d = await get(`/index/${kind}?count=100&prefix=${encodeURIComponent(prefix)}&after=${encodeURIComponent(after)}`, { signal });
		const names = hides && prefix === "" ? d.names.filter((n) => !isSystem(n.name)) : d.names;
		return { ...d, names, hidden: d.names.length - names.length };
	};
	return html`<${Pages} query=${query} hides=${hides} noun=${heads[0].toLowerCase()} read=${read}>${(d) => d.names.length === 0 ? (d.next ? html`<p>None here: go on with Next.</p>` : html`<${Empty} text="No name begins so." />`)
		: html`<${Table} name=${heads[0] === "Type" ? "Types" : "Categories"} heads=${heads}>${d.names.map((n) => html`<tr key=${n.name}><td class="name"><${Link} to=${["streams", index + n.name]} class="mono">${n.name}<//></td><td class="num">${count(n.events)}</td></tr>`)}<//>`}<//>`;
}

/** Pages are names that begin with what was typed, page by page. */
function Pages({ query, read, hides, noun, children }) {
	const [prefix, setPrefix] = useState(query.prefix || ""), many = noun === "category" ? "categories" : noun + "s";
	useEffect(() => {
		const timer = setTimeout(() => patch({ prefix, after: prefix === (query.prefix || "") ? query.after : "" }, true), 200);
		return () => clearTimeout(timer);
	}, [prefix]);
	const q = useAnswer((signal) => read(query.prefix || "", query.after || "", signal), [query.prefix, query.after, hides]);
	useEffect(() => {
		if (!q.error || q.error.status !== 503) return; // The names are being collected.
		const timer = setTimeout(q.again, 1000);
		return () => clearTimeout(timer);
	}, [q.error]);
	return html`<div class="bar ends"><${Field} label="Prefix" value=${prefix} set=${setPrefix} /><${SystemChoice} label=${`System ${many}`} noun=${noun} many=${many} hidden=${q.data && q.data.hidden} more=${q.data && q.data.more} /></div><${Answer} of=${q}>${(d) => html`${q.error && html`<${Failure} error=${q.error} />`}${children(d)}
		<div class="bar"><button disabled=${!query.after} onClick=${() => patch({ after: "" })}>First</button><button disabled=${!d.next} onClick=${() => patch({ after: d.next })}>Next</button></div>`}<//>`;
}
