"""The core: arrays, oracle, memories, the loop.  It knows nothing of any method."""
