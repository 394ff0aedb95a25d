#!/usr/bin/env bash
# Checks what is in deploy/ and in a release as far as this machine can, without a network: the
# unit, the package, the image with the compose file, and the chart. It needs root, and Debian's
# dpkg, lintian, podman, runc and python3-yaml; a step without its tool is named, and so is
# everything that was only rendered. The exit code is 0 if no step failed.
#
#   scripts/deploy-check.sh v0.9.0 bin/release
set -uo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
version=$1
release=$PWD/$2
arch=$("$GO" env GOARCH)
work=$(mktemp -d)
failed=() skipped=() rendered=()
cleanup=()
trap 'for ((i = ${#cleanup[@]} - 1; i >= 0; i--)); do eval "${cleanup[i]}"; done >/dev/null 2>&1; rm -rf "$work"' EXIT

step() { # name, command...
	local name=$1
	shift
	if "$@" >"$work/said" 2>&1; then
		echo "ok      $name: $(tail -n1 "$work/said")"
	else
		echo "FAILED  $name:"
		sed 's/^/        /' "$work/said"
		failed+=("$name")
	fi
}

have() { # name of the step, commands...
	local name=$1
	shift
	for c in "$@"; do
		command -v "$c" >/dev/null && continue
		echo "skipped $name: there is no $c"
		skipped+=("$name")
		return 1
	done
}

# --- the unit
unit() {
	sed "s#/usr/bin/annals#$work/annals#" deploy/systemd/annals.service >"$work/annals.service"
	local said
	said=$(systemd-analyze verify --man=no "$work/annals.service" 2>&1 | grep -F annals.service)
	[ -z "$said" ] || { echo "$said"; return 1; }
	systemd-analyze security --offline=yes --threshold=20 "$work/annals.service" | tail -n1
}
tar -C "$work" --strip-components=1 -xzf "$release/annals-$version-linux-$arch.tar.gz" || exit 1
have "unit" systemd-analyze && step "unit" unit

