"""What people see of hosts and runs: the live block of train.yml, the tables of status and doctor.

Pure functions over what hosts said, drawn by rich; `screen` and `console` alone know the terminal.
"""
