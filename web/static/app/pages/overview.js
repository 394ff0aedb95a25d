// @ts-check
import { html } from "../../vendor/preact.js";
import { fromLeader, get, useAnswer } from "../api.js";
import { isOps, user } from "../auth.js";
import { to } from "../lib/address.js";
import { bytes, count, plural, rate } from "../lib/format.js";
import { Age, Failure, Follows, Page, State } from "../parts/basics.js";
import { watchGroups } from "../parts/groups.js";
import { has, info, use, view } from "../store.js";

/** cures are the pages on which a check of the node's own examination is put right. */
const cures = { members: ["cluster"], lag: ["cluster"], clock: ["cluster"], start: ["cluster"], "subscription groups": ["subscriptions"], projections: ["projections"], backup: ["backup"], passwords: ["users"], "disk space": ["scavenge"], certificates: ["options"], chunks: ["stats"], fsync: ["stats"], limits: ["options"] };

export default function Overview() {
	const v = use(view), about = use(info);
	use(user);
	const may = isOps() || about.authentication.type === "insecure", known = may || !!user.value;
	const role = (v && v.role) || about.state;
	const clustered = v && v.members.length > 1;
	const own = useAnswer((signal) => get("/admin/doctor", { signal }), [may], { every: 15000, off: !may });
	const lead = useAnswer((signal) => fromLeader("/admin/doctor", { signal }), [may, clustered], { every: 15000, off: !may || !clustered || !has("nodeRelay") });
	const groups = useAnswer((signal) => watchGroups(signal), [known], { every: 20000, off: !known });
	const projections = useAnswer((signal) => fromLeader("/projections/all-non-transient", { signal }), [known], { every: 10000, off: !known || !has("projections") });
	const scavenge = useAnswer((signal) => get("/admin/scavenge/last", { signal }), [may], { every: 30000, off: !may });
	const rates = useAnswer((signal) => get("/stats/history?minutes=2", { signal }), [known], { every: 10000, off: !known || !has("statsHistory") });

	const needs = /** @type {{bad?: boolean, text: string, to: any}[]} */ ([]);
	if (v && v.known && v.members.length > 0) {
		if (!v.leader) needs.push({ bad: true, text: "The cluster has no leader: nothing is written.", to: ["cluster"] });
		for (const m of v.members) if (!m.isAlive) needs.push({ bad: true, text: `Node ${m.httpEndPointIp}:${m.httpEndPointPort} does not answer.`, to: ["cluster"] });
	}
	const findings = new Map();
	for (const [q, where] of [[lead, "leader"], [own, "this node"]]) for (const c of (q.data && q.data.checks) || []) if (!c.ok && c.check !== "members" && !(c.check === "projections" && projections.data) && !findings.has(c.check + c.text)) findings.set(c.check + c.text, { ...c, where });
	for (const c of findings.values()) needs.push({ text: `${c.where === "leader" ? "Leader" : "This node"}, ${c.check}: ${c.text}.`, to: cures[c.check] || ["stats"] });
	for (const g of groups.data || []) {
		if (g.parked > 0) needs.push({ text: `${plural(g.parked, "message")} parked by ${g.group} of ${g.stream}.`, to: ["subscriptions", g.stream, g.group, "parked"] });
		if (g.stalled) needs.push({ bad: true, text: `${g.group} of ${g.stream} is stalled: ${g.text} behind, and nothing was handed out for a minute.`, to: ["subscriptions", g.stream, g.group] });
	}
	for (const p of (projections.data && projections.data.projections) || []) if (/Faulted/.test(p.status)) needs.push({ bad: true, text: `Projection ${p.name} has faulted: ${p.stateReason.split("\n")[0]}`, to: ["projections", p.name] });
	if (scavenge.data && /^(Failed|Errored)/.test(scavenge.data.scavengeResult)) needs.push({ text: `The last scavenge of this node failed: ${scavenge.data.error || ""}`, to: ["scavenge"] });
	const unknown = [own, lead, groups, projections].filter((q) => q.error && q.error.status !== 401);
	const asked = v && (!may || own.data || own.error);
	const s = rates.data && rates.data.series, last = (name) => (s && s[name] ? [...s[name]].reverse().find((x) => x !== null) : undefined);
	return html`<${Page} title="Overview" lead=${html`<${Follows} /><${Age} of=${may ? own : rates} />`}>
		<section aria-label="What needs you"><h2>What needs you</h2>
			${needs.length > 0 ? html`<ul class="needs">${needs.map((n) => html`<li class=${n.bad ? "bad" : ""}><a href=${to(n.to)}>${n.text}</a></li>`)}</ul>` : asked ? html`<p class="box good">${unknown.length === 0 ? "Nothing: all is well." : "Nothing is known."}${!may ? " You see what your rights allow." : ""}</p>` : html`<div class="bone"></div>`}
			${unknown.map((q) => html`<${Failure} error=${q.error} again=${q.again} />`)}</section>
		<section aria-label="Rates"><h2>Rates</h2><div class="tiles">
			<div class="tile">Appends per second<b>${rate(last("appendsPerSecond"))}</b></div><div class="tile">Events written per second<b>${rate(last("eventsWrittenPerSecond"))}</b></div><div class="tile">Events read per second<b>${rate(last("eventsReadPerSecond"))}</b></div>
			<div class="tile">Requests per second<b>${rate(last("requestsPerSecond"))}</b></div><div class="tile">Commit<b>${last("commitMilliseconds") === undefined ? "–" : rate(last("commitMilliseconds")) + " ms"}</b></div></div></section>
		<section aria-label="This node"><h2>This node</h2><dl class="facts"><dt>Address</dt><dd>${location.host}</dd><dt>State</dt><dd><${State} kind=${role === "leader" || role === "follower" ? "good" : "warn"}>${role}<//>${role === "follower" && v && v.leader ? ` of ${v.leader}` : ""}</dd>
			<dt>Version</dt><dd>${about.version}</dd><dt>Members</dt><dd>${v && v.known ? `${count(v.members.filter((m) => m.isAlive).length)} of ${v.members.length} alive` : "–"}</dd>
			<dt>Log</dt><dd>${v && v.me ? `${bytes(v.me.writerCheckpoint)} written` : "–"}</dd><dt>Memory</dt><dd>${bytes(last("memoryBytes"))}</dd><dt>Disk</dt><dd>${bytes(last("diskUsedBytes"))} of ${bytes(last("diskTotalBytes"))}</dd></dl></section><//>`;
}
