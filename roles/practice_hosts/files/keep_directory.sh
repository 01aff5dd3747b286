#!/usr/bin/env bash
# Keep a directory of a practice host on this machine, as practice_hosts_overlays takes it, unless it is there.
# usage: keep_directory.sh CONTAINER DIRECTORY_OF_THE_HOST DIRECTORY_OF_THIS_MACHINE
# Prints "kept" or "present". The directory on this machine is complete or does not exist, even if several processes keep it at once.
set -euo pipefail

container=$1 source=$2 kept=$3

mkdir -p "$(dirname "$kept")"
exec 9>"$(dirname "$kept")/.lock"
flock --exclusive --timeout 900 9
if [[ -d $kept ]]; then
  echo present
  exit 0
fi

rm -rf "$kept.partial"
mkdir "$kept.partial"
podman exec "$container" tar --create --directory "$source" . | tar --extract --same-permissions --directory "$kept.partial"
mv "$kept.partial" "$kept"
echo kept
