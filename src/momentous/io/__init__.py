"""Files in and out: atomic writes, one archive format, optional packages."""
