// @ts-check
// A JSON value as a tree that can be folded, searched and walked with the keyboard.
import { html, useMemo, useRef, useState } from "../../vendor/preact.js";
import { JSONError, parse, print, short } from "../lib/json.js";
import { pathText } from "../lib/preview.js";
import { Copy } from "./basics.js";

const step = 100; // children shown at first, and more each time

/** Payload shows a text: as a tree where it is JSON, else as it is. */
export function Payload({ name, text, bytes }) {
	const [raw, setRaw] = useState(false), [find, setFind] = useState("");
	const parsed = useMemo(() => {
		try {
			return text === "" ? null : parse(text);
		} catch (e) {
			if (e instanceof JSONError) return null;
			throw e;
		}
	}, [text]);
	if (text === "" || text === undefined) return html`<section aria-label=${name} class="payload"><h2>${name}</h2><p class="muted">There is none.</p></section>`;
	return html`<section aria-label=${name} class="payload"><div class="bar"><h2>${name}</h2>
		${parsed && !raw && html`<label class="inline">Find <input type="search" aria-label=${"Find in " + name.toLowerCase()} value=${find} onInput=${(e) => setFind(e.target.value)} /></label>`}
		${parsed && html`<button type="button" aria-pressed=${raw ? "true" : "false"} aria-label=${"Raw " + name.toLowerCase()} onClick=${() => setRaw(!raw)}>Raw</button>`}
		<${Copy} label=${name === "Data" ? "Copy JSON" : "Copy"} aria-label=${name === "Data" ? "Copy JSON" : "Copy " + name.toLowerCase()} text=${() => (parsed ? print(parsed) : text)} />
		<span class="muted small">${bytes}</span></div>
		${parsed && !raw ? html`<${Tree} name=${name} root=${parsed} find=${find.toLowerCase()} />` : html`<${Raw} text=${text} />`}</section>`;
}

/** Raw is a text as it is, a part of it at first when it is long. */
function Raw({ text }) {
	const [shown, set] = useState(64 << 10);
	return html`<pre class="mono raw" tabindex="0">${text.slice(0, shown)}</pre>${text.length > shown && html`<button type="button" onClick=${() => set(shown * 8)}>Show more</button>`}`;
}

/** Tree is the tree itself. */
export function Tree({ name, root, find }) {
	const [folds, setFolds] = useState(/** @type {Record<string, boolean>} */ ({})), [more, setMore] = useState(/** @type {Record<string, number>} */ ({}));
	const box = useRef(/** @type {any} */ (null)), [active, setActive] = useState("$");
	const hits = useMemo(() => (find ? search(root, find) : null), [root, find]);
	/** @type {any[]} */ const rows = [];
	collect(rows, root, null, [], "$", 0, { folds, more, hits });
	const current = rows.some((r) => r.id === active) ? active : rows[0].id;
	const focus = (id) => {
		setActive(id);
		requestAnimationFrame(() => box.current?.querySelector('[tabindex="0"]')?.focus());
	};
	const toggle = (r, open) => setFolds({ ...folds, [r.id]: open });
	const keys = (e) => {
		const i = rows.findIndex((r) => r.id === current), r = rows[i];
		if (e.key === "ArrowDown" && rows[i + 1]) focus(rows[i + 1].id);
		else if (e.key === "ArrowUp" && rows[i - 1]) focus(rows[i - 1].id);
		else if (e.key === "ArrowRight" && r.branch) r.open ? rows[i + 1] && focus(rows[i + 1].id) : toggle(r, true);
		else if (e.key === "ArrowLeft") r.open ? toggle(r, false) : r.parent && focus(r.parent);
		else if ((e.key === "Enter" || e.key === " ") && r.branch) toggle(r, !r.open);
		else if (e.key === "Enter" && r.rest) setMore({ ...more, [r.of]: (more[r.of] || step) * 4 });
		else if (e.key === "Home") focus(rows[0].id);
		else if (e.key === "End") focus(rows[rows.length - 1].id);
		else return;
		e.preventDefault();
		e.stopPropagation();
	};
	return html`${hits && html`<p class="small muted" role="status">${hits.count === 0 ? "Nothing found." : `${hits.count} found.`}</p>`}
	<div role="tree" aria-label=${name} class="tree mono" ref=${box} onKeyDown=${keys}>${rows.map((r) => html`<div role="treeitem" key=${r.id} aria-level=${r.level + 1} aria-expanded=${r.branch ? String(r.open) : undefined} aria-selected=${r.id === current ? "true" : "false"} tabindex=${r.id === current ? 0 : -1}
		class=${r.hit ? "hit" : ""} style=${{ paddingLeft: 8 + Math.min(r.level, 40) * 16 + "px" }} title=${r.path}
		onClick=${() => (setActive(r.id), r.rest ? setMore({ ...more, [r.of]: (more[r.of] || step) * 4 }) : r.branch && toggle(r, !r.open))}>
		<span class="twist" aria-hidden="true">${r.branch ? (r.open ? "▾" : "▸") : ""}</span>${r.rest ? html`<span class="link">${r.rest} more…</span>` : html`${r.label !== null && html`<span class="key">${r.label}</span><span>: </span>`}<span class=${r.cls}>${r.text}</span>${r.id === current && html`<span class="copypath"><${Copy} label="Copy path" text=${r.path} tabindex="-1" /></span>`}`}</div>`)}</div>`;
}

