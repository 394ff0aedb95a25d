// @ts-check
// The partitions of a projection: those in memory, and those that its checkpoints list.
import { html, useState } from "../../vendor/preact.js";
import { atomJSON, fromLeader, useAnswer } from "../api.js";
import { path } from "../lib/address.js";
import { bytes, plural } from "../lib/format.js";
import { patch } from "../router.js";
import { Answer } from "./basics.js";
import { Payload } from "./tree.js";

const page = 200, listed = 500; // of those in memory, and of the newest names that checkpoints list

/** readPartitions lists partitions by name: pages of those in memory, then others of the checkpoints of the name saved, if there is one. @returns {Promise<{list: {name: string, bytes?: number}[], more: boolean}>} */
async function readPartitions(name, contains, most, saved, signal) {
	const [memory, kept] = await Promise.all([
		fromLeader(`/projection/${path(name)}/partitions?count=${most}&contains=${encodeURIComponent(contains)}`, { signal }),
		saved && fromLeader(`/streams/${path(`$projections-${saved}-checkpointedpartitions`)}/head/backward/${listed}?embed=tryharder`, { accept: atomJSON, signal }).catch(() => null),
	]);
	/** @type {Map<string, {name: string, bytes?: number}>} */ const all = new Map(memory.partitions.map((p) => [p.name, { name: p.name, bytes: p.stateBytes }]));
	for (const e of kept ? kept.entries : []) if (e.data && e.data.includes(contains) && !all.has(e.data) && all.size < 2 * most) all.set(e.data, { name: e.data });
	return { list: [...all.values()].sort((a, b) => (a.name < b.name ? -1 : 1)), more: !!memory.next || (!!kept && kept.entries.length === listed) };
}

/** Value is the state or the result of a partition; empty is the root. With partitions it stands beside their list. */
export function Value({ name, kind, title, partition, partitioned, saved }) {
	const where = `/projection/${path(name)}`;
	const q = useAnswer((signal) => fromLeader(`${where}/${kind}${partition ? `?partition=${encodeURIComponent(partition)}` : ""}`, { signal, text: true }), [where, kind, partition], { every: 2000 });
	const value = html`<${Answer} of=${q}>${(t) => (t ? html`<${Payload} name=${title} text=${t} bytes=${bytes(new Blob([t]).size)} />` : html`<div class="empty"><p>${partition ? html`${partition} has no ${kind} yet.` : partitioned ? `Choose a partition to see its ${kind}.` : `There is no ${kind} yet.`}</p></div>`)}<//>`;
	if (!partitioned) return value;
	return html`<div class="aside"><${List} name=${name} chosen=${partition} saved=${saved} /><div><h2 class="mono">${partition || "All partitions together"}</h2>${value}</div></div>`;
}

/** List finds partitions. Enter opens the one of that very name, whether it is listed or not. */
function List({ name, chosen, saved }) {
	const [text, set] = useState(""), [most, show] = useState(page);
	const q = useAnswer((signal) => readPartitions(name, text.trim(), most, saved, signal), [name, text.trim(), most, saved], { every: 5000 });
	const open = (partition) => patch({ partition });
	return html`<section class="partitions" aria-label="Partitions"><form onSubmit=${(e) => (e.preventDefault(), open(text.trim()))}><input type="search" aria-label="Partition" placeholder="Find a partition" value=${text} onInput=${(e) => set(e.target.value)} autocomplete="off" spellcheck=${false} /></form>
		<${Answer} of=${q}>${({ list, more }) => html`<p class="small muted" role="status">${list.length === 0 ? (text ? "None of those in memory has this in its name. Enter opens the one of that name." : "There are none yet.") : `${plural(list.length, "partition")}${more ? ", and there are more" : ""}`}</p>
			<ul><li><button type="button" aria-current=${chosen === "" ? "true" : undefined} onClick=${() => open("")}>All together</button></li>${list.map((p) => html`<li key=${p.name}><button type="button" title=${p.name} aria-current=${p.name === chosen ? "true" : undefined} onClick=${() => open(p.name)}><span class="mono">${p.name}</span><span class="muted small">${p.bytes === undefined ? "" : bytes(p.bytes)}</span></button></li>`)}</ul>
			${more && most < 1000 && html`<button type="button" onClick=${() => show(Math.min(1000, most * 2))}>More</button>`}`}<//></section>`;
}
