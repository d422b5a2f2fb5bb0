"""The paper's experiments: step sizes tuned, methods run and recorded, statements checked."""
