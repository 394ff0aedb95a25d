// @ts-check
import { html } from "../../vendor/preact.js";
import { get, send, useAnswer } from "../api.js";
import { bytes, count, span } from "../lib/format.js";
import { allowed, Act, Age, Answer, Ask, Copy, Forbidden, Page, State, Table, Time } from "../parts/basics.js";
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
	return html`<${Page} title="Backup" what="Copies of the log, whole or what came since the last one." lead=${html`<${Age} of=${q} />`} actions=${html`<${NodeChoice} value=${query.node} />`}><${Answer} of=${q}>${(d) => d.off ? html`<${HowTo} />` : html`
		<p>To <span class="mono">${d.to}</span>${d.schedule ? html`, at <span class="mono">${d.schedule}</span> by itself` : ", only when asked"}${d.keep && d.keep !== "0" ? `; the last ${d.keep} are kept` : "; all are kept"}.</p>
		<div class="bar"><${Act} label="Back up now" cls="primary" disabled=${!!running} act=${() => send("POST", "/admin/backup", { node })} onDone=${q.again} />
			${running && html`<span>${d.current.phase} ${bytes(d.current.done)}${Number(d.current.total) > 0 ? ` of ${bytes(d.current.total)}` : ""} <progress max=${Number(d.current.total) || 1} value=${Number(d.current.done)} aria-label="Progress"></progress></span><${Ask} label="Stop" act=${() => send("DELETE", "/admin/backup/current", { node })} onDone=${q.again}><p>The backup stops; what was copied of it is removed.</p><//>`}</div>
		${d.last && d.last.result && d.last.result !== "Unknown" && !running && html`<p>The last one: <${State} kind=${d.last.result === "Success" ? "good" : "bad"}>${d.last.result}<//> ${d.last.error || ""} <${Time} at=${d.last.ended} /></p>`}
		${d.damaged && html`<p class="box bad" role="alert">${d.damaged}</p>`}
		<${Table} name="Backups" heads=${["Backup", "Kind", "Of", "#Position", "#Files", "#Size", "#Copied", "#Took", "Read back"]}>${d.list.length === 0 && html`<tr><td colspan="9" class="muted">There is none yet.</td></tr>`}${[...d.list].reverse().map((b) => html`<tr key=${b.id}><td class="mono small">${b.id}</td><td>${b.kind}</td><td><${Time} at=${b.time} /></td><td class="num mono">${String(b.position)}</td><td class="num">${count(b.files)}</td><td class="num">${bytes(b.bytes)}</td><td class="num">${bytes(b.bytesCopied)}</td><td class="num">${span(Number(b.seconds) * 1000)}</td><td>${b.checked ? "yes" : "no"}</td></tr>`)}<//>
		<${Restore} from=${d.to} db=${d.db} />`}<//><//>`;
}

/** Restore says how: only a node that does not run restores, so there is no button. */
function Restore({ from, db }) {
	const lines = `# on the machine of the node, which is stopped; the data folder must be empty or missing\nannals backup list --from ${from}\nannals backup restore --from ${from} --db ${db || "DIR"}\n# not the newest state but that of a moment: --at 2026-11-24T14:05:00Z\n# then start the node; if the whole cluster was lost, first: annals cluster recover`;
	return html`<section role="region" aria-label="Restore"><h2>Restore</h2><pre class="box mono raw">${lines}</pre><${Copy} label="Copy" text=${lines} /></section>`;
}

function HowTo() {
	const lines = "# in the configuration of the node: a folder or an object store\nBackupTo: /var/backups/annals\nBackupSchedule: \"0 2 * * *\"\nBackupKeep: 14\n\n# or at any time from another machine\nannals backup create --to /var/backups/annals --node http://NODE:2113 --user admin";
	return html`<div class="box"><p>This node does not back itself up: <span class="mono">BackupTo</span> is not set. Who runs the node sets it; a request cannot.</p></div><pre class="box mono raw">${lines}</pre><${Copy} label="Copy" text=${lines} /><${Restore} from="/var/backups/annals" db="" />`;
}
