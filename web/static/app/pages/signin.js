// @ts-check
import { html } from "../../vendor/preact.js";
import { lookAround } from "../auth.js";
import { Page } from "../parts/basics.js";
import { Mark } from "../parts/icons.js";
import { SignInForm } from "../parts/signin.js";
import { go } from "../router.js";
import { info, use } from "../store.js";

export default function SignIn({ query }) {
	const about = use(info);
	const on = () => go("#" + (query.then && query.then.startsWith("/") && !query.then.startsWith("/signin") ? query.then : "/"));
	return html`<div class="card"><div class="brand"><${Mark} /><span>${(about && about.ui.title) || "Annals"}</span></div><${Page} title="Sign in" what=${html`to the node <span class="mono">${location.host}</span>`}><${SignInForm} onDone=${on} />
		<p><a href="#/" onClick=${(e) => (e.preventDefault(), lookAround(), on())}>Look around without signing in</a></p>
		<p class="muted small">A new database knows the users admin and ops. Without signing in you see what open streams allow.</p><//></div>`;
}
