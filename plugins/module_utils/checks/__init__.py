"""Host checks: what doctor.yml and deploy.yml ask about a host, with a remedy for each bad answer."""
