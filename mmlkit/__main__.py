"""`python -m mmlkit` is `mmlkit`."""

from mmlkit.cli.main import main

raise SystemExit(main())
