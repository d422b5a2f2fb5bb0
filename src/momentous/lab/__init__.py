"""The laboratory: solvers compared, the paper's experiments, report pages."""
