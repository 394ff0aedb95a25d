// @ts-check
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { atomJSON, command, get, root, send, useAnswer } from "../api.js";
import { path } from "../lib/address.js";
import { count, plural, readTime } from "../lib/format.js";
import { follow } from "../live.js";
import { Act, Age, Answer, Ask, Check, Choice, Copy, Empty, Failure, Follows, Link, Page } from "../parts/basics.js";
import { Columns, Drop, SystemChoice, useColumns } from "../parts/columns.js";
import { enough, Events, fromEntry, Gone, ownStreams, rowsThatFit, useFeed } from "../parts/events.js";
import { Icon, icons } from "../parts/icons.js";
import { patch, unmoved } from "../router.js";
import { rows as height, system, use, visit, zone } from "../store.js";

const sizes = [20, 50, 100, 200, 500], kept = 500, drawn = 120; // Of the rows that a live tail keeps so many are drawn, unless all are asked for.

export default function Stream({ stream, query }) {
	const all = stream === "$all", index = stream.startsWith("$idx-"), byPlace = all || index; // Else by numbers that are dense.
	const roomy = use(height), hides = use(system) === "Hide" && all, fit = useFit(), [fields, setFields] = useColumns(stream);
	const size = sizes.includes(+query.size) ? +query.size : fit;
	const resolve = query.links ? query.links === "1" : !all;
	const live = query.live === "1", types = query.type || "";
	const head = !query.from && !types && !live;
	const [shown, show] = useState(/** @type {any} */ (null));
	const dir = query.dir === "forward" ? "forward" : "backward", filter = hides ? ownStreams : "";
	const where = `/streams/${path(stream)}${hides ? "/filtered" : ""}/${query.from || "head"}/${dir}/${size}`, headers = { "ES-ResolveLinkTos": String(resolve) };
	const q = useAnswer(useFeed(`${where}?embed=tryharder&maxData=${enough}${filter}`, headers), [stream, query.from, dir, size, resolve, types, hides], { every: head ? 5000 : 0, off: types !== "" });
	useEffect(() => visit(stream), [stream]);
	useEffect(() => {
		if (q.data === undefined) return show(null);
		const entries = q.data.entries.map(fromEntry);
		const page = { entries, head: q.data.headOfStream, links: q.data.links, hidden: hides && q.data.looked - entries.length };
		// What is new waits behind a button; what is on the page does not move by itself.
		show((old) => (old && head && old.key === key && newest(old) !== newest(page) && old.entries.length > 0 ? { ...old, waiting: page } : { ...page, key }));
	}, [q.data]);
	const key = [stream, query.from, dir, size, resolve, hides].join(" ");
	const page = shown && shown.key === key ? shown : null;

	const entries = page ? page.entries : [];
	const top = entries[0], bottom = entries[entries.length - 1];
	const linked = (relation) => {
		const l = page && page.links.find((x) => x.relation === relation);
		const m = l && /\/([0-9A-Fa-f]+|head)\/(backward|forward)\/[0-9]+(\?|$)/.exec(l.uri);
		return m ? { from: m[1], dir: m[2] === "forward" ? "forward" : "" } : null;
	};
	const older = byPlace ? linked("next") : bottom && BigInt(bottom.at) > 0n && linked("next") ? { from: String(BigInt(bottom.at) - 1n), dir: "" } : null;
	const newer = page && !page.head && (query.from || query.dir) ? (byPlace ? linked("previous") : top ? { from: String(BigInt(top.at) + BigInt(size)), dir: "" } : null) : null;
	const move = (a) => patch({ from: a.from, dir: a.dir, at: "", live: "" });
	const oldest = async () => {
		const here = unmoved();
		const feed = await get(`/streams/${path(stream)}/${all ? "0".repeat(32) : 0}/forward/1?embed=rich`, { accept: atomJSON });
		const first = feed.entries.map(fromEntry)[0];
		if (here()) patch(byPlace || !first ? { from: "0".repeat(all ? 32 : 1), dir: "forward", at: "", live: "" } : { from: String(first.at), dir: "", at: "", live: "" });
	};
	const missing = q.error && q.error.status === 404;
	if (q.error && q.error.status === 410) return html`<${Page} key="gone" title=${stream}><${Gone} stream=${stream} /><//>`;
	const actions = !index && html`${!all && html`${!missing && html`<${Delete} stream=${stream} last=${head && top ? top.at : undefined} onDone=${q.again} />`}<${Link} to=${["streams", stream, "metadata"]}><${Icon} of=${icons.Shield} />Access and limits<//>`}<${Link} to=${["streams", stream, "append"]} class="primary"><${Icon} of=${icons.Plus} />Append event<//>`;
	return html`<${Page} title=${stream} what=${all ? "Every event of the database, in the order of the log." : index ? "Found in the index: nothing is stored here." : ""} lead=${html`<${Age} of=${q} />`} actions=${actions}>
		<${Follows} />
		<div class="bar">
			<span class="joined"><button data-key="newest" disabled=${head && page !== null && !page.waiting} onClick=${() => patch({ from: "", dir: "", at: "", live: "" })}><${Icon} of=${icons.ArrowUpToLine} />Newest</button><button data-key="newer" disabled=${!newer} onClick=${() => newer && move(newer)}><${Icon} of=${icons.ArrowUp} />Newer</button><button data-key="older" disabled=${!older} onClick=${() => older && move(older)}><${Icon} of=${icons.ArrowDown} />Older</button><${Act} label="Oldest" icon=${icons.ArrowDownToLine} data-key="oldest" disabled=${!older} act=${oldest} /></span>
			<button data-key="live" aria-pressed=${live ? "true" : "false"} onClick=${() => patch({ live: live ? "" : 1, from: "", dir: "", at: "" })}><${Icon} of=${icons.Radio} />Live</button>
			<${GoTo} stream=${stream} all=${all} /><${TypeFilter} value=${types} />
		</div>
		<div class="bar">
			${!index && html`<${Check} label="Resolve links" value=${resolve} set=${(v) => patch({ links: v === !all ? "" : v ? "1" : "0" })} />`}
			${all && !types && html`<${SystemChoice} label="System events" noun="event of the system" many="events of the system" hidden=${live ? undefined : page ? Math.max(0, page.hidden) : undefined} />`}
			<span class="row-acts push"><${Columns} of=${page ? entries : []} value=${fields} set=${setFields} />
			<${Drop} label="View" name="View" icon=${icons.SlidersHorizontal}><${Choice} label="Page size" value=${query.size || ""} of=${[["", "as the window"], ...sizes]} set=${(size) => patch({ size })} /><${Choice} label="Rows" value=${roomy} of=${["Dense", "Roomy"]} set=${(v) => height.set(v)} />
				<button disabled=${entries.length === 0 || live || types !== ""} onClick=${() => save(stream, () => get(`${where}?embed=body${filter}`, { accept: atomJSON, headers }))}><${Icon} of=${icons.Download} />Save page as NDJSON</button><//>
			<${Copy} label="Copy as curl" data-key="curl" text=${() => command("GET", `${where}?embed=body${filter}`, { accept: atomJSON })} /></span>
		</div>
		${live ? html`<${Live} key=${stream + types + resolve + hides} stream=${stream} all=${all} types=${types} resolve=${resolve} fields=${fields} hides=${hides} />`
		: types ? html`<${Filtered} key=${stream + types} stream=${stream} all=${all} types=${types} resolve=${resolve} size=${size} fields=${fields} />`
		: missing ? html`<${Missing} stream=${stream} />`
		: html`<${Answer} of=${page || q.error ? q : { ...q, data: undefined }}>${() => html`
			${page.waiting && html`<p><button class="primary" onClick=${() => show({ ...page.waiting, key })}>${plural(byPlace ? fresh(page) : BigInt(newest(page.waiting)) - BigInt(newest(page)), "new event")}</button></p>`}
			${entries.length === 0 ? html`<${Empty} text=${hides && older ? "All events here are of the system. Older leads further back." : query.from ? "No event is to be seen here. Newest leads to those that are." : "No event is to be seen: all are hidden by the limits of the stream, or there are none."} />` : html`<${Events} of=${entries} all=${all} marked=${query.at} place=${index ? "Position" : "Number"} fields=${fields} />`}`}<//>`}
	<//>`;
}

