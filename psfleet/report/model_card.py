"""The card of an exported model for people: what it is, where it comes from, and how to call it."""

from collections.abc import Iterator, Mapping
from typing import Any

from psfleet.evidence.exported_model import ModelExport
from trainer.contract.export import SIGNATURE
from trainer.host.wording import readable


def model_card(exported: ModelExport, verdict: str, name: str, checkpoint: str) -> str:
    """Return the text of the README.md of an export, in Markdown.

    `name` is the name of the model, `checkpoint` the name of its checkpoint, and `verdict` the verdict on its
    run.
    """
    return "\n".join(_lines(exported, verdict, name, checkpoint)) + "\n"


def _lines(exported: ModelExport, verdict: str, model: str, checkpoint: str) -> Iterator[str]:
    card, folder = exported.card, f"runs/{exported.card['run_id']}/export"
    checked, size = card["checked"], readable(exported.bytes)
    yield f"# {model}, trained in run {card['run_id']}"
    yield ""
    yield f"A TensorFlow SavedModel of {size}: psfleet trained and exported it. It needs TensorFlow alone."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| model | `{model}` |"
    yield f"| run | `{card['run_id']}` |"
    yield f"| verdict on the run | {verdict} |"
    yield f"| global step | {card['global_step']} |"
    yield f"| checkpoint | `{checkpoint}` |"
    yield f"| fingerprint of the checkpoint | `{card['fingerprint']}` |"
    yield f"| fingerprint of the variables here | `{card['variables_fingerprint']}` |"
    yield f"| release of psfleet's trainer | `{card['release'] or 'unknown'}` |"
    yield f"| TensorFlow | {card['tensorflow']} |"
    for name, value in sorted(card["metrics"].items()):
        shown = "not finite" if value is None else f"{value:.6g}"
        yield f"| {name.replace('_', ' ')}, on {card['examples']} test examples | {shown} |"
    yield ""
    yield "## Call it"
    yield ""
    yield "    import tensorflow as tf"
    yield f"    serve = {exported.loading_line(folder)}"
    given = ", ".join(
        f"{name}=tf.zeros({_example(its)}, {its['dtype']!r})" for name, its in card["inputs"].items()
    )
    yield f"    print(serve({given}))"
    yield ""
    yield f"| `{SIGNATURE}` | name | type | shape |"
    yield "|---|---|---|---|"
    for part in ("inputs", "outputs"):
        for name, its in card[part].items():
            yield f"| {part.removesuffix('s')} | `{name}` | {its['dtype']} | {_shape(its)} |"
    yield ""
    yield "A size that is free is `any`. TensorFlow Serving takes this folder as a version of a model, such"
    yield f"as `/models/{model}/1`."
    yield ""
    yield "## How it was checked"
    yield ""
    yield "A process that knew TensorFlow and not psfleet loaded it, before it was collected. Each variable"
    yield "had the bits of the checkpoint. Its outputs, for some examples together and for the first one"
    yield "alone, were those of the trainer's own graph:"
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| examples | {checked['examples']} |"
    yield f"| largest difference, by the largest number in the output | {checked['largest_difference']:.2g} |"
    yield f"| allowed: eight times the last bit of a float32 | {checked['bound']:.2g} |"
    yield ""
    yield "`export.json` has the same facts, and the SHA-256 of each file."


def _example(tensor: Mapping[str, Any]) -> str:
    """Return the shape of a request with one example, as text; sizes that are free are 1.

    Example: _example({"shape": [None, 4]}) -> "[1, 4]"
    """
    return str([1 if size is None else size for size in tensor["shape"] or []])


def _shape(tensor: Mapping[str, Any]) -> str:
    shape = tensor["shape"]
    return (
        "any" if shape is None else f"[{', '.join('any' if size is None else str(size) for size in shape)}]"
    )
