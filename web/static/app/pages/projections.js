// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { fromLeader, root, useAnswer } from "../api.js";
import { count } from "../lib/format.js";
import { Absent, Age, Answer, Check, Empty, Link, Page, State, Table } from "../parts/basics.js";
import { Icon, icons } from "../parts/icons.js";
import { has, info, use } from "../store.js";

export default function Projections() {
	const [transient, show] = useState(false);
	use(info);
	const q = useAnswer((signal) => fromLeader(transient ? "/projections/any" : "/projections/all-non-transient", { signal }), [transient], { every: 5000, off: !has("projections") });
	if (!has("projections")) return html`<${Page} title="Projections"><${Absent} what="projections: they are switched on with RunProjections" /><//>`;
	return html`<${Page} title="Projections" what="Functions that run over the events and keep a state, or write streams of their own." lead=${html`<${Age} of=${q} />`} actions=${html`<${Link} to=${["projections", "new"]} class="primary"><${Icon} of=${icons.Plus} />New projection<//>`}><div class="bar"><${Check} label="Transient ones too" value=${transient} set=${show} /></div>
		<${Answer} of=${q}>${(d) => d.projections.length === 0 ? html`<${Empty} text="There are no projections yet. New projection makes one; StartStandardProjections starts those of the system. Or:" command=${`curl -i -u LOGIN -d 'fromAll().when({ $init() { return { n: 0 }; }, $any(s, e) { s.n++; } })' '${new URL("projections/continuous?name=counter&enabled=yes&emit=no", root)}'`} />`
		: html`<${Table} name="Projections" heads=${["Name", "Status", "Mode", "Progress", "#Events", "#Buffered", "#Partitions"]}>${d.projections.map((p) => html`<tr key=${p.name}><td class="name"><${Link} to=${["projections", p.name]}>${p.name}<//></td><td class="reason"><${Status} of=${p} />${p.stateReason && html`<div class="small badtext">${p.stateReason.split("\n")[0].slice(0, 200)}</div>`}</td><td>${p.mode}</td>
			<td><${Progress} of=${p} /></td><td class="num">${count(p.eventsProcessedAfterRestart)}</td><td class="num">${count(p.bufferedEvents)}</td><td class="num">${count(p.partitionsCached)}</td></tr>`)}<//>`}<//><//>`;
}

export const Status = ({ of: p }) => html`<${State} kind=${/Faulted/.test(p.status) ? "bad" : /Running/.test(p.status) ? "good" : "idle"}>${p.status}<//>`;
export const Progress = ({ of: p }) => (p.progress >= 0 ? html`<span class="nowrap"><progress max="100" value=${p.progress} aria-label="Progress"></progress> <span class="small">${p.progress === 100 ? "100" : p.progress.toFixed(1)} %</span></span>` : "–");
