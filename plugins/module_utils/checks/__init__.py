"""Host checks: what doctor.yml and deploy.yml ask a host, and what helps if the answer is bad."""
