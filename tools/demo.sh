#!/usr/bin/env bash
# From nothing to a proven run on three practice hosts of this machine.
# usage: tools/demo.sh [MODEL]; with ANSIBLE_VERBOSITY=1 it shows every task
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PWD/.venv/bin:$PATH

model=${1:-}
settings=(${model:+-e "trainer_model=$model"})
# A model with tables needs many examples. Batches of 100 would spend most of the time on messages.
[ "$model" != wide_deep ] || settings+=(-e trainer_batch_size=512)
times=()

step() {
  local what=$1 begin=$SECONDS
  shift
  printf '\n== %s: %s\n' "$what" "$*"
  "$@" || {
    local code=$?
    printf '\n== %s failed after %d s. Mend what it says and type "make demo" again: it goes on with what is there.\n' \
      "$what" $((SECONDS - begin)) >&2
    exit "$code"
  }
  times+=("$what $((SECONDS - begin)) s")
}

step "practice hosts" ansible-playbook -i localhost, playbooks/practice_up.yml
step deploy ansible-playbook -i inventory/practice deploy.yml
step train ansible-playbook -i inventory/practice train.yml "${settings[@]}"
[ "$model" != wide_deep ] || step export ansible-playbook -i inventory/practice export.yml

joined=$(printf ', %s' "${times[@]}")
cat <<END

== done in $SECONDS s: ${joined:2}

What next (\`. .venv/bin/activate\` first):
  ansible-playbook -i inventory/practice train.yml -e trainer_model=linear    another run
  ansible-playbook -i inventory/practice verify.yml                           the verdict on the last run, again
  ssh -F /dev/null -i inventory/practice/.ssh/id_ed25519 -o UserKnownHostsFile=inventory/practice/.ssh/known_hosts root@$(
  ansible-inventory -i inventory/practice --host node1 | sed -n 's/.*"ansible_host": "\(.*\)".*/\1/p'
)    look around on node1
  make demo-down                                                              remove the hosts
END
