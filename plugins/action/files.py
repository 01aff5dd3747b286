"""Renders the templates of the module `files` on the controller, and checks the host's answer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.template import trust_as_template

from ..plugin_utils.actions import HostAction


class ActionModule(HostAction):
    """Renders the template of each `src` on the controller, and returns the answer of the module `files`."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        files = [self._with_content(file) for file in arguments.get("files", [])]
        # Ansible writes a module's arguments to the host's journal. A file's content may be secret.
        self.variables = {**self.variables, "ansible_no_target_syslog": True}
        return self._run_module("files", {**arguments, "files": files})

    def _with_content(self, file: Mapping[str, Any]) -> dict[str, Any]:
        """Return an element of `files` with `content`, the rendered text, in place of `src` and `vars`.

        An element without `src` stays as it is.
        """
        rendered = dict(file)
        if "src" in rendered:
            rendered["content"] = self._rendered(rendered.pop("src"), rendered.pop("vars", {}))
        return rendered

    def _rendered(self, source: str, further: Mapping[str, Any]) -> str:
        """Return the rendered text of the template `source`; `further` are more variables for it.

        A variable in `further` replaces the host's variable of the same name. Ansible's lookup `template`
        would copy all variables each time.
        """
        path = Path(self._find_needle("templates", source))
        places = [Path(place) for place in self.variables.get("ansible_search_path", [])]
        folders = [path.parent, *(folder for place in places for folder in (place / "templates", place))]
        templar = self._templar.copy_with_new_env(
            searchpath=[str(folder) for folder in folders],
            available_variables={**self.variables, **further},
        )
        template = trust_as_template(self._loader.get_text_file_contents(str(path)))
        return str(templar.template(template, escape_backslashes=False))
