"""What each task of a run is told, who leads it, and whether it starts, goes on or is refused."""
