// @ts-check
// Outlines of Lucide. An icon stands beside a word, or in a control that has a name.
import { h, html } from "../../vendor/preact.js";
export * as icons from "../../vendor/icons.js";

/** Icon draws one of the icons. @param {{of: any[], cls?: string}} p */
export const Icon = ({ of, cls = "" }) => html`<svg class=${"icon " + cls} viewBox="0 0 24 24" aria-hidden="true">${of.map(([tag, attributes]) => h(tag, attributes))}</svg>`;

/** Mark is that of the product: an A out of the lines of a log. */
export const Mark = () => html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" /><path d="M8 25 16 7l8 18M12.6 15.4h6.8M10.2 20.6h11.6" /></svg>`;
