"""The command line: `mmlkit doctor`, `run`, `reproduce`, `report`, `bench`, `predict` and others.

    arguments   the options of every command, and the parser
    main        the commands
    machine     hardware, packages and speed of this machine

Notebooks do not use it. Work that a notebook could call as a function does not belong here.
"""
