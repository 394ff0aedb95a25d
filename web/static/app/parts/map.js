// @ts-check
// The cluster as a drawing: who leads, who follows, and how far each is behind.
import { html } from "../../vendor/preact.js";
import { bytes } from "../lib/format.js";
import { useWidth } from "./basics.js";

export const nameOf = (m) => `${m.httpEndPointIp}:${m.httpEndPointPort}`;

/** behind is how much of the log of the leader a member does not have, in bytes; undefined where that means nothing. */
export const behind = (m, leader) => (leader && m.isAlive ? Math.max(0, Number(leader.writerCheckpoint) - Number(m.writerCheckpoint)) : undefined);

const tall = 64, gap = 56, much = 16 << 20; // Bytes behind that are more than what is on its way.

/** ClusterMap takes the width that it has: the followers stand beside each other below the leader, or where that is too little below each other. */
export function ClusterMap({ members, here }) {
	const [box, width] = useWidth();
	const leader = members.find((m) => m.state === "Leader" && m.isAlive), others = members.filter((m) => m !== leader);
	const beside = width >= others.length * 190, w = Math.min(280, beside ? width / Math.max(1, others.length) - 16 : width - 40);
	const high = beside ? tall * 2 + gap + 2 : (tall + 12) * (others.length + 1) + 2;
	const place = (i) => (beside ? [(width / others.length) * (i + 0.5) - w / 2, tall + gap] : [36, (tall + 12) * (i + 1) + 1]);
	const first = beside ? [width / 2 - w / 2, 1] : [1, 1];
	return html`<div class="map" ref=${box}>${width > 0 && html`<svg role="img" aria-label="Cluster map" width=${width} height=${high} viewBox=${`0 0 ${width} ${high}`}>
		${leader && others.map((m, i) => {
			const [x, y] = place(i), lag = behind(m, leader), cx = width / 2, mid = tall + gap / 2;
			const way = beside ? `M${cx} ${tall + 1}C${cx} ${mid} ${x + w / 2} ${mid} ${x + w / 2} ${y}` : `M16 ${tall + 1}V${y + tall / 2}H${x}`;
			return html`<path key=${m.instanceId} class=${"wire" + (m.isAlive ? (lag > much ? " warn" : "") : " bad")} d=${way} />`;
		})}
		${leader ? html`<${Node} m=${leader} at=${first} w=${w} here=${here} text="leads" />` : html`<text x=${first[0] + w / 2} y=${tall / 2 + 4} text-anchor="middle" class="bad">No leader</text>`}
		${others.map((m, i) => html`<${Node} key=${m.instanceId} m=${m} at=${place(i)} w=${w} here=${here} text=${!m.isAlive ? "does not answer" : behind(m, leader) === undefined ? "" : behind(m, leader) ? bytes(behind(m, leader)) + " behind" : "level"} />`)}</svg>`}</div>`;
}

function Node({ m, at: [x, y], w, here, text }) {
	const name = nameOf(m), state = m.isAlive ? m.state : "Dead", kind = !m.isAlive ? "bad" : state === "Leader" || state === "Follower" || state === "ReadOnlyReplica" ? "good" : "warn";
	return html`<g><rect class=${"node" + (state === "Leader" ? " leader" : "") + (m.isAlive ? "" : " dead")} x=${x} y=${y} width=${w} height=${tall} rx="10" /><circle class=${kind} cx=${x + 18} cy=${y + 24} r="4" />
		<text x=${x + 30} y=${y + 28} class="strong">${name}</text><text x=${x + 30} y=${y + 47} class="soft">${state}${text && state !== "Leader" && m.isAlive ? `, ${text}` : ""}${name === here ? " · this node" : ""}</text></g>`;
}
