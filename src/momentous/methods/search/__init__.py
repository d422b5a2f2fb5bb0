"""How far to go: line searches, the noise of values, and a first guess of the curvature."""
