"""Renders the templates of roles, with explicit values only."""

from functools import cache
from shlex import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from psfleet.deployment.host import PROJECT

# The roles whose templates are rendered here; Ansible itself renders those of others.
_ROLES = ("port_fence", "ssh_mesh", "trainer", "wireguard_mesh")


def rendered(template: str, **values: object) -> str:
    """Return a rendered template, such as `trainer/task.service.j2`. It may include others of its role.

    Raises jinja2.UndefinedError if the template needs another value.
    """
    role, name = template.split("/")
    return _environment(role).get_template(name).render(values)


def role_file(file: str) -> str:
    """Return the text of a file of a role, such as `trainer/gpu.conf`."""
    role, name = file.split("/")
    return (PROJECT / "roles" / role / "files" / name).read_text(encoding="utf-8")


def compile_templates() -> None:
    """Compile all templates, so that processes which are forked later need not."""
    for environment in map(_environment, _ROLES):
        for name in environment.list_templates():
            environment.get_template(name)


@cache
def _environment(role: str) -> Environment:
    """Return the environment of a role's templates, with Ansible's rules for blanks."""
    environment = Environment(
        loader=FileSystemLoader(PROJECT / "roles" / role / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - units and configuration, no HTML
    )
    environment.filters["quote"] = quote
    return environment
