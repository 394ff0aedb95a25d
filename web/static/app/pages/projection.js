// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { command, fromLeader, send, useAnswer } from "../api.js";
import { path } from "../lib/address.js";
import { count, span } from "../lib/format.js";
import { allowed, Act, Age, Answer, Ask, Check, Copy, Facts, Failure, Field, Link, Page, Tabs } from "../parts/basics.js";
import { Icon, icons } from "../parts/icons.js";
import { Editor, errorsOf } from "../parts/editor.js";
import { Payload } from "../parts/tree.js";
import { go, patch } from "../router.js";
import { Progress, Status } from "./projections.js";

const tabs = ["State", "Result", "Source", "Settings"];

export default function Projection({ name, query }) {
	const where = `/projection/${path(name)}`;
	const q = useAnswer((signal) => fromLeader(where, { signal }), [name], { every: 2000 });
	const tab = tabs.includes(query.tab) ? query.tab : "State";
	const d = q.data, running = d && /Running|Preparing|Starting|Loading/.test(d.status) && !/Stopped/.test(d.status), system = name.startsWith("$");
	const run = (c) => send("POST", `${where}/command/${c}`);
	const actions = d && html`${allowed("ops") && !system && html`<${Remove} name=${name} where=${where} running=${running} />`}
		<${Ask} label="Abort" icon=${icons.Ban} act=${() => run("abort")} onDone=${q.again} disabled=${!running}><p><strong>${name}</strong> stops at once, without a checkpoint. When it is enabled again, it continues from its last checkpoint, and handles again what came after.</p><//>
		<${Ask} label="Reset" icon=${icons.RotateCcw} act=${() => run("reset")} onDone=${q.again}><p><strong>${name}</strong> starts again at the first event, with an empty state. The events that it has written stay; those that come out different are written again.</p><//>
		<${Copy} label="Copy as curl" data-key="curl" text=${() => command("GET", where, { node: "leader" })} /><${Link} to=${["projections", name, "edit"]}><${Icon} of=${icons.Pencil} />Edit<//>
		<${Act} label="Disable" icon=${icons.Pause} disabled=${!running} act=${() => run("disable")} onDone=${q.again} /><${Act} label="Enable" icon=${icons.Play} cls="primary" disabled=${running} act=${() => run("enable")} onDone=${q.again} />`;
	return html`<${Page} title=${name} lead=${html`<${Age} of=${q} />`} actions=${actions}><${Answer} of=${q}>${(p) => html`
		<${Facts} of=${[["Status", html`<${Status} of=${p} />`], ["Progress", html`<${Progress} of=${p} />`], ["Mode", p.mode], ["Since the last start", `${count(p.eventsProcessedAfterRestart)} events, ${span(p.coreProcessingTime)} of work`], ["In flight", `${count(p.bufferedEvents)} buffered, ${count(p.readsInProgress)} reads, ${count(p.writesInProgress)} writes`],
			["Partitions in memory", count(p.partitionsCached)], ["Position", html`<span class="mono">${p.position || "–"}</span>`], ["Last checkpoint", html`<span class="mono">${p.lastCheckpoint || "none"}</span> ${p.checkpointStatus}`]]} />
		${p.stateReason && html`<pre class="box bad mono raw" role="alert">${p.stateReason}</pre>`}
		<${Tabs} label="What to see" of=${tabs} value=${tab} set=${(t) => patch({ tab: t }, true)} />
		${tab === "State" || tab === "Result" ? html`<${Value} key=${tab} where=${where} kind=${tab.toLowerCase()} name=${tab} partition=${query.partition || ""} />` : tab === "Source" ? html`<${Source} where=${where} reason=${p.stateReason} />` : html`<${Settings} where=${where} running=${running} />`}`}<//><//>`;
}

