// @ts-check
// Who uses this tab. Credentials stay in sessionStorage: of this tab and origin, gone
// with the tab, after eight idle hours, or when signed out.
import { Store } from "./store.js";

const key = "annals.login", guestKey = "annals.guest", idle = 8 * 3600 * 1000;

/** @typedef {{login: string, basic: string, groups: string[]}} User */

/** user is who is signed in, or null. guest says that somebody looks around without. */
export const user = new Store(/** @type {User | null} */ (load()));
export const guest = new Store(sessionStorage.getItem(guestKey) === "yes");
/** asked is set while credentials are asked for over the page. */
export const asked = new Store(/** @type {null | {done: (again: boolean) => void}} */ (null));

function load() {
	try {
		const kept = JSON.parse(sessionStorage.getItem(key) || "null");
		if (kept && Date.now() - kept.at < idle) return kept.user;
	} catch { /* What is kept is of no use. */ }
	sessionStorage.removeItem(key);
	return null;
}

/** basic encodes credentials as RFC 7617 has it. @param {string} login @param {string} password */
export function basic(login, password) {
	let s = "";
	for (const b of new TextEncoder().encode(`${login}:${password}`)) s += String.fromCharCode(b);
	return "Basic " + btoa(s);
}

/** @param {User} u */
export function signedIn(u) {
	sessionStorage.setItem(key, JSON.stringify({ user: u, at: Date.now() }));
	sessionStorage.removeItem(guestKey);
	guest.set(false);
	user.set(u);
}

export function signOut() {
	sessionStorage.clear();
	guest.set(false);
	user.set(null);
}

export function lookAround() {
	sessionStorage.setItem(guestKey, "yes");
	guest.set(true);
}

/** touch is called when somebody does something; the idle hours begin anew. */
export function touch() {
	if (!user.value) return;
	if (load() === null) return signOut();
	sessionStorage.setItem(key, JSON.stringify({ user: user.value, at: Date.now() }));
}

/** isOps and isAdmin are what the groups allow; the node decides. */
export const isAdmin = () => !!user.value && (user.value.login === "admin" || user.value.groups.includes("$admins"));
export const isOps = () => isAdmin() || (!!user.value && (user.value.login === "ops" || user.value.groups.includes("$ops")));

/** ask wants credentials over the page; true when there are new ones. @returns {Promise<boolean>} */
export function ask() {
	return new Promise((resolve) => {
		const before = asked.value;
		asked.set({
			done: (again) => {
				asked.set(null);
				if (before) before.done(again);
				resolve(again);
			},
		});
	});
}