/** collect makes the rows that are seen. */
function collect(rows, n, label, path, id, level, view) {
	const stack = [{ n, label, path, id, level, parent: null }];
	while (stack.length > 0) {
		const it = /** @type {any} */ (stack.pop());
		if (it.rest) {
			rows.push(it);
			continue;
		}
		const branch = it.n.items !== undefined && it.n.items.length > 0;
		const found = view.hits && view.hits.open.has(it.n);
		const open = branch && (view.folds[it.id] ?? (found || it.level < 2)) && rows.length < 2000;
		rows.push({ id: it.id, parent: it.parent, level: it.level, branch, open, label: it.label, path: pathText(it.path), hit: view.hits && view.hits.at.has(it.n),
			cls: "v-" + it.n.kind, text: open ? (it.n.kind === "object" ? "{" : "[") + (it.n.kind === "object" ? " }" : " ]") : clip(short(it.n)) });
		if (!open) continue;
		const most = view.more[it.id] || step, count = Math.min(most, it.n.items.length);
		if (it.n.items.length > count) stack.push(/** @type {any} */ ({ id: it.id + "/…", of: it.id, parent: it.id, level: it.level + 1, rest: it.n.items.length - count, path: "" }));
		for (let i = count - 1; i >= 0; i--) {
			const step = it.n.kind === "object" ? it.n.keys[i] : i;
			stack.push({ n: it.n.items[i], label: String(step), path: it.level < 200 ? [...it.path, step] : it.path, id: it.id + "/" + i, level: it.level + 1, parent: it.id });
		}
	}
}

const clip = (s) => (s.length > 2000 ? s.slice(0, 2000) + `… (${s.length} characters)` : s);

/** search finds the nodes whose name or value has a text, and the branches above them. */
function search(root, text) {
	const at = new Set(), open = new Set();
	const stack = [{ n: root, up: /** @type {any} */ (null), key: "" }];
	while (stack.length > 0) {
		const it = /** @type {any} */ (stack.pop());
		const value = it.n.kind === "string" ? it.n.value : it.n.raw || "";
		if (it.key.toLowerCase().includes(text) || value.toLowerCase().includes(text)) {
			at.add(it.n);
			for (let up = it.up; up && !open.has(up.n); up = up.up) open.add(up.n);
		}
		for (let i = 0; it.n.items && i < it.n.items.length; i++) stack.push({ n: it.n.items[i], up: it, key: it.n.keys ? it.n.keys[i] : "" });
	}
	return { at, open, count: at.size };
}
