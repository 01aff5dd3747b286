"""Renders the templates of the module `files` on the controller, and checks what the host answers."""

from collections.abc import Mapping
from typing import Any

from ansible.plugins.loader import lookup_loader

from ..plugin_utils.actions import HostAction


class ActionModule(HostAction):
    """Takes the arguments of the module, and renders each `src` as Ansible's module `template` does."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        files = [self._with_content(file) for file in arguments.get("files", [])]
        return self._take("files", {**arguments, "files": files})

    def _with_content(self, file: Mapping[str, Any]) -> dict[str, Any]:
        """Return the file with its `content` in place of `src` and `vars`."""
        rendered = dict(file)
        if "src" in rendered:
            template = lookup_loader.get(
                "ansible.builtin.template", loader=self._loader, templar=self._templar
            )
            further = rendered.pop("vars", {})
            (rendered["content"],) = template.run(
                [rendered.pop("src")], self.variables, template_vars=further
            )
        return rendered
