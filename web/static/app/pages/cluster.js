// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { get, send, useAnswer } from "../api.js";
import { bytes, count } from "../lib/format.js";
import { allowed, Act, Age, Answer, Ask, Page, State, Table, Time } from "../parts/basics.js";
import { path } from "../lib/address.js";
import { info, use, view } from "../store.js";

export default function Cluster() {
	const v = use(view), about = use(info);
	const may = allowed("ops") || about.authentication.type === "insecure";
	const members = useAnswer((signal) => get("/admin/cluster/members", { signal }), [may], { every: 5000, off: !may });
	const gossip = useAnswer((signal) => get("/gossip", { signal }), [], { every: 2000 });
	const extra = new Map((members.data || []).map((m) => [m.nodeId, m]));
	return html`<${Page} title="Cluster" what="The nodes, who leads them, and how far each has the log." lead=${html`<${Age} of=${gossip} />`}><${Answer} of=${gossip}>${(g) => {
		const list = [...g.members].sort((a, b) => name(a).localeCompare(name(b))).map((m) => ({ ...m, ...pick(extra.get(m.instanceId)), name: name(m) }));
		const leader = list.find((m) => m.state === "Leader" && m.isAlive), here = v && v.me ? name(v.me) : location.host;
		return html`<${Drawing} list=${list} leader=${leader} here=${here} /><${Table} name="Nodes" heads=${["Node", "State", "#Written", "#Behind", "#Term", "Priority", "Version", "Last seen", "Id", ""]}>${list.map((m) => html`<tr key=${m.instanceId}>
			<td class="name mono">${m.name}${m.name === here ? html` <span class="muted small">this node</span>` : ""}</td><td><${State} kind=${!m.isAlive ? "bad" : m.state === "Leader" || m.state === "Follower" ? "good" : "warn"}>${m.isAlive ? m.state : "Dead"}${m.voter === false ? ", no voter" : ""}<//></td>
			<td class="num" title=${String(m.writerCheckpoint)}>${bytes(m.writerCheckpoint)}</td><td class="num">${leader && m.isAlive ? bytes(Math.max(0, Number(leader.writerCheckpoint) - Number(m.writerCheckpoint))) : "–"}</td><td class="num">${count(m.epochNumber)}</td><td>${may && m.isAlive ? html`<${Priority} m=${m} onDone=${gossip.again} />` : m.nodePriority}</td>
			<td>${m.version || m.esVersion}</td><td><${Time} at=${m.timeStamp} /></td><td class="mono small">${m.instanceId.slice(0, 8)}</td><td>${may && html`<${Acts} m=${m} voters=${list.length} onDone=${() => (gossip.again(), members.again())} />`}</td></tr>`)}<//>`;
	}}<//><//>`;
}

const name = (m) => `${m.httpEndPointIp}:${m.httpEndPointPort}`;
const pick = (m) => (m ? { voter: m.voter, version: m.version } : {});

function Acts({ m, onDone }) {
	const node = m.instanceId;
	return html`<span class="row-acts">${m.isAlive && m.state === "Leader" && html`<${Ask} label="Resign" danger=${false} act=${() => send("POST", "/admin/node/resign", { node })} onDone=${onDone}><p>${m.name} hands leadership over to another node and follows it. Writes wait for the moment that takes.</p><//>`}
		${m.isAlive && html`<${Ask} label="Shut down" name=${`Shut down ${m.name}`} verb="Shut down" typed=${m.name} act=${() => send("POST", "/admin/shutdown", { node })} onDone=${onDone}><p>The process of ${m.name} ends. What starts it again is not part of this page. A leader hands over before.</p><//>`}
		${!m.isAlive && html`<${Ask} label="Remove" name=${`Remove ${m.name}`} verb="Remove" typed=${m.name} act=${() => send("DELETE", `/admin/cluster/members/${path(node)}`)} onDone=${onDone}><p>${m.name} is no member any more and has no vote. It must be emptied before it joins again.</p><//>`}</span>`;
}

function Priority({ m, onDone }) {
	const [n, set] = useState(String(m.nodePriority));
	return html`<span class="row-acts"><input type="number" aria-label=${`Priority of ${m.name}`} value=${n} onInput=${(e) => set(e.target.value)} size="4" style=${{ width: "72px" }} /><${Act} label="Set" name=${`Set priority of ${m.name}`} act=${() => send("POST", `/admin/node/priority/${n}`, { node: m.instanceId })} onDone=${onDone} disabled=${n === String(m.nodePriority)} /></span>`;
}

/** Drawing shows the leader and who follows it, with how far each is behind. */
function Drawing({ list, leader, here }) {
	if (list.length < 2) return null;
	const others = list.filter((m) => m !== leader), w = Math.max(440, (others.length + 1) * 190), h = 170;
	const box = (m, x, y) => html`<g><rect class=${"node" + (m === leader ? " leader" : "") + (m.isAlive ? "" : " dead")} x=${x - 85} y=${y} width="170" height="48" rx="4" /><text x=${x} y=${y + 20} text-anchor="middle">${m.name}${m.name === here ? " ●" : ""}</text><text x=${x} y=${y + 38} text-anchor="middle" class="soft">${m.isAlive ? m.state : "Dead"}</text></g>`;
	return html`<div class="graph"><svg role="img" aria-label="Cluster map" width=${w} height=${h} viewBox=${`0 0 ${w} ${h}`}>
		${others.map((m, i) => {
			const x = (w / (others.length + 1)) * (i + 1), lag = leader ? Math.max(0, Number(leader.writerCheckpoint) - Number(m.writerCheckpoint)) : 0;
			return html`${leader && m.isAlive && html`<path class="line" d=${`M${w / 2} 58 L${x} 110`} /><text x=${(w / 2 + x) / 2 + 6} y="90" class="soft">${lag === 0 ? "level" : bytes(lag) + " behind"}</text>`}${box(m, x, 110)}`;
		})}${leader ? box(leader, w / 2, 10) : html`<text x=${w / 2} y="40" text-anchor="middle">No leader</text>`}</svg></div>`;
}
