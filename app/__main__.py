"""`python -m app` is `geogp`."""

import sys

from app.cli import main

sys.exit(main())
