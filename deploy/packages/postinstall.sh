#!/bin/sh
set -e

# The argument is configure for Debian; RPM gives 1 for a first installation, 2 for an upgrade.
case "${1:-configure}" in
configure | 1 | 2) ;;
*) exit 0 ;;
esac

if ! getent group annals >/dev/null; then
	groupadd --system annals
fi
if ! getent passwd annals >/dev/null; then
	useradd --system --gid annals --home-dir /var/lib/annals --no-create-home \
		--shell /usr/sbin/nologin --comment "Annals" annals
fi
if [ ! -d /var/lib/annals ]; then
	mkdir -p /var/lib/annals
	chown annals:annals /var/lib/annals
	chmod 0750 /var/lib/annals
fi

# The node is not started: it needs its addresses and certificates first. One that runs keeps
# running; restart the nodes of a cluster one after the other.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