/** useFit are the rows that fit into the window. */
function useFit() {
	const [fit, set] = useState(rowsThatFit);
	useEffect(() => {
		let timer = 0;
		const later = () => (clearTimeout(timer), (timer = setTimeout(() => set(rowsThatFit()), 300)));
		addEventListener("resize", later);
		return () => (clearTimeout(timer), removeEventListener("resize", later));
	}, []);
	return fit;
}

const newest = (page) => (page.entries[0] ? String(page.entries[0].at) + (page.entries[0].position || "") : "-1");
const append = (stream) => `curl -i -d '{"total":12}' -H 'Content-Type: application/json' -H 'ES-EventType: OrderPlaced' ${new URL("streams/" + path(stream), root)}`;

/** Missing is a stream without events: there never was one, or it was deleted until it is written again. */
function Missing({ stream }) {
	const q = useAnswer((signal) => get(`/streams/$all/names?count=1&prefix=${encodeURIComponent(stream)}`, { signal, silent: true }).catch(() => null), [stream]);
	const name = q.data && q.data.streams.find((s) => s.name === stream);
	return html`<${Empty} icon=${icons.Inbox} text=${html`<strong>Stream not found.</strong> ${name && name.deleted === "soft" ? `It was deleted, and an append makes it again: its next event is number ${BigInt(name.lastEventNumber) + 1n}.` : "An append makes it:"}`} command=${append(stream)} />`;
}

