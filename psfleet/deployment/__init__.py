"""What deploy.yml tells each host: the arguments of its steps, computed from plan, variables and answers."""
