// @ts-check
import { html, useEffect, useState } from "../../vendor/preact.js";
import { atomJSON, fromLeader, get, send, useAnswer } from "../api.js";
import { path } from "../lib/address.js";
import { bytes, count, plural } from "../lib/format.js";
import { newest } from "../live.js";
import { allowed, Age, Answer, Ask, Facts, Failure, Field, Forbidden, Link, Page, State, StreamLink, Table, Time } from "../parts/basics.js";
import { fromEntry } from "../parts/events.js";
import { NodeChoice, nodeOr } from "../parts/node.js";
import { Payload } from "../parts/tree.js";
import { info, use, view } from "../store.js";

export default function Scavenge({ id, query }) {
	if (id) return html`<${Run} id=${id} />`;
	return html`<${Main} query=${query} />`;
}

function Main({ query }) {
	const about = use(info), v = use(view), node = nodeOr(query.node);
	const may = allowed("ops") || about.authentication.type === "insecure";
	const current = useAnswer((signal) => get("/admin/scavenge/current", { signal, node: query.node }), [query.node], { every: 2000, off: !may });
	const last = useAnswer((signal) => get("/admin/scavenge/last", { signal, node: query.node }), [query.node], { every: 5000, off: !may });
	const [round, tell] = useState(/** @type {any} */ ({}));
	const [o, set] = useState({ threshold: "0", throttle: "100", threads: "1" });
	const how = `threshold=${o.threshold || 0}&throttlePercent=${o.throttle || 100}&threads=${o.threads || 1}`;
	const running = current.data && current.data.scavengeId;
	if (!may) return html`<${Page} title="Scavenge"><${Forbidden} needs="the group $ops or $admins" /><//>`;
	const again = () => (current.again(), last.again());
	const everywhere = async () => {
		// One node at a time, the leader last: the next begins when the one before has ended.
		const members = [...v.members].filter((m) => m.isAlive).sort((a, b) => (a.state === "Leader" ? 1 : 0) - (b.state === "Leader" ? 1 : 0));
		try {
			for (const m of members) {
				tell({ busy: true, said: `Now on ${m.httpEndPointIp}:${m.httpEndPointPort}.` });
				await send("POST", `/admin/scavenge?${how}`, { node: m.instanceId });
				for (;;) {
					await new Promise((resolve) => setTimeout(resolve, 1000));
					const c = await get("/admin/scavenge/current", { node: m.instanceId });
					if (!c.scavengeId) break;
				}
			}
			tell({ said: "Done on all nodes." });
		} catch (e) {
			tell({ error: e.message });
		}
		again();
	};
	return html`<${Page} title="Scavenge" what="Frees the space of what is deleted, expired or beyond a limit, on one node." lead=${html`<${Age} of=${current} />`} actions=${html`<${NodeChoice} value=${query.node} />`}>
		<section aria-label="New scavenge" class="card"><h2>New scavenge</h2><div class="fields"><${Field} label="Threshold" type="number" value=${o.threshold} set=${(x) => set({ ...o, threshold: x })} hint="least weight of a chunk that is rewritten; below 0: all" /><${Field} label="Throttle" type="number" value=${o.throttle} set=${(x) => set({ ...o, throttle: x })} hint="percent of the time that it may work" /><${Field} label="Threads" type="number" value=${o.threads} set=${(x) => set({ ...o, threads: x })} hint="that work at once" /></div>
		<${Estimate} key=${query.node || ""} node=${node} threshold=${o.threshold} start=${html`<${Ask} label="Start" cls="primary" danger=${false} disabled=${!!running} act=${() => send("POST", `/admin/scavenge?${how}`, { node })} onDone=${again}><p>What is deleted, expired or beyond a limit is removed from the chunks of this node. It does not come back. Dry run says before how much that is.</p><//>
			${v && v.members.length > 1 && html`<${Ask} label="Start on all nodes in turn" danger=${false} disabled=${!!running || round.busy} act=${() => void everywhere()}><p>What is deleted, expired or beyond a limit is removed from the chunks of all ${v.members.length} nodes, one after the other, the leader last. It does not come back. This page leads them from one to the next: leave it open.</p><//>
			<span role="status">${round.said}</span>${round.error && html`<span role="alert" class="badtext">${round.error}</span>`}`}`} /></section>
		${running && html`<div class="box"><p>Scavenge <span class="mono">${running}</span> runs.</p><${Progress} of=${last.data} /><${Ask} label="Stop" act=${() => send("DELETE", `/admin/scavenge/${path(running)}`, { node })} onDone=${again}><p>The scavenge stops. The next one goes on where this one was.</p><//></div>`}
		<h2>Last on this node</h2><${Answer} of=${last} lines=${3}>${(d) => (d.scavengeResult === "Unknown" ? html`<p class="muted">None has run since this node was started.</p>` : html`<${Last} d=${d} />`)}<//>
		<h2>History</h2><${History} /><${Schedule} />
	<//>`;
}

