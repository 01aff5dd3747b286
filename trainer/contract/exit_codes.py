"""The exit codes of a task, which tell systemd how it ended; they follow sysexits.h where that fits.

The codes in `NO_RESTART` stand for failures that a restart cannot mend. The units list them in
`RestartPreventExitStatus=`.
"""

FINISHED = 0
USAGE = 64
DIVERGED = 65
INPUT = 66
PEERS_MISSING = 69
PROGRAM = 70
OUT_OF_MEMORY = 71
CLUSTER_BROKE = 75
GIVEN_UP = 76
CONFIGURATION = 78
STOPPED = 143  # a shell's exit code for a process that SIGTERM ended

NO_RESTART = (
    *(USAGE, DIVERGED, INPUT, PEERS_MISSING),
    *(PROGRAM, OUT_OF_MEMORY, GIVEN_UP, CONFIGURATION),
)

# How systemd treats exit codes: after "no_restart" it does not restart the task; after "ended" the task has
# ended for good; "stopped" is the code of a task that was stopped.
UNIT_CODES = {"no_restart": NO_RESTART, "ended": (FINISHED, *NO_RESTART), "stopped": (STOPPED,)}

# Exit code -> the `class` of a `failed` record.
FAILURE_CLASSES = {
    USAGE: "usage",
    DIVERGED: "diverged",
    INPUT: "input",
    PEERS_MISSING: "peers_missing",
    PROGRAM: "program",
    OUT_OF_MEMORY: "out_of_memory",
    CLUSTER_BROKE: "cluster_broke",
    GIVEN_UP: "given_up",
    CONFIGURATION: "configuration",
}
