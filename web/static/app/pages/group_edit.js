// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { fromLeader, send, useAnswer } from "../api.js";
import { path } from "../lib/address.js";
import { Answer, Check, Chips, Choice, Failure, Field, Page } from "../parts/basics.js";
import { go, unmoved } from "../router.js";
import { to } from "../lib/address.js";

const defaults = {
	resolveLinktos: false, startFrom: "0", messageTimeoutMilliseconds: 10000, extraStatistics: false, maxRetryCount: 10, liveBufferSize: 500, bufferSize: 500, readBatchSize: 20,
	checkPointAfterMilliseconds: 1000, minCheckPointCount: 10, maxCheckPointCount: 500, maxSubscriberCount: 10, namedConsumerStrategy: "RoundRobin",
	retryDelayMilliseconds: 0, checkpointAtLeastEveryMilliseconds: 0,
};
/** backoffOf are the two fields of a backoff, which are empty where there is none. @param {any} b */
const backoffOf = (b) => ({ factor: b ? b.factor : "", longest: b ? b.atMostMilliseconds : "" });
/** filterOf are the fields of a filter; what it is of is empty where there is none. @param {any} f */
const filterOf = (f) => ({ of: f ? f.of : "", prefixes: f?.prefixes ?? [], regex: f?.regex ?? "" });
/** filterFrom is the filter of a settings' fields. */
const filterFrom = (f) => (f.of === "" ? {} : f.regex === "" ? { of: f.of, prefixes: f.prefixes } : { of: f.of, regex: f.regex });
const numbers = [
	["When a message fails", [["messageTimeoutMilliseconds", "Message timeout", "milliseconds until a message that is not answered is handed out again"], ["maxRetryCount", "Retries", "then a message is parked"], ["retryDelayMilliseconds", "Retry delay", "milliseconds until a message is tried again"],
		["factor", "Backoff factor", "each further delay is so many times as long; empty: as long"], ["longest", "Longest delay", "milliseconds; empty: a minute"]]],
	["Checkpoints", [["checkPointAfterMilliseconds", "Checkpoint after", "milliseconds"], ["minCheckPointCount", "Checkpoint at least after", "messages"], ["maxCheckPointCount", "Checkpoint at most after", "messages"], ["checkpointAtLeastEveryMilliseconds", "Checkpoint at least every", "milliseconds, however few messages; 0: never"]]],
	["Consumers and buffers", [["maxSubscriberCount", "Most consumers", "0: any number"], ["liveBufferSize", "Live buffer", "messages"], ["bufferSize", "Buffer", "messages"], ["readBatchSize", "Read at once", "messages, fewer than the buffer"]]],
];

const ofAll = "Groups of $all are made over gRPC, by a client library. They are changed and looked after here.";

export default function GroupEdit({ stream, group }) {
	const fresh = group === undefined;
	const q = useAnswer((signal) => fromLeader(`/subscriptions/${path(stream, group)}/info`, { signal }), [stream, group], { off: fresh });
	if (fresh) return html`<${Page} title="New subscription" what="A group of consumers that share the events of one stream."><${Form} settings=${{ ...defaults, ...backoffOf(null), ...filterOf(null), source: "" }} /><//>`;
	return html`<${Page} title=${`Edit ${group}`}><${Answer} of=${q}>${(d) => html`<${Form} stream=${stream} group=${group} settings=${{ ...defaults, ...d.config, ...backoffOf(d.config.retryBackoff), ...filterOf(d.config.filter), source: d.config.source ?? "", startFrom: d.config.startPosition ?? String(d.config.startFrom) }} />`}<//><//>`;
}

function Form({ stream: s = "", group: g = "", settings }) {
	const fresh = g === "";
	const [stream, setStream] = useState(s), [group, setGroup] = useState(g), [f, set] = useState(settings), [error, fail] = useState(/** @type {any} */ (null));
	const reads = f.source.trim() || stream;
	const submit = async (e) => {
		e.preventDefault();
		fail(null);
		const here = unmoved(), body = {};
		for (const k of Object.keys(defaults)) body[k] = typeof defaults[k] === "number" ? Number(f[k]) : f[k];
		if (Number(f.factor) > 0) body.retryBackoff = { factor: Number(f.factor), ...(Number(f.longest) > 0 ? { atMostMilliseconds: Number(f.longest) } : {}) };
		if (f.source !== settings.source) body.source = reads;
		if (JSON.stringify(filterFrom(f)) !== JSON.stringify(filterFrom(settings))) body.filter = filterFrom(f);
		if (reads === "$all") (delete body.startFrom, (body.startPosition = String(f.startFrom)));
		else body.startFrom = /^-?[0-9]+$/.test(String(f.startFrom)) ? Number(f.startFrom) : 0;
		try {
			await send(fresh ? "PUT" : "POST", `/subscriptions/${path(stream, group)}`, { body });
			if (here()) go(to(["subscriptions", stream, group]));
		} catch (e) {
			fail(e);
		}
	};
	return html`<form class="wide-form" onSubmit=${submit}><div class="fields"><${Field} label="Stream" value=${stream} set=${setStream} disabled=${!fresh} required /><${Field} label="Group" value=${group} set=${setGroup} disabled=${!fresh} required />
		<${Field} label="Start from" value=${f.startFrom} set=${(v) => set({ ...f, startFrom: v })} hint=${reads === "$all" ? "position; C:-1/P:-1: only what comes from now on" : "event number; -1: only what comes from now on"} />
		<${Field} label="Source" value=${f.source} set=${(v) => set({ ...f, source: v })} hint="another stream, $all or an index stream to read; empty: the group's own stream" /></div>${fresh && stream === "$all" && html`<p class="box" role="status">${ofAll}</p>`}
		<div class="bar"><${Check} label="Resolve links" value=${f.resolveLinktos} set=${(v) => set({ ...f, resolveLinktos: v })} /><${Check} label="Extra statistics" value=${f.extraStatistics} set=${(v) => set({ ...f, extraStatistics: v })} />
		<${Choice} label="Strategy" value=${f.namedConsumerStrategy} of=${["RoundRobin", "DispatchToSingle", "Pinned", "PinnedByCorrelation"]} set=${(v) => set({ ...f, namedConsumerStrategy: v })} /></div>
		${(reads === "$all" || f.of !== "") && html`<h2>Filter</h2><div class="bar"><${Choice} label="Choose events by" value=${f.of} of=${[["", "nothing: all events"], ["stream", "the names of their streams"], ["type", "their types"]]} set=${(v) => set({ ...f, of: v })} /></div>
			${f.of !== "" && html`<div class="fields">${f.regex === "" && html`<${Chips} label="Prefixes" of=${f.prefixes} set=${(v) => set({ ...f, prefixes: v })} hint="one or more; Enter adds one" />`}
				${f.prefixes.length === 0 && html`<${Field} label="Regular expression" value=${f.regex} set=${(v) => set({ ...f, regex: v })} hint="in place of prefixes" />`}</div>`}`}
		${numbers.map(([title, fields]) => html`<h2>${title}</h2><div class="fields">${fields.map(([k, label, hint]) => html`<${Field} label=${label} type="number" step=${k === "factor" ? "any" : undefined} value=${f[k]} set=${(v) => set({ ...f, [k]: v })} hint=${hint} />`)}</div>`)}
		${!fresh && html`<p class="box warn">Saving stops the group for a moment: its consumers connect again.</p>`}
		<div class="buttons"><button class="primary" disabled=${!stream || !group || (fresh && stream === "$all")}>${fresh ? "Create" : "Save"}</button></div>${error && html`<${Failure} error=${error} />`}</form>`;
}
