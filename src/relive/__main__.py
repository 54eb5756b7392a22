"""`python -m relive`: the command line, where its script is not on the path."""

import sys

from relive.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
