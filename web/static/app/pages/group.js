// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { command, fromLeader, get, send, useAnswer, atomJSON } from "../api.js";
import { path } from "../lib/address.js";
import { count, plural, rate, readTime, span } from "../lib/format.js";
import { Act, Age, Answer, Ask, Choice, Copy, Dialog, Facts, Field, Link, Page, say, State, StreamLink, Table } from "../parts/basics.js";
import { Icon, icons } from "../parts/icons.js";
import { behindOf, behindText, waitingOf } from "../parts/groups.js";
import { When } from "../parts/when.js";
import { go } from "../router.js";
import { use, zone } from "../store.js";

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
	const where = `/subscriptions/${path(stream, group)}`;
	const paused = q.data && q.data.paused;
	const actions = html`<${Ask} label="Delete subscription" act=${() => send("DELETE", where)} onDone=${(_, here) => here && go("#/subscriptions")}><p>The group <strong>${group}</strong> of <strong class="mono">${stream}</strong> is deleted with its checkpoint: where its consumers were is forgotten, and cannot be found again. The events of the stream are not touched.</p><//>
		<${Reset} where=${where} group=${group} onDone=${q.again} /><${Copy} label="Copy as curl" data-key="curl" text=${() => command("GET", where + "/info", { node: "leader" })} /><${Link} to=${["subscriptions", stream, group, "edit"]}><${Icon} of=${icons.Pencil} />Edit<//>
		<${Act} label=${paused ? "Resume" : "Pause"} icon=${paused ? icons.Play : icons.Pause} cls=${paused ? "primary" : ""} disabled=${!q.data} act=${() => send("POST", `${where}/${paused ? "resume" : "pause"}`)} onDone=${q.again} />
		<${Link} to=${["subscriptions", stream, group, "parked"]}>Parked messages<//>`;
	return html`<${Page} title=${group} lead=${html`<${Age} of=${q} />`} actions=${actions}><${Answer} of=${q}>${(d) => html`
		${d.paused && html`<p class="box warn" role="status">Paused by ${d.paused.by}, <${When} at=${d.paused.at} />. The group hands out nothing until it is resumed; consumers stay connected, and can answer what they have.</p>`}
		${d.replaying && html`<p class="box" role="status">${plural(d.replaying.remaining, "parked message is", "parked messages are")} still to be replayed, ${d.replaying.messagesPerSecond} a second.</p>`}
		<${Facts} of=${[["Status", html`<${State} kind=${d.status === "Live" ? "good" : "warn"}>${d.status}<//>`], ["Stream", html`<${StreamLink} name=${stream} />`], ["Behind", `${behindText(d, waitingOf(d))}${d.since ? `, the first of them ${span(Date.now() - new Date(d.since).getTime())} old` : ""}`],
			["Parked", html`<${Link} to=${["subscriptions", stream, group, "parked"]}>${plural(d.parkedMessageCount, "message")}<//>`], ["In flight", `${count(d.totalInFlightMessages)}, ${count(d.outstandingMessagesCount)} outstanding`], ["Handed out", `${count(d.totalItemsProcessed)}, ${rate(d.averageItemsPerSecond)} a second`],
			["Buffers", `${count(d.readBufferCount)} read, ${count(d.liveBufferCount)} live, ${count(d.retryBufferCount)} to retry${d.delayedMessages ? `, ${count(d.delayedMessages)} delayed` : ""}`], ["Checkpoint", d.lastCheckpointedEventPosition ?? "none yet"], ["Last known", d.lastKnownEventPosition ?? "none"]]} />
		<h2>Connections</h2>${d.connections.length === 0 ? html`<p class="muted">No consumer holds a connection. Consumers over HTTP are not connected between two requests.</p>` : html`<${Table} name="Connections" heads=${["From", "User", "#In flight", "#Free slots", "#Per second"]}>${d.connections.map((c) => html`<tr><td>${c.from}</td><td>${c.username}</td><td class="num">${count(c.inFlightMessages)}</td><td class="num">${count(c.availableSlots)}</td><td class="num">${rate(c.averageItemsPerSecond)}</td></tr>`)}<//>`}
		<h2>Settings</h2><${Facts} of=${Object.entries(d.config).map(([k, v]) => [words(k), typeof v === "boolean" ? (v ? "yes" : "no") : typeof v === "number" ? count(v) : v && typeof v === "object" ? Object.entries(v).map(([k, x]) => `${words(k).toLowerCase()} ${x}`).join(", ") : String(v ?? "–")])} />`}<//><//>`;
}

const targets = [["start", "the first event"], ["end", "what comes from now on"], ["at", "a number, position or time"]];

/** Reset moves a group to another place, once it was said what that means. */
function Reset({ where, group, onDone }) {
	const [open, set] = useState(false), [to, choose] = useState("start"), [text, type] = useState(""), [error, fail] = useState(/** @type {any} */ (null));
	const utc = use(zone) === "UTC", t = text.trim(), at = to !== "at" ? to : /^[0-9]+$/.test(t) ? t : readTime(t, utc, new Date()) || t;
	const q = useAnswer((signal) => fromLeader(`${where}/reset?to=${encodeURIComponent(at)}`, { signal }), [at, open], { off: !open || at === "" });
	const submit = async (e) => {
		e.preventDefault();
		fail(null);
		try {
			await send("POST", `${where}/reset?to=${encodeURIComponent(at)}`);
			set(false);
			say("The group was moved.");
			onDone();
		} catch (error) {
			fail(error);
		}
	};
	const known = q.data && !q.loading && !q.error && at !== "";
	return html`<button type="button" class="risky" onClick=${() => set(true)}><${Icon} of=${icons.RotateCcw} />Reset</button>
		${open && html`<${Dialog} title="Reset" onClose=${() => set(false)}><form onSubmit=${submit}><p><strong>${group}</strong> reads on from another place. Messages that consumers hold are let go; parked ones stay parked.</p>
			<${Choice} label="Read on from" value=${to} of=${targets} set=${choose} />${to === "at" && html`<${Field} label="Place" value=${text} set=${type} hint=${`7000000, C:1234/P:1234, Tuesday 14:05 (${utc ? "UTC" : "local time"})`} />`}
			<p role="status">${at === "" ? "" : q.error ? q.error.message : !known ? "Looking…" : html`${more(q.data, q.data.again)} ${Number(q.data.again) === 1 ? "comes" : "come"} again, and ${more(q.data, q.data.leftOut)} ${Number(q.data.leftOut) === 1 ? "is" : "are"} left out: from <span class="mono">${q.data.from}</span> to <span class="mono">${q.data.to}</span>.`}</p>
			${error && html`<div role="alert" class="box bad">${error.message}</div>`}
			<div class="buttons"><button type="button" onClick=${() => set(false)}>Cancel</button><button class="danger" disabled=${!known}>Reset</button></div></form><//>`}`;
}

/** more is a number of events, which may be bounded. */
const more = (d, n) => `${d.atLeast ? "at least " : ""}${plural(n, "event")}`;

/** words are the words of a name such as messageTimeoutMilliseconds. @param {string} name */
const words = (name) => name.replace(/[A-Z]/g, (c) => " " + c.toLowerCase()).replace(/^./, (c) => c.toUpperCase());
