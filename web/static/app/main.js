// @ts-check
// The frame: what is around every page.
import { html, render, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, Problem, root, useAnswer } from "./api.js";
import { asked, basic, guest, signOut, touch, user } from "./auth.js";
import { eventName, to } from "./lib/address.js";
import { isGuid } from "./lib/format.js";
import { Dialog, Link, NotFound, Toasts } from "./parts/basics.js";
import { Icon, icons, Mark } from "./parts/icons.js";
import { SignInForm } from "./parts/signin.js";
import { address, find, go, start } from "./router.js";
import { info, theme, trouble, use, view, visited, zone } from "./store.js";

const groups = [
	["Data", [["Overview", [], icons.Home], ["Streams", ["streams"], icons.Layers], ["Search", ["search"], icons.Search], ["Subscriptions", ["subscriptions"], icons.Inbox], ["Projections", ["projections"], icons.Workflow], ["Query", ["query"], icons.SquareTerminal]]],
	["Cluster", [["Cluster", ["cluster"], icons.Network], ["Statistics", ["stats"], icons.ChartColumn], ["Options", ["options"], icons.SlidersHorizontal]]],
	["Care", [["Scavenge", ["scavenge"], icons.Eraser], ["Backup", ["backup"], icons.Archive], ["Activity", ["activity"], icons.History]]],
	["Access", [["Users", ["users"], icons.Users]]],
];

/** inEach are the addresses of the keys after g. @type {Record<string, string[]>} */
const leads = { o: [], s: ["streams"], f: ["search"], u: ["subscriptions"], p: ["projections"], m: ["cluster"], c: ["scavenge"], a: ["activity"] };

const shortcuts = [
	["/", "Search box"], ["?", "This list"], ["g then o s f u p c m a", "Overview, Streams, Search, Subscriptions, Projections, Scavenge, Cluster, Activity"],
	["j k", "Next and previous row"], ["Enter", "Open the row"], ["[ ]", "Older and newer page"], ["n e", "Newest and oldest page"], ["l", "Live"], ["c", "Copy as curl"], ["Esc", "Close, or leave a field"],
];

