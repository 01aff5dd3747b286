"""What the role training_files tells a host."""

from psfleet.deployment.host import Arguments, Host


def programs(host: Host) -> list[Arguments]:
    """Put the user's programs in place on a host with tasks, each release once; for `content_release`."""
    sources = {program["release"]: program["source"] for program in host.cluster.programs if host.tasks}
    place = {
        "folder": f"{host.cluster.paths['install_directory']}/programs",
        "group": host.values["trainer_user"],
    }
    return [{"source": source, "release": release, **place} for release, source in sources.items()]
