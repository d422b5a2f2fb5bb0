"""`python -m momentous.methods PAGE` writes the table of methods into a page."""

import re
import sys
from pathlib import Path

from momentous.io.atomic import write_text
from momentous.methods.registry import methods_table

BETWEEN = r"(?<=methods_table\(\) -->\n).*?(?=\n<!-- end of methods)"

if __name__ == "__main__":
    for name in sys.argv[1:]:
        text = Path(name).read_text()
        write_text(name, re.sub(BETWEEN, lambda _: methods_table(), text, flags=re.DOTALL))
