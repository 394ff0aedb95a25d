// @ts-check
import { html } from "../../vendor/preact.js";
import { get, send, useAnswer } from "../api.js";
import { bytes, count, span } from "../lib/format.js";
import { allowed, Act, Age, Answer, Ask, Code, Facts, Forbidden, Page, State, Table, Time } from "../parts/basics.js";
import { icons } from "../parts/icons.js";
import { NodeChoice, nodeOr } from "../parts/node.js";
import { info, use } from "../store.js";

export default function Backup({ query }) {
	const about = use(info), node = nodeOr(query.node);
	const may = allowed("ops") || about.authentication.type === "insecure";
	const o = { node: query.node };
	const q = useAnswer(async (signal) => {
		const options = await get("/info/options", { ...o, signal });
		const value = (name) => (options.find((x) => x.name === name) || {}).value || "";
		const set = { to: value("BackupTo"), schedule: value("BackupSchedule"), keep: value("BackupKeep"), db: value("Db") };
		if (set.to === "" || !about.features.backup) return { ...set, off: true };
		const [current, last, list] = await Promise.all([get("/admin/backup/current", { ...o, signal }), get("/admin/backup/last", { ...o, signal }), get("/admin/backup/list", { ...o, signal })]);
		return { ...set, current, last, list: list.backups || [], damaged: list.damaged };
	}, [query.node], { every: 3000, off: !may });
	if (!may) return html`<${Page} title="Backup"><${Forbidden} needs="the group $ops or $admins" /><//>`;
	const running = q.data && q.data.current && q.data.current.backupId;
	const d = q.data, schedule = d && (d.schedule ? html`<span class="mono">${d.schedule}</span>` : "only when asked");
	const actions = html`<${NodeChoice} value=${query.node} />${d && !d.off && html`<${Act} label="Back up now" cls="primary" icon=${icons.Archive} disabled=${!!running} act=${() => send("POST", "/admin/backup", { node })} onDone=${q.again} />`}`;
	return html`<${Page} title="Backup" what="Copies of the log, whole or what came since the last one." lead=${html`<${Age} of=${q} />`} actions=${actions}><${Answer} of=${q}>${(d) => d.off ? html`<${HowTo} />` : html`
		<${Facts} of=${[["To", html`<span class="mono">${d.to}</span>`], ["At", schedule], ["Kept", d.keep && d.keep !== "0" ? `the last ${d.keep}` : "all"], d.last && d.last.result && d.last.result !== "Unknown" && !running && ["The last one", html`<${State} kind=${d.last.result === "Success" ? "good" : "bad"}>${d.last.result}<//> ${d.last.error || ""} <${Time} at=${d.last.ended} />`]]} />
		${running && html`<div class="box bar"><span>${d.current.phase} ${bytes(d.current.done)}${Number(d.current.total) > 0 ? ` of ${bytes(d.current.total)}` : ""} <progress max=${Number(d.current.total) || 1} value=${Number(d.current.done)} aria-label="Progress"></progress></span><span class="push"><${Ask} label="Stop" act=${() => send("DELETE", "/admin/backup/current", { node })} onDone=${q.again}><p>The backup stops, and what was copied of it is removed. Earlier backups stay as they are.</p><//></span></div>`}
		${d.damaged && html`<p class="box bad" role="alert">${d.damaged}</p>`}
		${d.list.length === 0 ? html`<${Table} name="Backups" heads=${["Backup"]}><tr><td class="muted">There is none yet. Back up now makes the first one.</td></tr><//>` : html`<${Table} name="Backups" heads=${["Time", "Backup", "Kind", "#Position", "#Size", "#Copied", "#Took", "Read back"]}>${[...d.list].reverse().map((b) => html`<tr key=${b.id}><td><${Time} at=${b.time} /></td><td class="name mono small">${b.id}</td><td>${b.kind}</td><td class="num">${count(b.position)}</td><td class="num" title=${`${count(b.files)} files`}>${bytes(b.bytes)}</td><td class="num">${bytes(b.bytesCopied)}</td><td class="num">${span(Number(b.seconds) * 1000)}</td><td>${b.checked ? html`<${State} kind="good">yes<//>` : html`<span class="muted">no</span>`}</td></tr>`)}<//>`}
		<${Restore} from=${d.to} db=${d.db} />`}<//><//>`;
}

/** Restore says how: only a node that does not run restores, so there is no button. */
function Restore({ from, db }) {
	const lines = `# on the machine of the node, which is stopped; the data folder must be empty or missing\nannals backup list --from ${from}\nannals backup restore --from ${from} --db ${db || "DIR"}\n# not the newest state but that of a moment: --at 2026-11-24T14:05:00Z\n# then start the node; if the whole cluster was lost, first: annals cluster recover`;
	return html`<section role="region" aria-label="Restore"><h2>Restore</h2><p class="muted">Only a node that does not run restores, so there is no button for it.</p><${Code} text=${lines} name="Copy how to restore" /></section>`;
}

function HowTo() {
	const lines = "# in the configuration of the node: a folder or an object store\nBackupTo: /var/backups/annals\nBackupSchedule: \"0 2 * * *\"\nBackupKeep: 14\n\n# or at any time from another machine\nannals backup create --to /var/backups/annals --node http://NODE:2113 --user admin";
	return html`<p class="box warn">This node does not back itself up: <span class="mono">BackupTo</span> is not set. Who runs the node sets it; a request cannot.</p><h2>How to make backups</h2><${Code} text=${lines} name="Copy how to make backups" /><${Restore} from="/var/backups/annals" db="" />`;
}
