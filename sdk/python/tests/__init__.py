"""`python3 -m unittest discover`, in the package's directory. The package need not be installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
