"""The command line: `mmlkit doctor`, `run`, `reproduce`, `report`, `bench`, `predict`, `submit`.

    main      the parser and the commands
    machine   what this machine has, and how fast it is

Notebooks do not use it. Work that a notebook could call as a function does not belong here.
"""
