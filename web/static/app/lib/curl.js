// @ts-check
// Requests as lines of curl. Passwords are never in them.

/** quote makes one word of the shell. @param {string} s */
export function quote(s) {
	return /^[A-Za-z0-9_\/:.,=@%+-]+$/.test(s) ? s : "'" + s.replaceAll("'", `'\\''`) + "'";
}

/**
 * curl is the request as a command.
 * @param {string} method @param {string} url @param {Record<string, string>} headers @param {string | undefined} body @param {string} login
 */
export function curl(method, url, headers, body, login) {
	const words = ["curl", "-i"];
	if (login) words.push("-u", quote(login));
	if (method !== "GET") words.push("-X", method);
	for (const [name, value] of Object.entries(headers)) if (name !== "Authorization") words.push("-H", quote(`${name}: ${value}`));
	if (body !== undefined) words.push("--data-binary", quote(body));
	words.push(quote(url));
	return words.join(" ");
}
