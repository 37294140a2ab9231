# The batch, as Snakemake sees it. `mmlkit reproduce` writes the configuration and calls this file; a mark says that a run has ended
# well. The results themselves are none of Snakemake's files, so it never deletes one.
rule all:
    input: expand("marks/{run}", run=config["runs"])

rule run:
    output: touch("marks/{run}")
    wildcard_constraints: run="[^/]+"
    retries: 1
    threads: config["threads"]
    resources: **config["resources"]
    params: python=config["python"], folder=config["folder"]
    shell: "{params.python:q} -W ignore -m mmlkit.batch.runs {params.folder:q} {wildcards.run:q}"
