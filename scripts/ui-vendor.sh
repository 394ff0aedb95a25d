#!/usr/bin/env bash
# Makes web/static/vendor from the packages that web/vendor locks: one minified
# module each. It needs npm; the node itself does not. With --check it compares the
# bytes with the committed ones and changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
committed=web/static/vendor
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp web/vendor/* "$work"
(cd "$work" && npm ci --ignore-scripts --no-audit --no-fund --silent)
mkdir "$work/made"
for module in preact editor icons; do
	"$("$GO" -C tools tool -n esbuild)" "$work/$module.js" --bundle --minify --format=esm --target=es2022 --legal-comments=none \
		--log-level=warning --outfile="$work/made/$module.js"
done
cp "$work/node_modules/@fontsource-variable/inter/files/inter-latin-wght-normal.woff2" "$work/made/inter.woff2"

node - "$work" <<'JS'
const fs = require("fs"), path = require("path"), crypto = require("crypto");
const work = process.argv[2], made = path.join(work, "made");
const lock = JSON.parse(fs.readFileSync(path.join(work, "package-lock.json")));
const packages = [];
let licences = "The modules in this folder are made of these packages.\n";
for (const [where, p] of Object.entries(lock.packages)) {
	if (!where) continue;
	const name = where.replace(/^.*node_modules\//, "");
	packages.push({ name, version: p.version, licence: p.license });
	const folder = path.join(work, where);
	const file = fs.readdirSync(folder).find((f) => /^licen[cs]e/i.test(f));
	licences += `\n== ${name} ${p.version}: ${p.license}\n\n` + (file ? fs.readFileSync(path.join(folder, file), "utf8").trim() + "\n" : "");
}
const files = {};
fs.writeFileSync(path.join(made, "LICENCES.txt"), licences);
for (const f of fs.readdirSync(made).sort()) {
	files[f] = crypto.createHash("sha256").update(fs.readFileSync(path.join(made, f))).digest("hex");
}
fs.writeFileSync(path.join(made, "VENDOR.json"), JSON.stringify({ packages, files }, null, "\t") + "\n");
JS

if [ "${1:-}" = --check ]; then
	diff -r "$work/made" "$committed"
	exit
fi
rm -rf "$committed"
cp -r "$work/made" "$committed"
