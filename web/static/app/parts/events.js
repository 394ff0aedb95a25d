// @ts-check
// Rows of events, as streams, $all, searches and live tails show them.
import { html, useState } from "../../vendor/preact.js";
import { atomJSON, command, get, useAnswer } from "../api.js";
import { path } from "../lib/address.js";
import { bytes } from "../lib/format.js";
import { rows as height, use } from "../store.js";
import { Answer, Copy, EventLink, Link, Table, Time } from "./basics.js";
import { Payload } from "./tree.js";

/**
 * @typedef {{number: any, stream: string, type: string, id: string, time: string, at: any, from: string, link: boolean, position?: any, data?: string, metadata?: string, redacted?: boolean}} Event
 */

/** fromEntry takes what a feed or a live tail says of an event. @param {any} e @returns {Event} */
export function fromEntry(e) {
	const m = /^([0-9]+)@(.*)$/s.exec(e.title) || ["", "0", ""];
	const number = e.eventNumber ?? m[1], stream = e.streamId ?? m[2];
	return {
		number, stream, type: e.eventType ?? e.summary, id: e.eventId || "", time: e.updated,
		at: e.positionEventNumber ?? number, from: e.positionStreamId ?? stream, link: e.positionStreamId !== undefined && e.positionStreamId !== stream && !e.positionStreamId.startsWith("$idx-"),
		position: e.position, data: e.data, metadata: e.metaData, redacted: e.isRedacted,
	};
}

/** addressOf is the document of an event as the interface shows it. @param {string} stream @param {any} number */
export const addressOf = (stream, number) => `/streams/${path(stream, number)}?embed=tryharder`;

/** loadEvent reads an event whole, through a link unless resolve is false. */
export async function loadEvent(stream, number, resolve = true, signal) {
	const e = await get(addressOf(stream, number), { accept: atomJSON, headers: { "ES-ResolveLinkTos": String(resolve) }, signal });
	const ev = fromEntry(e);
	return { ...ev, data: ev.data ?? "", metadata: ev.metadata ?? "", plain: e.eventId === undefined };
}

/** commandOf is the request for an event as curl. */
export const commandOf = (stream, number) => command("GET", addressOf(stream, number), { accept: atomJSON });

/** Events are a table of events. In $all a row is named by its event, in a stream by its number there. */
export function Events({ of, all, marked, fresh, name = "Events", place = "Number" }) {
	const [open, set] = useState(/** @type {Set<string>} */ (new Set()));
	const roomy = use(height) === "Roomy" ? "roomy" : "";
	const toggle = (key) => {
		const next = new Set(open);
		if (!next.delete(key)) next.add(key);
		set(next);
	};
	return html`<${Table} name=${name} cls=${roomy} heads=${[place, "Type", "Time", "Event", ""]}>${of.map((e) => {
		const key = `${e.at}@${e.from}`, shown = open.has(key), label = all ? key : String(e.at);
		return html`<tr key=${key} class=${String(e.at) === marked ? "marked" : fresh && fresh.has(key) ? "new" : ""}>
			<td><button type="button" class="plain mono" aria-expanded=${String(shown)} aria-label=${`Open ${label}`} onClick=${() => toggle(key)}><span aria-hidden="true">${shown ? "▾" : "▸"} </span>${String(e.at)}</button></td>
			<td class="name">${e.type}${e.link ? html` <span class="muted small">by link</span>` : ""}${e.redacted ? html` <span class="state warn">redacted</span>` : ""}</td>
			<td><${Time} at=${e.time} /></td><td class="name"><${EventLink} stream=${e.stream} number=${e.number} /></td>
			<td>${all && html`<${Link} to=${["streams", e.from]} class="small">Stream<//>`}</td></tr>
			${shown && html`<tr key=${key + " open"} class="detail"><td colspan="5"><${Opened} e=${e} /></td></tr>`}`;
	})}<//>`;
}

/** Opened is a row that was opened: only then its payload is asked for. */
export function Opened({ e }) {
	const q = useAnswer((signal) => loadEvent(e.from, e.at, true, signal), [e.from, String(e.at)]);
	return html`<${Answer} of=${q} lines=${3}>${(d) => html`<div class="bar"><span class="mono small">${d.id}</span><${Copy} label="Copy as curl" data-key="curl" text=${() => commandOf(e.from, e.at)} />
		<${Link} to=${["streams", e.stream, "append"]} query=${{ like: `${e.at}@${e.from}` }}>Append like this<//></div><${Both} e=${d} />`}<//>`;
}

/** Both are data and metadata of an event. */
export const Both = ({ e }) => html`<div class="columns"><${Payload} name="Data" text=${e.data} bytes=${bytes(new Blob([e.data]).size)} /><${Payload} name="Metadata" text=${e.metadata} bytes=${bytes(new Blob([e.metadata]).size)} /></div>`;
