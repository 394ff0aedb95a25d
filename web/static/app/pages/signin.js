// @ts-check
import { html } from "../../vendor/preact.js";
import { lookAround } from "../auth.js";
import { Page } from "../parts/basics.js";
import { SignInForm } from "../parts/signin.js";
import { go } from "../router.js";
import { info, use } from "../store.js";

export default function SignIn({ query }) {
	const about = use(info);
	const on = () => go("#" + (query.then && query.then.startsWith("/") && !query.then.startsWith("/signin") ? query.then : "/"));
	return html`<div class="narrow"><p class="brand">${(about && about.ui.title) || "Annals"}</p><${Page} title="Sign in"><${SignInForm} onDone=${on} />
		<p><a href="#/" onClick=${(e) => (e.preventDefault(), lookAround(), on())}>Look around without signing in</a></p><p class="muted small">Then you see what open streams allow.</p><//></div>`;
}
