"""Files, tables and queries of ratings: where they lie, how they are written, what is wrong."""
