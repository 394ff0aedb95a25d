// @ts-check
// A projection that is run once, over what there is, to see what it yields. It writes nothing.
import { html, useRef, useState, useEffect } from "../../vendor/preact.js";
import { fromLeader, send } from "../api.js";
import { isOps } from "../auth.js";
import { path } from "../lib/address.js";
import { count } from "../lib/format.js";
import { Failure } from "./basics.js";
import { Payload } from "./tree.js";

const quiet = "var emit=function(){},linkTo=emit,linkStreamTo=emit,copyTo=emit;"; // In the first line: the numbers of lines stay.

/** useTransient runs a script; stop ends it and removes it. */
export function useTransient() {
	const [state, set] = useState(/** @type {any} */ ({ phase: "", name: "" }));
	const run = useRef(/** @type {any} */ (null));
	const remove = async (name) => {
		await send("POST", `/projection/${path(name)}/command/disable`, { silent: true }).catch(() => null);
		if (isOps()) await send("DELETE", `/projection/${path(name)}`, { silent: true }).catch(() => null);
	};
	const stop = () => {
		const r = run.current;
		if (!r || r.over) return;
		r.over = true;
		set((s) => ({ ...s, phase: "stopped" }));
		remove(r.name);
	};
	useEffect(() => stop, []);
	const start = async (source, { mute = true, partition = "" } = {}) => {
		stop();
		const name = "preview-" + Math.random().toString(36).slice(2, 12), mine = { name, over: false };
		run.current = mine;
		set({ phase: "running", name });
		try {
			await send("POST", `/projections/transient?name=${name}&type=JS&enabled=yes&emit=no&checkpoints=no`, { type: "application/json", body: (mute && /\b(emit|linkTo|copyTo|linkStreamTo)\b/.test(source) ? quiet : "") + source });
			while (!mine.over) {
				const d = await fromLeader(`/projection/${path(name)}`);
				const of = partition ? `?partition=${encodeURIComponent(partition)}` : "";
				const [result, own] = await Promise.all([fromLeader(`/projection/${path(name)}/result${of}`, { text: true }).catch(() => ""), fromLeader(`/projection/${path(name)}/state${of}`, { text: true }).catch(() => "")]);
				const over = /Completed|Stopped|Faulted/.test(d.status) && !/Stopping|Preparing/.test(d.status);
				if (mine.over) return;
				set({ phase: over ? (/Faulted/.test(d.status) ? "failed" : "done") : "running", name, status: d, result: result || "", own: own || "", seen: d.eventsProcessedAfterRestart });
				if (over) {
					mine.over = true;
					await remove(name);
					return;
				}
				await new Promise((resolve) => setTimeout(resolve, 500));
			}
		} catch (error) {
			if (!mine.over) set((s) => ({ ...s, phase: "failed", error }));
			mine.over = true;
		}
	};
	return { ...state, start, stop };
}

/** Outcome shows what a transient projection has come to. */
export function Outcome({ of: t, name }) {
	return html`<section role="region" aria-label=${name}><h2>${name}</h2>
		<p role="status">${{ "": "Not run yet.", running: `Running: ${count(t.seen || 0)} events processed.`, done: `Done: ${count(t.seen || 0)} events processed.`, stopped: "Stopped.", failed: "It failed." }[t.phase]}</p>
		${t.error && html`<${Failure} error=${t.error} />`}${t.phase === "failed" && t.status && html`<pre class="box bad mono raw" role="alert">${t.status.stateReason}</pre>`}
		${t.phase !== "" && !t.error && html`<${Payload} name="Result" text=${t.result || t.own || ""} bytes="" />`}</section>`;
}

