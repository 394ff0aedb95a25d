// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { send, signIn } from "../api.js";
import { isAdmin, isOps, signedIn, user } from "../auth.js";
import { path } from "../lib/address.js";
import { Facts, Failure, Field, Forbidden, Page } from "../parts/basics.js";
import { info, use } from "../store.js";

export default function Account() {
	const who = use(user), about = use(info);
	if (about && about.authentication.type === "insecure") return html`<${Page} title="Account"><p class="box">The node runs in insecure mode: there are no users, and everybody may do everything.</p><//>`;
	if (!who) return html`<${Page} title="Account"><${Forbidden} /><//>`;
	return html`<${Page} title="Account" what="Who you are in this tab."><${Facts} of=${[["Login", who.login], ["Groups", who.groups.join(", ") || "none"], ["May", isAdmin() ? "do everything" : isOps() ? "look after the nodes" : "what the streams allow"]]} /><h2>Change password</h2><${Change} who=${who} /><//>`;
}

function Change({ who }) {
	const [now, setNow] = useState(""), [next, setNext] = useState(""), [again, setAgain] = useState(""), [result, tell] = useState(/** @type {any} */ (null));
	const submit = async (e) => {
		e.preventDefault();
		tell(null);
		try {
			await send("POST", `/users/${path(who.login)}/command/change-password`, { body: { currentPassword: now, newPassword: next } });
			const u = await signIn(who.login, next);
			if (u) signedIn(u);
			tell({ done: true });
			setNow("");
			setNext("");
			setAgain("");
		} catch (error) {
			tell({ error: error.status === 401 ? new Error("The current password is wrong.") : error });
		}
	};
	return html`<form class="narrow" onSubmit=${submit}><${Field} label="Current password" type="password" value=${now} set=${setNow} autocomplete="current-password" /><${Field} label="New password" type="password" value=${next} set=${setNext} autocomplete="new-password" />
		<${Field} label="New password again" type="password" value=${again} set=${setAgain} autocomplete="new-password" error=${again && again !== next ? "The two differ." : ""} />
		<div class="buttons"><button class="primary" disabled=${!now || !next || next !== again}>Change password</button></div><div role="status">${result && result.done && html`<p class="box good">Changed.</p>`}</div>${result && result.error && html`<${Failure} error=${result.error} />`}</form>`;
}
