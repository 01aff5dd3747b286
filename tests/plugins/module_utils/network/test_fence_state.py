"""The state of a host's fence, and the messages if it differs from the deployed one."""

import json
import os
import pwd
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.module_utils.host.check import Finding
from plugins.module_utils.network.fence_rules import Endpoint, Fence, ruleset
from plugins.module_utils.network.fence_state import (
    RECORD,
    RULES,
    FenceError,
    UnknownUserError,
    changes,
    fence_finding,
    fence_problem,
    read_resolvers,
    survey,
)
from tests.networks import Networks

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes networks")
OWN, OTHER = Endpoint("here", "localhost", 2222), Endpoint("there", "10.77.0.2", 2222)
ASKED = Fence("here", "nobody", (OWN, OTHER))


@pytest.fixture
def networks() -> Iterator[Networks]:
    made = Networks({"here": ("10.77.0.1", "fd77::1")})
    yield made
    made.close()


def test_a_survey_finds_the_user_the_names_and_the_resolvers() -> None:
    found = survey(ASKED)
    assert found.uid == pwd.getpwnam("nobody").pw_uid
    assert [*found.names] == ["localhost"]
    assert "127.0.0.1" in found.names["localhost"]
    assert found.resolvers == read_resolvers()
    numbers = survey(replace(ASKED, tasks=(OTHER,)))
    assert (numbers.names, numbers.resolvers) == ({}, ())


@as_root
def test_an_unknown_user_or_an_unusable_address_is_refused(networks: Networks) -> None:
    with pytest.raises(UnknownUserError, match=r"^this host has no user no-such-user$"):
        survey(replace(ASKED, user="no-such-user"))
    with pytest.raises(
        FenceError, match=r"^localhost \(of there\) is \S+, which is here itself: correct /etc/hosts"
    ):
        survey(replace(ASKED, tasks=(OTHER._replace(address="localhost"),)))
    with (
        networks.inside("here"),
        pytest.raises(FenceError, match=r"^its address in the plan is localhost, a loopback"),
    ):
        survey(replace(ASKED, tasks=(OWN, OTHER._replace(address="192.0.2.1"))))
    told = (
        "^trainer_program_may_reach names no-such-host.invalid, which this host cannot resolve; expected "
        "names"
    )
    with pytest.raises(FenceError, match=told):
        survey(replace(ASKED, may_reach=("localhost:1", "no-such-host.invalid:443")))


@pytest.mark.parametrize(
    ("text", "resolvers"),
    [
        (
            "# nameserver 10.0.0.9\nnameserver 10.0.0.2\nsearch x\n nameserver\tfe80::1%eth0 #\n",
            ("10.0.0.2", "fe80::1"),
        ),
        ("nameserver\nnameserver none\noptions edns0\n", ("127.0.0.1",)),
    ],
)
def test_resolvers_are_read_from_resolv_conf(text: str, resolvers: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/resolv.conf").write_text(text)
    assert read_resolvers(tmp_path) == resolvers


def test_a_change_since_the_deployment_is_shown_with_both_values() -> None:
    then = replace(ASKED, uid=998, names={"a": ("10.0.0.1",), "b": ("10.0.0.2",)}, resolvers=("10.0.0.53",))
    then = replace(then, own=("10.0.0.1",))
    assert changes(then, then) == ""
    now = replace(then, uid=999, names={"a": ("10.0.0.1", "10.0.0.7"), "b": ()}, resolvers=("127.0.0.53",))
    now = replace(now, own=("10.0.0.7",))
    assert changes(then, now) == (
        "a was 10.0.0.1 when deploy.yml ran, and is 10.0.0.1, 10.0.0.7 now; b was 10.0.0.2 when deploy.yml "
        "ran, and is not known now; its name servers were 10.0.0.53, and are 127.0.0.53 now; the other "
        "hosts reached it at 10.0.0.1 when deploy.yml ran, and reach it at 10.0.0.7 now; user nobody had the "
        "number 998, and has 999 now"
    )


def deploy(configuration: Path, fence: Fence) -> None:
    (configuration / RECORD).write_text(json.dumps(fence.to_json()))
    (configuration / RULES).write_text(ruleset(fence))


@as_root
def test_a_fence_that_is_not_as_deployed_is_reported_with_the_reason(
    networks: Networks, tmp_path: Path
) -> None:
    with networks.inside("here"):
        fence, rules = survey(ASKED), tmp_path / RULES

    def problem() -> str:
        with networks.inside("here"):
            return fence_problem(tmp_path)

    assert problem() == "deploy.yml has set up no fence there"
    deploy(tmp_path, fence)
    assert problem() == "the table inet psfleet is not there"
    networks.run("nft", "--file", str(rules), at="here")
    assert problem() == ""
    rules.write_text(ruleset(fence).replace("goto refused", "accept"))
    assert problem() == f"{rules} is not what deploy.yml wrote"
    moved = replace(fence, names={"localhost": ("10.77.0.9",)})
    deploy(tmp_path, moved)
    networks.run("nft", "--file", str(rules), at="here")
    assert problem().startswith("localhost was 10.77.0.9 when deploy.yml ran, and is 127.0.0.1")
    deploy(tmp_path, replace(fence, user="no-such-user"))
    assert problem() == "this host has no user no-such-user"
    (tmp_path / RECORD).write_text(json.dumps({**fence.to_json(), "may_reach": ["10.0.0.1; accept"]}))
    assert problem() == "deploy.yml has set up no fence there"


@as_root
def test_the_doctors_check_depends_on_the_wanted_and_deployed_fence(
    networks: Networks, tmp_path: Path
) -> None:
    with networks.inside("here"):
        deploy(tmp_path, survey(ASKED))

    def check(*, wanted: bool = True, deployed: bool = True) -> Finding:
        with networks.inside("here"):
            return fence_finding(tmp_path, wanted=wanted, deployed=deployed)

    assert check(deployed=False) == ("skipped", "not deployed", "")
    assert check(wanted=False) == ("skipped", "port_fence_enabled is false", "")
    assert check() == (
        "failed",
        "the ports of its tasks are not fenced as deployed: the table inet psfleet is not there",
        "run `ansible-playbook deploy.yml`",
    )
    networks.run("nft", "--file", str(tmp_path / RULES), at="here")
    assert check() == ("ok", "it is in force as deployed", "")