# --- the package, in a root of its own: this system with changes that nothing else sees
package_root() {
	mkdir "$work/tmpfs" && mount -t tmpfs tmpfs "$work/tmpfs" || return 1
	cleanup+=("umount -l $work/tmpfs")
	mkdir "$work"/tmpfs/{up,work,root} || return 1
	mount -t overlay overlay -o "lowerdir=/,upperdir=$work/tmpfs/up,workdir=$work/tmpfs/work" "$work/tmpfs/root" || return 1
	cleanup+=("umount -l $work/tmpfs/root")
	mount -t proc proc "$work/tmpfs/root/proc" && cleanup+=("umount -l $work/tmpfs/root/proc")
	cp "$release/annals_${version#v}_$arch.deb" "$work/tmpfs/root/annals.deb"
	echo "an overlay of this system"
}
install_package() {
	chroot "$root" dpkg -i /annals.deb || return 1
	chroot "$root" stat -c '%U:%G %a' /var/lib/annals | grep -qx 'annals:annals 750' || { echo "/var/lib/annals is not annals' own"; return 1; }
	cmp "$root/etc/annals/annals.conf" deploy/packages/annals.conf || return 1
	chroot "$root" dpkg -s annals | grep -x "Status: install ok installed"
}
# What systemd would start, as the user and with the folders of the unit, under a supervisor.
exec_start() {
	local start
	start=$(sed -n 's/^ExecStart=//p' "$root"/lib/systemd/system/annals.service)
	python3 - "$root" "$start" <<'PY'
import os, shlex, signal, socket, subprocess, sys
root, start = sys.argv[1], shlex.split(sys.argv[2])
listen = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listen.bind(root + "/run/annals-check")
os.chmod(root + "/run/annals-check", 0o777)
listen.settimeout(60)
env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "NOTIFY_SOCKET": "/run/annals-check", "WATCHDOG_USEC": "600000"}
node = subprocess.Popen(["chroot", "--userspec=annals:annals", root, *start, "--node-port", "0"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
heard = []
def until(word):
    while not heard or word not in heard[-1]:
        heard.append(listen.recv(4096).decode())
try:
    until("READY=1"); until("WATCHDOG=1")
    node.send_signal(signal.SIGHUP)
    until("WATCHDOG=1")
    node.send_signal(signal.SIGTERM)
    until("STOPPING=1")
    out = node.communicate(timeout=60)[0].decode()
except (TimeoutError, subprocess.TimeoutExpired) as e:
    node.kill()
    sys.exit(f"{e}: heard {heard}\n{node.communicate()[0].decode()}")
if node.returncode != 0 or "configuration reloaded" not in out:
    sys.exit(f"exit code {node.returncode}\n{out}")
print("READY, WATCHDOG, reload by SIGHUP, STOPPING, exit code 0, as the user annals")
PY
}
remove_package() {
	chroot "$root" dpkg -r annals || return 1
	[ -d "$root/var/lib/annals" ] && [ ! -e "$root/usr/bin/annals" ] && echo "the data folder stays"
}
lint_package() {
	lintian --allow-root --fail-on error "$release/annals_${version#v}_$arch.deb" && echo "no errors"
}
if have "package" dpkg python3 chroot; then
	step "package: a root of its own" package_root
	root=$work/tmpfs/root
	if [ -e "$root/annals.deb" ]; then
		step "package: dpkg -i" install_package
		step "package: ExecStart" exec_start
		step "package: dpkg -r" remove_package
	fi
fi
have "lintian" lintian && step "lintian" lint_package
rpm_contents() { rpm -qp --nosignature --scripts --requires -l "$release"/annals-*."$(uname -m)".rpm && echo "scripts, requirements and files can be read"; }
if have "rpm" rpm; then
	step "rpm" rpm_contents
	rendered+=("the rpm was read, not installed")
fi

# --- the image, and the compose file
if have "image" podman runc python3 curl iptables && python3 -c 'import yaml' 2>/dev/null; then
	printf '[network]\nnetwork_backend = "netavark"\n' >"$work/containers.conf"
	export CONTAINERS_CONF=$work/containers.conf
	podman=(podman --storage-driver=vfs --root "$work/pods" --runroot "$work/podrun" --runtime runc)
	cleanup+=("${podman[*]} rm -fa; ${podman[*]} system prune -af")
	image() { CONTAINER="${podman[*]}" ANNALS_BINARY=$work/annals scripts/image.sh "$version" && "${podman[@]}" inspect annals:latest | grep -m1 '"User"'; }
	step "image" image
	limits="--ulimit nofile=1024:1024 --ulimit nproc=1024:1024"
	for profile in one three; do
		step "compose: $profile" python3 scripts/compose-check.py $profile annals:latest "$limits" -- "${podman[@]}"
	done
fi

# --- the chart
helm=$("$GO" -C tools/release tool -n helm) && manifests=$work/manifests && "$GO" -C tools/release build -o "$manifests" ./manifests || failed+=("helm")
chart() { # options...
	"$helm" template annals deploy/kubernetes/chart --kube-version 1.30.0 "$@" 2>"$work/helm" >"$work/objects.yaml" || { cat "$work/helm"; return 1; }
	"$manifests" <"$work/objects.yaml"
}
lint_chart() { "$helm" lint --strict deploy/kubernetes/chart; }
all=backup.enabled=true,backup.existingClaim=backups,serviceMonitor.enabled=true,prometheusRule.enabled=true,grafanaDashboard.enabled=true
step "helm lint" lint_chart
step "chart: defaults" chart
step "chart: one node" chart --set replicas=1
step "chart: everything" chart --set replicas=5,$all
step "chart: own secrets, S3" chart --set tls.existingSecret=x,existingPasswordSecret=y,backup.enabled=true,backup.to=s3://b/p,backup.credentialsSecret=z
step "chart: without TLS" chart --set tls.enabled=false,$all
rendered+=("the chart was never in a cluster" "Certificate, Issuer, ServiceMonitor and PrometheusRule have no schema here")
kubeconform=$("$GO" -C tools/release tool -n kubeconform)
if "$kubeconform" -strict -ignore-missing-schemas -summary "$work/objects.yaml" >"$work/said" 2>&1; then
	echo "ok      kubeconform: $(tail -n1 "$work/said")"
elif grep -q 'failed downloading schema' "$work/said"; then
	echo "skipped kubeconform: its schemas cannot be reached"
	skipped+=(kubeconform)
else
	cat "$work/said"
	failed+=(kubeconform)
fi

printf '\nonly rendered: %s\n' "${rendered[@]}"
[ ${#skipped[@]} -eq 0 ] || printf 'skipped: %s\n' "${skipped[@]}"
[ ${#failed[@]} -eq 0 ] || { printf 'FAILED: %s\n' "${failed[@]}"; exit 1; }
echo "nothing failed"
