// @ts-check
// What every page is made of: its heading, its states, links, buttons that ask first.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../vendor/preact.js";
import { isAdmin, isOps, user } from "../auth.js";
import { ago, time } from "../lib/format.js";
import { to } from "../lib/address.js";
import { unmoved } from "../router.js";
import { Store, use, view, zone } from "../store.js";
import { Icon, icons } from "./icons.js";

/** Page is the head of a page with what stands below; the focus goes to the heading of a new page. */
export function Page({ children, ...head }) {
	useLayoutEffect(() => scrollTo(0, 0), []);
	return html`<${PageHead} ...${head} />${children}`;
}

/**
 * PageHead is a heading with one line of what the page is, what is known of it now, and one bar of
 * actions: buttons and links alike, the first of which may be primary.
 * @param {{title: string, what?: any, lead?: any, actions?: any}} p
 */
export function PageHead({ title, what, lead, actions }) {
	const h1 = useRef(/** @type {any} */ (null));
	useEffect(() => {
		document.title = `${title} – Annals`;
	}, [title]);
	useLayoutEffect(() => h1.current.focus({ preventScroll: true }), []); // Before it is painted: later it would take the focus from a field that is typed into.
	return html`<div class="head"><div class="title"><h1 ref=${h1} tabindex="-1">${title}</h1><div class="what">${what && html`<span>${what}</span>`}${lead}</div></div><div class="actions">${actions}</div></div>`;
}

/** Facts are labelled values, in as many columns as fit. Those that are null are left out. @param {{of: ([string, any] | null | false)[]}} p */
export const Facts = ({ of }) => html`<dl class="facts grid">${of.map((f) => f && html`<div key=${f[0]}><dt>${f[0]}</dt><dd>${f[1]}</dd></div>`)}</dl>`;

/** Time is an instant with milliseconds in the zone that was chosen. */
export function Time({ at }) {
	const utc = use(zone) === "UTC";
	return at ? html`<time datetime=${at} title=${new Date(at).toISOString()}>${time(at, utc)}</time>` : "–";
}

/** Age says how old what is shown is. */
export function Age({ of }) {
	const [now, tick] = useState(Date.now());
	useEffect(() => {
		const timer = setInterval(() => tick(Date.now()), 1000);
		return () => clearInterval(timer);
	}, []);
	return of.at ? html`<span class="muted small" aria-live="off">${of.error ? "last answer " : "as of "}${ago(of.at, Math.max(now, of.at))}</span>` : null;
}

/** Link leads to another page of ours. */
export function Link({ to: parts, query, children, ...rest }) {
	return html`<a href=${to(parts, query)} ...${rest}>${children}</a>`;
}

export const StreamLink = ({ name, ...rest }) => html`<${Link} to=${["streams", name]} class="mono" ...${rest}>${name}<//>`;
/** EventLink leads to an event; a bare one shows the number alone. */
export const EventLink = ({ stream, number, bare = false, ...rest }) => html`<${Link} to=${["streams", stream, number]} class="mono" aria-label=${bare ? `${number}@${stream}` : undefined} ...${rest}>${bare ? String(number) : `${number}@${stream}`}<//>`;

/** toasts are what was said at the edge of the window: for three seconds, failures until they are closed. */
const toasts = new Store(/** @type {{text: string, bad: boolean}[]} */ ([]));

/** say tells how something went. @param {string} text @param {boolean} [bad] */
export function say(text, bad = false) {
	const one = { text, bad };
	toasts.set([...toasts.value.filter((t) => t.text !== text).slice(-3), one]);
	if (!bad) setTimeout(() => toasts.set(toasts.value.filter((t) => t !== one)), 3000);
}

export function Toasts() {
	const all = use(toasts), close = (t) => toasts.set(toasts.value.filter((x) => x !== t));
	return html`<div class="toasts"><div role="status">${all.map((t) => !t.bad && html`<div key=${t.text} class="toast"><${Icon} of=${icons.Check} />${t.text}</div>`)}</div>
		<div role="alert">${all.map((t) => t.bad && html`<div key=${t.text} class="toast bad">${t.text}<button aria-label="Close" onClick=${() => close(t)}><${Icon} of=${icons.X} /></button></div>`)}</div></div>`;
}

