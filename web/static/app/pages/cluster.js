// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { get, send, useAnswer } from "../api.js";
import { bytes, count } from "../lib/format.js";
import { allowed, Act, Age, Answer, Ask, Page, State, Table } from "../parts/basics.js";
import { behind, ClusterMap, nameOf } from "../parts/map.js";
import { When } from "../parts/when.js";
import { path } from "../lib/address.js";
import { info, use, view } from "../store.js";

export default function Cluster() {
	const v = use(view), about = use(info);
	const may = allowed("ops") || about.authentication.type === "insecure";
	const members = useAnswer((signal) => get("/admin/cluster/members", { signal }), [may], { every: 5000, off: !may });
	const gossip = useAnswer((signal) => get("/gossip", { signal }), [], { every: 2000 });
	// The table waits for both: else its columns would move under the pointer.
	const extra = new Map((members.data || []).map((m) => [m.nodeId, m]));
	return html`<${Page} title="Cluster" what="The nodes, who leads them, and how far each has the log." lead=${html`<${Age} of=${gossip} />`}><${Answer} of=${!may || members.data || members.error ? gossip : { ...gossip, data: undefined }}>${(g) => {
		const list = [...g.members].sort((a, b) => nameOf(a).localeCompare(nameOf(b))).map((m) => ({ ...m, ...pick(extra.get(m.instanceId)), name: nameOf(m) }));
		const leader = list.find((m) => m.state === "Leader" && m.isAlive), here = v && v.me ? nameOf(v.me) : location.host;
		return html`${list.length > 1 && html`<div class="card"><${ClusterMap} members=${list} here=${here} /></div>`}<${Table} name="Nodes" heads=${["Node", "State", "#Log", "#Behind", "#Term", "Version", "Last seen", "Priority", ""]}>${list.map((m) => html`<tr key=${m.instanceId}>
			<td title=${`Id ${m.instanceId}`}><span class="mono nowrap">${m.name}</span>${m.name === here ? html` <span class="muted small nowrap">this node</span>` : ""}</td><td><${State} kind=${!m.isAlive ? "bad" : m.state === "Leader" || m.state === "Follower" ? "good" : "warn"}>${m.isAlive ? m.state : "Dead"}${m.voter === false ? ", no voter" : ""}<//></td>
			<td class="num" title=${String(m.writerCheckpoint)}>${bytes(m.writerCheckpoint)}</td><td class="num">${behind(m, leader) === undefined ? "–" : bytes(behind(m, leader))}</td><td class="num">${count(m.epochNumber)}</td>
			<td>${m.version || m.esVersion}</td><td><${When} at=${m.timeStamp} /></td><td>${may && m.isAlive ? html`<${Priority} m=${m} onDone=${gossip.again} />` : m.nodePriority}</td><td>${may && html`<${Acts} m=${m} onDone=${() => (gossip.again(), members.again())} />`}</td></tr>`)}<//>`;
	}}<//><//>`;
}

const pick = (m) => (m ? { voter: m.voter, version: m.version } : {});

function Acts({ m, onDone }) {
	const node = m.instanceId;
	return html`<span class="row-acts">${m.isAlive && m.state === "Leader" && html`<${Ask} label="Resign" danger=${false} act=${() => send("POST", "/admin/node/resign", { node })} onDone=${onDone}><p>${m.name} hands leadership over to another node and then follows it. Writes wait for the moment that this takes; none is lost.</p><//>`}
		${m.isAlive && html`<${Ask} label="Shut down" name=${`Shut down ${m.name}`} verb="Shut down" typed=${m.name} act=${() => send("POST", "/admin/shutdown", { node })} onDone=${onDone}><p>The process of ${m.name} ends; a leader hands over before. Nothing on this page starts it again.</p><//>`}
		${!m.isAlive && html`<${Ask} label="Remove" name=${`Remove ${m.name}`} verb="Remove" typed=${m.name} act=${() => send("DELETE", `/admin/cluster/members/${path(node)}`)} onDone=${onDone}><p>${m.name} stops being a member and has no vote. Its data folder must be emptied before it joins again.</p><//>`}</span>`;
}

function Priority({ m, onDone }) {
	const [n, set] = useState(String(m.nodePriority)), same = n === String(m.nodePriority);
	return html`<span class="row-acts"><input type="number" class="priority" aria-label=${`Priority of ${m.name}`} value=${n} onInput=${(e) => set(e.target.value)} /><${Act} label="Set" name=${`Set priority of ${m.name}`} act=${() => send("POST", `/admin/node/priority/${n}`, { node: m.instanceId })} onDone=${onDone} disabled=${same} /></span>`;
}
