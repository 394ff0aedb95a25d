// @ts-check
// How long ago something was. The exact time is in its title, and is seen while its row has the focus.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { ago, time } from "../lib/format.js";
import { Store, use, zone } from "../store.js";

/** clock ticks once a second while it is watched. */
const clock = new Store(Date.now());
let ticks = 0;

function watch(tell) {
	clock.watchers.add(tell);
	if (!ticks) ticks = setInterval(() => document.hidden || clock.set(Date.now()), 1000);
	return () => {
		clock.watchers.delete(tell);
		if (clock.watchers.size > 0) return;
		clearInterval(ticks);
		ticks = 0;
	};
}

/** When is an instant as "3 s ago". @param {{at: string}} p */
export function When({ at }) {
	const utc = use(zone) === "UTC", [text, say] = useState(() => ago(at, Date.now()));
	useEffect(() => {
		const tell = (/** @type {number} */ now) => say(ago(at, now));
		tell(Date.now());
		return watch(tell);
	}, [at]);
	if (!at) return "–";
	const exact = time(at, utc);
	return html`<time class="when" datetime=${at} title=${exact}>${text}<span class="exact">${exact}</span></time>`;
}
