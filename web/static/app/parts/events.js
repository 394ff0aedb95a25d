// @ts-check
// Rows of events, as streams, $all, searches and live tails show them.
import { html, useMemo, useRef, useState } from "../../vendor/preact.js";
import { atomJSON, command, get, send, useAnswer } from "../api.js";
import { path } from "../lib/address.js";
import { bytes } from "../lib/format.js";
import { prefix, read } from "../lib/json.js";
import { field, pathText, preview } from "../lib/preview.js";
import { rows as height, use } from "../store.js";
import { Answer, Copy, EventLink, Link, Table } from "./basics.js";
import { Icon, icons } from "./icons.js";
import { Payload } from "./tree.js";
import { When } from "./when.js";

/** ownStreams is the filter of $all that leaves out streams of the system, among them those that projections write. */
export const ownStreams = `&context=streamid&type=regex&data=${encodeURIComponent("^[^$]")}`;

/** enough are the bytes of data that a list asks for of each event: for a preview, some fields and most matches. */
export const enough = 2048;

/**
 * @typedef {{number: any, stream: string, type: string, id: string, time: string, at: any, from: string, link: boolean, position?: any, data?: string, metadata?: string, bytes?: number, redacted?: boolean}} Event
 */

/** fromEntry takes what a feed or a live tail says of an event. @param {any} e @returns {Event} */
export function fromEntry(e) {
	const m = /^([0-9]+)@(.*)$/s.exec(e.title) || ["", "0", ""];
	const number = e.eventNumber ?? m[1], stream = e.streamId ?? m[2];
	return {
		number, stream, type: e.eventType ?? e.summary, id: e.eventId || "", time: e.updated,
		at: e.positionEventNumber ?? number, from: e.positionStreamId ?? stream, link: e.positionStreamId !== undefined && e.positionStreamId !== stream && !e.positionStreamId.startsWith("$idx-"),
		position: e.position, data: e.data, metadata: e.metaData, bytes: e.dataBytes, redacted: e.isRedacted,
	};
}

/** useFeed asks for a feed, and says what it said before where the node says that it has not changed. */
export function useFeed(address, headers) {
	const known = useRef({ of: "", tag: "", data: /** @type {any} */ (null) }), of = address + headers["ES-ResolveLinkTos"];
	return async (signal) => {
		const last = known.current, tag = last.of === of && last.tag ? { "If-None-Match": last.tag } : {};
		const r = await send("GET", address, { accept: atomJSON, headers: { ...headers, ...tag }, signal, allow: [304] });
		if (r.status === 304) return last.data;
		const data = { ...read(await r.text()), looked: Number(r.headers.get("Annals-Looked")) };
		known.current = { of, tag: r.headers.get("ETag") || "", data };
		return data;
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

/** rowsThatFit are so many rows of events as the window has room for below a heading and its bars. */
export const rowsThatFit = () => Math.max(10, Math.min(100, Math.floor((innerHeight - 350) / (height.value === "Roomy" ? 36 : 28))));

/**
 * Events are a table of events. In $all a row is named by its event, in a stream by its number there. fields are shown as
 * columns; find is marked in the data.
 * @param {{of: Event[], all?: boolean, marked?: string, name?: string, place?: string, fields?: string[][], find?: string}} p
 */
export function Events({ of, all = false, marked, name = "Events", place = "Number", fields = [], find = "" }) {
	const [open, set] = useState(/** @type {Set<string>} */ (new Set()));
	const roomy = use(height) === "Roomy" ? "roomy" : "";
	const toggle = (key) => {
		const next = new Set(open);
		if (!next.delete(key)) next.add(key);
		set(next);
	};
	const apart = !all && of.some((e) => e.stream !== e.from || String(e.number) !== String(e.at)); // The rows are not the events themselves.
	const heads = [place, "Type", "Time", ...fields.map(pathText), "Data", ...(apart ? ["Event"] : []), ...(all ? [""] : [])];
	return html`<${Table} name=${name} cls=${"events " + roomy} heads=${heads}>${of.map((e) => {
		const key = `${e.at}@${e.from}`, shown = open.has(key), label = all ? key : String(e.at);
		return html`<tr key=${key} class=${String(e.at) === marked ? "marked" : ""}>
			<td class="place"><button type="button" class="plain" aria-expanded=${String(shown)} aria-label=${`Open ${label}`} onClick=${() => toggle(key)}><${Icon} of=${shown ? icons.ChevronDown : icons.ChevronRight} /></button>${apart ? html`<span class="mono">${String(e.at)}</span>` : html`<${EventLink} stream=${e.stream} number=${e.number} bare=${!all} />`}</td>
			<td class="name" title=${e.type}>${e.type}${e.link ? html` <span class="muted small">by link</span>` : ""}${e.redacted ? html` <span class="state warn">redacted</span>` : ""}</td>
			<td><${When} at=${e.time} /></td><${Shown} e=${e} fields=${fields} find=${find} />
			${apart && html`<td class="name"><${EventLink} stream=${e.stream} number=${e.number} /></td>`}${all && html`<td><${Link} to=${["streams", e.from]} class="small">Stream<//></td>`}</tr>
			${shown && html`<tr key=${key + " open"} class="detail"><td colspan=${heads.length}><${Opened} e=${e} /></td></tr>`}`;
	})}<//>`;
}

/** Shown are the cells of what a row shows of the data. */
export function Shown({ e, fields = [], find = "" }) {
	const root = useMemo(() => (fields.length > 0 && e.data ? prefix(e.data) : null), [e.data, fields.length > 0]);
	const p = useMemo(() => preview(e.data, e.metadata, find, e.bytes), [e, find]);
	const note = { metadata: "in the metadata: ", binary: e.bytes === undefined ? "no text" : `${bytes(e.bytes)} that are no JSON`, none: "–", "further on": "the match is further on: " }[p.where];
	return html`${fields.map((path) => html`<td class="own mono small" key=${pathText(path)}>${field(root, path)}</td>`)}
		<td class="preview mono small">${note && html`<span class="muted">${note}</span>`}${p.parts.map((x) => (x.hit ? html`<mark>${x.text}</mark>` : x.text))}</td>`;
}

/** Gone is what is left of a stream that was deleted for ever: there is nothing to be done with it. */
export const Gone = ({ stream }) => html`<div class="empty"><${Icon} of=${icons.Ban} /><p><strong>Stream deleted.</strong></p><p>${stream} was deleted for ever. Its events can no longer be read, and no event can be written to it again: nothing brings it back.</p></div>`;

/** Opened is a row that was opened: only then its payload is asked for. */
export function Opened({ e }) {
	const q = useAnswer((signal) => loadEvent(e.from, e.at, true, signal), [e.from, String(e.at)]);
	return html`<${Answer} of=${q} lines=${3}>${(d) => html`<div class="bar"><span class="mono small">${d.id}</span><${Copy} label="Copy as curl" data-key="curl" text=${() => commandOf(e.from, e.at)} />
		<${Link} to=${["streams", e.stream, "append"]} query=${{ like: `${e.at}@${e.from}` }}>Append like this<//></div><${Both} e=${d} />`}<//>`;
}

/** Both are data and metadata of an event. */
export const Both = ({ e }) => html`<div class="columns"><${Payload} name="Data" text=${e.data} bytes=${bytes(new Blob([e.data]).size)} /><${Payload} name="Metadata" text=${e.metadata} bytes=${bytes(new Blob([e.metadata]).size)} /></div>`;
