"""The fence around the tasks' ports, the WireGuard mesh, and which ports of each other hosts reach."""
