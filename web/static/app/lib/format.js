// @ts-check
// Times, sizes and numbers as text.

const two = (/** @type {number} */ n) => String(n).padStart(2, "0");

/** time formats an instant with milliseconds, local or UTC. @param {string | number | Date} t @param {boolean} utc */
export function time(t, utc) {
	const d = new Date(t);
	if (isNaN(d.getTime())) return "";
	const ms = String(d.getMilliseconds()).padStart(3, "0");
	if (utc) return `${d.getUTCFullYear()}-${two(d.getUTCMonth() + 1)}-${two(d.getUTCDate())} ${two(d.getUTCHours())}:${two(d.getUTCMinutes())}:${two(d.getUTCSeconds())}.${ms} UTC`;
	return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${ms}`;
}

const days = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/**
 * readTime understands RFC 3339, "2026-11-24 14:05", "14:05" (today) and "Tuesday 14:05"
 * (the last one). Where no zone is said it is local, or UTC. Returns RFC 3339, or null.
 * @param {string} s @param {boolean} utc @param {Date} now
 */
export function readTime(s, utc, now) {
	s = s.trim();
	if (/^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+ ?(Z|UTC|[+-][0-9]{2}:[0-9]{2})$/i.test(s)) return rfc(new Date(s.replace(" ", "T").replace(/ ?UTC$/i, "Z").replace(/ (?=[+-])/, "")));
	const m = /^(?:([0-9]{4})-([0-9]{2})-([0-9]{2})|([a-z]{2,9}))?(?:(?:^|[T ]+)([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(\.[0-9]{1,3})?)?)?$/i.exec(s);
	if (!m || s === "") return null;
	const [, year, month, day, word, hour, minute, second, fraction] = m;
	let y = utc ? now.getUTCFullYear() : now.getFullYear(), mo = utc ? now.getUTCMonth() : now.getMonth(), d = utc ? now.getUTCDate() : now.getDate();
	if (year) [y, mo, d] = [+year, +month - 1, +day];
	const clock = [+(hour || 0), +(minute || 0), +(second || 0), Math.round(+(fraction || 0) * 1000)];
	const at = (/** @type {number} */ back) => utc ? new Date(Date.UTC(y, mo, d - back, ...clock)) : new Date(y, mo, d - back, ...clock);
	if (!word) return rfc(at(0));
	const w = word.toLowerCase();
	if (w === "today" || w === "yesterday") return rfc(at(w === "today" ? 0 : 1));
	const n = days.findIndex((x) => x.startsWith(w));
	if (n < 0) return null;
	const today = utc ? now.getUTCDay() : now.getDay();
	let back = (today - n + 7) % 7;
	if (back === 0 && at(0) > now) back = 7;
	return rfc(at(back));
}

/** @param {Date} d */
function rfc(d) {
	return isNaN(d.getTime()) ? null : d.toISOString();
}

/** bytes formats a size in binary units. @param {number | bigint | null | undefined} n */
export function bytes(n) {
	if (n === null || n === undefined || n === "") return "–";
	let v = Number(n), unit = 0;
	while (Math.abs(v) >= 1024 && unit < 5) {
		v /= 1024;
		unit++;
	}
	return `${unit === 0 || v >= 100 ? Math.round(v) : v.toFixed(1)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

/** count formats a whole number with groups of three. @param {number | bigint | string | null | undefined} n */
export function count(n) {
	if (n === null || n === undefined) return "–";
	return String(n).replace(/\B(?=([0-9]{3})+$)/g, ",");
}

/** rate formats a number that is not whole. @param {number | null | undefined} n */
export function rate(n) {
	if (n === null || n === undefined) return "–";
	return Math.abs(n) >= 100 || n === 0 ? count(Math.round(n)) : n.toFixed(Math.abs(n) >= 10 ? 1 : 2);
}

/** span formats a duration. @param {number} ms */
export function span(ms) {
	if (ms < 1000) return `${Math.round(ms)} ms`;
	const s = Math.round(ms / 1000);
	if (s < 120) return ms < 10000 ? `${(ms / 1000).toFixed(1)} s` : `${s} s`;
	if (s < 7200) return `${Math.round(s / 60)} min`;
	if (s < 48 * 3600) return `${Math.round(s / 3600)} h`;
	return `${Math.round(s / 86400)} days`;
}

/** ago says how long ago an instant was. @param {number | string} t @param {number} now */
export function ago(t, now) {
	const ms = now - new Date(t).getTime();
	return isNaN(ms) ? "" : ms < 1500 ? "just now" : `${span(ms)} ago`;
}

/** plural joins a number with its noun. @param {number | bigint} n @param {string} noun @param {string} [many] */
export function plural(n, noun, many) {
	return `${count(n)} ${Number(n) === 1 ? noun : many || noun + "s"}`;
}

/** guid reports whether a text is an id. @param {string} s */
export function isGuid(s) {
	return /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i.test(s.trim());
}
