// @ts-check
import { html } from "../../vendor/preact.js";
import { root, send, useAnswer } from "../api.js";
import { allowed, Age, Answer, Ask, Empty, Link, Page, State, StreamLink, Table } from "../parts/basics.js";
import { Icon, icons } from "../parts/icons.js";
import { count, rate } from "../lib/format.js";
import { watchGroups } from "../parts/groups.js";

export default function Subscriptions() {
	const q = useAnswer((signal) => watchGroups(signal), [], { every: 5000 });
	const actions = html`${allowed("ops") && html`<${Ask} label="Restart all groups" icon=${icons.RotateCcw} danger=${false} act=${() => send("POST", "/subscriptions/restart")} onDone=${q.again}><p>All groups are stopped and loaded again. Consumers connect again; messages in flight are handed out again.</p><//>`}<${Link} to=${["subscriptions", "new"]} class="primary"><${Icon} of=${icons.Plus} />New subscription<//>`;
	return html`<${Page} title="Subscriptions" what="Persistent subscription groups: consumers that share a stream, and how far they are." lead=${html`<${Age} of=${q} />`} actions=${actions}><${Answer} of=${q}>${(list) => list.length === 0
		? html`<${Empty} text="There are no groups of competing consumers yet. One is made with New subscription, or:" command=${`curl -i -u LOGIN -X PUT -H 'Content-Type: application/json' -d '{"startFrom":0}' ${new URL("subscriptions/orders-1/mail", root)}`} />`
		: html`<${Table} name="Subscriptions" heads=${["Group", "Stream", "Status", "#Behind", "#In flight", "#Parked", "#Connections", "#Per second", ""]}>${list.map((g) => html`<tr key=${g.stream + "::" + g.group}>
			<td class="name"><${Link} to=${["subscriptions", g.stream, g.group]}>${g.group}<//></td><td class="name"><${StreamLink} name=${g.stream} /></td>
			<td><${Status} of=${g} /></td><td class="num">${g.text.replace(/ events?$/, "")}</td><td class="num">${count(g.inFlight)}</td><td class="num">${g.parked === undefined ? "–" : count(g.parked)}</td><td class="num">${count(g.connections)}</td><td class="num">${rate(g.rate)}</td>
			<td><span class="row-acts"><${Link} to=${["subscriptions", g.stream, g.group, "parked"]}>Parked messages<//><${Link} to=${["subscriptions", g.stream, g.group, "edit"]}>Edit<//></span></td></tr>`)}<//>`}<//><//>`;
}

/** Status is the state of a group as a word. */
export const Status = ({ of: g }) => (g.stalled ? html`<${State} kind="bad">stalled<//>` : html`<${State} kind=${g.status === "Live" ? "good" : g.status === "Behind" ? "warn" : "idle"}>${g.status}<//>`);
