"""What is brought to hosts and back: wheels and their locks, archives, the files that a run left."""
