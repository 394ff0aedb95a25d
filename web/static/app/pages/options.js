// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { get, useAnswer } from "../api.js";
import { plural } from "../lib/format.js";
import { Answer, Check, Choice, Empty, Page, State, Table } from "../parts/basics.js";
import { icons } from "../parts/icons.js";
import { patch } from "../router.js";
import { has, use, view } from "../store.js";

/** title is the name of a group in words. @param {string} group */
const title = (group) => group.replace(/Options$/, "").replace(/\B[A-Z]/g, (c) => " " + c.toLowerCase()).replace(/^Grpc$/, "gRPC").replace(/^Auth$/, "Authentication");

export default function Options({ query }) {
	const v = use(view), [text, set] = useState(""), [changed, only] = useState(false), [group, choose] = useState("");
	const others = v && v.members.length > 1 && has("nodeRelay") ? v.members : [];
	const q = useAnswer(async (signal) => {
		const own = await get("/info/options", { signal });
		const other = query.node ? await get("/info/options", { signal, node: query.node }) : null;
		return { own, other: other && new Map(other.map((o) => [o.name, o])) };
	}, [query.node]);
	const names = [...new Set(((q.data && q.data.own) || []).map((o) => o.group))];
	return html`<${Page} title="Options" what="What this node was started with, and where each value comes from."><div class="bar"><input type="search" aria-label="Filter options" placeholder="Filter" value=${text} onInput=${(e) => set(e.target.value)} />
		<${Choice} label="Group" value=${group} of=${[["", "all"], ...names.map((g) => [g, title(g)])]} set=${choose} />
		${others.length > 0 && html`<${Choice} label="Compare with" value=${query.node || ""} of=${[["", "no node"], ...others.map((m) => [m.instanceId, `${m.httpEndPointIp}:${m.httpEndPointPort}`])]} set=${(node) => patch({ node })} />`}<${Check} label="Only changed" value=${changed} set=${only} /></div>
		<${Answer} of=${q} needs="the group $ops or $admins">${(d) => {
			const t = text.toLowerCase();
			const list = d.own.filter((o) => (o.name + " " + o.description).toLowerCase().includes(t) && (!group || o.group === group) && (!changed || o.configurationSource !== "<DEFAULT>") && (!d.other || d.other.get(o.name)?.value !== o.value));
			const heads = ["Option", "Value", ...(d.other ? ["There"] : []), "Source", "Meaning"];
			return html`<p class="muted small" role="status">${plural(list.length, "option")} of ${d.own.length}${d.other ? " that differ" : ""}.</p>${list.length === 0 ? html`<${Empty} icon=${icons.SlidersHorizontal} text=${d.other ? "The two nodes have the same values." : "No option matches."} />` : html`<${Table} name="Options" heads=${heads}>${names.filter((g) => list.some((o) => o.group === g)).map((g) => html`<tr key=${g} class="group-row"><th colspan=${heads.length} scope="rowgroup">${title(g)}</th></tr>${list.filter((o) => o.group === g).map((o) => html`<tr key=${o.name}><td class="mono nowrap">${o.name}</td><td class="value mono">${o.value}</td>${d.other && html`<td class="value mono">${d.other.get(o.name)?.value ?? "not there"}</td>`}<td>${o.configurationSource === "<DEFAULT>" ? html`<span class="muted">default</span>` : html`<${State} kind="accent">${o.configurationSource}<//>`}</td><td class="meaning">${o.description}${o.deprecationMessage ? html` <strong class="warntext">${o.deprecationMessage}</strong>` : ""}</td></tr>`)}`)}<//>`}`;
		}}<//><//>`;
}
