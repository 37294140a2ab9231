"""`python -m mmlkit` is `mmlkit`."""

from mmlkit.cli import main

raise SystemExit(main())
