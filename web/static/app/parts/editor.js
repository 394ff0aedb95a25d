// @ts-check
// The editor of projections: CodeMirror in a shadow root, where its styles need no exception
// of the policy. It is loaded when it is first needed.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { theme, use } from "../store.js";

/** words are what a projection may use, with what they are for. */
const words = [
	["fromAll", "all events"], ["fromStream", "the events of a stream"], ["fromStreams", "the events of several streams"], ["fromCategory", "the streams of a category"], ["fromCategories", "the streams of categories"],
	["foreachStream", "a state for each stream"], ["partitionBy", "a state for each key"], ["when", "handlers by event type"], ["transformBy", "the result of a state"], ["filterBy", "states that count"], ["outputState", "write states to a stream"], ["outputTo", "where results go"],
	["$init", "the first state"], ["$initShared", "the first shared state"], ["$any", "every event"], ["$deleted", "a stream was deleted"], ["$created", "a partition was made"],
	["emit", "append an event"], ["linkTo", "append a link"], ["copyTo", "append a copy"], ["linkStreamTo", "append a link to a stream"], ["log", "write a line to the log of the node"], ["options", "options of the projection"],
	["eventType", "of an event"], ["streamId", "of an event"], ["sequenceNumber", "of an event"], ["data", "of an event"], ["metadata", "of an event"], ["body", "data of an event"], ["partition", "of an event"],
];

/** Editor edits a script. errors: [{line, column, text}]. */
export function Editor({ label, value, set, errors = [], readOnly = false }) {
	const host = useRef(/** @type {any} */ (null)), box = useRef(/** @type {any} */ ({})), latest = useRef(set);
	const [ready, done] = useState(false);
	const dark = (use(theme), document.documentElement.dataset.theme === "dark");
	latest.current = set;
	useEffect(() => {
		let live = true, view = /** @type {any} */ (null);
		import("../../vendor/editor.js").then((cm) => {
			if (!live || !host.current) return; // What an effect leaves is cleaned up behind the next painting.
			const root = host.current.shadowRoot || host.current.attachShadow({ mode: "open", delegatesFocus: true });
			const complete = (ctx) => {
				const word = ctx.matchBefore(/[$\w]+/);
				if (!word && !ctx.explicit) return null;
				return { from: word ? word.from : ctx.pos, options: words.map(([label, detail]) => ({ label, detail, type: "function" })) };
			};
			const look = cm.EditorView.theme({
				"&": { height: "100%", minHeight: "280px", fontSize: "13px", backgroundColor: "var(--page)", color: "var(--text)" }, ".cm-scroller": { fontFamily: 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace' },
				".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--muted)", border: "0" }, ".cm-content": { caretColor: "var(--text)" }, ".cm-cursor": { borderLeftColor: "var(--text)" }, ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
				".cm-selectionBackground, &.cm-focused .cm-selectionBackground": { backgroundColor: "var(--line) !important" }, ".cm-tooltip": { backgroundColor: "var(--page)", border: "1px solid var(--control)", color: "var(--text)" },
				".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on)" }, ".cm-diagnostic": { color: "var(--text)", borderLeftColor: "var(--bad)" },
				// The two pictures that come as data: are not allowed by the policy of the page.
				".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad)" }, ".cm-lint-marker-error": { content: "normal", backgroundColor: "var(--bad)", borderRadius: "50%", width: "8px", height: "8px", margin: "5px 0 0 3px" },
			}, { dark });
			const colours = cm.HighlightStyle.define([
				{ tag: [cm.tags.keyword, cm.tags.propertyName], color: "var(--accent)" }, { tag: [cm.tags.string, cm.tags.regexp], color: "var(--string)" }, { tag: [cm.tags.number, cm.tags.bool, cm.tags.null], color: "var(--number)" }, { tag: cm.tags.comment, color: "var(--muted)" },
			]);
			view = new cm.EditorView({
				root, parent: root,
				state: cm.EditorState.create({
					doc: value,
					extensions: [cm.lineNumbers(), cm.history(), cm.drawSelection(), cm.bracketMatching(), cm.closeBrackets(), cm.indentOnInput(), cm.highlightSelectionMatches(), cm.lintGutter(), cm.javascript(),
						cm.autocompletion({ override: [complete] }), cm.syntaxHighlighting(colours), look, cm.EditorState.readOnly.of(readOnly), cm.EditorView.contentAttributes.of({ "aria-label": label, role: "textbox", "aria-multiline": "true" }), cm.EditorView.lineWrapping,
						cm.EditorView.updateListener.of((u) => u.docChanged && latest.current && latest.current(u.state.doc.toString())), cm.keymap.of([...cm.closeBracketsKeymap, ...cm.defaultKeymap, ...cm.searchKeymap, ...cm.historyKeymap, ...cm.completionKeymap])],
				}),
			});
			box.current = { view, cm };
			done(true);
		});
		return () => {
			live = false;
			if (view) view.destroy();
			box.current = {};
		};
	}, [dark]);
	useEffect(() => {
		const { view } = box.current;
		if (view && view.state.doc.toString() !== value) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: value } });
	}, [value, ready]);
	useEffect(() => {
		const { view, cm } = box.current;
		if (!view) return;
		const found = errors.map((e) => {
			const line = view.state.doc.line(Math.min(Math.max(1, e.line), view.state.doc.lines)), from = Math.min(line.from + Math.max(0, e.column - 1), line.to);
			return { from, to: Math.max(from, line.to), severity: "error", message: e.text };
		});
		view.dispatch(cm.setDiagnostics(view.state, found));
		if (found.length > 0) view.dispatch({ effects: cm.EditorView.scrollIntoView(found[0].from, { y: "center" }) });
	}, [errors, ready]);
	return html`<div class="editor" ref=${host}></div>`;
}

/** errorsOf finds the lines that a reason names. @param {string} reason */
export function errorsOf(reason) {
	const m = /line ([0-9]+), column ([0-9]+)/.exec(reason || "");
	return m ? [{ line: +m[1], column: +m[2], text: reason.trim().split(/\r?\n\r?\n/).pop() || reason }] : [];
}
