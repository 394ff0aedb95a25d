// @ts-check
import { html, useState } from "../../vendor/preact.js";
import { signIn } from "../api.js";
import { signedIn } from "../auth.js";
import { Field } from "./basics.js";

/** SignInForm asks for credentials and checks them. */
export function SignInForm({ onDone }) {
	const [login, setLogin] = useState(""), [password, setPassword] = useState(""), [error, fail] = useState(""), [busy, work] = useState(false);
	const submit = async (e) => {
		e.preventDefault();
		work(true);
		fail("");
		try {
			const u = await signIn(login, password);
			if (u) {
				signedIn(u);
				return onDone();
			}
			fail("Wrong login or password.");
		} catch (e) {
			fail(e.message);
		}
		work(false);
	};
	return html`<form onSubmit=${submit} class="narrow">${error && html`<div role="alert" class="box bad">${error}</div>`}
		<${Field} label="Login" value=${login} set=${setLogin} autocomplete="username" autocapitalize="none" /><${Field} label="Password" type="password" value=${password} set=${setPassword} autocomplete="current-password" />
		<div class="buttons"><button class="primary" disabled=${busy}>Sign in</button></div></form>`;
}
