#!/usr/bin/env bash
# Write requirements/*.txt anew from pyproject.toml: every package with its hashes, for Python 3.11 and 3.12.
# No header and no annotations: they would name the index and the folder of whoever ran this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

compile() {
  .venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
    --no-header --no-emit-index-url --no-emit-find-links pyproject.toml "$@"
}
compile --output-file requirements/controller.txt
compile --group dev --output-file requirements/dev.txt
