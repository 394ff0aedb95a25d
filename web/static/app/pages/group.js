// @ts-check
import { html } from "../../vendor/preact.js";
import { command, fromLeader, get, send, useAnswer, atomJSON } from "../api.js";
import { path } from "../lib/address.js";
import { count, plural, rate, span } from "../lib/format.js";
import { Act, Age, Answer, Ask, Copy, Facts, Link, Page, State, StreamLink, Table } from "../parts/basics.js";
import { Icon, icons } from "../parts/icons.js";
import { behindOf, behindText, waitingOf } from "../parts/groups.js";
import { go } from "../router.js";

export default function Group({ stream, group }) {
	const q = useAnswer(async (signal) => {
		const d = await fromLeader(`/subscriptions/${path(stream, group)}/info`, { signal });
		// How far behind in time: the age of the first event that was not yet handled.
		let since = "";
		const behind = waitingOf(d) ?? behindOf(d);
		if (behind > 0 && stream !== "$all") {
			const feed = await get(`/streams/${path(stream)}/${Math.max(0, Number(d.lastKnownEventNumber) + 1 - behind)}/forward/1?embed=rich`, { accept: atomJSON, signal, node: "leader" }).catch(() => null);
			if (feed && feed.entries[0]) since = feed.entries[0].updated;
		}
		return { ...d, since };
	}, [stream, group], { every: 5000 });
	const where = `/subscriptions/${path(stream, group)}`, isPaused = Boolean(q.data?.paused);
	const actions = html`<${Ask} label="Delete subscription" act=${() => send("DELETE", where)} onDone=${() => go("#/subscriptions")}><p>The group <strong>${group}</strong> of <strong class="mono">${stream}</strong> is deleted with its checkpoint: where its consumers were is forgotten, and cannot be found again. The events of the stream are not touched.</p><//><${Copy} label="Copy as curl" data-key="curl" text=${() => command("GET", where + "/info", { node: "leader" })} />${stream !== "$all" && html`<${Link} to=${["subscriptions", stream, group, "edit"]}><${Icon} of=${icons.Pencil} />Edit<//>`}
		<${Act} label=${isPaused ? "Resume" : "Pause"} icon=${isPaused ? icons.Play : icons.Pause} disabled=${!q.data} act=${() => send("POST", `${where}/${isPaused ? "resume" : "pause"}`)} onDone=${q.again} /><${Link} to=${["subscriptions", stream, group, "parked"]}>Parked messages<//>`;
	return html`<${Page} title=${group} lead=${html`<${Age} of=${q} />`} actions=${actions}><${Answer} of=${q}>${(d) => html`
		<${Facts} of=${[["Status", html`<${State} kind=${d.status === "Live" ? "good" : "warn"}>${d.status}<//>${d.paused ? ` by ${d.paused.by}, ${span(Date.now() - new Date(d.paused.at).getTime())} ago` : ""}`], ["Stream", html`<${StreamLink} name=${stream} />`], ["Behind", `${behindText(d, waitingOf(d))}${d.since ? `, the first of them ${span(Date.now() - new Date(d.since).getTime())} old` : ""}`],
			["Parked", html`<${Link} to=${["subscriptions", stream, group, "parked"]}>${plural(d.parkedMessageCount, "message")}<//>`], ["In flight", `${count(d.totalInFlightMessages)}, ${count(d.outstandingMessagesCount)} outstanding`], ["Handed out", `${count(d.totalItemsProcessed)}, ${rate(d.averageItemsPerSecond)} a second`],
			["Buffers", `${count(d.readBufferCount)} read, ${count(d.liveBufferCount)} live, ${count(d.retryBufferCount)} to retry${d.delayedMessages ? `, ${count(d.delayedMessages)} of them later` : ""}`], ["Checkpoint", d.lastCheckpointedEventPosition ?? "none yet"], ["Last known", d.lastKnownEventPosition ?? "none"]]} />
		<h2>Connections</h2>${d.connections.length === 0 ? html`<p class="muted">No consumer holds a connection. Consumers over HTTP are not connected between two requests.</p>` : html`<${Table} name="Connections" heads=${["From", "User", "#In flight", "#Free slots", "#Per second"]}>${d.connections.map((c) => html`<tr><td>${c.from}</td><td>${c.username}</td><td class="num">${count(c.inFlightMessages)}</td><td class="num">${count(c.availableSlots)}</td><td class="num">${rate(c.averageItemsPerSecond)}</td></tr>`)}<//>`}
		<h2>Settings</h2><${Facts} of=${Object.entries(d.config).map(([k, v]) => [words(k), typeof v === "boolean" ? (v ? "yes" : "no") : typeof v === "number" ? count(v) : v && typeof v === "object" ? JSON.stringify(v) : String(v ?? "–")])} />`}<//><//>`;
}

/** words are the words of a name such as messageTimeoutMilliseconds. @param {string} name */
const words = (name) => name.replace(/[A-Z]/g, (c) => " " + c.toLowerCase()).replace(/^./, (c) => c.toUpperCase());
