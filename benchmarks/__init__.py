"""`make bench` compares the trainer with other programs, all in one run on one machine."""
