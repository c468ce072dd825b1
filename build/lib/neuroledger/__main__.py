"""`python -m neuroledger` is the command `neuroledger`."""

import sys

from neuroledger.cli import main

sys.exit(main())
