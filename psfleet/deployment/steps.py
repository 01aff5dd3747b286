"""The functions that compute the arguments of steps, by the names that playbooks and roles use."""

from collections.abc import Callable, Mapping

from psfleet.deployment import (
    nvidia_cuda,
    package_store,
    port_fence,
    ssh_mesh,
    tensorflow,
    trainer,
    training_files,
    wireguard_mesh,
)
from psfleet.deployment.host import Arguments, Host

_FUNCTIONS = (
    nvidia_cuda.gpus,
    package_store.requirements,
    port_fence.fence,
    ssh_mesh.account_of_login,
    ssh_mesh.account_of_tasks,
    ssh_mesh.files,
    ssh_mesh.identity,
    ssh_mesh.login,
    ssh_mesh.look,
    tensorflow.environment,
    tensorflow.program_environment,
    trainer.files,
    trainer.look,
    trainer.release,
    trainer.units,
    trainer.unneeded,
    training_files.programs,
    wireguard_mesh.interface,
    wireguard_mesh.key,
)

# Such as `trainer.files` -> a function from a host to the arguments of a step: once for each time that the
# host takes it, so an empty list if the host does not need it.
COMPUTED: Mapping[str, Callable[[Host], list[Arguments]]] = {
    f"{function.__module__.rpartition('.')[2]}.{function.__name__}": function for function in _FUNCTIONS
}
