#!/usr/bin/env bash
# Wait until a practice host has booted, then let its user in with one key, and use sudo: without a password,
# or with the one in PASSWORD_FILE. The password goes through pipes only, never into a command line.
# usage: prepare_login.sh CONTAINER USER PUBLIC_KEY DEADLINE_SECONDS SSH_PORT [PASSWORD_FILE]
# Prints "changed" or "unchanged", then the host's public key.
set -euo pipefail

container=$1 user=$2 public_key=$3 deadline=$4 ssh_port=$5 password_file=${6:-}

# `systemctl is-system-running --wait` can hang for minutes: ask again and again instead, within a deadline.
state=
while ((SECONDS <= deadline)); do
  state=$(podman exec "$container" systemctl is-system-running 2>&1) || true
  [[ $state == running || $state == degraded ]] && break
  sleep 0.2
done
if [[ $state != running && $state != degraded ]]; then
  {
    echo "$container has not booted after $deadline seconds (practice_hosts_boot_deadline_seconds); its state: $state."
    echo "All containers of this machine share $(</proc/sys/fs/inotify/max_user_instances) inotify instances:" \
      "with more than about 20 hosts, raise them with \`sysctl fs.inotify.max_user_instances=1024\`."
    echo "What it said last:"
    podman exec "$container" journalctl --no-pager --lines=15 2>&1 || podman logs --tail 15 "$container" 2>&1
  } >&2
  exit 1
fi

inside() { podman exec --interactive "$container" "$@"; }

prepared=$(
  inside sh -eu -s -- "$user" "$public_key" "$ssh_port" "${password_file:+password}" <<'INSIDE'
user=$1 public_key=$2 ssh_port=$3 sudo_asks=$4 answer=unchanged

# This is as Debian's installer leaves it.
hosts="127.0.0.1 localhost
127.0.1.1 $(hostname)
::1 localhost ip6-localhost ip6-loopback"
if ! grep -qs '^127.0.1.1' /etc/hosts; then
  echo "$hosts" >/etc/hosts
  answer=changed
fi

if ! id "$user" >/dev/null 2>&1; then
  useradd --create-home --shell /bin/bash "$user"
  answer=changed
fi
sudoers="/etc/sudoers.d/$user"
if [ "$sudo_asks" ]; then
  # The group that Debian's installer puts the first user into.
  if ! id --name --groups "$user" | grep -qw sudo; then
    usermod --append --groups sudo "$user"
    answer=changed
  fi
elif [ "$user" != root ] && [ ! -s "$sudoers" ]; then
  echo "$user ALL=(ALL) NOPASSWD: ALL" >"$sudoers.new"
  chmod 0440 "$sudoers.new"
  mv "$sudoers.new" "$sudoers"
  answer=changed
fi

home=$(getent passwd "$user" | cut -d: -f6)
keys="$home/.ssh/authorized_keys"
if ! grep -qsxF "$public_key" "$keys"; then
  install -d -m 0700 -o "$user" -g "$user" "$home/.ssh"
  echo "$public_key" >"$keys.new"
  chmod 0600 "$keys.new"
  chown "$user:$user" "$keys.new"
  mv "$keys.new" "$keys"
  answer=changed
fi

port_file=/etc/ssh/sshd_config.d/10-port.conf
if [ "$ssh_port" != 22 ] && [ ! -s "$port_file" ]; then
  echo "Port $ssh_port" >"$port_file"
  systemctl restart ssh
  answer=changed
fi

echo "$answer"
cat /etc/ssh/ssh_host_ed25519_key.pub
INSIDE
)

# This asks sudo whether it accepts the password, because an earlier run may have set another one.
if [[ $password_file ]] &&
  ! inside runuser --user "$user" -- sudo --stdin --reset-timestamp true <"$password_file" 2>/dev/null; then
  echo "$user:$(<"$password_file")" | inside chpasswd
  prepared=${prepared/#unchanged/changed}
fi
echo "$prepared"
