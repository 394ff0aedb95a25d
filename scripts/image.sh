#!/usr/bin/env bash
# Builds the image annals:VERSION, which is also annals:latest, with docker, podman or buildah.
#
#   scripts/image.sh v0.9.0 [os/arch]
#
# CONTAINER names the command, ANNALS_BINARY a binary that is there. The version that "make build"
# would give is not used: an image has the version of the release.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
version=$1
platform=${2:-linux/$("$GO" env GOARCH)}
if [ -n "${CONTAINER:-}" ]; then
	command=$CONTAINER
elif docker info >/dev/null 2>&1; then # There may be a client without its daemon.
	command=docker
elif command -v podman >/dev/null; then
	command=podman
else
	command=buildah
fi

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir -p "$context/root/etc/ssl/certs" "$context/data" "$context/tmp"
if [ -n "${ANNALS_BINARY:-}" ]; then
	cp "$ANNALS_BINARY" "$context/root/annals"
else
	CGO_ENABLED=0 GOOS=linux GOARCH=${platform#linux/} "$GO" build -trimpath -tags durablelocks -ldflags "-checklinkname=0 -s -w -X main.version=$version" -o "$context/root/annals" ./cmd/annals
fi
cp LICENSE "$context/root"
echo annals:x:1000:1000::/data:/ >"$context/root/etc/passwd"
echo annals:x:1000: >"$context/root/etc/group"
# Object stores have certificates of public authorities.
for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
	[ -e "$bundle" ] && cp -L "$bundle" "$context/root/etc/ssl/certs/ca-certificates.crt" && break
done
[ -e "$context/root/etc/ssl/certs/ca-certificates.crt" ] || echo "without certificates of public authorities: this machine has none"
chmod -R u=rwX,go=rX "$context"
chmod 0750 "$context/data"
chmod 1777 "$context/tmp"

build=build
[[ $command == *buildah* ]] && build=bud
format=()
# The health check is part of the format of Docker only.
[[ $command == *podman* || $command == *buildah* ]] && format=(--format docker)
$command $build "${format[@]}" --platform "$platform" -t "annals:$version" -t annals:latest -f deploy/docker/Dockerfile "$context"
