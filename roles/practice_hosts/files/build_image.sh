#!/usr/bin/env bash
# Build the base image of the practice hosts and import it into podman, unless it is there.
# usage: build_image.sh IMAGE CACHE_DIRECTORY SUITE PACKAGE...
# Prints "built" or "present". Several clones may run it at once: one builds, the others wait.
set -euo pipefail

image=$1 cache_directory=$2 suite=$3
shift 3
packages=$(IFS=,; echo "$*")

if podman image exists "$image"; then
  echo present
  exit 0
fi

mkdir -p "$cache_directory"
exec 9>"$cache_directory/build.lock"
flock --exclusive --timeout 900 9
if podman image exists "$image"; then
  echo present
  exit 0
fi

# This takes the machine's own package sources of this suite, so that its mirror is used. If the machine has none
# (another release, another distribution), mmdebstrap uses the default mirror.
# shellcheck disable=SC2016  # apt-get expands these, not the shell
sources=$(
  apt-get indextargets --format '$(CREATED_BY) $(COMPONENT) $(RELEASE) $(REPO_URI)' |
    awk -v suite="$suite" '
      $1 == "Packages" && $2 == "main" &&
      ($3 == suite || $3 == suite "-updates" || $3 == suite "-security") && !seen[$3]++ {
        print "deb " $4 " " $3 " main"
      }'
)

proxy=$(apt-config shell proxy Acquire::http::Proxy)
proxy=${proxy#proxy=} proxy=${proxy//\'/}

archive="$cache_directory/$(basename "${image/:/-}").tar"
trap 'rm -f "$archive"' EXIT

# Host keys and the machine id belong to a host, not to its image: each host makes its own at its first boot.
# The inner quotes are for the shell that mmdebstrap starts.
# shellcheck disable=SC2016
mmdebstrap --quiet --variant=minbase --include="$packages" \
  ${proxy:+--aptopt="Acquire::http::Proxy \"$proxy\""} \
  --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' \
  --customize-hook='rm -f "$1"/etc/ssh/ssh_host_*' \
  --customize-hook=': > "$1/etc/machine-id"' \
  --customize-hook='printf "%s\n" "[Unit]" "Description=Make the SSH host keys of this host" \
    "ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key" "Before=ssh.service" "[Service]" "Type=oneshot" \
    "ExecStart=/usr/bin/ssh-keygen -A" > "$1/etc/systemd/system/ssh-host-keys.service"' \
  --customize-hook='mkdir -p "$1/etc/systemd/system/ssh.service.d" &&
    printf "%s\n" "[Unit]" "Requires=ssh-host-keys.service" "After=ssh-host-keys.service" \
    > "$1/etc/systemd/system/ssh.service.d/host-keys.conf"' \
  --customize-hook='for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    fstrim.timer getty.target; do ln -sf /dev/null "$1/etc/systemd/system/$unit"; done' \
  "$suite" "$archive" ${sources:+-} <<<"$sources" >&2

podman import --quiet \
  --change 'CMD ["/lib/systemd/systemd"]' --change 'STOPSIGNAL SIGRTMIN+3' \
  --change 'LABEL psfleet.image=practice' \
  "$archive" "$image" >&2
echo built
