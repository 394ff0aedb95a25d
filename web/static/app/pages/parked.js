// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { atomJSON, fromLeader, json, send, useAnswer } from "../api.js";
import { path } from "../lib/address.js";
import { plural } from "../lib/format.js";
import { Age, Answer, Ask, Dialog, EventLink, Failure, Field, Link, Page, say, Table } from "../parts/basics.js";
import { Icon, icons } from "../parts/icons.js";
import { When } from "../parts/when.js";
import { Both } from "../parts/events.js";
import { patch } from "../router.js";
import { has } from "../store.js";

const size = 50;

export default function Parked({ stream, group, query }) {
	const desk = has("parkedDesk"), where = `/subscriptions/${path(stream, group)}`;
	const [open, set] = useState(""), [ticked, choose] = useState(/** @type {Set<string>} */ (new Set()));
	const q = useAnswer((signal) => (desk ? fromLeader(`${where}/parked?from=${query.from || 0}&count=${size}&embed=rich`, { signal }) : plain(stream, group, signal)), [stream, group, query.from, desk], { every: 5000 });
	const act = (verb, numbers) => send("POST", `${where}/parked/${verb}?numbers=${numbers.join(",")}`);
	const total = q.data ? q.data.total : 0;
	// Others settle messages as well: what is not shown is not acted upon.
	const chosen = new Set(q.data ? q.data.messages.map((m) => String(m.number)).filter((n) => ticked.has(n)) : []);
	const toggle = (n) => {
		const next = new Set(chosen);
		if (!next.delete(n)) next.add(n);
		choose(next);
	};
	const all = html`${desk && html`<${Forward} label="Forward all" what=${plural(total, "message")} disabled=${total === 0} act=${(to) => forward(where, to, "")} onDone=${q.again} />`}
		<${ReplayAll} total=${total} where=${where} onDone=${q.again} />`;
	return html`<${Page} title="Parked messages" lead=${html`<span>of <${Link} to=${["subscriptions", stream, group]}>${group}<//>, <span class="mono">${stream}</span></span>`} actions=${all}>
		<div class="bar"><${Age} of=${q} />${chosen.size > 0 && html`<${Ask} label=${`Replay ${plural(chosen.size, "message")}`} verb="Replay" danger=${false} act=${() => act("replay", [...chosen])} onDone=${() => (choose(new Set()), q.again())}><p>${plural(chosen.size, "message")} will be handed to the consumers again.</p><//>
			<${Forward} label=${`Forward ${plural(chosen.size, "message")}`} what=${plural(chosen.size, "message")} act=${(to) => forward(where, to, `&numbers=${[...chosen].join(",")}`)} onDone=${() => (choose(new Set()), q.again())} />
			<${Ask} label=${`Drop ${plural(chosen.size, "message")}`} verb="Drop" typed=${chosen.size > 1 ? group : ""} act=${() => act("drop", [...chosen])} onDone=${() => (choose(new Set()), q.again())}><p>${plural(chosen.size, "message")} will never be handed to this group again. The events themselves stay in their stream.</p><//>`}</div>
		<${Answer} of=${q}>${(d) => d.messages.length === 0 ? html`<p class="box good">No message is parked.</p>` : html`<p>${plural(d.total, "message is", "messages are")} parked${d.messages.length < d.total ? `; ${d.messages.length} are shown` : ""}.${!desk ? " This node does not offer to replay or drop single messages." : ""}</p>
			<${Table} name="Parked messages" heads=${["Choose", "Number", "Event", "Parked", "#Attempts", "Reason and note", ""]}>${d.messages.map((m) => {
				const n = String(m.number), shown = open === n;
				return html`<tr key=${n}><td>${desk && html`<input type="checkbox" aria-label=${`Choose ${n}`} checked=${chosen.has(n)} onChange=${() => toggle(n)} />`}</td>
				<td><button type="button" class="plain mono" aria-expanded=${String(shown)} aria-label=${`Look at ${n}`} onClick=${() => set(shown ? "" : n)}><${Icon} of=${shown ? icons.ChevronDown : icons.ChevronRight} />${n}</button></td><td class="name"><${EventLink} stream=${m.streamId} number=${m.eventNumber} /><div class="small">${m.eventType}</div></td><td><${When} at=${m.added} /></td>
				<td class="num">${m.retryCount ?? "–"}</td><td class="name">${m.reason}${m.note && html`<div><strong>${m.note.text}</strong> <span class="muted small">${m.note.by}</span></div>`}</td>
				<td>${desk && html`<span class="row-acts"><${Note} n=${n} where=${where} note=${m.note} onDone=${q.again} />
					<${Ask} label="Replay" name=${`Replay ${n}`} verb="Replay" danger=${false} act=${() => act("replay", [n])} onDone=${q.again}><p>Message ${n} will be handed to the consumers again.</p><//>
					<${UpTo} n=${n} messages=${d.messages} act=${act} onDone=${q.again} />
					<${Ask} label="Drop" name=${`Drop ${n}`} verb="Drop" act=${() => act("drop", [n])} onDone=${q.again}><p>Message ${n} will never be handed to this group again. The event itself stays in its stream.</p><//></span>`}</td></tr>
				${shown && html`<tr key=${n + " open"} class="detail"><td colspan="7">${desk ? html`<${Payload} where=${where} n=${n} />` : html`<${Both} e=${m} />`}</td></tr>`}`;
			})}<//>
			${(query.from || d.next) && html`<div class="bar"><button disabled=${!query.from} onClick=${() => patch({ from: "" })}>First</button><button disabled=${!d.next} onClick=${() => patch({ from: String(d.next) })}>Next</button></div>`}`}<//><//>`;
}

