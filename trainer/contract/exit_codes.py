"""How a task ends, told to systemd by its exit code (numbers of sysexits.h where they fit).

Codes in `NO_RESTART` name what running again cannot mend; the units list them in `RestartPreventExitStatus=`.
"""

FINISHED = 0
USAGE = 64
DIVERGED = 65
INPUT = 66
PEERS_MISSING = 69
PROGRAM = 70
CLUSTER_BROKE = 75
CONFIGURATION = 78
STOPPED = 143  # what a shell says of a process that SIGTERM has ended

NO_RESTART = (USAGE, DIVERGED, INPUT, PEERS_MISSING, PROGRAM, CONFIGURATION)

# The `class` of a `failed` record.
FAILURE_CLASSES = {
    USAGE: "usage",
    DIVERGED: "diverged",
    INPUT: "input",
    PEERS_MISSING: "peers_missing",
    PROGRAM: "program",
    CLUSTER_BROKE: "cluster_broke",
    CONFIGURATION: "configuration",
}
