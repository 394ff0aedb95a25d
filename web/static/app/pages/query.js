// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { Absent, Page } from "../parts/basics.js";
import { Editor, errorsOf } from "../parts/editor.js";
import { Outcome, useTransient } from "../parts/transient.js";
import { has, info, use } from "../store.js";

const key = "annals.query";
const first = `fromAll().when({
  $init() { return { count: 0 }; },
  $any(state, event) { state.count++; },
})`;

export default function Query() {
	const [source, set] = useState(() => sessionStorage.getItem(key) || first);
	const t = useTransient();
	use(info);
	if (!has("projections")) return html`<${Page} title="Query"><${Absent} what="projections: they are switched on with RunProjections" /><//>`;
	const change = (v) => (set(v), sessionStorage.setItem(key, v));
	return html`<${Page} title="Query" what="A projection over all events that there are, which is removed after. It writes nothing.">
		<${Editor} label="Source" value=${source} set=${change} errors=${t.status ? errorsOf(t.status.stateReason) : []} />
		<div class="bar"><button class="primary" disabled=${t.phase === "running" || source.trim() === ""} onClick=${() => t.start(source)}>Run</button><button disabled=${t.phase !== "running"} onClick=${t.stop}>Stop</button></div>
		<${Outcome} of=${t} name="Result" /><//>`;
}