/** Value is the state or the result of a partition; empty is the root. */
function Value({ where, kind, name, partition }) {
	const [text, set] = useState(partition);
	const q = useAnswer((signal) => fromLeader(`${where}/${kind}${partition ? `?partition=${encodeURIComponent(partition)}` : ""}`, { signal, text: true }), [where, kind, partition], { every: 2000 });
	return html`<form class="bar" onSubmit=${(e) => (e.preventDefault(), patch({ partition: text }))}><label class="inline">Partition <input value=${text} onInput=${(e) => set(e.target.value)} placeholder="empty: the root" /></label><button>Show</button></form>
		<${Answer} of=${q}>${(t) => (t ? html`<${Payload} name=${name} text=${t} bytes="" />` : html`<p class="muted">There is none${partition ? " for this partition" : ""} yet.</p>`)}<//>`;
}

function Source({ where, reason }) {
	const q = useAnswer((signal) => fromLeader(`${where}/query`, { signal, text: true, accept: "*/*" }), [where]);
	return html`<${Answer} of=${q}>${(t) => html`<${Editor} label="Source" value=${t || ""} readOnly=${true} errors=${errorsOf(reason)} />`}<//>`;
}

const numbers = [["checkpointAfterMs", "Checkpoint after", "milliseconds"], ["checkpointHandledThreshold", "Checkpoint after handled", "events"], ["checkpointUnhandledBytesThreshold", "Checkpoint after skipped", "bytes"], ["pendingEventsThreshold", "Most pending", "events"], ["maxWriteBatchLength", "Write at once", "events"], ["maxAllowedWritesInFlight", "Most writes in flight", "0: no bound"], ["projectionExecutionTimeout", "Handler timeout", "milliseconds; empty: as the node says"]];

function Settings({ where, running }) {
	const q = useAnswer((signal) => fromLeader(`${where}/config`, { signal }), [where]);
	return html`<${Answer} of=${q}>${(d) => html`<${Form} key=${JSON.stringify(d)} d=${d} where=${where} running=${running} onDone=${q.again} />`}<//>`;
}

function Form({ d, where, running, onDone }) {
	const [f, set] = useState(d), [result, tell] = useState(/** @type {any} */ (null));
	const submit = async (e) => {
		e.preventDefault();
		const body = { ...f };
		for (const [k] of numbers) body[k] = f[k] === "" || f[k] === null ? null : Number(f[k]);
		try {
			await send("PUT", `${where}/config`, { body });
			tell({ saved: true });
			onDone();
		} catch (error) {
			tell({ error });
		}
	};
	return html`<form class="wide-form" onSubmit=${submit}><div class="bar"><${Check} label="Emit" value=${f.emitEnabled} set=${(v) => set({ ...f, emitEnabled: v })} /><${Check} label="Track emitted streams" value=${f.trackEmittedStreams} set=${(v) => set({ ...f, trackEmittedStreams: v })} /></div>
		<div class="fields">${numbers.map(([k, label, hint]) => html`<${Field} label=${label} type="number" hint=${hint} value=${f[k] ?? ""} set=${(v) => set({ ...f, [k]: v })} />`)}</div>
		${running && html`<p class="box warn">Settings can be changed while it is disabled.</p>`}<div class="buttons"><button class="primary" disabled=${running}>Save</button></div><div role="status">${result && result.saved && html`<p class="box good">Saved.</p>`}</div>${result && result.error && html`<${Failure} error=${result.error} />`}</form>`;
}

function Remove({ name, where, running }) {
	const [state, setState] = useState(false), [checkpoint, setCheckpoint] = useState(false), [emitted, setEmitted] = useState(false);
	const act = () => send("DELETE", `${where}?deleteStateStream=${state}&deleteCheckpointStream=${checkpoint}&deleteEmittedStreams=${emitted}`);
	return html`<${Ask} label="Delete projection" disabled=${running} typed=${name} act=${act} onDone=${() => go("#/projections")}><p><strong>${name}</strong> and its state are deleted for ever. The events that it read stay; choose what else goes with it.</p><${Check} label="With its checkpoints" value=${checkpoint} set=${setCheckpoint} /><${Check} label="With its results" value=${state} set=${setState} /><${Check} label="With the streams it emitted" value=${emitted} set=${setEmitted} /><//>`;
}
