"""Renders a template of a role with the variables of the task."""

from pathlib import Path
from typing import Any

from ansible.plugins.lookup import LookupBase
from ansible.template import trust_as_template

DOCUMENTATION = r"""
name: role_template
short_description: Render a template of one of psfleet's roles
description:
  - P(ansible.builtin.template#lookup) copies all variables of the host first, with all that is known of every
    task of the plan, which takes longer than to render. This one does not.
  - The template is found wherever the task is that asks for it. It may include others of its folder.
  - All options but O(_terms) are more variables of the template.
options:
  _terms: {type: list, elements: str, required: true, description: "Each as C(ROLE/NAME.j2)."}
"""

EXAMPLES = r"""
content: "{{ lookup('psfleet.cluster.role_template', 'trainer/task.service.j2', job='ps') }}"
"""

RETURN = r"""
_raw: {type: list, elements: str, description: What each template makes.}
"""

ROLES = Path(__file__).resolve().parents[2] / "roles"


class LookupModule(LookupBase):
    """The class that Ansible loads."""

    def run(self, terms: list[str], variables: Any = None, **options: Any) -> list[str]:  # noqa: ANN401
        """Return the rendered templates."""
        rendered = []
        for term in terms:
            role, name = term.split("/")
            folder = ROLES / role / "templates"
            templar = self._templar.copy_with_new_env(
                searchpath=[str(folder)], available_variables={**variables, **options}
            )
            text = trust_as_template((folder / name).read_text(encoding="utf-8"))
            rendered.append(str(templar.template(text, escape_backslashes=False)))
        return rendered
