// @ts-check
// A second version of a projection, which runs next to the first until it takes over.
import { html, useState } from "../../vendor/preact.js";
import { fromLeader, send, useAnswer } from "../api.js";
import { path } from "../lib/address.js";
import { count, plural } from "../lib/format.js";
import { parse, print, value } from "../lib/json.js";
import { Diff } from "../pages/event.js";
import { Act, Answer, Ask, Facts, Failure, State } from "./basics.js";
import { Icon, icons } from "./icons.js";

const kinds = { Ready: "good", Running: "warn", Faulted: "bad" };

/** Rebuild shows how far the second version is and what differs, and lets it take over. @param {{name: string, onDone: () => void}} p */
export function Rebuild({ name, onDone }) {
	const where = `/projection/${path(name)}/rebuild`;
	const q = useAnswer((signal) => fromLeader(where, { signal }), [name], { every: 2000 });
	const [compared, set] = useState(/** @type {any} */ (null)), [error, fail] = useState(/** @type {any} */ (null));
	const compare = async () => {
		fail(null);
		try {
			set(readComparison(await fromLeader(`${where}?compare=yes&states=yes`, { text: true })));
		} catch (e) {
			fail(e);
		}
	};
	return html`<section class="card" role="region" aria-label="Rebuild"><div class="bar"><h2>Rebuild</h2><${Answer} of=${q} lines=${1}>${(r) => html`<span class="row-acts"><${Act} label="Compare" disabled=${r.status === "Faulted"} act=${compare} />
			<${Ask} label="Discard" icon=${icons.Trash2} act=${() => send("DELETE", where)} onDone=${onDone}><p>The second version of <strong>${name}</strong> ends, and its states are thrown away. The first continues as it is.</p><//>
			<${Ask} label="Swap" icon=${icons.Check} cls="primary" danger=${false} disabled=${r.status !== "Ready"} act=${() => send("POST", `${where}/swap`)} onDone=${onDone}><p>The second version becomes <strong>${name}</strong> in one step. What the first has emitted up to that place is not emitted again, and the second emits from there on.</p><//></span>`}<//></div>
		<${Answer} of=${q} lines=${2}>${(r) => html`<p class="muted">A second version reads everything from the start, next to the first, and emits nothing until it takes over.</p>
			<${Facts} of=${[["Status", html`<${State} kind=${kinds[r.status] || "idle"}>${r.status}<//>`], ["Progress", html`<progress max="100" value=${r.progress} aria-label="Progress of the rebuild"></progress> <span class="small">${Math.floor(r.progress)} %</span>`], ["Read", plural(r.eventsProcessedAfterRestart, "event")], ["Position", html`<span class="mono">${r.position || "–"}</span>`], ["Of the first", html`<span class="mono">${r.mark || "–"}</span>`]]} />
			${r.reason && html`<pre class="box bad mono raw" role="alert">${r.reason}</pre>`}`}<//>
		${error && html`<${Failure} error=${error} again=${compare} />`}${compared && html`<${Comparison} of=${compared} />`}</section>`;
}

/** readComparison keeps states as they are written, and the rest as values. @param {string} text */
function readComparison(text) {
	const of = (n, name) => (n && n.keys ? n.items[n.keys.indexOf(name)] : undefined), state = (n) => (of(n, "state") ? print(of(n, "state")) : "");
	const c = of(parse(text), "comparison");
	return { ...value({ ...c, items: c.items.map((n, i) => (c.keys[i] === "partitions" ? { kind: "array", items: [] } : n)) }), partitions: of(c, "partitions").items.map((p) => ({ name: of(p, "partition").value, before: state(of(p, "running")), after: state(of(p, "rebuilt")) })) };
}

function Comparison({ of: c }) {
	const [open, set] = useState(/** @type {string | null} */ (null));
	return html`<div role="group" aria-label="Comparison"><p role="status">At <span class="mono">${c.position}</span>: ${plural(c.compared, "state")} compared, ${c.differing === 0 ? "none differs" : `${count(c.differing)} ${c.differing === 1 ? "differs" : "differ"}`}${c.moved > 0 ? `, ${count(c.moved)} could not be compared as the first has changed them again` : ""}${c.complete ? "." : ". The time was up before all were compared."}</p>
		<ul class="differences">${c.partitions.map((p) => html`<li key=${p.name}><button type="button" class="plain" aria-expanded=${String(open === p.name)} onClick=${() => set(open === p.name ? null : p.name)}><${Icon} of=${open === p.name ? icons.ChevronDown : icons.ChevronRight} /><span class="mono">${p.name || "All together"}</span></button>${open === p.name && html`<${Diff} before=${p.before} after=${p.after} />`}</li>`)}</ul></div>`;
}
