// @ts-check
import { html } from "../../vendor/preact.js";
import { fromLeader, useAnswer } from "../api.js";
import { Age, Answer, Link, Page, State, Table, Time, allowed } from "../parts/basics.js";
import { Icon, icons } from "../parts/icons.js";
import { info, use } from "../store.js";

export default function Users() {
	const about = use(info), off = about.authentication.type === "insecure";
	const q = useAnswer((signal) => fromLeader("/users", { signal }), [], { every: 10000, off });
	if (off) return html`<${Page} title="Users"><p class="box">The node runs in insecure mode: there are no users.</p><//>`;
	return html`<${Page} title="Users" what="Who may sign in, and the groups that give them rights." lead=${html`<${Age} of=${q} />`} actions=${allowed("admin") && html`<${Link} to=${["users", "new"]} class="primary"><${Icon} of=${icons.Plus} />New user<//>`}><${Answer} of=${q} needs="the group $admins">${(d) => html`<${Table} name="Users" heads=${["Login", "Full name", "Groups", "State", "Changed"]}>${d.data.map((u) => html`<tr key=${u.loginName}><td class="name"><${Link} to=${["users", u.loginName]}>${u.loginName}<//></td><td class="name">${u.fullName}</td><td class="name">${u.groups.join(", ")}</td><td><${State} kind=${u.disabled ? "warn" : "good"}>${u.disabled ? "disabled" : "enabled"}<//></td><td><${Time} at=${u.dateLastUpdated} /></td></tr>`)}<//>`}<//><//>`;
}