/** fresh counts the events of a page that waits which the page shown does not have. */
function fresh(page) {
	const has = new Set(page.entries.map((e) => `${e.at}@${e.from}`));
	return page.waiting.entries.filter((e) => !has.has(`${e.at}@${e.from}`)).length;
}

/** save downloads the events of a page, one JSON document a line. */
async function save(stream, load) {
	const feed = await load();
	const text = feed.entries.map((e) => JSON.stringify(e, (_, v) => (typeof v === "bigint" ? String(v) : v))).join("\n") + "\n";
	const a = document.createElement("a");
	a.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
	a.download = stream.replace(/[^\w.-]+/g, "_") + ".ndjson";
	a.click();
	setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}

/** GoTo leads to an event number or to the first event of a time. */
function GoTo({ stream, all }) {
	const [text, set] = useState(""), [error, fail] = useState("");
	const utc = use(zone) === "UTC";
	const submit = async (e) => {
		e.preventDefault();
		const t = text.trim();
		fail("");
		if (t === "") return;
		if (!all && /^[0-9]+$/.test(t)) return patch({ from: t, dir: "", at: t, live: "", type: "" });
		const at = readTime(t, utc, new Date());
		if (at === null) return fail("That is no event number and no time such as 2026-11-24 14:05, Tuesday 14:05 or 14:05.");
		const here = unmoved();
		try {
			const d = await get(`/streams/${path(stream)}/at/${encodeURIComponent(at)}`);
			if (here()) patch(all ? { from: d.position, dir: "forward", at: "", live: "", type: "" } : { from: String(d.eventNumber), dir: "", at: String(d.eventNumber), live: "", type: "" });
		} catch (e) {
			fail(e.status === 404 ? `No event is as late as ${at}.` : e.message);
		}
	};
	return html`<form class="inline" onSubmit=${submit}><input aria-label="Go to number or time" placeholder=${all ? "Time" : "Number or time"} value=${text} onInput=${(e) => set(e.target.value)} aria-invalid=${error ? "true" : undefined} /><button>Go</button>${error && html`<span role="alert" class="badtext small">${error}</span>`}</form>`;
}

function TypeFilter({ value }) {
	const [text, set] = useState(value);
	useEffect(() => set(value), [value]);
	return html`<form class="inline" onSubmit=${(e) => (e.preventDefault(), patch({ type: text.trim(), from: "", dir: "" }))}><label class="inline">Type <input value=${text} placeholder="prefix or /regex/" onInput=${(e) => set(e.target.value)} /></label><button>Filter</button>${value && html`<button type="button" onClick=${() => patch({ type: "" })}>Clear</button>`}</form>`;
}

