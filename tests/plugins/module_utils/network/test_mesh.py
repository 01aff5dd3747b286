"""The input of wg-quick and the output of `wg`; Molecule's scenario mixed has a real mesh."""

from plugins.module_utils.network.mesh import KEY, mesh_problem
from tests.roles.rendered import template_of

OWN, B, C, OTHER = (letter * 42 + "A=" for letter in "abcd")
HOSTS = {
    "a": {"address": "fd00::a", "endpoint": "10.0.0.1", "public_key": OWN},
    "b": {"address": "fd00::b", "endpoint": "10.0.0.2", "public_key": B},
    "c": {"address": "fd00::c", "endpoint": "[2001:db8::3]", "public_key": C},
}
CONFIGURED = template_of(
    "wireguard_mesh",
    "psfleet-mesh.conf.j2",
    inventory_hostname="a",
    cluster_mesh={"port": 51820},
    __wireguard_mesh_known={"hosts": HOSTS},
    __wireguard_mesh_own=HOSTS["a"],
    __wireguard_mesh_directory="/etc/psfleet/mesh",
)


def dumped(*peers: tuple[str, str], key: str = OWN, port: int = 51820) -> str:
    """What `wg show psfleet dump` of wireguard-tools 1.0.20210914 prints."""
    lines = [f"{OTHER}\t{key}\t{port}\toff"]
    lines += [f"{peer}\t(none)\t10.0.0.9:51820\t{allowed}\t1763\t9\t9\toff" for peer, allowed in peers]
    return "\n".join(lines) + "\n"


AS_CONFIGURED = ((B, "fd00::b/128"), (C, "fd00::c/128"))


def test_each_peer_is_configured_with_its_only_allowed_address() -> None:
    assert CONFIGURED.splitlines()[-6:] == [
        "",
        "# c",
        "[Peer]",
        f"PublicKey = {C}",
        "AllowedIPs = fd00::c/128",
        "Endpoint = [2001:db8::3]:51820",
    ]
    assert CONFIGURED.splitlines()[1:7] == [
        "[Interface]",
        f"# PublicKey = {OWN}",
        "Address = fd00::a/64",
        "ListenPort = 51820",
        "PostUp = wg set %i private-key /etc/psfleet/mesh/key",
        "",
    ]


def test_a_mesh_as_deployed_passes_in_any_order_of_its_peers() -> None:
    assert mesh_problem(CONFIGURED, dumped(*AS_CONFIGURED)) == ""
    assert mesh_problem(CONFIGURED, dumped(*AS_CONFIGURED[::-1])) == ""


def test_a_mesh_that_differs_from_its_deployment_is_reported() -> None:
    assert mesh_problem(CONFIGURED, "") == "WireGuard's interface psfleet is not there"
    others = "WireGuard's interface psfleet has other peers than were deployed: "
    assert mesh_problem(CONFIGURED, dumped(AS_CONFIGURED[0])) == f"{others}c"
    assert mesh_problem(CONFIGURED, dumped(AS_CONFIGURED[0], (C, "fd00::c/128,::/0"))) == f"{others}c"
    strange = (OTHER, "fd00::d/128")
    assert (
        mesh_problem(CONFIGURED, dumped(*AS_CONFIGURED, strange)) == f"{others}a peer that is not in the plan"
    )
    own = "WireGuard's interface psfleet has another key or port"
    assert mesh_problem(CONFIGURED, dumped(*AS_CONFIGURED, key=B)) == own
    assert mesh_problem(CONFIGURED, dumped(*AS_CONFIGURED, port=4500)) == own
    assert mesh_problem("", dumped()) == own


def test_only_a_valid_wireguard_key_matches() -> None:
    """32 bytes in base64 end in one of 16 characters, and a `=`."""
    assert KEY.fullmatch("ONyTVpLcebN7i6ft5bjz+FAybwmoS/6l415Pbz3oB3U=")
    for wrong in ("", "x", "A" * 44, "A" * 42 + "B=", f"{OWN}\n", f"{OWN}\n[Peer]", "-" * 42 + "A="):
        assert not KEY.fullmatch(wrong)
