"""Deterministic simulation of the vote pipeline: the shipped code over fakes that behave as badly as the services may.

    make simulate SEEDS=10000           all cores, the failing seeds are listed
    make simulate SEED=17               one seed again, with its event log
    make simulate ARGS=--planted        find the first seed that catches each planted bug

`world` holds one run together; `traffic` votes and administers; `processes` runs functions and workers, `chaos` harms
them; `truth` watches the store and Pub/Sub, and `oracles` judges by that alone. Nothing here reads a worker's memory.
`bugs` lists the planted bugs, `planted` looks for the seeds that catch them.
"""
