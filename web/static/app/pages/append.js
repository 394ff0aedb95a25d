// @ts-check
import { html, useEffect, useState } from "../../vendor/preact.js";
import { command, eventsJSON, send } from "../api.js";
import { eventName, path } from "../lib/address.js";
import { check, pretty } from "../lib/json.js";
import { Copy, EventLink, Failure, Field, Page } from "../parts/basics.js";
import { Icon, icons } from "../parts/icons.js";
import { loadEvent } from "../parts/events.js";
import { has } from "../store.js";

/** @returns {{id: string, stream: string, type: string, data: string, metadata: string}} */
const blank = () => ({ id: newId(), stream: "", type: "", data: "{\n  \n}", metadata: "" });

/** newId makes a random id. crypto.randomUUID is there over HTTPS and on loopback alone. */
function newId() {
	const b = crypto.getRandomValues(new Uint8Array(16));
	b[6] = (b[6] & 15) | 64;
	b[8] = (b[8] & 63) | 128;
	return [...b].map((x) => x.toString(16).padStart(2, "0")).join("").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

export default function Append({ stream: given = "", query }) {
	const [stream, setStream] = useState(given), [version, setVersion] = useState(""), [events, set] = useState([blank()]);
	const [versions, setVersions] = useState(/** @type {Record<string, string>} */ ({})); // expected ones of further streams
	const [condition, setCondition] = useState("");
	const [result, tell] = useState(/** @type {any} */ (null)), [busy, work] = useState(false);
	useEffect(() => {
		const like = eventName(query.like || "");
		if (!like) return;
		loadEvent(like.stream, like.number).then((e) => set([{ ...blank(), type: e.type, data: pretty(e.data), metadata: pretty(e.metadata) }]), (error) => tell({ error }));
	}, [query.like]);
	const change = (i, part) => set(events.map((e, j) => (j === i ? { ...e, ...part } : e)));
	const wrong = events.map((e) => ({ type: e.type.trim() === "" ? "A type is needed." : "", data: check(e.data), metadata: e.metadata.trim() === "" ? "" : check(e.metadata) }));
	const streamOf = (e, i) => (i > 0 && e.stream) || stream;
	const streams = [...new Set(events.map(streamOf))], several = streams.length > 1 || condition.trim() !== "";
	const expected = (s) => (s === stream ? version : versions[s] || "");
	const badCondition = condition.trim() === "" ? "" : check(condition);
	const ready = !badCondition && stream !== "" && wrong.every((w) => !w.type && !w.data && !w.metadata) && streams.every((s) => /^(-?[0-9]+)?$/.test(expected(s)));
	const violated = (s) => {
		const v = result && result.violations && result.violations.find((v) => v.stream === s);
		return v ? { none: "There is no such stream.", deleted: "The stream is deleted.", tombstoned: "The stream is deleted for ever." }[v.actual] || `The stream is at ${v.actual} now.` : "";
	};
	const request = () => {
		// Written by hand, so that every number stays as it was typed.
		const list = events.map((e, i) => `{${several ? `"stream":${JSON.stringify(streamOf(e, i))},` : ""}"eventId":${JSON.stringify(e.id)},"eventType":${JSON.stringify(e.type.trim())},"data":${e.data}${e.metadata.trim() ? `,"metadata":${e.metadata}` : ""}}`).join(",");
		if (!several) return { type: eventsJSON, headers: version === "" ? {} : { "ES-ExpectedVersion": version }, body: `[${list}]` };
		const checks = streams.filter((s) => expected(s) !== "" && expected(s) !== "-2").map((s) => `{"stream":${JSON.stringify(s)},"expectedVersion":${expected(s)}}`);
		return { allow: [409], body: `{"checks":[${checks}],${condition.trim() ? `"condition":${condition},` : ""}"events":[${list}]}` };
	};
	const address = several ? "/streams" : `/streams/${path(stream)}`;
	const submit = async (e) => {
		e.preventDefault();
		work(true);
		tell(null);
		try {
			const r = await send("POST", address, request());
			const answer = several ? await r.json() : null;
			if (r.status === 409) {
				tell({ violations: answer.checks || [], conflicts: (answer.conditions || []).map((c) => c.event) });
				work(false);
				return;
			}
			const at = /\/([0-9]+)$/.exec(r.headers.get("Location") || "");
			tell({ written: several ? answer.streams.map((s) => ({ stream: s.stream, number: String(s.last) })) : [{ stream, number: at ? at[1] : "" }] });
			set(events.map((e) => ({ ...e, id: newId() })));
		} catch (error) {
			tell({ error, now: /Wrong expected/i.test(error.message) ? await present(stream) : null });
		}
		work(false);
	};
	return html`<${Page} title="Append event" what="Writes one event or several, all or none, as a client would."><form class="wide-form" onSubmit=${submit}>
		<div class="fields"><${Field} label="Stream" value=${stream} set=${setStream} required /><${Field} label="Expected version" value=${version} set=${setVersion} error=${violated(stream)} hint="Empty: any; -1: no stream yet; else its last number." inputmode="numeric" /></div>
		${events.map((e, i) => html`<fieldset key=${i}><legend>${events.length > 1 ? `Event ${i + 1}` : "Event"}</legend>
			${i > 0 && has("multiStream") && html`<div class="fields"><${Field} label=${name("Stream", i)} value=${e.stream} set=${(stream) => change(i, { stream })} hint="Empty: the stream above." />
				${streamOf(e, i) !== stream && events.findIndex((x, j) => streamOf(x, j) === e.stream) === i && html`<${Field} label=${name("Expected version", i)} value=${expected(e.stream)} set=${(v) => setVersions({ ...versions, [e.stream]: v })} error=${violated(e.stream)} hint="As above, of this stream." inputmode="numeric" />`}</div>`}
			<div class="fields"><${Field} label=${name("Event type", i)} value=${e.type} set=${(type) => change(i, { type })} error=${e.type !== "" ? wrong[i].type : ""} /><${Field} label=${name("Event id", i)} value=${e.id} set=${(id) => change(i, { id })} class="mono" /></div>
			<div class="columns lead-first"><${Field} label=${name("Data", i)} area=${12} value=${e.data} set=${(data) => change(i, { data })} error=${wrong[i].data} hint="JSON" /><${Field} label=${name("Metadata", i)} area=${12} value=${e.metadata} set=${(metadata) => change(i, { metadata })} error=${wrong[i].metadata} hint="JSON, or nothing" /></div>
			${events.length > 1 && html`<button type="button" class="risky" onClick=${() => set(events.filter((_, j) => j !== i))}>Remove event ${i + 1}</button>`}</fieldset>`)}
		${has("conditions") && html`<details><summary>Condition</summary><${Field} label="Condition" area=${4} value=${condition} set=${setCondition} error=${badCondition} hint="JSON, as Search copies it: nothing is written when an event behind its position matches." /></details>`}
		<div class="buttons"><button class="primary" disabled=${!ready || busy}>Append</button><button type="button" onClick=${() => set([...events, { ...blank(), type: events[events.length - 1].type }])}><${Icon} of=${icons.Plus} />One more event</button>
			<${Copy} label="Copy as curl" text=${() => command("POST", address, request())} /></div>
		<div role="status">${result && result.written && html`<p class="box good">Written as ${result.written.map((w) => `${w.number}@${w.stream}`).join(", ")}.</p>`}</div>
		${result && result.written && result.written.map((w) => html`<p key=${w.stream}><${EventLink} stream=${w.stream} number=${w.number} /></p>`)}
		${result && result.violations && html`<div role="alert" class="box bad"><strong>Nothing was written.</strong> ${result.violations.map((v) => `${v.stream}: ${violated(v.stream)}`).join(" ")}
			${result.conflicts.map((c) => html`<p key=${c.position}>An event that matches was written: ${c.stream === undefined ? `at position ${c.position}` : html`${c.eventType} <${EventLink} stream=${c.stream} number=${c.number} />`}.</p>`)}</div>`}
		${result && result.error && (result.now !== null && result.now !== undefined ? html`<div role="alert" class="box bad"><strong>Wrong expected version.</strong> The stream is at ${result.now} now, not at ${version}. <button type="button" onClick=${() => setVersion(String(result.now))}>Expect ${result.now}</button></div>` : html`<${Failure} error=${result.error} />`)}
	</form><//>`;
}

const name = (label, i) => (i === 0 ? label : `${label} ${i + 1}`);

/** present is the number of the last event of a stream, -1 where there is none. */
async function present(stream) {
	try {
		const r = await send("GET", `/streams/${path(stream)}/head/backward/1`, { accept: "application/vnd.eventstore.atom+json", node: "leader", allow: [404] });
		if (r.status === 404) return "-1";
		const d = await r.json();
		return d.entries[0] ? /^[0-9]+/.exec(d.entries[0].title)?.[0] : "-1";
	} catch {
		return null;
	}
}
