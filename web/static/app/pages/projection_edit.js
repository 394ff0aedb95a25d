// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { fromLeader, send, useAnswer } from "../api.js";
import { path, to } from "../lib/address.js";
import { Answer, Check, Choice, Failure, Field, Page } from "../parts/basics.js";
import { Editor, errorsOf } from "../parts/editor.js";
import { Outcome, useTransient } from "../parts/transient.js";
import { go, unmoved } from "../router.js";
import { Diff } from "./event.js";

const first = `fromAll().when({
  $init() { return { count: 0 }; },
  $any(state, event) { state.count++; },
})`;

export default function ProjectionEdit({ name }) {
	const fresh = name === undefined;
	const q = useAnswer(async (signal) => {
		const d = await fromLeader(`/projection/${path(name)}/query?config=yes`, { signal, accept: "*/*" });
		const s = await fromLeader(`/projection/${path(name)}`, { signal });
		return { ...d, query: d.query.replace(/\r\n?/g, "\n"), reason: s.stateReason }; // As the editor has it, or it would always differ.
	}, [name], { off: fresh });
	if (fresh) return html`<${Page} title="New projection" what="A function over the events. Preview runs it over what there is and writes nothing."><${Form} kept="" source=${first} /><//>`;
	return html`<${Page} title=${`Edit ${name}`}><${Answer} of=${q}>${(d) => html`<${Form} name=${name} kept=${d.query} source=${d.query} rebuilds=${d.type === "Continuous" && !name.startsWith("$")} emits=${d.emitEnabled} reason=${d.reason} />`}<//><//>`;
}

function Form({ name: given = "", kept, source: s, emits = false, reason = "", rebuilds = false }) {
	const fresh = given === "";
	const [name, setName] = useState(given), [source, set] = useState(s), [mode, setMode] = useState("continuous"), [emit, setEmit] = useState(emits), [track, setTrack] = useState(false), [checkpoints, setCheckpoints] = useState(true), [partition, setPartition] = useState("");
	const [error, fail] = useState(/** @type {any} */ (null));
	const t = useTransient();
	const create = async () => {
		fail(null);
		const here = unmoved();
		try {
			await send("POST", `/projections/${mode}?name=${encodeURIComponent(name)}&type=JS&enabled=yes&emit=${emit ? "yes" : "no"}&trackemittedstreams=${track ? "yes" : "no"}${mode === "onetime" ? `&checkpoints=${checkpoints ? "yes" : "no"}` : ""}`, { body: source });
			if (here()) go(to(["projections", name]));
		} catch (e) {
			fail(e);
		}
	};
	const save = async () => {
		fail(null);
		const here = unmoved();
		try {
			await send("PUT", `/projection/${path(name)}/query?emit=${emit ? "yes" : "no"}`, { body: source });
			if (here()) go(to(["projections", name]));
		} catch (e) {
			fail(e);
		}
	};
	const rebuild = async () => {
		fail(null);
		const here = unmoved();
		try {
			await send("POST", `/projection/${path(name)}/rebuild?emit=${emit ? "yes" : "no"}`, { body: source });
			if (here()) go(to(["projections", name]));
		} catch (e) {
			fail(e);
		}
	};
	return html`${fresh && html`<div class="fields"><${Field} label="Name" value=${name} set=${setName} /></div>`}
		<${Editor} label="Source" value=${source} set=${set} errors=${errorsOf(t.status ? t.status.stateReason : source === kept ? reason : "")} />
		<div class="bar">${fresh && html`<${Choice} label="Mode" value=${mode} of=${[["continuous", "Continuous"], ["onetime", "One time"]]} set=${setMode} />`}<${Check} label="May emit" value=${emit} set=${setEmit} />${fresh && emit && html`<${Check} label="Track emitted streams" value=${track} set=${setTrack} />`}${fresh && mode === "onetime" && html`<${Check} label="Checkpoints" value=${checkpoints} set=${setCheckpoints} />`}</div>
		<div class="bar"><label class="inline">Partition <input value=${partition} onInput=${(e) => setPartition(e.target.value)} placeholder="to preview" /></label><button onClick=${() => t.start(source, { partition })} disabled=${t.phase === "running" || !source.trim()}>Preview</button>${t.phase === "running" && html`<button onClick=${t.stop}>Stop preview</button>`}
		${fresh ? html`<button class="primary" disabled=${!name || !source.trim()} onClick=${create}>Create</button>` : html`<button class="primary" disabled=${source === kept && emit === emits} onClick=${save}>Save</button>${rebuilds && html`<button disabled=${source === kept && emit === emits} onClick=${rebuild}>Rebuild</button>`}`}</div>
		${error && html`<${Failure} error=${error} />`}
		${!fresh && source !== kept && html`<section aria-label="Difference"><h2>Difference to what runs</h2><${Diff} before=${kept} after=${source} /><p class="muted small">Save: it goes on from its checkpoint with the new source. Rebuild: a second version reads everything from the start next to the running one, and takes over when you swap.</p></section>`}
		<${Outcome} of=${t} name="Preview" />`;
}
