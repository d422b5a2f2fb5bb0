"""Solvers: sweeps as descent maps, certificates, and the two ways of a fit."""
