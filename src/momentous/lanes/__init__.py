"""Many problems at once, each in a lane of its own."""
