"""`python -m trainer`, except that its model `wide_deep` is the model of the workloads with tables."""

import runpy

from benchmarks.programs.embeddings import MODEL
from trainer.model.models import REGISTRY

if __name__ == "__main__":
    REGISTRY[MODEL.name] = MODEL
    runpy.run_module("trainer", run_name="__main__", alter_sys=True)
