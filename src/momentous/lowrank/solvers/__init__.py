"""Solvers: sweeps as descent maps, gradient methods in a metric, and the two ways of a fit."""
