// @ts-check
// A choice of the node that a page is about: scavenges and backups are one node's business.
import { html } from "../../vendor/preact.js";
import { patch } from "../router.js";
import { has, use, view } from "../store.js";
import { Choice } from "./basics.js";

/** NodeChoice puts ?node= into the address; empty is the node that was asked. */
export function NodeChoice({ value }) {
	const v = use(view);
	if (!v || v.members.length < 2 || !has("nodeRelay")) return null;
	const name = (m) => `${m.httpEndPointIp}:${m.httpEndPointPort}`;
	return html`<${Choice} label="Node" value=${value || ""} of=${[["", `this node (${v.me ? name(v.me) : location.host})`], ...v.members.filter((m) => m !== v.me && m.isAlive).map((m) => [m.instanceId, `${name(m)}, ${m.state}`])]} set=${(node) => patch({ node })} />`;
}

/** nodeOr is the node that requests of such a page go to. @param {string} node */
export const nodeOr = (node) => node || "self";