/** Copy puts a text on the clipboard and says so. */
export function Copy({ label, text, ...rest }) {
	const copy = async () => {
		const value = typeof text === "function" ? text() : text;
		try {
			await navigator.clipboard.writeText(value);
		} catch {
			const area = document.createElement("textarea");
			area.value = value;
			document.body.append(area);
			area.select();
			document.execCommand("copy");
			area.remove();
		}
		say("Copied.");
	};
	return html`<button type="button" onClick=${copy} ...${rest}><${Icon} of=${icons.Copy} />${label}</button>`;
}

/** Failure is an error with the server's text, status and address. */
export function Failure({ error, again, needs = "" }) {
	if (error.status === 401 || error.status === 403) return html`<${Forbidden} error=${error} needs=${needs} />`;
	if (error.status === 404 && error.absent) return html`<p>This node does not offer ${error.absent}.</p>`;
	return html`<div class="box bad" role="alert"><p><strong>${error.message}</strong></p>
		${error.method && html`<p class="small muted mono">${error.status ? `${error.status} · ` : ""}${error.method} ${error.url}</p>`}
		<p class="row-acts">${again && html`<button onClick=${again}><${Icon} of=${icons.RotateCcw} />Try again</button>`}${error.command && html`<${Copy} label="Copy as curl" text=${error.command} />`}</p></div>`;
}

/** Forbidden says who somebody is and what is lacking. @param {{error?: any, needs?: string}} p */
export function Forbidden({ error, needs = "" }) {
	const who = use(user);
	return html`<section class="box"><h2>Not allowed</h2>
		<p>${who ? `You are ${who.login}${who.groups.length ? ` of ${who.groups.join(", ")}` : ""}. This needs ${needs || "a right that you do not have"}.` : `You are not signed in.${needs && ` This needs ${needs}.`}`}</p>
		${error && error.said && html`<p class="muted">The node says: ${error.said}</p>`}
		<p><${Link} to=${["signin"]} query=${{ then: location.hash.slice(1) }}>${who ? "Sign in as somebody else" : "Sign in"}<//></p></section>`;
}

/** Answer shows the states of a question, and its content once there is one. */
export function Answer({ of, children, empty, lines = 6, needs = "" }) {
	if (of.data === undefined) {
		if (of.error) return html`<${Failure} error=${of.error} again=${of.again} needs=${needs} />`;
		return html`<div class="loading" aria-busy="true" aria-label="Loading">${Array.from({ length: lines }, (_, i) => html`<div class="bone" key=${i}></div>`)}</div>`;
	}
	return html`<div aria-busy=${of.loading ? "true" : "false"}>${of.error && html`<${Failure} error=${of.error} again=${of.again} needs=${needs} />`}
		${empty && empty(of.data) ? null : children(of.data)}</div>`;
}

/** Code is a text to be copied. */
export const Code = ({ text, name = "Copy" }) => html`<div class="code"><pre class="mono raw" tabindex="0">${text}</pre><${Copy} label="Copy" aria-label=${name} text=${text} /></div>`;

/** Empty says what would fill a place, with a line of curl. @param {{text: any, command?: string, icon?: any}} p */
export function Empty({ text, command, icon = icons.Inbox }) {
	return html`<div class="empty"><${Icon} of=${icon} /><p>${text}</p>${command && html`<${Code} text=${command} />`}</div>`;
}

/** Absent is what a node does not have. */
export const Absent = ({ what }) => html`<p class="box">This node does not offer ${what}.</p>`;

/** NotFound is the page of an address that means nothing. */
export const NotFound = ({ text }) => html`<${Page} title="Not found"><p>${text || "There is nothing at this address."}</p><p><${Link} to=${[]}>Overview<//></p><//>`;

/** Follows is the quiet line of a node that is not the leader. */
export function Follows() {
	const v = use(view);
	if (!v || !v.role || v.role === "leader" || !v.leader) return null;
	return html`<p class="muted small">This node follows ${v.leader}.</p>`;
}

