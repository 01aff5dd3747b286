"""Shows people the state of hosts and runs: the live block of train.yml, the tables of other playbooks.

Most of it is pure functions of hosts' answers, drawn by rich; only `screen` and `console` use the terminal.
"""
