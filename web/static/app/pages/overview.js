// @ts-check
import { html, useEffect, useState } from "../../vendor/preact.js";
import { fromLeader, get, useAnswer } from "../api.js";
import { isOps, user } from "../auth.js";
import { to } from "../lib/address.js";
import { bytes, count, plural, rate, span } from "../lib/format.js";
import { last } from "../lib/series.js";
import { Age, Facts, Failure, Follows, Link, Page, State } from "../parts/basics.js";
import { watchGroups } from "../parts/groups.js";
import { Icon, icons } from "../parts/icons.js";
import { Tile, useHour } from "../parts/spark.js";
import { has, info, use, view } from "../store.js";

/** cures are the pages on which a check of the node's own examination is put right. */
const cures = { members: ["cluster"], lag: ["cluster"], clock: ["cluster"], start: ["cluster"], "subscription groups": ["subscriptions"], projections: ["projections"], backup: ["backup"], passwords: ["users"], "disk space": ["scavenge"], certificates: ["options"], chunks: ["stats"], fsync: ["stats"], limits: ["options"] };

export default function Overview() {
	const v = use(view), about = use(info);
	use(user);
	const may = isOps() || about.authentication.type === "insecure", known = may || !!user.value;
	const role = (v && v.role) || about.state;
	const clustered = v && v.members.length > 1, follows = !!clustered && role !== "leader" && !!v.leader && has("nodeRelay");
	const own = useAnswer((signal) => get("/admin/doctor", { signal }), [may], { every: 15000, off: !may });
	const lead = useAnswer((signal) => fromLeader("/admin/doctor", { signal }), [may, clustered], { every: 15000, off: !may || !clustered || !has("nodeRelay") });
	const groups = useAnswer((signal) => watchGroups(signal), [known], { every: 20000, off: !known });
	const projections = useAnswer((signal) => fromLeader("/projections/all-non-transient", { signal }), [known], { every: 10000, off: !known || !has("projections") });
	const scavenge = useAnswer((signal) => get("/admin/scavenge/last", { signal }), [may], { every: 30000, off: !may });
	const unseen = !known || !has("statsHistory");
	const here = useHour("", unseen), there = useHour("leader", unseen || !follows, v ? v.leader : "");

	const needs = /** @type {{bad?: boolean, text: string, to: any}[]} */ ([]);
	if (v && v.known && v.members.length > 0) {
		if (!v.leader) needs.push({ bad: true, text: "The cluster has no leader: nothing is written.", to: ["cluster"] });
		for (const m of v.members) if (!m.isAlive) needs.push({ bad: true, text: `Node ${nameOf(m)} does not answer.`, to: ["cluster"] });
	}
	const findings = new Map();
	for (const [q, where] of [[lead, "leader"], [own, "this node"]]) for (const c of (q.data && q.data.checks) || []) if (!c.ok && c.check !== "members" && !(c.check === "projections" && projections.data) && !findings.has(c.check + c.text)) findings.set(c.check + c.text, { ...c, where });
	for (const c of findings.values()) needs.push({ text: `${c.where === "leader" ? "Leader" : "This node"}, ${c.check}: ${c.text}.`, to: cures[c.check] || ["stats"] });
	const busy = groups.data || [];
	for (const g of busy) {
		if (g.parked > 0) needs.push({ text: `${plural(g.parked, "message")} parked by ${g.group} of ${g.stream}.`, to: ["subscriptions", g.stream, g.group, "parked"] });
		if (g.stalled) needs.push({ bad: true, text: `${g.group} of ${g.stream} is stalled: ${g.text} behind, and nothing was handed out for a minute.`, to: ["subscriptions", g.stream, g.group] });
	}
	const running = (projections.data && projections.data.projections) || [];
	for (const p of running) if (/Faulted/.test(p.status)) needs.push({ bad: true, text: `Projection ${p.name} has faulted: ${p.stateReason.split("\n")[0]}`, to: ["projections", p.name] });
	if (scavenge.data && /^(Failed|Errored)/.test(scavenge.data.scavengeResult)) needs.push({ text: `The last scavenge of this node failed: ${scavenge.data.error || ""}`, to: ["scavenge"] });
	needs.sort((a, b) => Number(!!b.bad) - Number(!!a.bad));
	const unknown = [own, lead, groups, projections].filter((q) => q.error && q.error.status !== 401);
	const asked = v && (!may || own.data || own.error);
	const me = here.data, work = follows ? there.data : me;
	return html`<${Page} title="Overview" what="What this cluster does, and what it needs." lead=${html`<${Follows} /><${Age} of=${may ? own : here} />`}>
		<section aria-label="What needs you"><h2>What needs you</h2>
			${needs.length > 0 ? html`<ul class="needs">${needs.map((n) => html`<li class=${n.bad ? "bad" : ""}><a href=${to(n.to)}><${Icon} of=${n.bad ? icons.CircleAlert : icons.TriangleAlert} /><span>${n.text}</span><${Icon} of=${icons.ChevronRight} cls="go" /></a></li>`)}</ul>` : asked ? html`<p class="box good">${unknown.length === 0 ? "Nothing: all is well." : "Nothing is known."}${!may ? " You see what your rights allow." : ""}</p>` : html`<div class="bone"></div>`}
			${unknown.map((q) => html`<${Failure} error=${q.error} again=${q.again} />`)}</section>
		${!unseen && html`<${Rates} work=${work} me=${me} clustered=${clustered} leader=${follows ? v.leader : ""} />`}
		<div class="glance"><div>${clustered && html`<section aria-label="Nodes" class="card"><h2>Cluster <${Link} to=${["cluster"]}>All of it<//></h2><${Drawn} members=${v.members} here=${v.me ? nameOf(v.me) : location.host} /></section>`}
			<section aria-label="This node" class="card"><h2>This node</h2><${Facts} of=${[["Address", location.host], ["State", html`<${State} kind=${role === "leader" || role === "follower" ? "good" : "warn"}>${role}<//>${role === "follower" && v && v.leader ? ` of ${v.leader}` : ""}`], ["Version", about.version],
			["Members", v && v.known ? `${count(v.members.filter((m) => m.isAlive).length)} of ${v.members.length} alive` : "–"], ["Log", v && v.me ? `${bytes(v.me.writerCheckpoint)} written` : "–"], ["Disk", me ? `${bytes(last(me.series.diskUsedBytes))} of ${bytes(last(me.series.diskTotalBytes))}` : "–"]]} /></section></div>
			${(busy.length > 0 || running.length > 0) && html`<div>${busy.length > 0 && html`<${Lags} of=${busy} />`}${running.length > 0 && html`<${Progresses} of=${running} />`}</div>`}</div><//>`;
}

