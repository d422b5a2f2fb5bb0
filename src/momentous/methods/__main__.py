"""``python -m momentous.methods README.md`` writes the table of methods into a file."""

import re
import sys
from pathlib import Path

from momentous.methods import methods_table

BETWEEN = r"(?<=methods_table\(\) -->\n).*?(?=\n<!-- end of methods)"

if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        text = re.sub(BETWEEN, lambda _: methods_table(), path.read_text(), flags=re.DOTALL)
        path.write_text(text)
