// @ts-check
// Which fields of their data a list of events shows as columns: remembered for each stream, by name alone.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { choose, fields, pathText, readChosen } from "../lib/preview.js";
import { plural } from "../lib/format.js";
import { Icon, icons } from "./icons.js";
import { remembered, system, use } from "../store.js";

const kept = remembered("annals.columns", "{}");

/** useColumns are the chosen fields of a stream, and what chooses others. @param {string} stream @returns {[string[][], (paths: string[][]) => void]} */
export function useColumns(stream) {
	const all = readChosen(use(kept));
	return [Object.hasOwn(all, stream) ? all[stream] : [], (paths) => kept.set(JSON.stringify(choose(readChosen(kept.value), stream, paths)))];
}

/** Columns chooses among the fields of the events that are shown. */
export function Columns({ of, value, set }) {
	const found = fields(of.map((e) => e.data)), same = (a) => (b) => pathText(a) === pathText(b);
	const all = [...value.filter((p) => !found.some(same(p))), ...found];
	return html`<${Drop} icon=${icons.Table2} label=${value.length > 0 ? `Columns (${value.length})` : "Columns"} name="Columns">${all.length === 0 ? html`<p class="muted">The data of these events has no fields.</p>`
		: html`<fieldset><legend>Fields as columns</legend>${all.map((p) => html`<label class="check mono" key=${pathText(p)}><input type="checkbox" checked=${value.some(same(p))} disabled=${value.length >= 12 && !value.some(same(p))}
			onChange=${(e) => set(e.target.checked ? [...value, p] : value.filter((x) => !same(p)(x)))} />${pathText(p)}</label>`)}</fieldset>`}<//>`;
}

/** Drop is a button with a panel below, which stays while one acts in it. */
export function Drop({ label, name, icon, children }) {
	const [open, set] = useState(false), box = useRef(/** @type {any} */ (null));
	useEffect(() => {
		if (!open) return;
		const away = (e) => box.current && !box.current.contains(e.target) && set(false);
		document.addEventListener("click", away);
		return () => document.removeEventListener("click", away);
	}, [open]);
	const keys = (e) => open && e.key === "Escape" && (set(false), box.current.querySelector("button").focus());
	return html`<div class="menu" ref=${box} onKeyDown=${keys}><button type="button" aria-expanded=${String(open)} aria-label=${name} onClick=${() => set(!open)}><${Icon} of=${icon} />${label}</button>${open && html`<div class=${"drop" + (box.current.getBoundingClientRect().left > innerWidth / 2 ? " end" : "")} role="group" aria-label=${name}>${children}</div>`}</div>`;
}

/** SystemChoice shows or hides what belongs to the system, and says how much is hidden. @param {{label: string, noun: string, many: string, hidden: number | undefined, more?: boolean}} p */
export function SystemChoice({ label, noun, many, hidden, more = false }) {
	const hides = use(system) === "Hide", some = hidden !== undefined && `${more ? "more than " : ""}${hidden === 0 ? `no ${noun} is` : plural(hidden, noun + " is", many + " are")} hidden`;
	return html`<span class="row-acts"><label class="check"><input type="checkbox" checked=${!hides} onChange=${(e) => system.set(e.target.checked ? "Show" : "Hide")} />${label}</label><span class="muted small" role="status">${hides && some}</span></span>`;
}
