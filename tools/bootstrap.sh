#!/usr/bin/env bash
# Make this clone ready: Debian packages, then .venv from a lock file with hashes. Does nothing where all is there.
# usage: tools/bootstrap.sh controller|dev
#   PSFLEET_PYTHON  the Python to make .venv with; default: the first Python 3.11 or 3.12 found
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:/usr/sbin:/sbin

want=${1:?usage: tools/bootstrap.sh controller|dev}
lock=requirements/$want.txt
environment=$PWD/.venv
output=$(mktemp)
trap 'rm -f "$output"' EXIT

fail() {
  echo "setup: $*" >&2
  exit 1
}

# Run a command and print one line with its seconds; show the command's output only if it fails.
step() {
  local what=$1 begin=$SECONDS
  shift
  if ! "$@" >"$output" 2>&1; then
    tail -n 40 "$output" >&2
    fail "$what failed after $((SECONDS - begin)) s: $*"
  fi
  echo "setup: $what ($((SECONDS - begin)) s)"
}

python_is_suitable() {
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null
}

# Debian's own Python first: an environment made with it lives as long as the machine.
find_python() {
  local candidate
  for candidate in ${PSFLEET_PYTHON:-/usr/bin/python3.11 /usr/bin/python3.12 python3.11 python3.12 python3}; do
    if python_is_suitable "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  fail "psfleet's controller needs Python 3.11 or 3.12; found ${PSFLEET_PYTHON:-$(python3 --version 2>&1)}." \
    "Install one and name it: make setup PSFLEET_PYTHON=/path/to/python3.11"
}

missing_packages() {
  local -A packages=(
    [podman]=podman [runc]=runc [iptables]=iptables [mmdebstrap]=mmdebstrap [ssh]=openssh-client [flock]=util-linux
  )
  [[ $want == dev ]] && packages+=([shellcheck]=shellcheck [nft]=nftables)
  local program
  for program in "${!packages[@]}"; do
    command -v "$program" >/dev/null || echo "${packages[$program]}"
  done
  [[ -x /usr/lib/podman/netavark || -x /usr/libexec/podman/netavark ]] || echo netavark
  [[ -d /etc/ssl/certs ]] || echo ca-certificates
  if [[ $python == /usr/bin/* ]] && ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "$(basename "$(readlink -f "$python")")-venv"
  fi
}

install_packages() {
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "as root, install these Debian packages, then try again: $*"
    as_root=(sudo)
  fi
  command -v apt-get >/dev/null || fail "install what gives these Debian packages, then try again: $*"
  step "Debian's package lists" "${as_root[@]}" apt-get update --quiet
  step "Debian packages $*" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -o DPkg::Lock::Timeout=300 --yes --quiet --no-install-recommends "$@"
}

make_environment() {
  if ! python_is_suitable "$environment/bin/python"; then
    step ".venv with $("$python" --version)" "$python" -m venv --clear "$environment"
  fi
  local uv_version
  uv_version=$(awk -F'[= ]+' '$1 == "uv" {print $2}' "$lock")
  if [[ $("$environment/bin/uv" --version 2>/dev/null) != "uv $uv_version"* ]]; then
    local uv_lock
    uv_lock=$(mktemp)
    awk '/^[^ ]/ {keep = /^uv==/} keep' "$lock" >"$uv_lock"
    "$environment/bin/python" -m pip --version >/dev/null 2>&1 ||
      step "pip" "$environment/bin/python" -m ensurepip
    step "uv $uv_version" "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
      --require-hashes --only-binary :all: --no-deps --requirement "$uv_lock"
    rm -f "$uv_lock"
  fi
}

# Only wheels: a source distribution would run its own program here to be built. An environment for `dev` has
# all packages of `controller`, so it serves `controller`, too, and stays.
install_lock() {
  local begin=$SECONDS
  if "$environment/bin/uv" pip install --quiet --python "$environment/bin/python" --require-hashes --no-build \
    --requirement "$lock" >"$output" 2>&1; then
    echo "setup: Python packages of $lock ($((SECONDS - begin)) s)"
  else
    echo "setup: uv could not install $lock ($(grep -v '^ *$' "$output" | head -n 1)); trying pip, which is slower"
    step "Python packages of $lock" "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
      --require-hashes --only-binary :all: --requirement "$lock"
  fi
}

digest_of() { sha256sum "$@" | sha256sum | cut -c 1-16; }
stamp=$environment/.psfleet-$want
digest=$(digest_of "$lock")
dev_digest=$(digest_of requirements/dev.txt)

python=$(find_python)
mapfile -t packages < <(missing_packages)
((${#packages[@]} == 0)) || install_packages "${packages[@]}"

if [[ -x $environment/bin/python ]]; then
  [[ $(cat "$stamp" 2>/dev/null) == "$digest" ]] && exit 0
  [[ $want == controller && $(cat "$environment/.psfleet-dev" 2>/dev/null) == "$dev_digest" ]] && exit 0
fi

mkdir -p .state
exec 9>.state/setup.lock
flock 9
make_environment
install_lock
echo "$digest" >"$stamp"