function App() {
	const [keysOpen, showKeys] = useState(false), [menu, openMenu] = useState(false);
	const who = use(user), looking = use(guest), about = use(info), at = use(address), want = use(asked);
	usePresence();
	useKeys(() => showKeys(true));
	const insecure = about && about.authentication.type === "insecure";
	const open = insecure || who || looking;
	const found = find(at.parts);
	useEffect(() => openMenu(false), [at]);
	useEffect(() => {
		if (!open && about && !(found && found.form === "signin")) go(to(["signin"], { then: location.hash.slice(1) }), true);
	}, [open, about, at]);
	if (!about) return html`<${Waiting} />`;
	if (!open || (found && found.form === "signin")) return html`<main id="main" class="gate"><${Content} found=${open || (found && found.form === "signin") ? found : null} at=${at} /></main>`;
	return html`<a class="skip" href="#main" onClick=${(e) => (e.preventDefault(), document.querySelector("h1")?.focus())}>To the content</a>
	<div class="frame"><${Side} at=${at} open=${menu} close=${() => openMenu(false)} /><div class="work">
		<${Head} insecure=${insecure} menu=${menu} openMenu=${openMenu} help=${() => showKeys(true)} />
		<main id="main"><${Weak} /><${Content} found=${found} at=${at} key=${at.parts.join("/")} /></main></div></div><${Toasts} />
	${keysOpen && html`<${Dialog} title="Keyboard shortcuts" onClose=${() => showKeys(false)}><dl class="keys">${shortcuts.map(([k, what]) => html`<dt>${k.split(" ").map((x) => (x === "then" ? " then " : html`<kbd>${x}</kbd> `))}</dt><dd>${what}</dd>`)}</dl><div class="buttons"><button onClick=${() => showKeys(false)}>Close</button></div><//>`}
	${want && html`<${Dialog} title="Sign in again" onClose=${() => want.done(false)}><p>The credentials of this tab are no longer right.</p><${SignInForm} onDone=${() => want.done(true)} /><div class="buttons"><button onClick=${() => want.done(false)}>Cancel</button></div><//>`}`;
}

/** Side is the navigation. In a narrow window it is behind a button, and over the page while it is open. */
function Side({ at, open, close }) {
	const about = use(info), nav = useRef(/** @type {any} */ (null));
	useEffect(() => {
		if (open) nav.current.querySelector("a").focus();
	}, [open]);
	const keys = (e) => {
		if (e.key !== "Escape" || !open) return;
		close();
		document.getElementById("menu")?.focus();
	};
	return html`${open && html`<div class="veil" onClick=${close}></div>`}<nav id="side" class=${"side" + (open ? " open" : "")} aria-label="Main" ref=${nav} onKeyDown=${keys}>
		<${Link} to=${[]} class="brand"><${Mark} /><span>${about.ui.title || "Annals"}</span><//>
		${groups.map(([name, links]) => html`<div class="group" key=${name}><div aria-hidden="true">${name}</div><ul>${links.map(([text, parts, icon]) => html`<li key=${text}><${Link} to=${parts} onClick=${close} aria-current=${(at.parts[0] || "") === (parts[0] || "") ? "page" : undefined}><${Icon} of=${icon} />${text}<//></li>`)}</ul></div>`)}
		<div class="foot small muted">Annals ${about.version}</div></nav>`;
}

/** Content is the page of an address, loaded when first opened. */
function Content({ found, at }) {
	const [page, set] = useState(/** @type {any} */ (null)), [error, fail] = useState(/** @type {any} */ (null));
	const load = found ? found.load : null;
	useEffect(() => {
		let live = true;
		set(null);
		fail(null);
		if (load) load().then((m) => live && set(() => m.default), (e) => live && fail(e));
		return () => void (live = false);
	}, [load]);
	if (!found) return html`<${NotFound} />`;
	if (error) return html`<div class="box" role="alert"><p>This page cannot be loaded. The node may have another version by now.</p><button onClick=${() => location.reload()}>Reload</button></div>`;
	if (!page) return html`<div aria-busy="true" class="loading"><div class="bone"></div></div>`;
	const View = page;
	return html`<${View} ...${found.args} query=${at.query} />`;
}

/** usePresence keeps /info and /gossip up to date. */
function usePresence() {
	const about = useAnswer((signal) => get("/info", { signal }), [], { every: 30000 });
	const gossip = useAnswer((signal) => get("/gossip", { signal, silent: true }).catch((e) => (e instanceof Problem && e.status !== 0 ? null : Promise.reject(e))), [use(user)], { every: 5000 });
	useEffect(() => {
		if (about.data) info.set(about.data);
	}, [about.data]);
	useEffect(() => {
		if (gossip.data === undefined) return;
		const members = (gossip.data && gossip.data.members) || [];
		const name = (m) => `${m.httpEndPointIp}:${m.httpEndPointPort}`;
		const leader = members.find((m) => m.state === "Leader" && m.isAlive);
		const own = location.host;
		const me = members.length === 1 ? members[0] : members.find((m) => name(m) === own) || null;
		view.set({ members, leader: leader ? name(leader) : "", me, role: me ? me.state.toLowerCase() : (about.data && about.data.state) || "", known: gossip.data !== null });
	}, [gossip.data, about.data]);
}

/** Waiting is what is seen before the node has answered. */
function Waiting() {
	const [late, wait] = useState(false);
	useEffect(() => {
		const timer = setTimeout(() => wait(true), 300); // A node that is ready has answered by then.
		return () => clearTimeout(timer);
	}, []);
	const startup = useAnswer(async (signal) => {
		const r = await fetch(new URL("health/startup", root), { signal, cache: "no-store" });
		return (await r.text()) || (r.ok ? "" : r.statusText);
	}, [], { every: 1000, off: !late });
	return html`<main id="main" class="gate"><div class="card"><div class="brand"><${Mark} /></div><h1 tabindex="-1">Annals</h1><p role="status">${startup.error ? "This node cannot be reached. Trying again." : startup.data ? `The node is starting: ${startup.data}` : "Loading"}</p></div></main>`;
}

/** Head is what stands above every page, with bands for what must not be overlooked. Its height is known to what stays in sight below it. */
function Head({ insecure, menu, openMenu, help }) {
	const box = useRef(/** @type {any} */ (null));
	useEffect(() => {
		const head = box.current, look = new ResizeObserver(() => document.documentElement.style.setProperty("--head", (getComputedStyle(head).position === "sticky" ? head.offsetHeight : 0) + "px"));
		look.observe(head);
		return () => look.disconnect();
	}, []);
	return html`<header ref=${box}><${Bands} insecure=${insecure} /><div class="top"><button id="menu" class="square only-narrow" aria-label="Menu" aria-controls="side" aria-expanded=${String(menu)} onClick=${() => openMenu(!menu)}><${Icon} of=${icons.Menu} /></button><${Top} insecure=${insecure} help=${help} /></div></header>`;
}

function Bands({ insecure }) {
	const about = use(info), v = use(view), t = use(trouble);
	const noLeader = v && v.known && v.members.length > 0 && !v.leader;
	return html`${about.ui.tone !== "None" && html`<div class=${"band " + about.ui.tone.toLowerCase()}>${about.ui.title ? about.ui.title + " · " : ""}${about.ui.tone}</div>`}
		${insecure && html`<div class="band production">Insecure: there is no sign-in and no TLS.</div>`}
		<div role="status">${t && html`<div class="band bad">${t} Trying again.</div>`}${noLeader && html`<div class="band bad">The cluster has no leader: nothing is written until it has one.</div>`}</div>`;
}

const weakKey = "annals.weak";

/** Weak is said to who has the default password, until this tab was told that it was read. */
function Weak() {
	const who = use(user), [read, set] = useState(sessionStorage.getItem(weakKey) || "");
	if (!who || (who.login !== "admin" && who.login !== "ops") || who.basic !== basic(who.login, "changeit") || read === who.login) return null;
	return html`<div class="notice"><${Icon} of=${icons.TriangleAlert} /><span>${who.login} has the default password. <${Link} to=${["account"]}>Change it<//></span><button class="plain" aria-label="Dismiss" onClick=${() => (sessionStorage.setItem(weakKey, who.login), set(who.login))}><${Icon} of=${icons.X} /></button></div>`;
}

function Top({ insecure, help }) {
	const v = use(view), about = use(info), z = use(zone), th = use(theme), who = use(user), role = (v && v.role) || about.state;
	return html`<${SearchBox} /><span class="node small"><span class=${"dot " + (role === "leader" || role === "follower" ? "good" : "warn")}></span><span><span class="address">${v && v.me ? `${v.me.httpEndPointIp}:${v.me.httpEndPointPort}` : location.host} · </span><strong>${role}</strong></span></span>
		<span class="over"><span>${z}</span><button aria-label="Time zone" title=${z === "UTC" ? "Times are in UTC. Press for local time." : "Times are local. Press for UTC."} onClick=${() => zone.set(z === "UTC" ? "Local" : "UTC")}></button></span>
		<${Menu} name="Theme" text=${html`<${Icon} of=${{ System: icons.SunMoon, Light: icons.Sun, Dark: icons.Moon }[th]} />`} does=${`The theme is ${th}. Opens the list of themes.`} radio=${th} of=${["System", "Light", "Dark"].map((t) => [t, () => theme.set(t)])} />
		<button class="square" aria-label="Keyboard shortcuts" title="Keyboard shortcuts ( ? )" aria-haspopup="dialog" onClick=${help}>?</button>
		<${Menu} name="Account" does="Opens the list of what to do with this account." text=${html`<${Icon} of=${icons.CircleUser} /><span class="login">${insecure ? "nobody" : who ? who.login : "not signed in"}</span>`} of=${who ? [["Account", () => go(to(["account"]))], ["Sign out", () => (signOut(), go(to(["signin"])))]] : insecure ? [["Account", () => go(to(["account"]))]] : [["Sign in", () => go(to(["signin"], { then: location.hash.slice(1) }))]]} />`;
}

/** Menu is a button with a menu below. Its text lies under the button, which has a name of its own. */
function Menu({ name, text, does, of, radio }) {
	const [open, set] = useState(false), box = useRef(/** @type {any} */ (null));
	useEffect(() => {
		if (!open) return;
		box.current.querySelector("[role^=menuitem]").focus();
		const away = (e) => box.current && !box.current.contains(e.target) && set(false);
		document.addEventListener("click", away);
		return () => document.removeEventListener("click", away);
	}, [open]);
	const keys = (e) => {
		if (!open) return;
		const items = [...box.current.querySelectorAll("[role^=menuitem]")], i = items.indexOf(document.activeElement);
		if (e.key === "ArrowDown") items[(i + 1) % items.length].focus();
		else if (e.key === "ArrowUp") items[(i + items.length - 1) % items.length].focus();
		else if (e.key === "Escape") (set(false), box.current.querySelector("button").focus());
		else if (e.key === "Tab") return set(false);
		else return;
		e.preventDefault();
		e.stopPropagation();
	};
	return html`<div class="menu" ref=${box} onKeyDown=${keys}><span class="over"><span>${text}</span><button aria-label=${name} title=${does} aria-haspopup="menu" aria-expanded=${String(open)} onClick=${() => set(!open)}></button></span>
		${open && html`<div role="menu" aria-label=${name}>${of.map(([t, act]) => html`<button role=${radio ? "menuitemradio" : "menuitem"} aria-checked=${radio ? String(radio === t) : undefined} tabindex="-1" onClick=${() => (set(false), act(), radio && box.current.querySelector("button").focus())}>${radio && html`<${Icon} of=${radio === t ? icons.Check : []} />`}${t}</button>`)}</div>`}</div>`;
}

/** SearchBox leads to a stream, to an event or to a search. */
function SearchBox() {
	const [text, set] = useState("");
	const names = useAnswer(async (signal) => {
		const own = visited().filter((s) => s.startsWith(text));
		if (!info.value.features.streamNames) return own;
		const d = await get(`/streams/$all/names?count=10&prefix=${encodeURIComponent(text)}`, { signal, silent: true }).catch(() => null);
		return [...new Set([...own, ...((d && d.streams) || []).map((s) => s.name)])];
	}, [text], { off: text === "" });
	const submit = (e) => {
		e.preventDefault();
		const t = text.trim(), ev = eventName(t);
		if (t === "") return;
		set("");
		document.activeElement && /** @type {any} */ (document.activeElement).blur();
		go(ev ? to(["streams", ev.stream, ev.number]) : isGuid(t) ? to(["search"], { id: t, run: 1 }) : to(["streams", t]));
	};
	const found = text === "" ? [] : (names.data || []).slice(0, 10);
	return html`<form role="search" onSubmit=${submit} onKeyDown=${(e) => e.key === "Escape" && set("")}><${Icon} of=${icons.Search} /><input id="search" type="search" aria-label="Go to stream or event" placeholder="Stream, n@stream or id  ( / )" value=${text} onInput=${(e) => set(e.target.value)} autocomplete="off" spellcheck=${false} />
		${found.length > 0 && html`<ul class="suggestions" aria-label="Streams that begin so">${found.map((n) => html`<li key=${n}><${Link} to=${["streams", n]} class="mono" onClick=${() => set("")}>${n}<//></li>`)}</ul>`}</form>`;
}

/** useKeys are the keys that work on every page; pages hear of theirs by events. */
function useKeys(help) {
	useEffect(() => {
		let after = "";
		const press = (e) => {
			touch();
			const t = e.target;
			const typing = t.closest("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable], .cm-editor") || t.shadowRoot;
			if (e.key === "Escape" && typing && !document.querySelector("dialog[open]")) return t.blur();
			if (typing || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
			const was = after;
			after = "";
			if (was === "g" && leads[e.key]) return go(to(leads[e.key]));
			switch (e.key) {
				case "g": return void (after = "g");
				case "/": return e.preventDefault(), document.getElementById("search")?.focus();
				case "?": return help();
				case "j": case "k": return row(e.key === "j" ? 1 : -1);
			}
			const act = { "[": "older", "]": "newer", n: "newest", e: "oldest", l: "live", c: "curl" }[e.key];
			if (act) /** @type {any} */ (document.querySelector(`main [data-key=${act}]:not([disabled])`))?.click();
		};
		const click = () => touch();
		document.addEventListener("keydown", press);
		document.addEventListener("click", click);
		return () => (document.removeEventListener("keydown", press), document.removeEventListener("click", click));
	}, []);
}

/** row moves the focus among the rows of the page. @param {number} by */
function row(by) {
	const rows = [...document.querySelectorAll("main .needs li, main tbody tr:not(.detail)")].filter((r) => !r.closest(".detail") && r.querySelector("button, a"));
	const all = rows.map((r) => /** @type {any} */ (r.querySelector("button, a")));
	const i = rows.findIndex((r) => r.contains(document.activeElement) || (r.nextElementSibling?.matches(".detail") && r.nextElementSibling.contains(document.activeElement)));
	const next = all[i < 0 ? (by > 0 ? 0 : all.length - 1) : i + by];
	if (next) next.focus();
}

function paint() {
	const dark = theme.value === "Dark" || (theme.value === "System" && matchMedia("(prefers-color-scheme: dark)").matches);
	document.documentElement.dataset.theme = dark ? "dark" : "light";
}
theme.watchers.add(paint);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
paint();
start();
render(html`<${App} />`, /** @type {Element} */ (document.getElementById("app")));
