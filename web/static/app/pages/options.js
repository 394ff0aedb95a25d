// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { get, useAnswer } from "../api.js";
import { Answer, Check, Choice, Page, Table } from "../parts/basics.js";
import { patch } from "../router.js";
import { has, use, view } from "../store.js";

export default function Options({ query }) {
	const v = use(view), [text, set] = useState(""), [changed, only] = useState(false);
	const others = v && v.members.length > 1 && has("nodeRelay") ? v.members : [];
	const q = useAnswer(async (signal) => {
		const own = await get("/info/options", { signal });
		const other = query.node ? await get("/info/options", { signal, node: query.node }) : null;
		return { own, other: other && new Map(other.map((o) => [o.name, o])) };
	}, [query.node]);
	return html`<${Page} title="Options" what="What this node was started with, and where each value comes from."><div class="bar"><input type="search" aria-label="Filter options" placeholder="Filter" value=${text} onInput=${(e) => set(e.target.value)} /><${Check} label="Only changed" value=${changed} set=${only} />
		${others.length > 0 && html`<${Choice} label="Compare with" value=${query.node || ""} of=${[["", "no node"], ...others.map((m) => [m.instanceId, `${m.httpEndPointIp}:${m.httpEndPointPort}`])]} set=${(node) => patch({ node })} />`}</div>
		<${Answer} of=${q} needs="the group $ops or $admins">${(d) => {
			const t = text.toLowerCase();
			const list = d.own.filter((o) => (o.name + " " + o.description).toLowerCase().includes(t) && (!changed || o.configurationSource !== "<DEFAULT>") && (!d.other || d.other.get(o.name)?.value !== o.value));
			return html`<p class="muted small" role="status">${list.length} of ${d.own.length} options${d.other ? " that differ" : ""}.</p><${Table} name="Options" heads=${["Option", "Value", ...(d.other ? ["There"] : []), "Source", "Meaning"]}>${list.map((o) => html`<tr key=${o.name}><td class="mono">${o.name}</td><td class="name mono">${o.value}</td>${d.other && html`<td class="name mono">${d.other.get(o.name)?.value ?? "not there"}</td>`}<td>${o.configurationSource === "<DEFAULT>" ? html`<span class="muted">default</span>` : o.configurationSource}</td><td>${o.description}${o.deprecationMessage ? html` <span class="state warn">${o.deprecationMessage}</span>` : ""}</td></tr>`)}<//>`;
		}}<//><//>`;
}
