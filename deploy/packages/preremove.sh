#!/bin/sh
set -e

# Debian says remove, RPM says 0. Upgrades leave the node running.
case "${1:-}" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now annals.service || true
	fi
	;;
esac
