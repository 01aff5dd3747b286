"""The user's own model, which `trainer_model` names by the path of its file on the controller."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plugins.module_utils.content_directory import content_hash
from psfleet.inventory.problems import InventoryProblem
from trainer.contract.model_card import Card
from trainer.contract.model_files import CardError, is_model_path, read_card
from trainer.contract.settings import RULES

VARIABLE = "trainer_model"


@dataclass(frozen=True)
class OwnModel:
    """A model's file on the controller: its `source`, the `release` that names its content, and its card.

    With `problems`, the release is "" and the card None. Each problem comes with the file to edit, "" for the
    inventory.
    """

    source: Path
    release: str = ""
    card: Card | None = None
    problems: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, source: Path) -> "OwnModel":
        """Return the model in a file without executing it; a model that cannot be used has `problems`.

        A missing file is such a problem. Nothing is raised.
        """
        if not source.is_file():
            what = f"{VARIABLE} is {str(source)!r}, and there is no such file on this machine"
            return cls(source, problems=((f"{what}; expected the file of a model", ""),))
        if not is_model_path(f"/{source.name}"):
            what = f"{VARIABLE} is {str(source)!r}; expected a file with a name of letters, digits and '_'"
            return cls(source, problems=((f"{what}, such as my_model.py", ""),))
        try:
            card = read_card(source)
            unknown = [name for name in card.settings if name not in RULES]
            if unknown:
                what = f"{source}: CARD: settings has {unknown[0]!r}"
                raise CardError([f"{what}; expected names of training settings, as in docs/contracts.md"])
            return cls(source, content_hash(source), card)
        except CardError as error:
            named = ((f"{VARIABLE}: {problem}", f"edit {source}") for problem in error.problems)
            return cls(source, problems=tuple(named))
        except (OSError, ValueError) as error:
            return cls(source, problems=((f"{VARIABLE} is {str(source)!r}: {error}", ""),))

    def on_hosts(self, install_directory: str) -> str:
        """Return the absolute path to which deploy.yml carries the file on the hosts.

        Example: "/opt/psfleet/programs/<release>/my_model.py"
        """
        return f"{install_directory}/programs/{self.release}/{self.source.name}"

    def fact(self) -> dict[str, str]:
        """Return the fields `name`, `source` and `release`, as in `models` of the fact `cluster_data`."""
        return {"name": self.source.stem, "source": str(self.source), "release": self.release}

    def inventory_problems(self, hosts: Sequence[str]) -> Iterator[InventoryProblem]:
        """Yield the `problems` as problems of trainer_model; `hosts` are the hosts that have it."""
        for what, cure in self.problems:
            yield InventoryProblem(what, VARIABLE, tuple(hosts), cure=cure)
