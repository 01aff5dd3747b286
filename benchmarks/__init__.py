"""`make bench`: the trainer beside the programs that it is compared with, in one run on one machine."""
