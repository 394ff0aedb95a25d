// @ts-check
import { html, useEffect, useState } from "../../vendor/preact.js";
import { useAnswer } from "../api.js";
import { lines } from "../lib/diff.js";
import { parse, pretty, value } from "../lib/json.js";
import { Answer, Copy, EventLink, Link, Page, StreamLink, Time } from "../parts/basics.js";
import { Icon, icons } from "../parts/icons.js";
import { Both, commandOf, Gone, loadEvent } from "../parts/events.js";
import { visit } from "../store.js";

export default function Event({ stream, number }) {
	const title = `${number}@${stream}`;
	const valid = /^[0-9]+$/.test(number);
	useEffect(() => visit(stream), [stream]);
	const own = useAnswer((signal) => loadEvent(stream, number, false, signal), [stream, number], { off: !valid });
	const n = valid ? BigInt(number) : 0n;
	const isLink = own.data && own.data.type === "$>";
	const gone = own.error && own.error.status === 404 ? "Event not found." : "";
	const like = own.data && !isLink;
	const actions = html`${n > 0n && html`<${Link} to=${["streams", stream, n - 1n]} data-key="older"><${Icon} of=${icons.ArrowLeft} />Previous event<//>`}<${Link} to=${["streams", stream, n + 1n]} data-key="newer">Next event<${Icon} of=${icons.ArrowRight} /><//>
		${like && html`<${Link} to=${["streams", stream, "append"]} query=${{ like: title }}>Append like this<//>`}<${Copy} label="Copy as curl" data-key="curl" text=${() => commandOf(stream, number)} />`;
	if (!valid) return html`<${Page} title="Not found"><p>${number} is no event number.</p><//>`;
	if (own.error && own.error.status === 410) return html`<${Page} key="gone" title=${title}><${Gone} stream=${stream} /><//>`;
	return html`<${Page} title=${title} actions=${actions}>
		${gone ? html`<div class="box"><p>${gone}</p><p class="muted">${own.error.message}</p><p><${StreamLink} name=${stream} /></p></div>` : html`<${Answer} of=${own}>${(e) => html`
			<${Facts} e=${e} stream=${stream} />
			${isLink ? html`<${Target} stream=${stream} number=${number} text=${e.data} />` : html`<${Both} e=${e} /><${Compare} stream=${stream} number=${n} now=${e} />`}`}<//>`}<//>`;
}

/** ids finds what the metadata of an event say of where it belongs. @returns {{correlation: string, causation: string, tags: string[]}} */
export function ids(metadata) {
	try {
		const m = value(parse(metadata)) || {}, tags = m.$tags;
		return { correlation: typeof m.$correlationId === "number" || typeof m.$correlationId === "bigint" ? String(m.$correlationId) : text(m.$correlationId), causation: text(m.$causationId), tags: Array.isArray(tags) ? (tags.every((t) => typeof t === "string") ? tags : []) : text(tags).split(",").map((t) => t.trim()).filter((t) => t !== "") };
	} catch {
		return { correlation: "", causation: "", tags: [] };
	}
}
const text = (v) => (typeof v === "string" ? v : "");

function Facts({ e, stream }) {
	const { correlation, causation, tags } = ids(e.metadata);
	const own = !stream.startsWith("$") && !e.type.startsWith("$");
	const also = [["$idx-et-" + e.type, "type"], ...(own ? [["$idx-ce-" + stream.split("-")[0], "category"]] : [])];
	return html`<dl class="facts"><dt>Type</dt><dd>${e.type}</dd><dt>Time</dt><dd><${Time} at=${e.time} /></dd><dt>Id</dt><dd class="mono">${e.id}</dd><dt>Stream</dt><dd><${StreamLink} name=${e.stream} /></dd>
		${e.redacted && html`<dt>Redacted</dt><dd><span class="state warn">Its data were blanked out.</span></dd>`}
		${tags.length > 0 && html`<dt>Tags</dt><dd>${tags.map((t, i) => html`${i > 0 ? ", " : ""}<${Link} to=${["streams", "$idx-tag-" + t]} class="mono">${t}<//>`)}</dd>`}
		${correlation && html`<dt>Correlation</dt><dd><${Link} to=${["correlation", correlation]} query=${{ event: `${e.number}@${e.stream}` }}>Correlation<//> <span class="mono small">${correlation}</span></dd>`}
		${causation && html`<dt>Caused by</dt><dd class="mono">${causation}</dd>`}
		<dt>Also in</dt><dd>${also.map(([name], i) => html`${i > 0 ? ", " : ""}<${StreamLink} name=${name} />`)}</dd></dl>`;
}

/** Target is the event that a link leads to. */
function Target({ stream, number, text }) {
	const q = useAnswer((signal) => loadEvent(stream, number, true, signal), [stream, number]);
	return html`<h2>This is a link to <span class="mono">${text}</span></h2><${Answer} of=${q}>${(e) => e.plain || e.type === "$>" ? html`<p class="box warn">The event that it leads to is gone, or you may not read it.</p>` : html`<p><${EventLink} stream=${e.stream} number=${e.number} /></p><${Facts} e=${e} stream=${e.stream} /><${Both} e=${e} />`}<//>`;
}

/** Compare is what changed since the event before. */
function Compare({ stream, number, now }) {
	const [open, set] = useState(false);
	const q = useAnswer((signal) => loadEvent(stream, String(number - 1n), false, signal), [stream, String(number)], { off: !open || number === 0n });
	useEffect(() => set(false), [stream, String(number)]);
	if (number === 0n) return null;
	return html`<div class="bar"><button aria-pressed=${String(open)} onClick=${() => set(!open)}>Compare with previous</button></div>
		${open && html`<section aria-label="Difference" role="region"><h2>Difference</h2><${Answer} of=${q}>${(before) => html`${before.type !== now.type && html`<p class="box warn">The type differs: ${before.type}, then ${now.type}.</p>`}<${Diff} before=${pretty(before.data)} after=${pretty(now.data)} />`}<//></section>`}`;
}

/** Diff shows the lines in which two texts differ. */
export function Diff({ before, after }) {
	const all = lines(before, after);
	if (all.every((l) => l.sign === " ")) return html`<p>They are the same.</p>`;
	return html`<pre class="diff mono">${all.slice(0, 800).map((l) => html`<span class=${l.sign === "+" ? "plus" : l.sign === "-" ? "minus" : ""}>${l.sign} ${l.text}${"\n"}</span>`)}${all.length > 800 ? `… ${all.length - 800} more lines` : ""}</pre>`;
}
