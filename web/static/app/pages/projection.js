// @ts-check
import { html, useMemo, useState } from "../../vendor/preact.js";
import { command, fromLeader, send, useAnswer } from "../api.js";
import { path } from "../lib/address.js";
import { count, span } from "../lib/format.js";
import { allowed, Act, Age, Answer, Ask, Check, Copy, Facts, Failure, Field, Link, Page, Tabs } from "../parts/basics.js";
import { Icon, icons } from "../parts/icons.js";
import { Editor, errorsOf } from "../parts/editor.js";
import { Value } from "../parts/partitions.js";
import { Rebuild } from "../parts/rebuild.js";
import { go, patch } from "../router.js";
import { Progress, Status } from "./projections.js";

const tabs = ["State", "Result", "Source", "Settings"];

export default function Projection({ name, query }) {
	const where = `/projection/${path(name)}`;
	const q = useAnswer((signal) => fromLeader(where, { signal }), [name], { every: 2000 });
	const version = q.data ? `${q.data.version} ${q.data.epoch}` : "", def = useAnswer((signal) => fromLeader(`${where}/query?config=yes`, { signal, accept: "*/*" }), [name, version], { off: version === "" });
	const partitioned = !!(def.data && def.data.definition && (def.data.definition.byStream || def.data.definition.byCustomPartitions));
	const faults = useMemo(() => errorsOf(q.data && q.data.stateReason), [q.data && q.data.stateReason]);
	const tab = tabs.includes(query.tab) ? query.tab : "State";
	const d = q.data, running = d && /Running|Preparing|Starting|Loading/.test(d.status) && !/Stopped/.test(d.status), system = name.startsWith("$");
	const run = (c) => send("POST", `${where}/command/${c}`);
	const actions = d && html`${allowed("ops") && !system && html`<${Remove} name=${name} where=${where} running=${running} />`}
		<${Ask} label="Abort" icon=${icons.Square} danger=${false} act=${() => run("abort")} onDone=${q.again} disabled=${!running}><p><strong>${name}</strong> stops at once, without a checkpoint. When it is enabled again, it continues from its last checkpoint, and handles again what came after.</p><//>
		<${Ask} label="Reset" icon=${icons.RotateCcw} act=${() => run("reset")} onDone=${q.again}><p><strong>${name}</strong> throws its state ${partitioned ? "and those of all its partitions " : ""}away and starts again at the first event. The streams that it emits to are truncated, and filled again.</p><//>
		<${Copy} label="Copy as curl" data-key="curl" text=${() => command("GET", where, { node: "leader" })} /><${Link} to=${["projections", name, "edit"]}><${Icon} of=${icons.Pencil} />Edit<//>
		<${Act} label="Disable" icon=${icons.Pause} disabled=${!running} act=${() => run("disable")} onDone=${q.again} /><${Act} label="Enable" icon=${icons.Play} cls="primary" disabled=${running} act=${() => run("enable")} onDone=${q.again} />`;
	return html`<${Page} title=${name} lead=${html`<${Age} of=${q} />`} actions=${actions}><${Answer} of=${q}>${(p) => html`
		<${Facts} of=${[["Status", html`<${Status} of=${p} />`], ["Progress", html`<${Progress} of=${p} />`], ["Mode", p.mode], ["Since the last start", `${count(p.eventsProcessedAfterRestart)} events, ${span(p.coreProcessingTime)} of work`], ["In flight", `${count(p.bufferedEvents)} buffered, ${count(p.readsInProgress)} reads, ${count(p.writesInProgress)} writes`],
			["Partitions in memory", count(p.partitionsCached)], ["Position", html`<span class="mono">${p.position || "–"}</span>`], ["Last checkpoint", html`<span class="mono">${p.lastCheckpoint || "none"}</span> ${p.checkpointStatus}`]]} />
		${p.stateReason && html`<${Fault} reason=${p.stateReason} source=${def.data && def.data.query} />`}
		${p.rebuild && html`<${Rebuild} name=${name} onDone=${q.again} />`}
		<${Tabs} label="What to see" of=${tabs} value=${tab} set=${(t) => patch({ tab: t }, true)} />
		${tab === "State" || tab === "Result" ? html`<${Value} key=${tab} name=${name} kind=${tab.toLowerCase()} title=${tab} partition=${query.partition || ""} partitioned=${partitioned} saved=${p.lastCheckpoint && (p.checkpointsOf || name)} />` : tab === "Source" ? html`<${Answer} of=${def}>${(d) => html`<${Editor} label="Source" value=${d.query.replace(/\r\n?/g, "\n")} readOnly=${true} errors=${faults} />`}<//>` : html`<${Settings} where=${where} running=${running} />`}`}<//><//>`;
}

/** Fault says why it stopped, with the lines of the source where it did. */
function Fault({ reason, source }) {
	const [at] = errorsOf(reason), all = (source || "").split(/\r\n?|\n/), from = at ? Math.max(1, at.line - 2) : 0;
	return html`<div class="box bad" role="alert"><pre class="mono raw">${reason}</pre>${at && all.length >= at.line && html`<pre class="source mono" aria-label=${`Line ${at.line} of the source`}>${all.slice(from - 1, at.line + 2).map((text, i) => html`<span class=${from + i === at.line ? "at" : ""}><span class="line">${from + i === at.line ? "▸" : " "}${String(from + i).padStart(4)}</span> ${text}${"\n"}</span>`)}</pre>
		<p><button onClick=${() => patch({ tab: "Source" }, true)}><${Icon} of=${icons.SquareTerminal} />Show line ${at.line} in the source</button></p>`}</div>`;
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
	return html`<${Ask} label="Delete projection" disabled=${running} typed=${name} act=${act} onDone=${(_, here) => here && go("#/projections")}><p><strong>${name}</strong> and its state are deleted for ever. The events that it read stay; choose what else goes with it.</p><${Check} label="With its checkpoints" value=${checkpoint} set=${setCheckpoint} /><${Check} label="With its results" value=${state} set=${setState} /><${Check} label="With the streams it emitted" value=${emitted} set=${setEmitted} /><//>`;
}