const Progress = ({ of: d }) => (d && d.phase && d.phase !== "Idle" ? html`<p>${d.phase}: ${count(d.done)}${Number(d.total) > 0 ? ` of ${count(d.total)}` : ""} ${d.unit} <progress max=${Number(d.total) || 1} value=${Number(d.done)} aria-label="Progress"></progress></p>` : null);
const kind = (r) => (/Success/.test(r) ? "good" : /Fail|Err/.test(r) ? "bad" : "warn");
const Last = ({ d }) => html`<${Facts} of=${[["Result", html`<${State} kind=${kind(d.scavengeResult)}>${d.scavengeResult}<//> ${d.error || ""}`], ["Started", html`<${Time} at=${d.started} />`], d.ended && ["Ended", html`<${Time} at=${d.ended} />`], ["Freed", `${bytes(d.bytesSaved)}, ${plural(d.eventsRemoved ?? 0, "event")}`], ["Chunks", `${count(d.chunksExecuted)} rewritten, ${count(d.chunksSkipped)} left, ${count(d.chunksMerged)} merged`]]} />`;

/** Estimate is a dry run: what would go and why the rest stays. */
function Estimate({ node, threshold, start }) {
	const [state, set] = useState(/** @type {any} */ ({}));
	const run = async () => {
		set({ busy: true });
		try {
			set({ d: await json(node, threshold) });
		} catch (error) {
			set({ error });
		}
	};
	const d = state.d;
	return html`<div class="bar"><button type="button" disabled=${state.busy} onClick=${run}>Dry run</button>${start}${state.busy && html`<span role="status">Looking through the log…</span>`}</div>${state.error && html`<${Failure} error=${state.error} again=${run} />`}
		${d && html`<section role="region" aria-label="Estimate" class="box"><h2>Estimate</h2><p>${plural(d.events, "event")} of about <strong>${bytes(d.bytes)}</strong> would go. It took ${count(d.tookMs)} ms to find out, and nothing was changed.</p>
			<div class="columns"><${Pie} d=${d} /><div>${d.streams.length > 0 && html`<h2>Streams of which most would go</h2><${Sizes} name="Removed by stream" of=${d.streams} why=${false} />`}<h2>Largest of which nothing would go</h2><${Sizes} name="Kept by stream" of=${d.kept} why=${true} /></div></div></section>`}`;
}

const json = async (node, threshold) => (await send("POST", `/admin/scavenge?dryRun=true&top=12&threshold=${threshold || 0}`, { node })).json();

const Sizes = ({ name, of, why }) => html`<${Table} name=${name} heads=${["Stream", "#Events", "#Bytes", ...(why ? ["Why"] : [])]}>${of.map((s) => html`<tr key=${s.stream}><td class="name"><${StreamLink} name=${s.stream} /></td><td class="num">${count(s.events)}</td><td class="num">${bytes(s.bytes)}</td>${why && html`<td>${s.why}</td>`}</tr>`)}<//>`;

const colours = ["var(--accent)", "var(--warn)", "var(--good)", "var(--bad)", "var(--number)", "var(--string)"];

