// @ts-check
import { html, useMemo } from "../../vendor/preact.js";
import { get, useAnswer } from "../api.js";
import { bytes, count, rate, span } from "../lib/format.js";
import { Absent, Age, Answer, Choice, Page, Table } from "../parts/basics.js";
import { Chart } from "../parts/chart.js";
import { useHour } from "../parts/spark.js";
import { Payload } from "../parts/tree.js";
import { patch } from "../router.js";
import { has, info, use, view } from "../store.js";

const ms = (n) => (n === null ? "–" : n > 0 && n < 10 ? `${n.toFixed(n < 1 ? 2 : 1)} ms` : span(n)), percent = (n) => `${n < 10 ? n.toFixed(1) : Math.round(n)} %`;
/** Each chart has a name, its series with what they are called, and how its figures are written. @type {[string, [string, [string, string][], (n: any) => string][]][]} */
const groups = [
	["Writes", [["Appends per second", [["appends", "appendsPerSecond"]], rate], ["Commit time", [["p50", "commitP50Milliseconds"], ["p99", "commitP99Milliseconds"]], ms], ["Appends waiting", [["waiting", "appendsWaiting"]], rate], ["Replication lag", [["of the last node", "replicationLagBytes"]], bytes]]],
	["Events and requests", [["Events per second", [["written", "eventsWrittenPerSecond"], ["read", "eventsReadPerSecond"]], rate], ["Bytes per second", [["written", "bytesWrittenPerSecond"], ["read", "bytesReadPerSecond"]], bytes], ["Requests per second", [["requests", "requestsPerSecond"]], rate], ["Request time", [["mean", "requestMilliseconds"]], ms]]],
	["Machine", [["Processor", [["of this machine", "cpuPercent"]], percent], ["Memory", [["process", "memoryBytes"], ["heap", "heapBytes"]], bytes], ["Connections", [["open", "connections"], ["requests in flight", "requestsUnderWay"]], rate], ["Disk", [["used", "diskUsedBytes"], ["all", "diskTotalBytes"]], bytes], ["Disk writes per second", [["written", "diskBytesWrittenPerSecond"]], bytes], ["Longest flush", [["of late", "syncMilliseconds"]], ms]]],
];
const colours = ["first", "second"];

export default function Statistics({ query }) {
	const v = use(view), node = query.node || "", minutes = Number(query.minutes) || 60;
	use(info);
	const history = useHour(node, !has("statsHistory"));
	const stats = useAnswer((signal) => get("/stats", { signal, node }), [node], { every: 5000 });
	const nodes = v && v.members.length > 1 && has("nodeRelay") ? [["", "this node"], ...v.members.map((m) => [m.instanceId, `${m.httpEndPointIp}:${m.httpEndPointPort}`])] : [];
	return html`<${Page} title="Statistics" what="What a node did of late, every ten seconds." lead=${html`<${Age} of=${history} />`} actions=${html`${nodes.length > 0 && html`<${Choice} label="Node" value=${node} of=${nodes} set=${(n) => patch({ node: n })} />`}<${Choice} label="Last" value=${query.minutes || "60"} of=${[["5", "5 minutes"], ["15", "15 minutes"], ["60", "hour"]]} set=${(m) => patch({ minutes: m === "60" ? "" : m })} />`}>
		${!has("statsHistory") ? html`<${Absent} what="a history of its statistics" />` : html`<${Answer} of=${history}>${(h) => html`<${Charts} key=${node} h=${h} minutes=${minutes} />`}<//>`}
		${!(history.error && stats.error && history.error.status === stats.error.status) && html`<${Answer} of=${stats}>${(s) => html`<h2>Queues</h2><${Table} name="Queues" heads=${["Queue", "#Length", "#Peak", "#Processed", "#Per second", "#Time", "#Idle", "Last"]}>${Object.values((s.es && s.es.queue) || {}).map((q) => html`<tr key=${q.queueName}><td>${q.queueName}</td><td class="num">${count(q.length)}</td><td class="num">${count(q.lengthLifetimePeak)}</td><td class="num">${count(q.totalItemsProcessed)}</td><td class="num">${rate(q.avgItemsPerSecond)}</td><td class="num">${ms(q.avgProcessingTime)}</td><td class="num">${percent(q.idleTimePercent)}</td><td class="name">${q.lastProcessedMessage}</td></tr>`)}<//>
			<h2>Everything</h2><${Payload} name="Snapshot" text=${JSON.stringify(s, (_, x) => (typeof x === "bigint" ? String(x) : x))} bytes="" />`}<//>`}<//>`;
}

function Charts({ h, minutes }) {
	const n = Math.max(0, ...Object.values(h.series).map((s) => s.length)), shown = Math.min(n, Math.round((minutes * 60) / h.step));
	const times = useMemo(() => {
		const from = new Date(h.from).getTime() / 1000 + (n - shown) * h.step;
		return Array.from({ length: shown }, (_, i) => from + i * h.step);
	}, [h, shown]);
	return groups.map(([title, charts]) => html`<section key=${title} aria-label=${title}><h2>${title}</h2><div class="charts">${charts.map(([name, of, format]) => html`<${Chart} key=${name} name=${name} times=${times} format=${format} series=${of.map(([label, k], i) => ({ label, values: (h.series[k] || []).slice(n - shown), colour: colours[i] }))} />`)}</div></section>`);
}
