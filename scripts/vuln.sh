#!/usr/bin/env bash
# Looks for known vulnerabilities in the code that the binary really calls. The database is on the
# network; where it cannot be reached nothing was checked, and the exit code says so.
set -uo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
tool=$("$GO" -C tools tool -n govulncheck) || exit 2
said=$("$tool" "$@" ./... 2>&1)
code=$?
printf '%s\n' "$said"
if grep -qE 'vuln\.go\.dev|fetching vulnerabilities|no such host|dial tcp|connection refused|i/o timeout' <<<"$said" && [ $code -ne 3 ] && [ $code -ne 0 ]; then
	echo "NOTHING WAS CHECKED: the database of vulnerabilities cannot be reached from here"
	exit 2
fi
exit $code
