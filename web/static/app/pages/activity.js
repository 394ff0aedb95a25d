// @ts-check
import { html } from "../../vendor/preact.js";
import { atomJSON, fromLeader, useAnswer } from "../api.js";
import { newest } from "../live.js";
import { Absent, Age, Answer, Link, Page, State, Table, Time } from "../parts/basics.js";
import { fromEntry } from "../parts/events.js";
import { patch } from "../router.js";
import { has, info, use } from "../store.js";

const size = 100;

export default function Activity({ query }) {
	use(info);
	const q = useAnswer(async (signal) => {
		const list = query.from ? (await fromLeader(`/streams/$operations/${query.from}/backward/${size}?embed=body`, { accept: atomJSON, signal })).entries : await newest("/streams/$operations", size, { node: "leader" });
		return list.map(fromEntry).map((e) => ({ at: e.at, time: e.time, ...read(e.data) }));
	}, [query.from], { every: query.from ? 0 : 5000, off: !has("activity") });
	if (!has("activity")) return html`<${Page} title="Activity"><${Absent} what="a record of who did what" /><p class="muted">The log of the node has its audit lines.</p><//>`;
	return html`<${Page} title="Activity" lead=${html`<${Age} of=${q} />`} actions=${html`<${Link} to=${["streams", "$operations"]}>The stream<//>`}><${Answer} of=${q}>${(list) => html`<${Table} name="Activity" heads=${["Time", "Who", "From", "Node", "Request", "Answer"]}>${list.length === 0 && html`<tr><td colspan="6" class="muted">Nothing was changed yet, but for appends.</td></tr>`}${list.map((o) => html`<tr key=${String(o.at)}><td><${Time} at=${o.time} /></td><td>${o.who || "nobody"}</td><td class="mono small">${o.from}</td><td class="mono small">${o.node}</td><td class="name mono small">${o.method} ${o.path}${o.query ? "?" + o.query : ""}</td><td><${State} kind=${o.status < 400 ? "good" : "bad"}>${o.status}<//></td></tr>`)}<//>
		<div class="bar"><button data-key="newest" disabled=${!query.from} onClick=${() => patch({ from: "" })}>Newest</button><button data-key="older" disabled=${list.length < size} onClick=${() => patch({ from: String(BigInt(list[list.length - 1].at) - 1n) })}>Older</button></div>`}<//><//>`;
}

const read = (text) => {
	try {
		return JSON.parse(text || "{}");
	} catch {
		return {};
	}
};
