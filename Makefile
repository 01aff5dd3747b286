# Type `make` to list the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PSFLEET_PYTHON
# Without compiled modules every import of TensorFlow takes 7 s instead of 4.
unexport PYTHONDONTWRITEBYTECODE

CACHE := $(or $(PSFLEET_CACHE),$(HOME)/.cache/psfleet)
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
PRACTICE := ansible-playbook -i localhost,

.PHONY: help setup setup-dev lock docs demo demo-down adversaries mutants fuzz test lint sanity unit molecule slow matrix bench bench-scale bench-deploy chaos faults soak clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r target what; do \
	  printf '  make %-12s %s\n' "$$target" "$$what"; done

setup: ## Install the controller's requirements: Debian packages, and .venv with Ansible
	@tools/bootstrap.sh controller
	@[ "$(MAKECMDGOALS)" != setup ] || echo "Next: . .venv/bin/activate, an inventory (README.md), ansible-playbook doctor.yml"

setup-dev: ## Install the tests' requirements, too
	@tools/bootstrap.sh dev

lock: setup ## Write all locks again: requirements/*.txt, and the hosts' in roles/package_store/files
	@tools/lock.sh

docs: setup ## Write the generated parts of pages and roles: tables of settings and checks
	@python -m tools.written_docs

demo: setup ## Create three practice hosts, deploy, train, and prove the run (MODEL=linear: a line; MODEL=wide_deep: tables of clicks, with an export)
	@tools/demo.sh $(MODEL)

demo-down: setup ## Remove the practice hosts of `make demo` and their inventory
	@$(PRACTICE) playbooks/practice_down.yml

test: setup-dev ## Run all tests in parallel: lint, unit, molecule
	@tools/run_tests.py lint unit molecule

lint: setup-dev ## Check the style of all files
	@tools/run_tests.py lint

sanity: setup-dev ## Run Ansible's own tests of collections, which lint runs, too
	@tools/sanity.py

unit: setup-dev ## Run pytest
	@tools/run_tests.py unit

molecule: setup-dev ## Run the Molecule scenarios on container hosts
	@tools/run_tests.py molecule

slow: setup-dev ## Run the scenarios that `make test` leaves out: WHAT="replication kinds security", scale (40 GB of disk), cuda (3.4 GB of libraries), tensorflows (VERSIONS="2.12.1 2.15.1")
	@tools/run_tests.py $(or $(WHAT),replication kinds security)

matrix: setup-dev ## Deploy and train with each ansible-core that is accepted (2.19, 2.20, 2.21), which `make test` leaves out
	@python tools/matrix.py $(VERSIONS)

bench: setup-dev ## Measure the trainer beside other ways to train, ROUNDS times (3), and write benchmarks/results.*
	@$(if $(AS_ROOT),unshare --map-root-user) python -m benchmarks $(if $(ROUNDS),--rounds=$(ROUNDS))

bench-scale: setup-dev ## Measure more and more workers with a part of a core each, and write benchmarks/scaling.* (MODELS=cnn WORKERS=1,8 LINKS=200)
	@$(AS_ROOT) "$(CURDIR)/.venv/bin/python" -m benchmarks.scaling $(if $(MODELS),--models=$(MODELS)) \
	  $(if $(WORKERS),--workers=$(WORKERS)) $(if $(LINKS),--links=$(LINKS)) $(if $(ROWS),--rows=$(ROWS)) \
	  $(if $(SHARE),--share=$(SHARE)) $(if $(ROUNDS),--rounds=$(ROUNDS))

bench-deploy: setup-dev ## Measure deployments of practice hosts (HOSTS=3,12), and write benchmarks/deployment.*
	@python -m benchmarks.deployment $(if $(HOSTS),--hosts=$(HOSTS))

chaos: setup-dev ## Run the tests that wait for deadlines to pass, and more real runs, which `make test` leaves out
	@python -m pytest -m chaos

mutants: setup-dev ## Break the code in small ways, and count the changes that tests notice (OF=room or file)
	@nice tools/mutants.py $(OF)

faults: setup-dev ## Inject each fault into a run of its own, in a random order, and write a table (ROWS="F1 F3": only these rows of it; SEED=7)
	@python -m tests.faults $(ROWS) $(if $(SEED),--seed=$(SEED))

soak: setup-dev ## Train under random faults: MINUTES=20, a fault EVERY=30 seconds, SEED=7, LINKS=100
	@python -m tests.faults.soak $(if $(MINUTES),--minutes=$(MINUTES)) $(if $(EVERY),--every=$(EVERY)) \
	  $(if $(LINKS),--links=$(LINKS)) $(if $(SEED),--seed=$(SEED))

fuzz: setup-dev ## Damage hosts' answers and read them, for SECONDS (600); inputs that crash psfleet stay in tests/fuzz/found
	@nice python -m tests.fuzz $(or $(SECONDS),600)

adversaries: setup-dev ## Train and damage the runs that try to fool the verdict, and print the verdict on each
	@python -m tests.psfleet.evidence.adversaries

clean: ## Remove .venv, test results and the caches that clones share (not runs/, not a cluster's SSH authority)
	rm -rf .venv .state/molecule .state/matrix .state/tensorflows .state/ephemeral .state/logs .state/setup.lock .ansible .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf "$(CACHE)/images" "$(CACHE)/wheels" "$(CACHE)/locks" "$(CACHE)/carried" "$(CACHE)/ansible-test"
	$(AS_ROOT) rm -rf "$(CACHE)/environments"
	@! command -v podman >/dev/null || \
	  $(AS_ROOT) podman image prune --all --force --filter label=psfleet.image=practice
