// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { fromLeader, send, useAnswer } from "../api.js";
import { path, to } from "../lib/address.js";
import { Answer, Ask, Facts, Failure, Field, Page, State, Time } from "../parts/basics.js";
import { go, unmoved } from "../router.js";

const list = (text) => text.split(",").map((g) => g.trim()).filter(Boolean);

export default function User({ login }) {
	if (login === undefined) return html`<${Page} title="New user" what="Somebody who may sign in here and with every client."><${Create} /><//>`;
	return html`<${One} login=${login} />`;
}

function Create() {
	const [f, set] = useState({ login: "", name: "", groups: "", password: "" }), [error, fail] = useState(/** @type {any} */ (null));
	const submit = async (e) => {
		e.preventDefault();
		const here = unmoved();
		try {
			await send("POST", "/users/", { body: { loginName: f.login, fullName: f.name, groups: list(f.groups), password: f.password } });
			if (here()) go(to(["users", f.login]));
		} catch (e) {
			fail(e);
		}
	};
	return html`<form class="narrow" onSubmit=${submit}><${Field} label="Login" value=${f.login} set=${(login) => set({ ...f, login })} /><${Field} label="Full name" value=${f.name} set=${(name) => set({ ...f, name })} /><${Field} label="Groups" value=${f.groups} set=${(groups) => set({ ...f, groups })} hint="comma-separated; $ops are operators, $admins administrators" /><${Field} label="Password" type="password" value=${f.password} set=${(password) => set({ ...f, password })} autocomplete="new-password" />
		<div class="buttons"><button class="primary" disabled=${!f.login || !f.password}>Create</button></div>${error && html`<${Failure} error=${error} />`}</form>`;
}

function One({ login }) {
	const where = `/users/${path(login)}`;
	const q = useAnswer((signal) => fromLeader(where, { signal }), [login]);
	const [password, setPassword] = useState(""), [result, tell] = useState(/** @type {any} */ (null));
	const u = q.data && q.data.data;
	const act = (verb) => () => (tell(null), send("POST", `${where}/command/${verb}`));
	const actions = u && html`<${Ask} label="Delete user" typed=${login} act=${() => send("DELETE", where)} onDone=${(_, here) => here && go("#/users")}><p><strong>${login}</strong> is deleted for ever and can no longer sign in. What the user wrote stays.</p><//>
		${u.disabled ? html`<${Ask} label="Enable" danger=${false} act=${act("enable")} onDone=${q.again}><p>${login} may sign in again.</p><//>` : html`<${Ask} label="Disable" cls="" act=${act("disable")} onDone=${q.again}><p>${login} can no longer sign in, until enabled again.</p><//>`}
		<${Ask} label="Reset password" cls="" act=${() => (tell(null), send("POST", `${where}/command/reset-password`, { body: { newPassword: password } }))} onDone=${() => (setPassword(""), q.again())}><p>${login} signs in with this password from now on; the old one is refused.</p><${Field} label="New password" type="password" value=${password} set=${setPassword} autocomplete="new-password" required /><//>`;
	return html`<${Page} title=${login} actions=${actions}><${Answer} of=${q}>${(d) => html`<${Facts} of=${[["State", html`<${State} kind=${d.data.disabled ? "warn" : "good"}>${d.data.disabled ? "disabled" : "enabled"}<//>`], ["Groups", d.data.groups.join(", ") || "none"], ["Changed", html`<${Time} at=${d.data.dateLastUpdated} />`]]} /><${Edit} key=${d.data.dateLastUpdated} where=${where} u=${d.data} onDone=${q.again} result=${result} tell=${tell} />`}<//><//>`;
}

/** Edit is of a user as last read: when that was saved the next one takes its place, and the result stays. */
function Edit({ where, u, onDone, result, tell }) {
	const [name, setName] = useState(u.fullName), [groups, setGroups] = useState(u.groups.join(", "));
	const submit = async (e) => {
		e.preventDefault();
		try {
			await send("PUT", where, { body: { fullName: name, groups: list(groups) } });
			tell({ saved: true });
			onDone();
		} catch (error) {
			tell({ error });
		}
	};
	return html`<form class="narrow" onSubmit=${submit}><${Field} label="Full name" value=${name} set=${(v) => (tell(null), setName(v))} /><${Field} label="Groups" value=${groups} set=${(v) => (tell(null), setGroups(v))} hint="comma-separated" /><div class="buttons"><button class="primary">Save</button></div><div role="status">${result && result.saved && html`<p class="box good">Saved.</p>`}</div>${result && result.error && html`<${Failure} error=${result.error} />`}</form>`;
}
