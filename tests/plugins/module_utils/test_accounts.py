import pwd

from plugins.module_utils.accounts import accounts_finding, read_accounts

NAMES = {"psfleet": "trainer_user", "daemon": "ssh_mesh_user", "nobody": "trainer_user"}


def account(name: str, comment: str) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", 1001, 1001, comment, f"/home/{name}", "/bin/bash"))


def test_an_account_that_psfleet_did_not_create_is_refused_with_the_variable_that_names_it() -> None:
    found = read_accounts(NAMES)
    assert found == {"daemon": pwd.getpwnam("daemon"), "nobody": pwd.getpwnam("nobody")}
    finding = accounts_finding(NAMES, found)
    assert finding.state == "failed"
    assert finding.found.startswith(
        "ssh_mesh_user is daemon, an account that psfleet did not create (uid 1, home"
    )
    assert "; trainer_user is nobody, an account" in finding.found
    assert "give ssh_mesh_user a name that no account of the host has" in finding.remedy


def test_an_account_that_psfleet_created_and_a_missing_account_pass() -> None:
    names = {"lab": "trainer_user", "lab-ssh": "ssh_mesh_user"}
    assert accounts_finding(names, {"lab": account("lab", "psfleet trainer")}) == ("ok", "lab, lab-ssh", "")
    for comment in ("", "Alice,,,", "psfleeting", "psfleet", "x psfleet trainer"):
        assert accounts_finding(names, {"lab": account("lab", comment)}).state == "failed", comment