const nameOf = (m) => `${m.httpEndPointIp}:${m.httpEndPointPort}`;

/** Drawn is the map of the cluster, which a node alone does not load. */
function Drawn(of) {
	const [Map, set] = useState(/** @type {any} */ (null));
	useEffect(() => void import("../parts/map.js").then((m) => set(() => m.ClusterMap)), []);
	return Map && html`<${Map} ...${of} />`;
}

/** since is what the figures of a node are of: an hour, or what there is of it since the node was started. */
function since(h) {
	const seconds = h ? Math.max(...Object.values(h.series).map((s) => s.length)) * h.step : 3600;
	return seconds < 3540 ? `Last ${seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`}, since the start` : "Last hour";
}

const milliseconds = (n) => (n < 1 ? `${n.toFixed(2)} ms` : n < 10 ? `${n.toFixed(1)} ms` : span(n));

/** Rates are the figures of the last hour: of the work of the leader, and of memory and disk of this node. */
function Rates({ work, me, clustered, leader }) {
	const tile = (of, label, name, format, more = {}) => html`<${Tile} key=${label} label=${label} of=${of} values=${of ? of.series[name] : []} format=${format} ...${more} />`;
	const total = me && last(me.series.diskTotalBytes);
	return html`<section aria-label="Rates"><h2>${since(work || me)}${leader && html` <span class="muted small">work of the leader, ${leader}; memory and disk of this node</span>`}</h2><div class="tiles">
		${tile(work, "Appends", "appendsPerSecond", rate, { unit: "/s" })}${tile(work, "Events written", "eventsWrittenPerSecond", rate, { unit: "/s" })}${tile(work, "Events read", "eventsReadPerSecond", rate, { unit: "/s" })}${clustered ? tile(work, "Replication lag", "replicationLagBytes", bytes) : tile(work, "Requests", "requestsPerSecond", rate, { unit: "/s" })}
		${tile(work, "Commit time, p50", "commitP50Milliseconds", milliseconds)}${tile(work, "Commit time, p99", "commitP99Milliseconds", milliseconds)}${tile(me, "Memory", "memoryBytes", bytes)}${tile(me, "Disk", "diskUsedBytes", bytes, { top: total, note: total ? `of ${bytes(total)}` : "" })}</div></section>`;
}

const most = 6;

/** Meter is a small bar; the share is between 0 and 1. */
const Meter = ({ share, kind }) => html`<svg class=${"meter " + kind} viewBox="0 0 96 6" preserveAspectRatio="none" aria-hidden="true"><rect width="96" height="6" rx="3" /><rect width=${Math.max(share > 0 ? 3 : 0, 96 * Math.min(1, share))} height="6" rx="3" /></svg>`;

/** Lags are the groups that are furthest behind. Their bars have a scale of powers of ten. */
function Lags({ of }) {
	const list = [...of].sort((a, b) => b.behind - a.behind).slice(0, most), top = Math.log10(1 + Math.max(1000, ...list.map((g) => g.behind)));
	return html`<section aria-label="Groups" class="card"><h2>Groups <${Link} to=${["subscriptions"]}>${of.length > most ? `All ${of.length}` : "All of them"}<//></h2><ul class="meters">${list.map((g) => html`<li key=${g.stream + g.group}><span><${Link} to=${["subscriptions", g.stream, g.group]}>${g.group}<//> <span class="muted small">${g.stream}</span></span><${Meter} share=${Math.log10(1 + g.behind) / top} kind=${g.stalled ? "bad" : ""} /><span class="value small">${g.behind > 0 ? `${g.text} behind` : "up to date"}</span></li>`)}</ul></section>`;
}

/** Progresses are the projections, those that need a look first. */
function Progresses({ of }) {
	const rank = (p) => (/Faulted/.test(p.status) ? 0 : p.progress >= 0 && p.progress < 100 ? 1 : p.name.startsWith("$") ? 3 : 2), list = [...of].sort((a, b) => rank(a) - rank(b)).slice(0, most);
	return html`<section aria-label="Projections" class="card"><h2>Projections <${Link} to=${["projections"]}>${of.length > most ? `All ${of.length}` : "All of them"}<//></h2><ul class="meters">${list.map((p) => html`<li key=${p.name}><${Link} to=${["projections", p.name]}>${p.name}<//><${Meter} share=${p.progress / 100} kind=${/Faulted/.test(p.status) ? "bad" : p.progress === 100 ? "good" : ""} /><span class="value small">${/Faulted/.test(p.status) ? "faulted" : p.progress < 0 ? p.status : /Running/.test(p.status) ? `${p.progress === 100 ? 100 : p.progress.toFixed(1)} %` : p.status}</span></li>`)}</ul></section>`;
}
