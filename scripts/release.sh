#!/usr/bin/env bash
# Builds what a release consists of into a folder: archives for each platform, packages for Debian
# and RPM distributions, a bill of materials, and the sums of all of them. The same commit gives
# the same bytes, whatever the folder: every time stamp is that of the commit.
#
#   scripts/release.sh v0.9.0 bin/release
#
# RELEASE_PLATFORMS limits the platforms. A key in RELEASE_SIGNING_KEY (the id of a key of gpg, or
# the path of a secret key of minisign) signs SHA256SUMS.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
version=$1
out=$2
platforms=${RELEASE_PLATFORMS:-linux/amd64 linux/arm64 darwin/arm64}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || { echo "$version is not a version like v0.9.0"; exit 1; }

export CGO_ENABLED=0 TZ=UTC LC_ALL=C GOFLAGS=-trimpath
export GOAMD64=v1 GOARM64=v8.0
umask 022
vcs=false
if git rev-parse HEAD >/dev/null 2>&1; then
	vcs=true
	export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
fi
: "${SOURCE_DATE_EPOCH:?without git this needs the time of the commit}"
stamp=@$SOURCE_DATE_EPOCH

rm -rf "$out"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { # os/arch, file
	GOOS=${1%/*} GOARCH=${1#*/} "$GO" build -buildvcs=$vcs -tags durablelocks -ldflags "-checklinkname=0 -s -w -buildid= -X main.version=$version" \
		-o "$2" ./cmd/annals
}

# What a binary writes about itself comes from one for this machine.
build "$("$GO" env GOOS)/$("$GO" env GOARCH)" "$work/annals"
mkdir "$work/completion" "$work/man"
for shell in bash zsh fish; do
	"$work/annals" completion "$shell" >"$work/completion/annals.$shell"
done
"$work/annals" docs --man "$work/man"

archive() { # os/arch
	local name=annals-$version-${1/\//-}
	local tree=$work/$name
	mkdir "$tree"
	build "$1" "$tree/annals"
	cp LICENSE README.md CHANGELOG.md deploy/packages/annals.conf "$tree"
	cp -r "$work/completion" "$work/man" "$tree"
	[[ $1 == linux/* ]] && cp deploy/systemd/annals.service "$tree"
	find "$tree" -exec touch -h -d "$stamp" {} +
	tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --format=ustar -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
	"$("$GO" -C tools/release tool -n cyclonedx-gomod)" bin -json -std -noserial -notimestamp -version "$version" \
		-output "$PWD/$out/$name.cdx.json" "$tree/annals" 2>/dev/null
}

# packages makes the deb and the rpm of an archive that is there.
packages() { # arch
	local files=$work/packages-$1
	mkdir -p "$files"/tree/{doc/annals,lintian/overrides}
	local share=$files/tree
	cp "$work/annals-$version-linux-$1/annals" "$files"
	# Packages name paths of their own distribution, and a man page as its source.
	sed 's#^Documentation=#Documentation=man:annals(1) #' deploy/systemd/annals.service >"$files/annals.service"
	install -D "$work/completion/annals.bash" "$share/bash-completion/completions/annals"
	install -D "$work/completion/annals.zsh" "$share/zsh/vendor-completions/_annals"
	install -D "$work/completion/annals.fish" "$share/fish/vendor_completions.d/annals.fish"
	local page section
	for page in "$work"/man/*.[1-8]; do
		section=${page##*.}
		mkdir -p "$share/man/man$section"
		gzip -9n <"$page" >"$share/man/man$section/$(basename "$page").gz"
	done
	cp deploy/packages/copyright deploy/monitoring/* "$share/doc/annals"
	gzip -9n <CHANGELOG.md >"$share/doc/annals/CHANGELOG.md.gz"
	cp deploy/packages/lintian-overrides "$share/lintian/overrides/annals"
	find "$files/tree" -type f -exec chmod 0644 {} +
	cat >"$files/changelog.yaml" <<-YAML
		- semver: ${version#v}
		  date: $(date -d "$stamp" +%Y-%m-%dT%H:%M:%SZ)
		  packager: The Annals authors <annals@annalsdb.invalid>
		  deb: {urgency: medium, distributions: [unstable]}
		  changes:
		    - note: "See /usr/share/doc/annals/CHANGELOG.md.gz"
	YAML
	find "$files" -exec touch -h -d "$stamp" {} +
	local nfpm units=/lib/systemd/system
	nfpm=$("$GO" -C tools/release tool -n nfpm)
	for format in deb rpm; do
		[ $format = rpm ] && units=/usr/lib/systemd/system
		sed -e "s#\${PACKAGE_ARCH}#$1#; s#\${PACKAGE_VERSION}#${version#v}#; s#\${PACKAGE_FILES}#$files#; s#\${PACKAGE_UNITS}#$units#" \
			deploy/packages/nfpm.yaml >"$work/nfpm.yaml"
		"$nfpm" package --config "$work/nfpm.yaml" --packager $format --target "$out" >"$work/said" || { cat "$work/said"; exit 1; }
	done
}

for platform in $platforms; do
	echo "$platform"
	archive "$platform"
	case $platform in linux/*) packages "${platform#linux/}" ;; esac
done

(cd "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
if [ -n "${RELEASE_SIGNING_KEY:-}" ]; then
	if [ -f "$RELEASE_SIGNING_KEY" ]; then
		minisign -S -s "$RELEASE_SIGNING_KEY" -m "$out/SHA256SUMS" -t "annals $version"
	else
		gpg --batch --yes --local-user "$RELEASE_SIGNING_KEY" --armor --detach-sign --output "$out/SHA256SUMS.asc" "$out/SHA256SUMS"
	fi
else
	echo "not signed: RELEASE_SIGNING_KEY names no key"
fi
cat "$out/SHA256SUMS"
