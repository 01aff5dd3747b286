#!/usr/bin/env bash
# Check that this machine can run practice hosts; print the OCI runtime to ask podman for, or nothing for its own.
# usage: find_runtime.sh RUNTIME_OR_EMPTY
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

runtime=${1:-}
if [[ -z $runtime && $(stat --file-system --format=%T /sys/fs/cgroup) != cgroup2fs ]]; then
  runtime=runc # crun, podman's own choice, refuses cgroups of version 1
fi

missing=()
for program in podman mmdebstrap iptables flock ssh-keygen ${runtime:+"$runtime"}; do
  command -v "$program" >/dev/null || missing+=("$program")
done
[[ -x /usr/lib/podman/netavark || -x /usr/libexec/podman/netavark || -d /usr/lib/cni ]] || missing+=(netavark)
if ((${#missing[@]})); then
  echo "practice hosts need programs that this machine lacks: ${missing[*]}." \
    "Install them with \`make setup\` (Debian packages: podman runc netavark iptables mmdebstrap openssh-client)." >&2
  exit 1
fi
echo "$runtime"