/** ReplayAll hands all messages out again, at once or some a second. */
function ReplayAll({ total, where, onDone }) {
	const [rate, set] = useState("");
	return html`<${Ask} label="Replay all" verb="Replay" danger=${false} cls="primary" icon=${icons.Play} disabled=${total === 0} act=${() => send("POST", `${where}/replayParked${rate ? `?rate=${rate}` : ""}`)} onDone=${onDone}><p>${plural(total, "message")} will be handed to the consumers again${rate ? `, ${rate} a second` : ", all at once"}.</p>
		<${Field} label="Messages a second" type="number" min="1" max="10000" value=${rate} set=${set} hint="empty: all at once" /><//>`;
}

/** forward hands parked messages on, a part after the other, and returns what was forwarded, and what had no event any more. */
async function forward(where, to, numbers) {
	let from = "", forwarded = 0, gone = 0;
	for (;;) {
		const d = await json("POST", `${where}/parked/forward?to=${encodeURIComponent(to)}${numbers}${from}`);
		forwarded += Number(d.forwarded);
		gone += Number(d.gone || 0);
		if (d.next === undefined || d.next === null) return { forwarded, gone };
		from = `&from=${d.next}`;
	}
}

/** Forward asks for the stream that messages are handed on to. */
function Forward({ label, what, act, onDone, disabled = false }) {
	const [to, set] = useState("");
	const done = ({ forwarded, gone }) => (say(`${plural(forwarded, "message was", "messages were")} forwarded to ${to}.${gone ? ` ${plural(gone, "event is", "events are")} gone.` : ""}`, gone > 0), onDone());
	return html`<${Ask} label=${label} verb="Forward" danger=${false} icon=${icons.ArrowRight} disabled=${disabled} act=${() => act(to.trim())} onDone=${done}><p>Copies of ${what} are appended to another stream, each once, with the reason in their metadata. Then this group has them parked no longer.</p>
		<${Field} label="To stream" value=${to} set=${set} required /><//>`;
}

/** Payload is data and metadata of a message, read when it is looked at. */
function Payload({ where, n }) {
	const q = useAnswer((signal) => fromLeader(`${where}/parked?from=${n}&count=1`, { signal }), [n]);
	return html`<${Answer} of=${q}>${({ messages: [m] }) => !m || String(m.number) !== n ? html`<p>It is not parked any more.</p>` : m.data === null ? html`<p>The event is gone from its stream.</p>` : html`<${Both} e=${m} />`}<//>`;
}

/** UpTo replays the messages from the first one of the page to this one. */
function UpTo({ n, messages, act, onDone }) {
	const numbers = messages.slice(0, messages.findIndex((m) => String(m.number) === n) + 1).map((m) => String(m.number));
	if (numbers.length < 2) return null;
	return html`<${Ask} label=${`Up to ${n}`} name=${`Replay up to ${n}`} verb="Replay" danger=${false} act=${() => act("replay", numbers)} onDone=${onDone}><p>${plural(numbers.length, "message")}, those of this page up to ${n}, will be handed to the consumers again.</p><//>`;
}

/** Note is what people leave at a message for others. */
function Note({ n, where, note, onDone }) {
	const [open, set] = useState(false), [text, setText] = useState(""), [error, fail] = useState(/** @type {any} */ (null));
	const save = async (e) => {
		e.preventDefault();
		try {
			await send("POST", `${where}/parked/note?number=${n}`, { body: { text } });
			set(false);
			onDone();
		} catch (e) {
			fail(e);
		}
	};
	return html`<button type="button" aria-label=${`Note for ${n}`} onClick=${() => (setText(note ? note.text : ""), fail(null), set(true))}>Note</button>
		${open && html`<${Dialog} title="Note" onClose=${() => set(false)}><form onSubmit=${save}><${Field} label="Note" area=${4} value=${text} set=${setText} />${error && html`<${Failure} error=${error} />`}<div class="buttons"><button type="button" onClick=${() => set(false)}>Cancel</button><button class="primary">Save</button></div></form><//>`}`;
}

/** plain reads the stream of parked messages, where there is no desk. */
async function plain(stream, group, signal) {
	const info = await fromLeader(`/subscriptions/${path(stream, group)}/info`, { signal });
	if (Number(info.parkedMessageCount) === 0) return { total: 0, messages: [] };
	const feed = await fromLeader(`/streams/${path(`$persistentsubscription-${stream}::${group}-parked`)}/0/forward/${size}?embed=body`, { accept: atomJSON, signal });
	return {
		total: Number(info.parkedMessageCount),
		messages: feed.entries.reverse().map((e) => {
			let why = /** @type {any} */ ({});
			try {
				why = JSON.parse(e.linkMetaData || "{}");
			} catch { /* Then nothing is known. */ }
			return { number: e.positionEventNumber ?? e.title, added: why.added || e.updated, reason: why.reason || "", streamId: e.streamId || "", eventNumber: e.eventNumber ?? "", eventType: e.eventType || e.summary, data: e.data || "", metadata: e.metaData || "" };
		}),
	};
}
