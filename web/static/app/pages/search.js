// @ts-check
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { path, to } from "../lib/address.js";
import { plural, readTime, time } from "../lib/format.js";
import { follow } from "../live.js";
import { Check, Empty, Failure, Field, Page, Tabs } from "../parts/basics.js";
import { Columns, useColumns } from "../parts/columns.js";
import { enough, Events, fromEntry } from "../parts/events.js";
import { Find } from "../parts/find.js";
import { go, patch } from "../router.js";
import { has, system, use, zone } from "../store.js";

const page = 100, own = "search"; // The name under which its columns are remembered.
/** broken are the ends of a scan that did not come to its end. */
const broken = { stopped: ", then stopped", shutdown: ", then the node shut down", denied: ", then the right to read was withdrawn", gone: ", then the stream was deleted for ever", failed: ", then it failed" };

/** looked says how far a scan looked. @param {any} state @param {any[]} found @param {any} query @param {boolean} utc */
function looked(state, found, query, utc) {
	const events = plural(Math.max(state.scanned, found.length), "event");
	switch (state.over) {
		case "start": case "to": return `looked at ${events}, back to ${query.since ? query.since : "the start"}, which is all`;
		case "limit": return `looked at ${events}, back to ${time(found[found.length - 1].time, utc)}`;
		default: return `looked at ${events}${broken[state.over] || " so far"}`;
	}
}

const ways = ["Look through the log", "By tag, type, category"];

export default function Search({ query }) {
	const byIndex = query.by === "index" && has("query");
	return html`<${Page} title="Search" what="Events by what is in them, or by what the index knows of them.">${has("query") && html`<${Tabs} label="How to search" of=${ways} value=${ways[byIndex ? 1 : 0]} set=${(t) => go(to(["search"], { by: t === ways[1] ? "index" : "" }))} />`}
		${byIndex ? html`<${Find} key=${query.q} query=${query} />` : html`<${Look} query=${query} />`}<//>`;
}

/** Look asks for what only the events themselves can tell. */
function Look({ query }) {
	const [f, set] = useState(() => ({ text: query.text || "", id: query.id || "", streams: query.streams || "", types: query.types || "", since: query.since || "", until: query.until || "", system: query.system || (system.value === "Hide" ? "0" : "1"), stream: query.stream || "" }));
	const [wrong, setWrong] = useState("");
	const field = (label, k, more = {}) => html`<${Field} label=${label} value=${f[k]} set=${(v) => set({ ...f, [k]: v })} ...${more} />`;
	const utc = use(zone) === "UTC";
	const submit = (e) => {
		e.preventDefault();
		for (const t of [f.since, f.until]) if (t && readTime(t, utc, new Date()) === null) return setWrong(`${t} is no time such as 2026-11-24 14:05.`);
		setWrong("");
		system.set(f.system === "0" ? "Hide" : "Show");
		patch({ ...f, run: Number(query.run || 0) + 1 });
	};
	return html`<form onSubmit=${submit}>
		<div class="fields">${field("Text", "text", { hint: "in data or metadata" })}${field("Stream begins with", "streams", { hint: "prefixes with commas, or /regex/" })}${field("Type begins with", "types", { hint: "prefixes with commas, or /regex/" })}
		${field("Event id", "id")}${field("Not before", "since", { hint: utc ? "UTC" : "local time" })}${field("Not after", "until")}${field("In one stream", "stream", { hint: "empty: in all" })}</div>
		<div class="bar"><button class="primary">Search</button><${Check} label="System events" value=${f.system === "1"} set=${(v) => set({ ...f, system: v ? "1" : "0" })} />${wrong && html`<span role="alert" class="badtext">${wrong}</span>`}</div></form>
		${query.run && html`<${Scan} key=${JSON.stringify(query)} query=${query} utc=${utc} />`}`;
}

/** Scan asks the node to look through the log, newest first. */
function Scan({ query, utc }) {
	const [found, add] = useState(/** @type {any[]} */ ([])), [state, tell] = useState(/** @type {any} */ ({ scanned: 0, over: "" })), [after, more] = useState("");
	const stop = useRef(() => {}), before = useRef(0);
	const stream = query.stream || "$all", asksForSystem = [query.types, query.streams].some((t) => /^\/?\^?\\?\$/.test(t || ""));
	const hides = query.system !== "1" && stream === "$all" && !query.id && !asksForSystem;
	const [fields, setFields] = useColumns(own);
	useEffect(() => {
		let n = 0, last = "";
		tell((s) => ({ ...s, over: "", error: null }));
		stop.current = follow(`/streams/${path(stream)}`, {
			from: query.until ? readTime(query.until, utc, new Date()) : "end", to: query.since ? readTime(query.since, utc, new Date()) : undefined, backward: true, limit: page, embed: "body", maxData: 2 * enough, resolve: false,
			contains: query.text, id: query.id, types: query.types, streams: stream === "$all" ? query.streams : undefined, system: hides ? "false" : undefined,
		}, {
			event: (e, id) => (n++, (last = id), add((l) => [...l, fromEntry(e)])),
			progress: (p) => tell((s) => ({ ...s, scanned: before.current + Number(p.scanned) })),
			end: (why, d) => {
				before.current += Number(d.scanned ?? n); // Without a filter all that was looked at was found.
				tell((s) => ({ ...s, scanned: before.current, over: why, last }));
			},
			problem: (error) => tell((s) => ({ ...s, error, over: "failed" })),
		}, { once: true, after });
		return () => stop.current();
	}, [after]);
	return html`<div class="bar"><span role="status">${plural(found.length, "match", "matches")}; ${looked(state, found, query, utc)}.</span>
		<span class="row-acts push">${state.over === "" ? html`<button onClick=${() => (stop.current(), tell((s) => ({ ...s, over: "stopped" })))}>Stop</button>` : state.over === "limit" && state.last && html`<button onClick=${() => more(state.last)}>Look further</button>`}${found.length > 0 && html`<${Columns} of=${found} value=${fields} set=${setFields} />`}</span></div>
		${state.error && html`<${Failure} error=${state.error} />`}${found.length === 0 && state.over !== "" && !state.error ? html`<${Empty} text=${hides ? "No event matches. Those of the system were left out." : "No event matches."} />` : html`<${Events} of=${found} all=${true} name="Matches" find=${query.text} fields=${fields} />`}`;
}