/** Pie shows the space by stream: what goes, or if nothing does, what stays. */
function Pie({ d }) {
	const goes = d.streams.length > 0, list = (goes ? d.streams : d.kept).slice(0, 11), sum = list.reduce((a, s) => a + Number(s.bytes), 0);
	const all = goes ? Math.max(Number(d.bytes), sum) : sum, parts = all > sum ? [...list, { stream: "all others", bytes: all - sum }] : list;
	let angle = -Math.PI / 2;
	const at = (a) => `${110 + 100 * Math.cos(a)} ${110 + 100 * Math.sin(a)}`;
	return html`<div><svg role="img" aria-label="Space by stream" width="220" height="220" viewBox="0 0 220 220">${all === 0 ? html`<text x="110" y="110" text-anchor="middle">Nothing</text>` : parts.map((s, i) => {
		const from = angle, share = Number(s.bytes) / all;
		angle += share * 2 * Math.PI;
		const fill = colours[i % colours.length], opacity = 1 - 0.45 * Math.floor(i / colours.length);
		return share >= 0.9999 ? html`<circle cx="110" cy="110" r="100" fill=${fill} />` : html`<path d=${`M110 110 L${at(from)} A100 100 0 ${share > 0.5 ? 1 : 0} 1 ${at(angle)} Z`} fill=${fill} fill-opacity=${opacity} stroke="var(--page)"><title>${s.stream}: ${bytes(s.bytes)}</title></path>`;
	})}</svg><p class="small muted">${goes ? "What would go, by stream" : "Nothing would go; this is what stays"}: ${parts.slice(0, 3).map((s) => `${s.stream} ${bytes(s.bytes)}`).join(", ")}</p></div>`;
}

/** History is the stream of all scavenges of the cluster. */
function History() {
	const q = useAnswer(async () => {
		const runs = new Map();
		for (const e of (await newest("/streams/$scavenges", 60, { node: "leader" })).map(fromEntry)) {
			let d = /** @type {any} */ ({});
			try {
				d = JSON.parse(e.data || "{}");
			} catch { /* Then nothing is known of it. */ }
			if (d.scavengeId) runs.set(d.scavengeId, { ...d, ...runs.get(d.scavengeId), [/Started/.test(e.type) ? "began" : "ended"]: e.time });
		}
		return [...runs.values()];
	}, [], { every: 5000 });
	return html`<${Answer} of=${q}>${(list) => html`<${Table} name="History" heads=${["Scavenge", "Node", "Started", "Ended", "Result", "#Freed"]}>${list.length === 0 && html`<tr><td colspan="6" class="muted">No scavenge has run yet.</td></tr>`}${list.map((r) => html`<tr key=${r.scavengeId}><td><${Link} to=${["scavenge", r.scavengeId]} class="mono small">${r.scavengeId}<//></td><td>${r.nodeEndpoint}</td><td><${Time} at=${r.began} /></td><td><${Time} at=${r.ended} /></td><td>${r.result ? html`<${State} kind=${kind(r.result)}>${r.result}<//> ${r.error || ""}` : "runs"}</td><td class="num">${r.spaceSaved === undefined ? "–" : bytes(r.spaceSaved)}</td></tr>`)}<//>`}<//>`;
}

/** Schedule says when the cluster does it by itself. */
function Schedule() {
	const q = useAnswer((signal) => get("/info/options", { signal }), []);
	const o = q.data && q.data.find((x) => x.name === "ScavengeSchedule");
	if (!o) return null;
	return html`<h2>Schedule</h2><p>${o.value ? html`The cluster scavenges by itself at <span class="mono">${o.value}</span> (minute, hour, day, month, weekday), one node at a time.` : html`The cluster does not scavenge by itself. The option <span class="mono">ScavengeSchedule</span> names the times, such as <span class="mono">0 3 * * SUN</span>.`}</p>`;
}

/** Run is one scavenge with all that it wrote down. */
function Run({ id }) {
	const [open, set] = useState("");
	const q = useAnswer((signal) => fromLeader(`/streams/${path("$scavenges-" + id)}/head/backward/200?embed=body`, { accept: atomJSON, signal }), [id], { every: 5000 });
	useEffect(() => set(""), [id]);
	return html`<${Page} title="Scavenge" lead=${html`<span class="mono">${id}</span>`}><p><${Link} to=${["scavenge"]}>All scavenges<//></p><${Answer} of=${q}>${(f) => html`<${Table} name="Steps" heads=${["Time", "Step", ""]}>${f.entries.map(fromEntry).map((e) => html`<tr key=${String(e.at)}><td><${Time} at=${e.time} /></td><td>${e.type}</td><td>${open === String(e.at) ? html`<${Payload} name="Data" text=${e.data || ""} />` : html`<button class="plain" aria-label=${`Open ${e.at}`} onClick=${() => set(String(e.at))}>▸</button>`}</td></tr>`)}<//>`}<//><//>`;
}
