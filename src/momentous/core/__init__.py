"""The core: arrays, oracle, states, the loop.  It knows nothing of any method."""