/** Filtered asks the node for the events of a type, newest first, and says how far it looked. */
function Filtered({ stream, all, types, resolve, size, fields }) {
	const [found, set] = useState(/** @type {any[]} */ ([])), [state, tell] = useState({ scanned: 0, over: "", error: null }), [after, more] = useState("");
	const stop = useRef(() => {});
	useEffect(() => {
		let last = after, n = 0;
		tell((s) => ({ ...s, over: "", error: null }));
		stop.current = follow(`/streams/${path(stream)}`, { from: "end", backward: true, types, limit: size, embed: "body", maxData: enough, resolve }, {
			event: (e, id) => (n++, (last = id), set((l) => [...l, fromEntry(e)])),
			progress: (p) => tell((s) => ({ ...s, scanned: p.scanned })),
			end: (why) => tell((s) => ({ ...s, over: n >= size ? "limit" : why, last })),
			problem: (error) => tell((s) => ({ ...s, error, over: "failed" })),
		}, { once: true, after });
		return () => stop.current();
	}, [after]);
	return html`<p role="status">${plural(found.length, "event")} of this type; looked at ${count(state.scanned)} more. ${state.over === "limit" ? "" : state.over === "stopped" ? "Stopped." : state.over ? "That is all." : "Looking…"}
		${!state.over && html` <button onClick=${() => (stop.current(), tell((s) => ({ ...s, over: "stopped" })))}>Stop</button>`}
		${state.over === "limit" && found.length > 0 && html` <button onClick=${() => more(/** @type {any} */ (state).last)}>Look further</button>`}</p>
		${state.error && html`<${Failure} error=${state.error} />`}${found.length === 0 ? state.over && html`<${Empty} text="No event is of this type." />` : html`<${Events} of=${found} all=${all} fields=${fields} />`}`;
}

/** Live is what arrives, newest on top. Drawn ten times a second at most. While the tab is hidden it rests, and misses nothing. */
function Live({ stream, all, types, resolve, fields, hides }) {
	const [rows, set] = useState(/** @type {any[]} */ ([])), [state, tell] = useState({ name: "connecting", total: 0, error: null }), [whole, showAll] = useState(false);
	useEffect(() => {
		let buffer = /** @type {any[]} */ ([]), total = 0, dirty = false, name = "connecting", error = null;
		const timer = setInterval(() => {
			if (!dirty) return;
			dirty = false;
			set(buffer.slice(0, kept));
			tell({ name, total, error });
		}, 100);
		const stop = follow(`/streams/${path(stream)}`, { from: "end", embed: "body", maxData: enough, resolve, types, system: hides ? "false" : undefined }, {
			event: (e) => {
				total++;
				buffer.unshift(fromEntry(e));
				if (buffer.length > kept * 2) buffer.length = kept;
				dirty = true;
			},
			state: (s) => ((name = s), (dirty = true)),
			end: (why) => ((name = why), (dirty = true)),
			problem: (e) => ((error = e), (name = "failed"), (dirty = true)),
		}, { rests: true });
		return () => (stop(), clearInterval(timer));
	}, []);
	const shown = whole ? rows : rows.slice(0, drawn);
	const text = { connecting: "Connecting", connected: "Reading", live: "Live", behind: "Behind, reading the log", broken: "The connection broke; trying again", deleted: "The stream was deleted; waiting for its next event", gone: "The stream was deleted for ever", denied: "The right to read was withdrawn", shutdown: "The node shuts down", paused: "Paused", failed: "Failed" };
	return html`<p><span class=${"state " + (state.name === "live" ? "good" : "idle")}>${text[state.name] || state.name}</span> <span class="muted">${plural(state.total, "event")} since it began${state.total > shown.length ? `, the newest ${shown.length} are shown` : ""}</span> ${rows.length > drawn && html`<button onClick=${() => showAll(!whole)}>Show ${whole ? drawn : kept}</button>`}</p>
		${state.error && html`<${Failure} error=${state.error} />`}<div aria-live="off">${shown.length === 0 ? html`<${Empty} icon=${icons.Radio} text="What is appended from now on appears here." />` : html`<${Events} of=${shown} all=${all} fields=${fields} />`}</div>`;
}

/** Delete deletes a stream softly, unless For ever is chosen. */
function Delete({ stream, last, onDone }) {
	const [ever, set] = useState(false);
	const act = () => send("DELETE", `/streams/${path(stream)}`, { headers: ever ? { "ES-HardDelete": "true" } : {} });
	return html`<${Ask} label="Delete stream" icon=${icons.Trash2} typed=${ever ? stream : ""} act=${act} onDone=${onDone}>
		<p>${last === undefined ? "All events" : `All events up to number ${last}`} of <strong class="mono">${stream}</strong> can no longer be read. ${ever ? "Nothing can ever be written to this stream again, and nothing brings the events back." : `An append makes the stream again, and its numbers go on${last === undefined ? "" : ` from ${BigInt(last) + 1n}`}. The events are gone for good when the next scavenge has run.`}</p>
		<${Check} label="For ever" value=${ever} set=${set} /><//>`;
}