/** Dialog is over the page; the focus goes back to what opened it. */
export function Dialog({ title, onClose, children, wide = false }) {
	const d = useRef(/** @type {any} */ (null));
	useEffect(() => {
		const opener = /** @type {any} */ (document.activeElement), dialog = d.current;
		dialog.showModal();
		return () => {
			dialog.close();
			if (opener && opener.isConnected) opener.focus();
		};
	}, []);
	return html`<dialog ref=${d} aria-label=${title} class=${wide ? "wide" : ""} onCancel=${(e) => (e.preventDefault(), onClose())}><h2>${title}</h2>${children}</dialog>`;
}

/**
 * Ask is a button that opens a dialog of its name, with a button of that name or verb.
 * With typed that text must be typed first.
 */
export function Ask({ label, verb, name, children, typed, act, onDone, danger = true, disabled = false, cls = danger ? "risky" : "", icon }) {
	const [open, set] = useState(false);
	return html`<button type="button" class=${cls} disabled=${disabled} aria-label=${name} onClick=${() => set(true)}>${icon && html`<${Icon} of=${icon} />`}${label}</button>
		${open && html`<${Confirm} title=${name || label} verb=${verb || label} typed=${typed} act=${act} danger=${danger} onClose=${() => set(false)} onDone=${onDone}>${children}<//>`}`;
}

/** Confirm is the dialog of an act that destroys. What follows it is told whether the page was not left meanwhile. */
export function Confirm({ title, verb, typed, act, danger = true, onClose, onDone, children }) {
	const [text, set] = useState(""), [error, fail] = useState(/** @type {any} */ (null)), [busy, work] = useState(false);
	const run = async (e) => {
		e.preventDefault();
		work(true);
		fail(null);
		const here = unmoved();
		try {
			const result = await act(e.target);
			onClose();
			if (onDone) onDone(result, here());
		} catch (e) {
			fail(e);
			work(false);
		}
	};
	return html`<${Dialog} title=${title} onClose=${onClose}><form onSubmit=${run}>${children}
		${typed && html`<label class="field"><span>Type <strong class="mono">${typed}</strong> to go on</span><input value=${text} onInput=${(e) => set(e.target.value)} autocomplete="off" /></label>`}
		${error && html`<div role="alert" class="box bad">${error.message}</div>`}
		<div class="buttons"><button type="button" onClick=${onClose}>Cancel</button><button class=${danger ? "danger" : "primary"} disabled=${busy || (typed && text !== typed)}>${verb}</button></div></form><//>`;
}

/** Act is a button that does something and says how it went. */
export function Act({ label, name, act, onDone, disabled = false, cls = "", said = "", icon, ...rest }) {
	const [busy, work] = useState(false);
	const run = async () => {
		work(true);
		try {
			const r = await act();
			if (said) say(said);
			if (onDone) onDone(r);
		} catch (error) {
			say(error.message, true);
		}
		work(false);
	};
	return html`<button type="button" class=${cls} aria-label=${name} disabled=${disabled || busy} onClick=${run} ...${rest}>${icon && html`<${Icon} of=${icon} />`}${label}</button>`;
}

/** Field is a labelled input. */
export function Field({ label, value, set, hint, type = "text", area = 0, error, ...rest }) {
	const id = "f-" + label.replace(/[^a-z0-9]/gi, "-");
	const more = { id, value, onInput: (e) => set(e.target.value), "aria-describedby": hint || error ? id + "-h" : undefined, "aria-invalid": error ? "true" : undefined, spellcheck: false, autocomplete: "off", ...rest };
	return html`<div class="field"><label for=${id}>${label}</label>${area ? html`<textarea rows=${area} class="mono" ...${more}></textarea>` : html`<input type=${type} ...${more} />`}
		${(error || hint) && html`<span id=${id + "-h"} class=${error ? "badtext small" : "muted small"}>${error || hint}</span>`}</div>`;
}

/** Chips are a labelled list of names: Enter adds what was typed, and each name can be taken out. */
export function Chips({ label, of, set, hint }) {
	const [text, type] = useState("");
	const add = () => {
		const name = text.trim();
		type("");
		if (name !== "" && !of.includes(name)) set([...of, name]);
	};
	const keys = (e) => {
		if (e.key === "Enter" && text.trim() !== "") (e.preventDefault(), add());
	};
	return html`<div class="chips"><${Field} label=${label} value=${text} set=${type} hint=${hint} onKeyDown=${keys} onBlur=${add} />
		${of.map((name) => html`<span key=${name} class="chip mono">${name}<button type="button" aria-label=${`Remove ${name}`} onClick=${() => set(of.filter((x) => x !== name))}>×</button></span>`)}</div>`;
}

