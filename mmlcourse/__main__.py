"""`python -m mmlcourse` is `mmlkit`."""

from mmlcourse.cli.main import main

raise SystemExit(main())
