// CodeMirror 6: what the editor of projections is made of.
import { javascriptLanguage } from "@codemirror/lang-javascript";
import { LanguageSupport } from "@codemirror/language";
export { EditorState } from "@codemirror/state";
export { EditorView, keymap, lineNumbers, drawSelection } from "@codemirror/view";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { HighlightStyle, syntaxHighlighting, bracketMatching, indentOnInput } from "@codemirror/language";
export { autocompletion, completionKeymap, closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
export { lintGutter, setDiagnostics } from "@codemirror/lint";
export { searchKeymap, highlightSelectionMatches } from "@codemirror/search";
export { tags } from "@lezer/highlight";
/** javascript is the language without snippets: the editor has completions of its own. */
export const javascript = () => new LanguageSupport(javascriptLanguage);
