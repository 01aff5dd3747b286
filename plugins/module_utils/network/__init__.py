"""The fence around the tasks' ports, the WireGuard mesh, and what hosts reach of each other."""