/** Check is a labelled checkbox. */
export const Check = ({ label, value, set, ...rest }) => html`<label class="check"><input type="checkbox" checked=${value} onChange=${(e) => set(e.target.checked)} ...${rest} />${label}</label>`;

/** Choice is a labelled list of choices: texts, or pairs of value and text. */
export function Choice({ label, value, set, of }) {
	return html`<label class="choice">${label}<select value=${value} onChange=${(e) => set(e.target.value)}>${of.map((o) => {
		const [v, text] = Array.isArray(o) ? o : [o, o];
		return html`<option value=${v} selected=${String(v) === String(value)}>${text}</option>`;
	})}</select></label>`;
}

/** Tabs are a list of tabs; the arrow keys go from one to the next. */
export function Tabs({ label, of, value, set }) {
	const keys = (e) => {
		const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
		if (!step) return;
		const next = of[(of.indexOf(value) + step + of.length) % of.length];
		set(next);
		e.currentTarget.querySelectorAll("[role=tab]")[of.indexOf(next)].focus();
		e.preventDefault();
	};
	return html`<div role="tablist" aria-label=${label} class="tabs" onKeyDown=${keys}>${of.map((t) => html`<button type="button" role="tab" aria-selected=${t === value ? "true" : "false"} tabindex=${t === value ? 0 : -1} onClick=${() => set(t)}>${t}</button>`)}</div>`;
}

/** State is a word with the colour of what it means. */
export const State = ({ kind, children }) => html`<span class=${"state " + kind}>${children}</span>`;

/** useWidth is a ref for an element, and how wide that is: 0 before it is known. @returns {[any, number]} */
export function useWidth() {
	const box = useRef(/** @type {any} */ (null)), [width, set] = useState(0);
	useEffect(() => {
		const place = box.current, look = new ResizeObserver(() => set(Math.floor(place.clientWidth)));
		look.observe(place);
		return () => look.disconnect();
	}, []);
	return [box, width];
}

const phone = matchMedia("(max-width: 640px)");

/**
 * Table is a table with a caption that screen readers hear. A heading that begins with # is of a column of numbers. The
 * head stays in sight; a table that is wider than its place is moved sideways. On a telephone each row is a card.
 */
export function Table({ name, heads, children, cls = "" }) {
	const box = useRef(/** @type {any} */ (null)), [wide, set] = useState(false), [narrow, turn] = useState(phone.matches);
	useEffect(() => {
		const place = box.current, table = place.firstChild, change = () => turn(phone.matches);
		const look = new ResizeObserver(() => set(table.offsetWidth > place.clientWidth + 1));
		look.observe(place);
		look.observe(table);
		phone.addEventListener("change", change);
		return () => (look.disconnect(), phone.removeEventListener("change", change));
	}, []);
	useLayoutEffect(() => {
		if (narrow) for (const row of box.current.querySelectorAll("tbody > tr")) [...row.cells].forEach((c, i) => c.colSpan > 1 || !heads[i] || (c.dataset.label = heads[i].replace(/^#/, "")));
	});
	return html`<div class=${"scroll" + (wide && !narrow ? " wide" : "")} ref=${box} tabindex=${wide && !narrow ? "0" : undefined} role=${wide && !narrow ? "group" : undefined} aria-label=${wide && !narrow ? name + ", may be scrolled" : undefined}><table aria-label=${name} class=${cls}><thead><tr>${heads.map((h) => h.startsWith("#") ? html`<th scope="col" class="num">${h.slice(1)}</th>` : html`<th scope="col">${h || html`<span class="sr">Actions</span>`}</th>`)}</tr></thead><tbody>${children}</tbody></table></div>`;
}

/** allowed tells whether somebody has a role, as far as is known. @param {"ops" | "admin"} role */
export function allowed(role) {
	return role === "admin" ? isAdmin() : isOps();
}
