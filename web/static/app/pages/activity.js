// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { command, useAnswer } from "../api.js";
import { count, plural } from "../lib/format.js";
import { newest } from "../live.js";
import { Absent, Act, Age, Answer, Choice, Empty, Field, Link, Page, State, Table, Time } from "../parts/basics.js";
import { fromEntry } from "../parts/events.js";
import { patch, unmoved } from "../router.js";
import { has, info, use } from "../store.js";

const size = 100;
const filters = [["who", "login"], ["path", "beginning of the path"], ["nobody", "no login"]];

/** needle is what the node looks for in the data of an event, which it writes in this order and without blanks. */
function needle({ by, text }) {
	if (by === "nobody") return '"who":""';
	if (!text) return "";
	const quoted = JSON.stringify(text);
	return by === "path" ? `"path":${quoted.slice(0, -1)}` : `"who":${quoted}`;
}

export default function Activity({ query }) {
	use(info);
	const [f, set] = useState({ by: query.by || "who", text: query.text || "" });
	const contains = needle(query), still = contains === "" && !query.from;
	const q = useAnswer(async (signal) => {
		const list = await newest("/streams/$operations", size, { node: "leader", query: { from: query.from || "end", contains }, signal });
		return list.map(fromEntry).map((e) => ({ ...read(e.data), at: e.at, time: e.time }));
	}, [query.from, contains], { every: still ? 5000 : 0, off: !has("activity") });
	if (!has("activity")) return html`<${Page} title="Activity"><${Absent} what="a record of who did what" /><p class="muted">The log of the node has its audit lines.</p><//>`;
	const filter = (e) => {
		e.preventDefault();
		patch({ by: f.by, text: f.by === "nobody" ? "" : f.text.trim(), from: "" });
	};
	const go = (at) => () => patch({ from: at });
	const oldest = async () => {
		const here = unmoved();
		const list = await newest("/streams/$operations", size, { node: "leader", query: { from: "start", to: "end", backward: "", contains } });
		if (here() && list.length > 0) go(String(fromEntry(list[list.length - 1]).at))();
	};
	return html`<${Page} title="Activity" what="Who changed what, when and from where, with the answer of the node." lead=${html`<${Age} of=${q} />`} actions=${html`<${Link} to=${["streams", "$operations"]}>The stream<//>`}>
		<form class="bar ends" onSubmit=${filter}><${Choice} label="Filter by" value=${f.by} of=${filters} set=${(by) => set({ ...f, by })} /><${Field} label="Filter" value=${f.text} set=${(text) => set({ ...f, text })} disabled=${f.by === "nobody"} />
			<button>Apply</button>${contains && html`<button type="button" onClick=${() => (set({ by: "who", text: "" }), patch({ by: "", text: "", from: "" }))}>Show all</button>`}</form>
		<${Answer} of=${q} needs="the group $ops or $admins">${(list) => html`${contains && html`<p role="status">${plural(list.length, "match", "matches")}${list.length < size ? ", which is all" : ""}.</p>`}
			${list.length === 0 && !contains ? html`<${Empty} text="Nothing was changed yet, but for appends. Any other change is listed, such as a priority:" command=${command("POST", "/admin/node/priority/0")} />` : html`<${Operations} of=${list} />`}
			<div class="bar"><button data-key="newest" disabled=${!query.from} onClick=${go("")}>Newest</button><button data-key="newer" disabled=${!query.from || contains !== "" || list.length === 0} onClick=${() => go(String(BigInt(list[0].at) + BigInt(size)))()}>Newer</button>
				<button data-key="older" disabled=${list.length < size || String(list[list.length - 1].at) === "0"} onClick=${() => go(String(BigInt(list[list.length - 1].at) - 1n))()}>Older</button>
				<${Act} label="Oldest" data-key="oldest" disabled=${list.length < size} act=${oldest} /></div>`}<//><//>`;
}

/** Operations are what was asked of the nodes. What clients wrote is text, whatever it looks like. */
const Operations = ({ of }) => html`<${Table} name="Activity" heads=${["Time", "Who", "From", "Node", "Request", "Answer"]}>${of.map((o) => html`<tr key=${String(o.at)}><td><${Time} at=${o.time} /></td><td class="name">${o.who ? text(o.who) : html`<span class="muted">nobody</span>`}</td><td class="mono small">${text(o.from)}</td><td class="mono small">${text(o.node)}</td>
	<td class="name mono small">${text(o.method)} ${text(o.path)}${o.query ? "?" + text(o.query) : ""}${o.leftOut ? html`<br /><span class="muted">${count(o.leftOut)} before this are not listed</span>` : ""}</td><td><${State} kind=${Number(o.status) < 400 ? "good" : "bad"}>${text(o.status)}<//></td></tr>`)}<//>`;

/** text is a value of an event that anybody who may write the stream may have made. */
const text = (v) => String(v ?? "");

const read = (data) => {
	try {
		const o = JSON.parse(data || "{}");
		return o && typeof o === "object" ? o : {};
	} catch {
		return {};
	}
};
