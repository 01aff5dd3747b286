#!/usr/bin/env bash
# Write the locks anew with the newest versions: every package with its hashes.
#   tools/lock.sh              all of them
#   tools/lock.sh controller   requirements/*.txt from pyproject.toml, for Python 3.11 and 3.12
#   tools/lock.sh hosts        roles/package_store/files/*.txt, the pieces that the hosts' environments are made of
# No header and no annotations: they would name the index and the folder of the person who ran this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The other Pythons get the same versions as this Python, if these versions have a wheel for them.
LEADING=3.11

compile() {
  .venv/bin/python -m psfleet.carry.pip_settings pip compile --quiet --python .venv/bin/python --generate-hashes --no-annotate --no-header \
    --no-emit-index-url --no-emit-find-links "$@"
}

# compile_for PYTHON MACHINE REQUIREMENT OPTION...: lock for hosts, which compile nothing and have glibc 2.28
# or newer.
compile_for() {
  local python=$1 machine=$2 requirement=$3
  shift 3
  compile --only-binary :all: --python-version "$python" --python-platform "$machine-manylinux_2_28" "$@" - \
    <<<"$requirement"
}

# environment EXPRESSION: print what plugins/module_utils/environments/environment.py says.
environment() {
  .venv/bin/python -c "import plugins.module_utils.environments.environment as environment; print($1)"
}

lock_controller() {
  local options=(--upgrade --universal --python-version 3.11)
  compile "${options[@]}" pyproject.toml --output-file requirements/controller.txt
  compile "${options[@]}" pyproject.toml --group dev --output-file requirements/dev.txt
}

# lock_python PYTHON FOLDER TENSORFLOW: what TensorFlow and TensorBoard need beside TensorFlow's own wheels.
lock_python() {
  local python=$1 lock=$2/python$1.txt board=$2/tensorboard-python$1.txt tensorflow=$3
  # The compiler prefers the versions in the output file to newer versions.
  [[ $python == "$LEADING" ]] || cp "$2/python$LEADING.txt" "$lock"
  compile_for "$python" x86_64 "tensorflow-cpu==$tensorflow" --no-emit-package tensorflow-cpu --output-file "$lock"
  compile_for "$python" x86_64 "tensorboard>=${tensorflow%.*},<=$tensorflow" --constraints "$lock" \
    --output-file "$board"
  # One lock serves both kinds of machines: this fails if a version has no wheel for the other kind.
  compile_for "$python" aarch64 "tensorflow==$tensorflow" --constraints "$lock" --output-file "$2/aarch64"
  compile_for "$python" aarch64 "tensorboard" --constraints "$board" --output-file "$2/aarch64"
  rm "$2/aarch64"
}

# lock_cuda FOLDER TENSORFLOW: the CUDA libraries of the GPU wheel, the same for every Python.
lock_cuda() {
  local known=() name
  for name in tensorflow $(sed -n 's/^\([A-Za-z0-9._-]*\)==.*/\1/p' "$1/python$LEADING.txt"); do
    known+=(--no-emit-package "$name")
  done
  compile_for $LEADING x86_64 "tensorflow[and-cuda]==$2" --constraints "$1/python$LEADING.txt" "${known[@]}" \
    --output-file "$1/cuda.txt"
}

lock_hosts() {
  local tensorflow python name pieces=roles/package_store/files
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  tensorflow=$(environment environment.TENSORFLOW_VERSION)
  for name in "$(grep -o 'uv==[0-9.]*' pyproject.toml)" "tensorflow==$tensorflow" "tensorflow-cpu==$tensorflow"; do
    compile_for $LEADING x86_64 "$name" --no-deps --output-file "$folder/${name%==*}.txt"
  done
  mv "$folder/uv.txt" "$folder/installer.txt"
  lock_python $LEADING "$folder" "$tensorflow"
  for python in $(environment "*environment.SUPPORTED_PYTHONS"); do
    [[ $python == "$LEADING" ]] || lock_python "$python" "$folder" "$tensorflow"
  done
  lock_cuda "$folder" "$tensorflow"
  rm -f $pieces/*.txt
  mv "$folder"/*.txt $pieces/
}

case ${1:-all} in
  controller) lock_controller ;;
  hosts) lock_hosts ;;
  all)
    lock_controller
    lock_hosts
    ;;
  *) sed -n '2,5s/^# //p' "$0" && exit 64 ;;
esac
