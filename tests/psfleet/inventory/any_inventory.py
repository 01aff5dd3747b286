"""Random inventories: valid ones, and ones with unusual content."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from psfleet.inventory.ansible_inventory import ROLES
from psfleet.inventory.problems import Unreadable
from psfleet.inventory.reading import Inventory
from psfleet.inventory.variables import HOST_VARIABLES
from tests.psfleet.inventory.inventories import DEFAULTS, RULES
from trainer.contract.model_files import MODELS
from trainer.contract.settings import REPLICATIONS

ROLE_NAMES = sorted(folder.name for folder in ROLES.iterdir())
NAMES = ("node1", "node2", "lan.example", "10.0.0.7", "fd00::7", "A_b-3")
ODD_NAMES = [
    "h5 x",
    "h5\nProxyCommand x",
    "../up",
    "-h",
    "NODE1",
    "ps",
    "x" * 300,
    "ö",
    "a,b",
    "\x1b[2J",
    "7",
]
PORTS = st.integers(65_530, 65_535) | st.integers(2222, 2226)
GPUS = st.lists(st.integers(0, 5), max_size=4, unique=True)
TASK = st.fixed_dictionaries(
    {}, optional={"index": st.integers(0, 4), "port": PORTS, "gpus": GPUS, "batch_size": st.integers(1, 9)}
)
TASKS = st.integers(1, 3) | st.lists(TASK, min_size=1, max_size=3)
DIRECTORY = st.sampled_from(["/srv/mnist", "/opt/other", "/var/lib/own"])
FILE = st.sampled_from(["", __file__])
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "ansible_host": st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1", "FD00:0::1", "node2", "lan.example"]),
    "trainer_address": st.sampled_from(["", "10.1.0.1", "[fd01::1]", "name.example"]),
    "trainer_base_port": PORTS,
    "trainer_ps_port": st.none() | PORTS,
    "trainer_worker_port": st.none() | PORTS,
    "trainer_chief_port": st.none() | PORTS,
    "trainer_evaluator_port": st.none() | PORTS,
    "trainer_ps_tasks": TASKS,
    "trainer_worker_tasks": TASKS,
    "trainer_ps_gpus": GPUS,
    "trainer_worker_gpus": GPUS,
    "trainer_ps_may_use_gpus": st.booleans(),
    "trainer_model": st.sampled_from([*MODELS, "none.py"]),
    "trainer_replication": st.sampled_from(REPLICATIONS),
    "trainer_replicas_to_aggregate": st.none() | st.integers(1, 3),
    "trainer_existing_servers": st.booleans(),
    "trainer_pull_ahead": st.booleans(),
    "trainer_push_every": st.integers(1, 4),
    "trainer_staleness": st.sampled_from(["plain", "damped"]),
    "trainer_ps_recovery": st.sampled_from(["all", "partial"]),
    "trainer_pull_every": st.none() | st.integers(1, 8),
    "trainer_program": FILE,
    "trainer_programs": st.dictionaries(
        st.sampled_from(["mnist", "clicks", "v1.2"]), st.fixed_dictionaries({"path": st.just(__file__)})
    ),
    "trainer_program_arguments": st.lists(st.text(max_size=3), max_size=2),
    "trainer_program_environment": st.dictionaries(st.sampled_from(["A", "TF_CONFIGS"]), st.text(max_size=3)),
    "trainer_environment": st.dictionaries(st.sampled_from(["A", "PATHS"]), st.text("aé\"'\\$%", max_size=3)),
    "trainer_data_source": FILE,
    "trainer_data_dir": DIRECTORY | st.just('/srv/my "data"'),
    "trainer_install_directory": DIRECTORY,
    "trainer_steps": st.integers(1, 10**6),
    "trainer_learning_rate": st.floats(1e-9, 1.0),
    "trainer_threads": st.none() | st.integers(1, 8),
    "trainer_shard_data": st.booleans(),
    "trainer_cluster_name": st.from_regex(r"[a-z][a-z0-9]{0,4}", fullmatch=True),
}
OF_HOSTS = sorted(LIKELY.keys() & (HOST_VARIABLES | {"ansible_host"}))
UNKNOWN = ["program", "trainer_bacth_size", "trainer_", "steps", "trainer_gpus", "colour", "trainer_\n"]
# What a person could write by mistake, and what nobody would.
NUMBERS = [None, True, 0, -1, 1.5, float("nan"), 70_000, 2**63, 16**5000, "7", "many", "9" * 500]
ADDRESSES = [7, 16**5000, "", "fe80::1%eth0", "[fe80::1%a']", "fd00::1", "10.0.0.1:22", "-h", "a b", "\ud800"]
PATHS = [
    "/a b",
    "~no.such.user/x",
    "/" + "x" * 500,
    "/data\x1b[2J",
    "/tmp/x",
    "/a/../b",
    "'\"\\",
    "\0",
    "\ud800",
    7,
]
PARTS = [
    [],
    [0],
    [{"index": 9}],
    [{"port": "x"}, 7],
    {},
    {"a": 1},
    "[0, 0]",
    [{"x\x1b": 7}],
    "{{ x }}",
    [[]],
    [16**5000],
]
PROGRAMS = [
    *PARTS,
    {"": {}},
    {"mnist": None},
    {"mnist": {"path": 7}},
    {7: {"path": "x"}},
    {"a": {"x\x1b": 7}},
]
UNREADABLE = Unreadable("'nowhere'\nis undefined")


def odd_value(name: str) -> st.SearchStrategy[object]:
    """What the variable is hardly ever meant to be."""
    kinds = {
        "programs": PROGRAMS,
        "address": ADDRESSES,
        "_host": ADDRESSES,
        "dir": PATHS,
        "source": PATHS,
        "program": PATHS,
    }
    kinds |= {"tasks": PARTS, "gpus": PARTS, "arguments": PARTS}
    usual = next((values for kind, values in kinds.items() if kind in name), NUMBERS)
    others = [*NUMBERS, *ADDRESSES, *PATHS, *PARTS, UNREADABLE]
    return st.one_of(
        st.sampled_from(usual), st.sampled_from(usual), st.sampled_from(others), st.text(max_size=6)
    )


@st.composite
def any_inventory(draw: st.DrawFn) -> dict[str, Any]:
    """What an inventory holds, for `made`: a good one, as far as that goes, with up to two oddities."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    groups = {
        job: draw(st.lists(st.sampled_from(names), min_size=1, unique=True)) for job in ("ps", "worker")
    }
    of_all = draw(some_of(list(LIKELY)))
    if draw(st.integers(0, 4)) == 0:
        groups["chief"], of_all["trainer_program"] = [names[0]], __file__
    hosts = list(dict.fromkeys(host for members in groups.values() for host in members))
    of_hosts = {host: draw(some_of(OF_HOSTS)) for host in hosts}
    groups = {"all": names, "ungrouped": [], "tf_cluster": hosts, **groups}
    command_line: dict[str, object] = {}
    for kind in draw(st.lists(st.sampled_from(["value", "value", "name", "group", "-e"]), max_size=2)):
        if kind in {"value", "-e"}:
            variables = command_line if kind == "-e" else draw(st.sampled_from([of_all, *of_hosts.values()]))
            name = draw(st.sampled_from([*LIKELY, *LIKELY, *LIKELY, *RULES, *UNKNOWN]))
            variables[name] = draw(odd_value(name))
        elif kind == "name" and of_hosts:
            old, new = (
                draw(st.sampled_from(list(of_hosts))),
                draw(st.sampled_from(ODD_NAMES) | st.text(max_size=4)),
            )
            of_hosts[new] = {"ansible_host": "10.0.0.9", **of_hosts.pop(old)}
            groups = {group: [new if host == old else host for host in groups[group]] for group in groups}
        else:
            groups[draw(st.sampled_from(["ps", "worker", "workers", "x\x1b"]))] = []
    lost = draw(st.sampled_from(["", *groups])) if draw(st.integers(0, 9)) == 0 else ""
    groups.pop(lost, None)
    return {
        "groups": groups,
        "children": [name for name in groups if name not in {"all", "ungrouped", "tf_cluster"}],
        "variables": {
            host: {**of_all, **of_hosts[host], **command_line} for host in groups.get("tf_cluster", ())
        },
        "command_line": command_line,
    }


def some_of(names: list[str]) -> st.SearchStrategy[dict[str, object]]:
    """A few variables with values that they may have."""
    chosen = st.lists(st.sampled_from(names), max_size=4, unique=True)
    return chosen.flatmap(lambda these: st.fixed_dictionaries({name: LIKELY[name] for name in these}))


def made(drawn: Mapping[str, Any]) -> Inventory:
    """The inventory that holds this."""
    return Inventory(**drawn, defaults=DEFAULTS, rules=RULES, roles=ROLE_NAMES)
