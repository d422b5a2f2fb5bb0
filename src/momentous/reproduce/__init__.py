"""The paper's experiments: tuned, run, recorded, and shown beside what the paper says of them."""
