"""What the other subpackages share: messages, files, the hub, and the first cell of a notebook.

    messages   sentences of errors, numbers and plurals, and tables in Markdown
    folders    files and folders that are never half-written, and the check of a model's folder
    hub        data sets and weights of the Hugging Face hub, with what to do without a network
    shipped    recorded results, experiments and drawings that come with the library
    opening    the first cell of every notebook

Notebook 00 begins with `open_notebook`. Data sets, models and training do not belong here.
"""
