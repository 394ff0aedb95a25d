// @ts-check
import { html, useEffect, useState } from "../../vendor/preact.js";
import { send, useAnswer } from "../api.js";
import { isAdmin, user } from "../auth.js";
import { path } from "../lib/address.js";
import { check, pretty, read } from "../lib/json.js";
import { newest } from "../live.js";
import { Answer, Failure, Field, Page, StreamLink, Table, Tabs, Time } from "../parts/basics.js";
import { Payload } from "../parts/tree.js";
import { fromEntry } from "../parts/events.js";

const rights = [["Read", "$r", "read its events"], ["Write", "$w", "append events"], ["Delete", "$d", "delete the stream"], ["Read metadata", "$mr", "see this page"], ["Write metadata", "$mw", "change this page"]];
const limits = [["Keep at most", "$maxCount", "events; the oldest go first"], ["Keep seconds", "$maxAge", "an older event is hidden"], ["Hide before", "$tb", "this event number; all below are hidden"]];

export default function Limits({ stream }) {
	const q = useAnswer(async () => ({ events: (await newest(`/streams/${path("$$" + stream)}`, 50, { node: "leader" })).map(fromEntry) }), [stream]);
	const [result, tell] = useState(/** @type {any} */ (null));
	useEffect(() => tell(null), [stream]);
	return html`<${Page} title="Access and limits" what="Who may do what with the stream, and how long its events stay." lead=${html`<span>of <${StreamLink} name=${stream} /></span>`}><${Answer} of=${q}>${(d) => html`<${Form} key=${d.events[0] ? String(d.events[0].at) : "none"} stream=${stream} events=${d.events} onSaved=${q.again} result=${result} tell=${tell} />`}<//><//>`;
}

/** roles are what an access list names, as text. */
const roles = (v) => (v === undefined || v === null ? "" : Array.isArray(v) ? v.join(", ") : String(v));

/** Form is of the newest version: when it was saved the next one takes its place, and the result stays. */
function Form({ stream, events, onSaved, result, tell }) {
	const raw = events[0] ? events[0].data : "{}";
	const [text, setText] = useState(pretty(raw)), [tab, setTab] = useState("Fields"), [busy, work] = useState(false);
	const wrong = check(text);
	let doc = /** @type {any} */ ({});
	if (!wrong) {
		const d = read(text);
		if (d && typeof d === "object" && !Array.isArray(d)) doc = d;
	}
	const acl = doc.$acl && typeof doc.$acl === "object" ? doc.$acl : {};
	const put = (change) => {
		change();
		tell(null);
		setText(JSON.stringify(doc, (_, v) => (typeof v === "bigint" ? JSON.rawJSON ? /** @type {any} */ (JSON).rawJSON(String(v)) : Number(v) : v), 2));
	};
	const setRight = (name, v) => put(() => {
		const list = v.split(",").map((r) => r.trim());
		const next = { ...acl };
		if (v.trim() === "") delete next[name];
		else next[name] = list.length === 1 ? list[0] : list;
		if (Object.keys(next).length === 0) delete doc.$acl;
		else doc.$acl = next;
	});
	const setLimit = (name, v) => put(() => {
		if (v.trim() === "") delete doc[name];
		else doc[name] = /^[0-9]{1,15}$/.test(v.trim()) ? Number(v) : /^[0-9]+$/.test(v.trim()) ? BigInt(v.trim()) : v;
	});
	const locked = !isAdmin() && user.value && acl.$mw !== undefined && !listed(acl.$mw, user.value);
	const badLimit = limits.some(([, k]) => doc[k] !== undefined && typeof doc[k] !== "number" && typeof doc[k] !== "bigint");
	const save = async (e) => {
		e.preventDefault();
		work(true);
		tell(null);
		try {
			await send("POST", `/streams/${path(stream)}/metadata`, { body: text, headers: { "ES-EventType": "$metadata", "ES-ExpectedVersion": events[0] ? String(events[0].at) : "-1" } });
			tell({ saved: true });
			setTimeout(onSaved, 300);
		} catch (error) {
			tell({ error });
		}
		work(false);
	};
	return html`<form class="wide-form" onSubmit=${save}><${Tabs} label="Form" of=${["Fields", "JSON"]} value=${tab} set=${setTab} />
		${tab === "JSON" ? html`<${Field} label="Metadata" area=${16} value=${text} set=${(v) => (tell(null), setText(v))} error=${wrong} hint="What this page does not know is kept as it is." />` : html`
		<h2>Who may do what</h2><p class="muted small">Roles or logins, comma-separated. $all is everybody, $admins are administrators. Empty: as $settings says.</p>
		<div class="fields">${rights.map(([label, k, what]) => html`<${Field} label=${label} value=${roles(acl[k])} set=${(v) => setRight(k, v)} hint=${effect(acl[k], what)} />`)}</div>
		<h2>What is kept</h2><div class="fields">${limits.map(([label, k, what]) => html`<${Field} label=${label} inputmode="numeric" value=${doc[k] === undefined ? "" : String(doc[k])} set=${(v) => setLimit(k, v)} hint=${what} error=${doc[k] !== undefined && typeof doc[k] !== "number" && typeof doc[k] !== "bigint" ? "A whole number." : ""} />`)}</div>`}
		${locked && html`<p class="box warn" role="alert">With this you lock yourself out: ${user.value?.login} could not change this page again.</p>`}
		<div class="buttons"><button class="primary" disabled=${busy || wrong !== "" || badLimit}>Save</button></div>
		<div role="status">${result && result.saved && html`<p class="box good">Saved.</p>`}</div>${result && result.error && html`<${Failure} error=${result.error} />`}</form>
		<h2>History</h2>${events.length === 0 ? html`<p class="muted">Nothing was ever set: the rights are those of $settings, and everything is kept.</p>` : html`<${History} events=${events} />`}`;
}

/** listed reports whether somebody is in an access list. */
function listed(v, u) {
	const list = Array.isArray(v) ? v : [v];
	return list.includes("$all") || list.includes(u.login) || u.groups.some((g) => list.includes(g));
}

/** effect says what a right means in words. */
function effect(v, what) {
	if (v === undefined) return `As $settings says who may ${what}.`;
	const list = Array.isArray(v) ? v : [v];
	if (list.includes("$all")) return `Everybody may ${what}.`;
	const others = list.filter((r) => r !== "$admins" && r !== "");
	return others.length === 0 ? `Administrators alone may ${what}.` : `${others.join(", ")} and administrators may ${what}.`;
}

function History({ events }) {
	const [open, set] = useState("");
	useEffect(() => set(""), [events]);
	return html`<${Table} name="History" heads=${["Version", "Time", ""]}>${events.map((e) => html`<tr key=${String(e.at)}><td><button type="button" class="plain" aria-expanded=${String(open === String(e.at))} onClick=${() => set(open === String(e.at) ? "" : String(e.at))}>${open === String(e.at) ? "▾" : "▸"} ${String(e.at)}</button></td><td><${Time} at=${e.time} /></td><td>${open === String(e.at) && html`<${Payload} name="Data" text=${e.data || ""} />`}</td></tr>`)}<//>`;
}
